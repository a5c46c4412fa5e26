"""A training run in a folder: config, log, validation errors, training state and model; stopped and resumed at will."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..checkpoints import Checkpoint, save
from ..configs import to_plain
from ..errors import InputError, require
from ..files import replaced
from ..network import build_network, num_weights
from ..tasks import get_task
from ..tasks.task import RunConfig
from ..training import Report, fit

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
    """Carry out a run and yield its reports; the checkpoint is written whenever the state is, and at the end."""
    first_process = fabric is None or fabric.is_global_zero
    task = get_task(run.task)
    training, held_out = task.split(task.load(run.data, run.subset), run.validation, run.seed)
    if first_process:
        _claim(run, folder)
    network = build_network(task.sft, run.config.network, run.seed)
    network.fit_normalisation(task.all_of(training))
    checkpoint = Checkpoint(network, run.config.mesh, run.task, _described(run) | {"num_weights": num_weights(network)})
    validate = None if held_out is None else task.validator(held_out, run.config)
    writer = _summary_writer(folder) if tensorboard and first_process else None
    reports = fit(
        network,
        task.batch_of(training, run.config, run.seed),
        run.config.training,
        validate=validate,
        folder=folder,
        fabric=fabric,
    )
    finished = 0
    try:
        for report in reports:
            finished = report.step
            if first_process:
                if report.validation:
                    _note_validation(folder / "validation.csv", report)
                if report.step % run.config.training.save_every == 0 or report.step == run.config.training.steps:
                    save(checkpoint, folder / MODEL)
                if writer is not None:
                    writer.add_scalar("loss", report.loss, report.step)
                    writer.add_scalar("learning_rate", report.learning_rate, report.step)
                    for name, value in report.validation.items():
                        writer.add_scalar(f"validation/{name}", value, report.step)
            yield report
    finally:
        reports.close()  # type: ignore[attr-defined]
        if first_process and finished:
            save(checkpoint, folder / MODEL)
        if writer is not None:
            writer.close()


def _described(run: Run) -> dict[str, Any]:
    """The run as plain data, without where its data lie."""
    return {"config": to_plain(run.config), "subset": run.subset, "validation": run.validation, "seed": run.seed}


def _claim(run: Run, folder: Path) -> None:
    """Write config.json, or check that the folder holds this very run."""
    path = folder / "config.json"
    described = {"task": run.task, "data": str(run.data)} | json.loads(json.dumps(_described(run)))
    if not path.exists():
        require(
            not (folder / "state.safetensors").exists(),
            f"{folder} holds a training state without config.json; choose another folder",
        )
        with replaced(path) as temporary:
            temporary.write_text(json.dumps(described, indent=2) + "\n")
        return
    try:
        before = json.loads(path.read_text())
    except (OSError, ValueError):
        raise InputError(f"{path} is not readable as JSON; choose another folder") from None
    changed = sorted(_differences(before, described))
    require(
        not changed,
        f"{folder} holds another run, it differs in {', '.join(changed)}; repeat its settings or choose another folder",
    )


def _differences(a: Any, b: Any, prefix: str = "") -> list[str]:
    if isinstance(a, dict) and isinstance(b, dict):
        return [
            name
            for key in sorted(set(a) | set(b))
            for name in _differences(a.get(key), b.get(key), f"{prefix}.{key}" if prefix else key)
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
        csv.writer(file).writerows([("step", "resolution", "mse"), *rows])


def _summary_writer(folder: Path) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise InputError("the TensorBoard log needs the package tensorboard; install graphelements[tensorboard]") from None
    return SummaryWriter(str(folder / "tensorboard"))


def mean_and_interval(differences: np.ndarray, seed: int = 0, draws: int = 10_000) -> tuple[float, float, float]:
    """The mean of paired differences and its 95 % bootstrap interval over items."""
    rng = np.random.default_rng(seed)
    means = rng.choice(differences, (draws, len(differences))).mean(1)
    return float(differences.mean()), float(np.quantile(means, 0.025)), float(np.quantile(means, 0.975))
