"""`graphelements reproduce optimised-meshes`: trials of every house, done once, with a table and figures."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from command_line import call

from graphelements.adaptation import AdaptationConfig
from graphelements.experiments import mesh_summary, optimised_meshes
from graphelements.experiments.optimised_meshes import Work
from graphelements.mesh_growth import GrowthConfig

COMMAND = ("reproduce", "optimised-meshes", "--quick", "--quiet")


@pytest.fixture(autouse=True)
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two generated houses and few, small meshes, in an empty working directory."""
    tiny = Work(1, 2, 1, AdaptationConfig(steps=1), GrowthConfig(changes=2, moves=1))
    monkeypatch.setattr(optimised_meshes, "QUICK", tiny)
    for module in (optimised_meshes, mesh_summary):
        monkeypatch.setattr(module, "STABLE_SIZES", (3,))
    monkeypatch.chdir(tmp_path)


def test_trials_are_done_once_and_summarised(model: Path) -> None:
    outcome = call(*COMMAND, "--model", model)
    assert outcome.code == 0, outcome.err
    folder = Path("results/quick/optimised-meshes")
    name = f"{model.parent.name}.json"
    assert {p.name for p in folder.iterdir()} == {name, "summary.json", "table.md", "errors.png", "meshes.png", "one_house.png"}
    assert (folder / "table.md").read_text() in outcome.out
    saved = json.loads((folder / name).read_text())
    trials = saved["houses"]["generated 1"]
    assert [(t["start"], t["resolution"]) for t in trials] == [
        *(("even", k) for k in (2, 3, 4, 5, 6, 7)),
        *(("inputs", k) for k in (4, 5, 6, 7)),
        ("grown", 3),
    ]
    assert all(len(t["positions"]) == t["nodes"] and t["valid"] for t in trials)
    assert [len(level) for level in trials[5]["coarser"]] == [9, 4]  # behind 7x7
    assert sum(t["start"].startswith("scattered") for t in saved["houses"]["generated 0"]) == 6 * 3
    kinds = json.loads((folder / "summary.json").read_text())["kinds"]
    facts = kinds[model.parent.name]["facts"]
    before = [next(t["before"] for t in found if t["resolution"] == 5) for found in saved["houses"].values()]
    assert facts["even 5x5"]["mean"] == pytest.approx(np.mean(before))
    assert facts["invalid meshes"]["mean"] == 0

    del saved["houses"]["generated 1"]
    (folder / name).write_text(json.dumps(saved))
    first = saved["houses"]["generated 0"]
    assert call(*COMMAND, "--model", model).code == 0
    again = json.loads((folder / name).read_text())["houses"]
    assert again["generated 0"] == first
    assert [t["after"] for t in again["generated 1"]] == pytest.approx([t["after"] for t in trials])


@pytest.mark.long
def test_models_that_differ_in_their_seed_are_summarised_together(model: Path) -> None:
    for name in ("own-0", "own-1", "other"):
        Path(name).mkdir()
        shutil.copy(model, Path(name) / model.name)
        assert call(*COMMAND, "--model", f"{name}/{model.name}").code == 0
    folder = Path("results/quick/optimised-meshes")
    kinds = json.loads((folder / "summary.json").read_text())["kinds"]
    assert {kind: list(told["models"]) for kind, told in kinds.items()} == {"other": ["other"], "own": ["own-0", "own-1"]}
    assert kinds["own"]["facts"]["even 5x5"]["std"] == 0
    assert kinds["other"]["facts"]["even 5x5"]["std"] is None
    table = (folder / "table.md").read_text()
    assert table.index("## other") < table.index("## own")

    odd = json.loads((folder / "other.json").read_text())
    (folder / "odd.json").write_text(json.dumps(odd | {"work": odd["work"] | {"num_houses": 7}}))
    (folder / "own-0.json").unlink()
    outcome = call(*COMMAND, "--model", f"own-0/{model.name}")
    assert outcome.code == 2
    assert "odd.json has trials of other work" in outcome.err
    assert not (folder / "own-0.json").exists()  # said before anything is done


def test_what_it_cannot_use_is_refused_before_anything_is_done(model: Path) -> None:
    for arguments, message in (
        (("--model", "nothing.safetensors"), "does not exist"),
        (("--model", model, "--model", model), "a name of its own"),
        (("--model", model, "--seeds", 2), "--seeds are for experiments that train"),
    ):
        outcome = call(*COMMAND, *arguments)
        assert outcome.code == 2
        assert message in outcome.err
    trains = call("reproduce", "poisson-square", "--quick", "--model", model)
    assert (trains.code, "--model is for optimised-meshes" in trains.err) == (2, True)
    assert not Path("results").exists()
    folder = Path("results/quick/optimised-meshes")
    folder.mkdir(parents=True)
    damaged = folder / f"{model.parent.name}.json"
    damaged.write_text('{"houses": {"generated 0": [{"start": 1}]}}')
    outcome = call(*COMMAND, "--model", model)
    assert outcome.code == 2
    assert "move it away" in outcome.err
    assert "start" in damaged.read_text()
