"""Pushing from the command line: data, training, scores, predictions, the experiment, the simulator against real pushes."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from command_line import call, files_in, settings
from real_data import PUSHING_LOGS, needs_pushing_logs

from graphelements.data import push_files
from graphelements.data.pushes import picture_of

TINY = settings(batches_items=4, batches_scenarios=2, training_steps=2, training_compile="off", network_latent_size=8)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a few pushes of the objects of a split, and a network that has hardly learned."""
    made = tmp_path_factory.mktemp("pushing")
    split = {"train_keys": ["2a2a2a2a", "1a2B3c4a", "3a3a1b4a"], "test_keys": ["1c1a2a2a"]}
    (made / "split.json").write_text(json.dumps(split))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(push_files, "PUSHES", 12)
        outcome = call("data", "generate", "pushing", "--out", made / "p.npz", "--source", made / "split.json", "--seed", 3)
    assert outcome.code == 0, outcome.err
    outcome = call("train", "pushing", "--data", made / "p.npz", "--houses", "train", "--out", made / "run", *TINY, "--quiet")
    assert outcome.code == 0, outcome.err
    return made


def test_data_say_that_they_are_simulated_and_of_which_objects(folder: Path) -> None:
    outcome = call("data", "inspect", folder / "p.npz")
    assert outcome.code == 0
    assert "kind                 simulated" in outcome.out
    assert "houses               4" in outcome.out
    with np.load(folder / "p.npz") as archive:
        assert archive["keys"].tolist() == ["2a2a2a2a", "1a2B3c4a", "3a3a1b4a", "1c1a2a2a"]
        assert archive["held_out"].tolist() == [False, False, False, True]
        assert json.loads(str(archive["manifest"]))["simulated"] is True


def test_data_without_a_split_are_of_random_objects_every_fifth_held_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(push_files, "PUSHES", 3)
    assert call("data", "generate", "pushing", "--out", tmp_path / "p.npz", "--num", 5).code == 0
    with np.load(tmp_path / "p.npz") as archive:
        assert archive["held_out"].tolist() == [False] * 4 + [True]


def test_scores_are_of_the_task_s_sizes_against_exact_and_measured_motions(folder: Path) -> None:
    outcome = call("evaluate", folder / "run" / "model.safetensors", "--data", folder / "p.npz", "--houses", "test")
    assert outcome.code == 0, outcome.err
    saved = json.loads((folder / "run" / "evaluation.json").read_text())
    found = [(score["method"], score["resolution"]) for score in saved["results"]]
    sizes = [1, 2, 3, 4]
    assert found == [("gen", k) for k in sizes] + [("gen-measured", k) for k in sizes] + [("still", 0), ("noise", 0)]
    assert saved["contents"]["kind"] == "simulated"


@pytest.mark.parametrize("ending", [".json", ".png"])
def test_motions_are_predicted_from_a_key_and_from_a_picture(folder: Path, tmp_path: Path, ending: str) -> None:
    from matplotlib.image import imsave

    key = "1a2B3c4a"
    imsave(tmp_path / "mask.png", 85 * picture_of(key).reshape(144, 144)[::-1], cmap="gray", vmin=0, vmax=255)
    told = []
    for given in (("--object", key), ("--mask", tmp_path / "mask.png")):
        out = tmp_path / f"motion{ending}"
        outcome = call("predict", folder / "run" / "model.safetensors", *given, "--push", "0.08,0.01,180", "--out", out)
        assert outcome.code == 0, outcome.err
        assert "mm along x" in outcome.out
        told.append(out.read_bytes())
    assert told[0] == told[1]
    if ending == ".json":
        assert set(json.loads(told[0])) == {"push", "dx_m", "dy_m", "dtheta_rad"}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--push", "0.08,0,180"], "either --object or --mask"),
        (["--object", "1a2a3a4a"], "either --object or --mask"),
        (["--object", "1a2a3a", "--push", "0.08,0,180"], "such as 1a2B3c4a"),
        (["--object", "1a2a3a4a", "--push", "far"], "x,y,degrees"),
        (["--object", "1a2a3a4a", "--push", "0.08,0,180", "--grid", "5"], "leave out --grid"),
        (["--mask", "none.png", "--push", "0.08,0,180"], "not a readable picture"),
    ],
)
def test_a_push_that_is_none_ends_in_one_line(folder: Path, tmp_path: Path, arguments: list[str], said: str) -> None:
    out = tmp_path / "motion.json"
    outcome = call("predict", folder / "run" / "model.safetensors", *arguments, "--out", out)
    assert outcome.code == 2
    assert said in outcome.err
    assert not out.exists()


def test_options_of_other_tasks_are_refused(folder: Path, tmp_path: Path) -> None:
    model, out = folder / "run" / "model.safetensors", tmp_path / "motion.json"
    outcome = call("predict", model, "--object", "1a2a3a4a", "--push", "0.08,0,180", "--house", "h.json", "--out", out)
    assert outcome.code == 2
    assert "--house is not for pushing" in outcome.err
    outcome = call("predict", "poisson-square", "--house", "h.json", "--object", "1a2a3a4a", "--out", tmp_path / "f.csv")
    assert outcome.code == 2
    assert "--object is not for poisson-square" in outcome.err
    outcome = call("reproduce", "pushing-logs", "--only", "default", "--quick")
    assert outcome.code == 2
    assert "leave out --only, --quick" in outcome.err


