"""A training run in a folder: config, log, validation errors, training state and model; stopped and resumed at will."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from ..building import build_network, num_weights
from ..checkpoints import Checkpoint, load_checkpoint, read_tensors, save
from ..configs import from_plain, to_plain
from ..errors import InputError, require
from ..files import exists, read_json, replaced
from ..tasks import get_task
from ..tasks.task import RunConfig
from ..training import Report, fit, share
from ..training_state import STATE

if TYPE_CHECKING:
    from lightning_fabric import Fabric

MODEL = "model.safetensors"


@dataclass(frozen=True)
class Run:
    """What to train on what; the same run in the same folder resumes."""

    task: str
    config: RunConfig
    data: Path
    subset: str = "all"
    validation: float = 0.1
    seed: int = 0


def train(run: Run, folder: Path, fabric: Fabric | None = None, tensorboard: bool = False) -> Iterator[Report]:
    """The reports of a run while it is carried out; the checkpoint is written whenever the state is, and at the end.

    What can be wrong with a run is found here, before its folder is claimed and before `fabric` starts other processes: so a
    mistake is reported once and costs nothing.
    """
    task = get_task(run.task)
    sft = task.sft_of(run.config)
    training, held_out = task.split(task.given(task.load(run.data, run.subset), sft), run.validation, run.seed)
    network = build_network(sft, run.config.network, run.seed)
    network.fit_normalisation(task.all_of(training))
    validate = None if held_out is None else task.validator(held_out, run.config)
    moving = task.moving_meshes(training, run.config, run.seed)
    batch_of = task.batch_of(training, run.config, run.seed, moving)
    for resolution in run.config.batches.resolutions:
        task.mesh(run.config.mesh, resolution)
    share(*batch_of(0), 0, 1 if fabric is None else fabric.world_size)
    _claim(run, folder, task.describe(training))
    if fabric is not None:
        fabric.launch()
    checkpoint = Checkpoint(network, run.config.mesh, run.task, settings_of(run) | {"num_weights": num_weights(network)})
    first_process = fabric is None or fabric.is_global_zero
    writer = _summary_writer(folder) if tensorboard and first_process else None
    reports = fit(network, batch_of, run.config.training, validate=validate, folder=folder, fabric=fabric, moving=moving)
    return _recorded(reports, run, folder, checkpoint, first_process, writer)


def _recorded(
    reports: Iterator[Report], run: Run, folder: Path, checkpoint: Checkpoint, first_process: bool, writer: Any
) -> Iterator[Report]:
    finished = 0
    seconds = 0.0

    def save_model() -> None:
        trained = checkpoint.training | {"steps_done": finished, "seconds": round(seconds, 1), "threads": torch.get_num_threads()}
        save(replace(checkpoint, training=trained), folder / MODEL)

    try:
        for report in reports:
            finished, seconds = report.step, report.seconds
            if first_process:
                if report.validation:
                    _note_validation(folder / "validation.csv", report)
                if report.step % run.config.training.save_every == 0:
                    save_model()
                if writer is not None:
                    writer.add_scalar("loss", report.loss, report.step)
                    writer.add_scalar("learning_rate", report.learning_rate, report.step)
                    for name, value in report.validation.items():
                        writer.add_scalar(f"validation/{name}", value, report.step)
            yield report
        if not finished and _steps_done(folder / MODEL) < run.config.training.steps:
            # the run was killed between its last state and its checkpoint
            finished, seconds = run.config.training.steps, read_tensors(folder / STATE, "training state")[1]["seconds"]
    except Exception:
        finished = 0  # a network that diverged must not replace the last good one
        raise
    finally:
        reports.close()  # type: ignore[attr-defined]
        if first_process and finished:
            save_model()
        if writer is not None:
            writer.close()


def _steps_done(path: Path) -> int:
    try:
        return load_checkpoint(path).training.get("steps_done", 0)
    except InputError:
        return 0


def settings_of(run: Run) -> dict[str, Any]:
    """The run as plain data, without where its data lie."""
    return to_plain(run.config) | {"subset": run.subset, "validation": run.validation, "seed": run.seed}


def _claim(run: Run, folder: Path, contents: dict[str, Any]) -> None:
    """Write config.json, or check that the folder holds this very run."""
    path = folder / "config.json"
    described = json.loads(json.dumps({"task": run.task, "data": {"path": str(run.data)} | contents} | settings_of(run)))
    if not exists(path):
        require(
            not exists(folder / STATE),
            f"{folder} holds a training state without config.json; choose another folder",
        )
        with replaced(path) as temporary:
            temporary.write_text(json.dumps(described, indent=2) + "\n")
        return
    before = read_json(path, "the JSON of a run; choose another folder")
    changed = sorted(differences(completed(before), described))
    # other settings take other data with them
    changed = [name for name in changed if name == "data.path" or not name.startswith("data.")] or changed
    require(
        not changed,
        f"{folder} holds another run, it differs in {', '.join(changed)}; repeat its settings or choose another folder",
    )


def completed(settings: Any) -> Any:
    """A run's settings as they were saved, those that are newer than the file at their defaults, which change nothing."""
    names = [field.name for field in fields(RunConfig)]
    if not isinstance(settings, dict) or "network" not in settings:
        return settings  # of no run
    try:
        config = from_plain(RunConfig, {name: settings[name] for name in names if name in settings})
    except InputError:
        return settings  # with settings that are gone
    return settings | json.loads(json.dumps(to_plain(config)))


def differences(a: Any, b: Any, prefix: str = "") -> list[str]:
    """The dotted names in which two plain settings differ."""
    if isinstance(a, dict) and isinstance(b, dict):
        return [
            name
            for key in sorted(set(a) | set(b))
            for name in differences(a.get(key), b.get(key), f"{prefix}.{key}" if prefix else key)
        ]
    return [] if a == b else [prefix]


def _note_validation(path: Path, report: Report) -> None:
    """Add the validation errors of a step, dropping rows of steps that a resumed run does again."""
    rows = []
    if path.exists():
        with path.open(newline="") as file:
            rows = [row for row in csv.reader(file) if row and row[0].isdigit() and int(row[0]) < report.step]
    rows += [[str(report.step), name, repr(value)] for name, value in report.validation.items()]
    with replaced(path) as temporary, temporary.open("w", newline="") as file:
        csv.writer(file).writerows([("step", "mesh", "error"), *rows])


def _summary_writer(folder: Path) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise InputError("the TensorBoard log needs the package tensorboard; install graphelements[tensorboard]") from None
    return SummaryWriter(str(folder / "tensorboard"))
