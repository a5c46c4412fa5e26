"""Training on one page: a step's batch is a pure function of the step, so that an interrupted run resumes exactly."""

from __future__ import annotations

import csv
import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import torch
from jaxtyping import Float
from torch import Tensor

from .compilation import compiler_available
from .configs import require_types, to_plain
from .errors import require
from .files import replaced
from .meshes import Mesh
from .moving_meshes import MovingMeshes
from .muon import Muon
from .samples import SFTBatch
from .sft_network import Meshes, SFTNetwork
from .training_state import Learning, resume, save_state
from .unions import MeshUnion, union

if TYPE_CHECKING:
    from lightning_fabric import Fabric

BatchOf = Callable[[int], tuple[SFTBatch, Meshes]]


@dataclass(frozen=True)
class TrainingConfig:
    """How long and how fast to learn. The paper: Adam at a constant learning rate of 3e-3.

    `optimizer`: "muon" steps along orthogonalised momenta of the weight matrices (Jordan et al. 2024) and by Adam for the
    rest, biases and thin matrices. `clip` bounds the norm of the gradient, each optimizer's own (0: no bound). `compile`: "auto"
    uses compiled kernels where there is a compiler.
    """

    steps: int = 2000
    learning_rate: float = 3e-3
    optimizer: Literal["adam", "muon"] = "adam"
    schedule: Literal["constant", "cosine"] = "cosine"
    warmup: int = 50
    clip: float = 1.0
    weight_decay: float = 0.0
    validate_every: int = 500
    save_every: int = 200
    compile: Literal["auto", "off"] = "auto"

    def __post_init__(self) -> None:
        require_types(self)
        require(self.steps > 0, f"training.steps must be positive; got {self.steps}")
        floats = (self.learning_rate, self.clip, self.weight_decay)
        require(all(map(math.isfinite, floats)), f"training.learning_rate, clip and weight_decay must be finite; got {floats}")
        require(self.learning_rate > 0, f"training.learning_rate must be positive; got {self.learning_rate}")
        require(min(self.validate_every, self.save_every) > 0, "training.validate_every and training.save_every must be positive")
        require(min(self.clip, self.weight_decay, self.warmup) >= 0, "training.clip, weight_decay and warmup must be 0 or more")

    def rate(self, step: int) -> float:
        """The learning rate of a step."""
        warm = min(1.0, (step + 1) / (self.warmup + 1))
        fade = 0.5 * (1 + math.cos(math.pi * step / self.steps)) if self.schedule == "cosine" else 1.0
        return self.learning_rate * warm * fade


@dataclass(frozen=True)
class Report:
    """What a step did: `step` counts finished steps, `seconds` the time of all of them, resumed ones included."""

    step: int
    loss: float
    learning_rate: float
    seconds: float
    validation: Mapping[str, float] = field(default_factory=dict)


def fit(
    network: SFTNetwork,
    batch_of: BatchOf,
    config: TrainingConfig,
    *,
    validate: Callable[[SFTNetwork], Mapping[str, float]] | None = None,
    folder: Path | str | None = None,
    fabric: Fabric | None = None,
    moving: MovingMeshes | None = None,
) -> Iterator[Report]:
    """Train and yield a report after every step; nothing happens until the reports are asked for.

    With a folder, `state.safetensors` is saved every `save_every` steps, at the end and when the caller stops early by closing
    the iterator; `log.csv` has a row a step. A state that is there is resumed, and gives step for step the numbers of an
    uninterrupted run. Under several processes every one takes its share of the items of the same batch. `moving` are meshes that
    `batch_of` gives and whose nodes learn too.
    """
    fabric, folder = fabric or _one_process(), None if folder is None else Path(folder)
    optimizers = _optimizers(network, config)
    learning = Learning(network, optimizers, moving)
    done, seconds = resume(learning, folder, to_plain(config)) if folder else (0, 0.0)
    network.compiled_kernels = config.compile == "auto" and compiler_available()
    network.train()
    require(
        fabric.world_size == 1 or not list(network.losses.parameters()),
        "losses with weights of their own are trained in one process; leave out --devices",
    )
    require(fabric.world_size == 1 or moving is None, "meshes that move are trained in one process; leave out --devices")
    module, *wrapped = fabric.setup(network, *optimizers)
    log = _Log(folder / "log.csv", done) if folder and fabric.is_global_zero else None
    started, first = time.monotonic() - seconds, done

    def save() -> None:
        if folder and fabric.is_global_zero:
            save_state(learning, folder, to_plain(config), done, time.monotonic() - started)

    try:
        for step in range(done, config.steps):
            for optimizer in wrapped:
                optimizer.zero_grad()
                for group in optimizer.param_groups:
                    group["lr"] = config.rate(step)
            whole, meshes = batch_of(step)
            network.notice(meshes)
            batch, meshes = share(whole, meshes, fabric.global_rank, fabric.world_size)
            if step == first:
                network.validate(batch, meshes)
            batch, meshes = batch.to(fabric.device), union(meshes, batch.num_items).to(fabric.device)
            # gradients are averaged over processes: shares that differ count by their items
            loss = network.loss(module(batch, meshes), batch) * (batch.num_items * fabric.world_size / whole.num_items)
            value = _mean(fabric, loss)
            if not math.isfinite(value):
                network.validate(batch, meshes)  # says so if it is the data
            require(
                math.isfinite(value), f"the loss is {value} at step {step + 1}; lower training.learning_rate or set training.clip"
            )
            fabric.backward(loss)
            for optimizer in wrapped:
                if config.clip:
                    fabric.clip_gradients(module, optimizer, max_norm=config.clip, error_if_nonfinite=False)
                optimizer.step()
            if moving is not None:
                moving.step()
            done = step + 1
            validation: Mapping[str, float] = {}
            if validate is not None and (done % config.validate_every == 0 or done == config.steps):
                network.eval()
                validation = validate(network)
                network.train()
            report = Report(done, value, config.rate(step), time.monotonic() - started, validation)
            if log:
                log.write(report)
            if done % config.save_every == 0 or done == config.steps:
                save()
            yield report
    except GeneratorExit:
        save()
        raise
    finally:
        network.eval()
        network.compiled_kernels = False  # a single prediction should not wait for a compiler
        if log:
            log.close()


