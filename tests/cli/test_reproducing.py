"""`graphelements reproduce`: from nothing to results, stopped and continued at will."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest
from command_line import call, files_in, rows_of

from graphelements import training
from graphelements.experiments import reproduce
from graphelements.tasks.poisson_square import PRESETS, PoissonSquare

STEPS = 6
TINY = (f"training.steps={STEPS}", "batches.items=2", "batches.queries=8", "training.compile=off", "network.latent_size=4")
COMMAND = ("reproduce", "poisson-square", "--quick", "--quiet", "--only", "paper-grid,np-0")


@pytest.fixture(autouse=True)
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three houses to train on, two to score, small networks, in an empty working directory."""
    monkeypatch.setattr(reproduce, "GENERATED_QUICK", {"houses-train.npz": (3, 1), "houses-test.npz": (2, 2)})
    monkeypatch.setattr(reproduce, "QUICK", TINY)
    monkeypatch.setattr(reproduce, "QUICK_LARGEST", 4)
    monkeypatch.chdir(tmp_path)


def unchanging(folder: Path) -> dict[str, bytes | None]:
    """All files but those that are drawn anew."""
    return {name: content for name, content in files_in(folder).items() if not name.endswith(".png")}


def test_the_quick_form_leads_from_nothing_to_a_table_and_figures_and_is_not_done_twice() -> None:
    outcome = call(*COMMAND)
    assert (outcome.code, outcome.err.count("error")) == (0, 0)
    folder = Path("results/quick/poisson-square")
    table = (folder / "table.md").read_text()
    assert table in outcome.out
    assert "Quick form" in table
    assert "2 unseen houses (generated houses), from `results/quick/poisson-square/houses-test.npz`" in table
    assert {path.name for path in folder.iterdir()} == {
        *("houses-train.npz", "houses-test.npz", "runs", "paper-grid-0.json", "np-0.json"),
        *("summary.json", "table.md", "errors.png"),
    }
    summary = json.loads((folder / "summary.json").read_text())
    for line, name in zip(summary["lines"], ("paper-grid-0", "np-0"), strict=True):
        saved = json.loads((folder / f"{name}.json").read_text())
        assert saved["checkpoint"] == f"results/quick/poisson-square/runs/{name}/model.safetensors"
        found = {key: error["mean"] for key, error in line["errors"].items()}
        learned = [score for score in saved["results"] if score["method"] in ("gen", "np")]
        assert list(found.values()) == [score["mse_mean"] for score in learned]

    before = unchanging(folder)
    assert call(*COMMAND).code == 0
    assert unchanging(folder) == before


def test_ctrl_c_while_training_leaves_a_run_that_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    share, steps = training.share, iter(range(1, 1000))

    def share_and_signal(*of_step):
        if next(steps) == 4:
            os.kill(os.getpid(), signal.SIGINT)
        return share(*of_step)

    monkeypatch.setattr(training, "share", share_and_signal)
    outcome = call(*COMMAND)
    assert outcome.code == 130
    assert outcome.out.splitlines()[-1] == "stopped; the same command goes on: results/quick/poisson-square"
    folder = Path("results/quick/poisson-square")
    log = folder / "runs" / "paper-grid-0" / "log.csv"
    before = log.read_text()
    assert len(rows_of(log)) == 4
    assert not list(folder.glob("*.json"))
    assert call(*COMMAND).code == 0
    assert log.read_text().startswith(before)
    assert [int(row["step"]) for row in rows_of(log)] == list(range(1, STEPS + 1))


def test_ctrl_c_while_scoring_costs_no_training(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(PoissonSquare, "evaluate", interrupted)
        outcome = call(*COMMAND)
    assert outcome.code == 130
    assert "stopped; the same command goes on" in outcome.out
    log = Path("results/quick/poisson-square/runs/paper-grid-0/log.csv")
    before = log.read_text()
    assert call(*COMMAND).code == 0
    assert log.read_text() == before


def test_a_missing_preset_is_one_line_before_anything_is_trained(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(PRESETS, "np")
    outcome = call(*COMMAND)
    assert outcome.code == 2
    assert outcome.err.splitlines()[-1].startswith("error: the preset of the curve np must be one of default, near, nodes")
    assert not Path("results/quick/poisson-square/runs").exists()


def test_results_on_other_houses_stay_alone() -> None:
    folder = Path("results/poisson-square")
    folder.mkdir(parents=True)
    (folder / "np-0.json").write_text('{"data": "poisson_houses"}')
    before = files_in(folder)
    outcome = call("reproduce", "poisson-square")
    assert outcome.code == 2
    assert outcome.err == (
        "error: results/poisson-square has results on poisson_houses; give --data with it, or choose another --out\n"
    )
    assert files_in(folder) == before


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["mazes"], "scattered-sphere, pushing, pushing-tuning, optimised-meshes, pushing-logs, pushing-pixels; got 'mazes'"),
        (["poisson-square", "--only", "gnn"], "got 'gnn'"),
        (["poisson-square", "--seeds", "0"], "'--seeds'"),
        (["poisson-square", "--data", "nowhere"], "no such file"),
        (["poisson-square", "--out", "file/results"], "cannot be written"),
    ],
)
def test_bad_input_is_one_line_and_writes_nothing(tmp_path: Path, arguments: list[str], message: str) -> None:
    (tmp_path / "file").write_text("in the way")
    before = files_in(tmp_path)
    outcome = call("reproduce", *arguments)
    assert (outcome.code, outcome.err.count("\n")) == (2, 1)
    assert message in outcome.err
    assert files_in(tmp_path) == before


def test_the_table_of_changes_needs_no_figure() -> None:
    only = "default-unchanged,default-no-message-passing"
    outcome = call("reproduce", "default-ablation", "--quick", "--quiet", "--out", "here", "--only", only)
    assert outcome.code == 0
    assert "`network.rounds=0`" in outcome.out
    assert not list(Path("here").glob("*.png"))
    assert {path.stem for path in Path("here").glob("*-0.json")} == {"default-unchanged-0", "default-no-message-passing-0"}
    assert [path.name for path in Path("here").glob("*.npz")] == ["houses-train.npz"]  # judged by some of these
