"""Runs that are stopped, killed, resumed or shared by processes give the numbers of one run in one go."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from command_line import SMALL, call, files_in, rows_of, settings

from graphelements import load_checkpoint
from graphelements.checkpoints import read_tensors

STEPS, SAVE_EVERY, STOPPED_IN = 60, 7, 25

SIGNALLED = """
import os, sys
from graphelements import training
from graphelements.cli import main
from graphelements.experiments import runs

signal, step, *arguments = sys.argv[1:]
share, steps = training.share, iter(range(1, 1000))

def share_and_signal(*of_step):
    if next(steps) == int(step) and os.environ.get("LOCAL_RANK", "0") == "0":
        os.kill(os.getpid(), int(signal))
    return share(*of_step)

training.share = share_and_signal
main(arguments)
"""
"""The command line in a process that gets a signal in the middle of a step; of several processes, the first one does."""


def training(houses: Path, folder: Path, **changes: object) -> list[str]:
    """The command that trains in a folder."""
    values = {"training_steps": STEPS, "training_save_every": SAVE_EVERY, "training_validate_every": 20} | changes
    return ["train", "poisson-square", "--data", str(houses), "--out", str(folder), *SMALL, *settings(**values)]


@contextmanager
def started(folder: Path, stop: signal.Signals, step: int, *command: str) -> Iterator[subprocess.Popen[str]]:
    """The command in its own process, which gets the signal `stop` in this step."""
    script = folder / "signalled.py"
    script.write_text(SIGNALLED)
    with subprocess.Popen(
        [sys.executable, str(script), str(int(stop)), str(step), *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def losses(folder: Path) -> list[tuple[str, str, str]]:
    """Every step's loss and learning rate, to the last digit."""
    return [(row["step"], row["loss"], row["learning_rate"]) for row in rows_of(folder / "log.csv")]


def assert_same_tensors(one: Path, other: Path, kind: str) -> None:
    (tensors, header), (expected, expected_header) = (read_tensors(path, kind) for path in (one, other))
    for told in (header, expected_header, header["training"], expected_header["training"]):
        told.pop("seconds", None)
    assert header == expected_header
    assert tensors.keys() == expected.keys()
    assert all(torch.equal(tensors[name], expected[name]) for name in expected)