def share(batch: SFTBatch, meshes: Meshes, rank: int, world_size: int) -> tuple[SFTBatch, Meshes]:
    """Every `world_size`-th item from `rank` on, with its mesh."""
    if world_size == 1:
        return batch, meshes
    require(
        batch.num_items >= world_size,
        f"a step of {batch.num_items} items cannot be shared by {world_size} processes; raise batches.items or lower --devices",
    )
    items = list(range(rank, batch.num_items, world_size))
    if isinstance(meshes, MeshUnion):
        meshes = [meshes.parts[part] for part in meshes.part_of_item]
    return batch.selected(items), meshes if isinstance(meshes, Mesh) else [meshes[i] for i in items]


@torch.no_grad()
def item_errors(network: SFTNetwork, batch: SFTBatch, meshes: Meshes) -> dict[str, Float[Tensor, " _items"]]:
    """The mean error of every item and output in original units, in its loss's measure; NaN for an item without queries."""
    errors = {}
    for name, answer in network.predict(batch, meshes).items():
        require(name in batch.targets, f"errors need targets of {name!r}; this batch has only queries")
        error, items = network.losses[name].error(answer, batch.targets[name]), batch.queries[name].items  # type: ignore[operator]
        total = error.new_zeros(batch.num_items).index_add(0, items, error)
        errors[name] = total / torch.zeros_like(total).index_add(0, items, torch.ones_like(error))
    return errors


def _mean(fabric: Fabric, loss: Tensor) -> float:
    """The mean of a loss over the processes."""
    value = fabric.all_reduce(loss.detach(), reduce_op="mean")
    assert isinstance(value, Tensor)
    return value.item()


def _one_process() -> Fabric:
    from lightning_fabric import Fabric

    return Fabric(accelerator="cpu", devices=1)


THIN = 8  # matrices with a side up to this, such as those that see offsets, have too few directions to orthogonalise


def _optimizers(network: SFTNetwork, config: TrainingConfig) -> list[torch.optim.Optimizer]:
    """Adam for all weights; or Muon for the matrices, with steps of the size of Adam's, and Adam for the rest."""
    weights = [p for p in network.parameters() if p.requires_grad]
    matrices = [p for p in weights if config.optimizer == "muon" and p.ndim == 2 and min(p.shape) > THIN]
    chosen = set(map(id, matrices))
    others = [p for p in weights if id(p) not in chosen]
    decay = config.weight_decay
    optimizers: list[torch.optim.Optimizer] = []
    if others:
        optimizers.append(torch.optim.Adam(others, weight_decay=decay))
    if matrices:
        optimizers.append(Muon(matrices, weight_decay=decay))
    return optimizers


class _Log:
    """log.csv: a row a step, cut back to the resumed step."""

    COLUMNS = ("step", "loss", "learning_rate", "seconds")

    def __init__(self, path: Path, done: int) -> None:
        rows = []
        if done and path.exists():
            with path.open(newline="") as file:
                rows = [row for row in csv.reader(file) if row and row[0].isdigit() and int(row[0]) <= done]
        with replaced(path) as temporary, temporary.open("w", newline="") as file:
            csv.writer(file).writerows([self.COLUMNS, *rows])
        self._file = path.open("a", newline="")
        self._writer = csv.writer(self._file)

    def write(self, report: Report) -> None:
        self._writer.writerow([report.step, repr(report.loss), repr(report.learning_rate), f"{report.seconds:.3f}"])
        self._file.flush()

    def close(self) -> None:
        self._file.close()
