"""A file of six houses and a network that was trained on them for 20 steps, by the command line, once in every process."""

from __future__ import annotations

from pathlib import Path

import pytest
from command_line import SMALL, call, settings

HOUSE = '{"heaters": [[0.1, 0.1, 0.3, 0.4, 200.0], [0.6, 0.5, 0.8, 0.7, -100.0]], "exterior_temperature": 0.5}'


@pytest.fixture(scope="session")
def houses(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "houses.npz"
    outcome = call("data", "generate", "poisson-square", "--out", path, "--num", 6, "--seed", 1)
    assert outcome.code == 0, outcome.err
    return path


@pytest.fixture(scope="session")
def trained(houses: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a finished run of 20 steps with one house for validation every 10 steps."""
    folder = tmp_path_factory.mktemp("runs") / "first"
    often = settings(training_steps=20, training_validate_every=10)
    outcome = call("train", "poisson-square", "--data", houses, "--out", folder, *SMALL, *often, "--validation", 0.2, "--seed", 3)
    assert outcome.code == 0, outcome.err
    return folder


@pytest.fixture(scope="session")
def model(trained: Path) -> Path:
    return trained / "model.safetensors"


@pytest.fixture(scope="session")
def house(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("house") / "house.json"
    path.write_text(HOUSE)
    return path
