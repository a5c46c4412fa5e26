"""Training checks that take minutes: `make verify` runs them."""

from __future__ import annotations

from pathlib import Path

import pytest

from graphelements import build_network, fit, get_task
from graphelements.checkpoints import Checkpoint
from graphelements.configs import with_settings


@pytest.mark.long
def test_the_default_network_learns_the_physics_of_houses_it_has_not_seen(tmp_path: Path) -> None:
    """After 600 steps on 100 houses, more nodes are better, and 7x7 nodes beat P1 finite elements on 3x3."""
    task = get_task("poisson-square")
    for name, num, seed in (("train.npz", 100, 1), ("test.npz", 20, 2)):
        assert list(task.generate(tmp_path / name, num, seed)) == list(range(1, num + 1))
    config = with_settings(task.presets["default"], ["training.steps=600"])
    houses = task.load(tmp_path / "train.npz")
    network = build_network(task.sft, config.network)
    network.fit_normalisation(task.all_of(houses))
    for _ in fit(network, task.batch_of(houses, config, 0), config.training):
        pass
    scores = task.evaluate(Checkpoint(network, config.mesh), task.load(tmp_path / "test.npz"), (2, 3, 4, 7))
    error = {(score.method, score.resolution): score.mse_mean for score in scores}
    assert error["gen", 7] < error["gen", 4] < error["gen", 2] < error["mean", 0]
    assert error["gen", 7] < error["fem", 3]