def test_other_tasks_take_no_objects(tmp_path: Path, folder: Path) -> None:
    outcome = call("data", "generate", "poisson-sphere", "--out", tmp_path / "p.npz", "--source", folder / "split.json")
    assert outcome.code == 2
    assert "leave out --source" in outcome.err


def test_a_damaged_split_is_refused_and_leaves_what_was_there(tmp_path: Path) -> None:
    (tmp_path / "split.json").write_text('{"train_keys": ["2a2a2a2a"], "test_keys": ["2a2a2a2a"]}')
    (tmp_path / "p.npz").write_bytes(b"old")
    before = files_in(tmp_path)
    outcome = call("data", "generate", "pushing", "--out", tmp_path / "p.npz", "--source", tmp_path / "split.json")
    assert outcome.code == 2
    assert "2a2a2a2a are there twice" in outcome.err
    assert files_in(tmp_path) == before


def test_the_experiment_fills_its_folder(folder: Path, tmp_path: Path) -> None:
    """On a file of a few pushes, two curves: a table that says simulated, lines against both motions, four pictures."""
    from graphelements.experiments import experiment

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "graphelements.experiments.reproduce.QUICK",
            (*experiment.QUICK, "training.steps=2", "batches.items=3", "training.compile=off"),
        )
        tmp_path = tmp_path / "pushing"
        pixels = ["--quick", "--data", folder / "p.npz", "--out", tmp_path.parent / "pushing-pixels", "--quiet"]
        assert call("reproduce", "pushing-pixels", *pixels).code == 0
        given = ["--quick", "--data", folder / "p.npz", "--out", tmp_path, "--only", "default,np", "--quiet"]
        outcome = call("reproduce", "pushing", *given)
        assert outcome.code == 0, outcome.err
    table = (tmp_path / "table.md").read_text()
    assert "on 1 unseen objects (simulated pushes)" in table
    assert "| default (ours), against measured motion | 1 |" in table
    assert "measured motion (noise)" in table
    assert "| ideal observer of the pixels |" in table
    names = {path.name for path in tmp_path.glob("*.png")}
    assert {"errors.png", "view.png", "pushes.png"} <= names


def test_the_experiment_runs_on_the_files_of_omnipush(folder: Path, tmp_path: Path) -> None:
    """Measured motions only: no line against exact ones, no noise."""
    real = tmp_path / "omnipush"
    real.mkdir()
    with np.load(folder / "p.npz") as archive:
        for number, key in enumerate(archive["keys"].tolist()):
            rows = archive["objects"] == number
            np.save(real / f"{key}_X_3_not_norm_0.npy", archive["pushes"][rows])
            np.save(real / f"{key}_y_3_not_norm_0.npy", archive["motions"][rows])
    (real / "split.json").write_text((folder / "split.json").read_text())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "graphelements.experiments.reproduce.QUICK", ("training.steps=2", "batches.items=3", "training.compile=off")
        )
        outcome = call("reproduce", "pushing", "--quick", "--data", real, "--out", tmp_path / "out", "--only", "np", "--quiet")
    assert outcome.code == 0, outcome.err
    table = (tmp_path / "out" / "table.md").read_text()
    assert "unseen objects (Omnipush)" in table
    assert "noise" not in table
    outcome = call("reproduce", "pushing-pixels", "--data", real, "--out", tmp_path / "pixels")
    assert outcome.code == 2
    assert "only a simulator knows" in outcome.err


def test_what_the_pixels_leave_open_is_told_by_a_command(folder: Path, tmp_path: Path) -> None:
    outcome = call("reproduce", "pushing-pixels", "--quick", "--data", folder / "p.npz", "--out", tmp_path, "--quiet")
    assert outcome.code == 0, outcome.err
    assert "of 1 unseen objects: 4 pushes (simulated)" in outcome.out
    assert {path.name for path in tmp_path.iterdir()} - {"alike.png"} == {"summary.json", "table.md"}  # if any two differ
    for arguments, said in ((["--seeds", 2], "leave out --seeds"), ([], "needs --data")):
        outcome = call("reproduce", "pushing-pixels", "--out", tmp_path / "new", *arguments)
        assert outcome.code == 2
        assert said in outcome.err
    assert not (tmp_path / "new").exists()


@needs_pushing_logs
def test_the_simulator_is_checked_by_a_command(tmp_path: Path) -> None:
    outcome = call("reproduce", "pushing-logs", "--data", PUSHING_LOGS, "--out", tmp_path, "--quiet")
    assert outcome.code == 0, outcome.err
    assert "mean over logs | 250 | 1.44 mm, 1.47° (0.0257 rad)" in outcome.out
    assert {path.name for path in tmp_path.iterdir()} == {"summary.json", "table.md", "errors.png"}


def test_the_check_of_the_simulator_needs_logs(tmp_path: Path) -> None:
    outcome = call("reproduce", "pushing-logs", "--out", tmp_path / "new")
    assert outcome.code == 2
    assert "needs --data" in outcome.err