@pytest.fixture(scope="module")
def uninterrupted(houses: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("uninterrupted") / "run"
    outcome = call(*training(houses, folder))
    assert outcome.code == 0, outcome.err
    assert outcome.out.strip() == f"done: {folder / 'model.safetensors'}"
    return folder


@pytest.mark.parametrize(
    "stop, code, logged, saved",
    [(signal.SIGINT, 130, STOPPED_IN, STOPPED_IN), (signal.SIGKILL, -signal.SIGKILL, STOPPED_IN - 1, 21)],
    ids=["SIGINT", "SIGKILL"],
)
def test_a_run_that_was_stopped_goes_on_to_the_same_bits(
    uninterrupted: Path, houses: Path, tmp_path: Path, stop: signal.Signals, code: int, logged: int, saved: int
) -> None:
    folder = tmp_path / "run"
    command = training(houses, folder)
    with started(tmp_path, stop, STOPPED_IN, *command) as process:
        out, err = process.communicate(timeout=120)
    assert process.returncode == code, err
    assert err == ""
    if stop == signal.SIGINT:
        assert out.strip() == f"stopped; the same command goes on: {folder / 'model.safetensors'}"
    assert len(losses(folder)) == logged
    assert not list(folder.glob(".*")), "a temporary file was left"
    first = (folder / "log.csv").read_text().splitlines()[: 1 + saved]
    load_checkpoint(folder / "model.safetensors")

    assert call(*command).code == 0
    resumed = (folder / "log.csv").read_text().splitlines()
    assert resumed[: 1 + saved] == first, "steps before the saved state were done again"
    assert losses(folder) == losses(uninterrupted)
    assert len(losses(folder)) == STEPS
    assert_same_tensors(folder / "model.safetensors", uninterrupted / "model.safetensors", "checkpoint")
    assert_same_tensors(folder / "state.safetensors", uninterrupted / "state.safetensors", "training state")
    assert (folder / "validation.csv").read_text() == (uninterrupted / "validation.csv").read_text()


def test_a_run_that_is_done_is_not_done_again(uninterrupted: Path, houses: Path) -> None:
    before = files_in(uninterrupted)
    outcome = call(*training(houses, uninterrupted))
    assert outcome.code == 0
    assert outcome.out.startswith("done")
    assert files_in(uninterrupted) == before


def test_a_run_that_was_killed_before_its_last_checkpoint_writes_it(uninterrupted: Path, houses: Path, tmp_path: Path) -> None:
    model = uninterrupted / "model.safetensors"
    moved = model.rename(tmp_path / "moved.safetensors")
    assert call(*training(houses, uninterrupted)).code == 0
    assert_same_tensors(model, moved, "checkpoint")


@pytest.mark.parametrize(
    "changes, options, names",
    [
        ({"network_latent_size": 9}, [], ["network.latent_size"]),
        ({"training_learning_rate": 0.1, "training_clip": 0}, [], ["training.learning_rate", "training.clip"]),
        ({"batches_items": 2}, ["--seed", "5"], ["batches.items", "seed"]),
        ({}, ["--houses", "0-3"], ["subset"]),
        ({}, ["--validation", "0.5"], ["validation"]),
    ],
)
def test_other_settings_in_the_folder_of_a_run_are_refused_by_name(
    uninterrupted: Path, houses: Path, changes: dict[str, object], options: list[str], names: list[str]
) -> None:
    before = files_in(uninterrupted)
    outcome = call(*training(houses, uninterrupted, **changes), *options)
    assert outcome.code == 2
    assert outcome.err.startswith("error: ")
    assert outcome.err.count("\n") == 1
    differing = outcome.err.partition("differs in ")[2].partition(";")[0].split(", ")
    assert set(differing) == set(names)
    assert files_in(uninterrupted) == before


def test_a_run_from_before_there_was_a_setting_goes_on(uninterrupted: Path, houses: Path) -> None:
    path = uninterrupted / "config.json"
    described = path.read_text()
    older = json.loads(described)
    assert older["batches"].pop("moving_starts") == 0
    path.write_text(json.dumps(older))
    try:
        assert call(*training(houses, uninterrupted)).out.startswith("done")
        older["batches"].pop("items")  # of this one the run has another value than the default
        path.write_text(json.dumps(older))
        assert "it differs in batches.items;" in call(*training(houses, uninterrupted)).err
    finally:
        path.write_text(described)


def test_a_run_that_diverges_says_so_and_keeps_its_last_good_model(houses: Path, tmp_path: Path) -> None:
    wild = {"training_learning_rate": 1e10, "training_warmup": 0, "training_clip": 0, "network_norm": "none"}
    outcome = call(*training(houses, tmp_path / "run", training_save_every=1, **wild))
    assert outcome.code == 2
    assert outcome.err.startswith("error: the loss is ")
    assert outcome.err.count("\n") == 1
    assert load_checkpoint(tmp_path / "run" / "model.safetensors")


def test_two_processes_learn_what_one_learns_and_stop_at_the_same_step(houses: Path, tmp_path: Path) -> None:
    """The signal goes to one process only: the other must neither wait for it for ever nor do a step more."""
    few = {"training_steps": 9, "training_validate_every": 4, "training_schedule": "constant", "training_warmup": 0}
    few |= {"training_optimizer": "adam", "training_learning_rate": 0.001}  # Muon makes rounding larger
    few |= {"batches_items": 3, "batches_scenarios": 1}  # shares of two and of one
    one, two = tmp_path / "one", tmp_path / "two"
    shared = [*training(houses, two, **few), "--devices", "2", "--validation", "0.2"]
    with started(tmp_path, signal.SIGINT, 6, *shared) as process:
        assert call(*training(houses, one, **few), "--validation", "0.2").code == 0
        out, err = process.communicate(timeout=120)
    assert process.returncode == 130, err
    assert out.strip() == f"stopped; the same command goes on: {two / 'model.safetensors'}"
    assert len(losses(two)) == 6
    assert_close(rows_of(two / "log.csv"), rows_of(one / "log.csv")[:6], "loss")
    assert call(*training(houses, two, **few), "--validation", "0.2").code == 0
    assert_close(rows_of(two / "log.csv"), rows_of(one / "log.csv"), "loss")
    assert_close(rows_of(two / "validation.csv"), rows_of(one / "validation.csv"), "error")


def assert_close(rows: list[dict[str, str]], expected: list[dict[str, str]], column: str) -> None:
    assert [row["step"] for row in rows] == [row["step"] for row in expected]
    assert [float(row[column]) for row in rows] == pytest.approx([float(row[column]) for row in expected], abs=1e-4)


def test_tensorboard_has_a_point_a_step(houses: Path, tmp_path: Path) -> None:
    events = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator", reason="tensorboard is not installed")
    assert call(*training(houses, tmp_path / "run", training_steps=4), "--tensorboard", "--validation", "0.2").code == 0
    assert list((tmp_path / "run" / "tensorboard").glob("events.out.tfevents.*"))
    written = events.EventAccumulator(str(tmp_path / "run" / "tensorboard")).Reload()
    noted = {event.step: event.value for event in written.Scalars("loss")}
    assert noted == pytest.approx({int(step): float(loss) for step, loss, _ in losses(tmp_path / "run")})
    assert [event.step for event in written.Scalars("validation/3x3")] == [4]


def test_a_run_whose_data_were_exchanged_is_refused(tmp_path: Path, houses: Path) -> None:
    data = tmp_path / "houses.npz"
    shutil.copy(houses, data)
    assert call(*training(data, tmp_path / "run", training_steps=2)).code == 0
    assert call("data", "generate", "poisson-square", "--out", str(data), "--num", "6", "--seed", "99").code == 0
    outcome = call(*training(data, tmp_path / "run", training_steps=2))
    assert outcome.code == 2
    assert "holds another run, it differs in data." in outcome.err
