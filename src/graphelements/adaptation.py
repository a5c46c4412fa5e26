"""Meshes that adapt to one problem instance: the nodes of a trained network move (paper section 3.4).

The weights stay as they are. Nodes, and those of the coarser meshes behind them, move down the gradient of the loss on a few
solved scenarios; edges are made anew after every step.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from .cell_representations import Multilinear
from .configs import require_types
from .errors import require
from .meshes import Mesh
from .moving_meshes import CLOSEST, kept_apart, least_distance
from .network import GraphElementNetwork
from .samples import SFTBatch, collate
from .sft_network import Meshes
from .training import item_errors
from .unions import union

NO_ERROR = 1e-6  # of the mean error: as good as none


@dataclass(frozen=True)
class AdaptationConfig:
    """How nodes move: `steps` of Adam with `learning_rate`, in units of the space.

    The share `validation` of the scenarios moves nothing and judges whether it helped: their errors must have fallen, in the
    mean of logarithms, by so many `standard_errors` (one judge alone: at all). The others take turns: a step is made by one of
    `turns` parts of them, and meshes are judged after whole turns and at the end. Nodes keep `closest` times the spacing of an
    even mesh between them.
    """

    steps: int = 40
    learning_rate: float = 1e-2
    validation: float = 0.25
    standard_errors: float = 1.0
    turns: int = 3
    closest: float = CLOSEST

    def __post_init__(self) -> None:
        require_types(self)
        require(self.steps >= 0, f"steps must be 0 or more; got {self.steps}")
        require(self.turns > 0, f"turns must be positive; got {self.turns}")
        require(0 < self.learning_rate < math.inf, f"learning_rate must be positive; got {self.learning_rate}")
        require(0 <= self.standard_errors < math.inf, f"standard_errors must be 0 or more; got {self.standard_errors}")
        for name in ("validation", "closest"):
            require(0 < getattr(self, name) < 1, f"{name} must be above 0 and below 1; got {getattr(self, name)}")


@dataclass(frozen=True, eq=False)
class AdaptedMesh:
    """A mesh on the way: the loss on the scenarios that change it, a mean over the last turns, the error on all scenarios when it
    was judged last, and the best mesh so far with its error.

    With a tolerance the error is that on the scenarios that judge, where it is larger.
    """

    mesh: Mesh
    loss: float
    error: float
    best: Mesh
    best_error: float


def adapt_mesh(
    network: GraphElementNetwork, mesh: Mesh, batch: SFTBatch, config: AdaptationConfig | None = None
) -> Iterator[AdaptedMesh]:
    """Move the nodes of a mesh for the items of a batch, solved scenarios of one problem instance; yields it after every step.

    The best mesh has the least error on all items, in original units, among those that surely help the last ones too, which move
    nothing; if there is none, it is the mesh as it was given.
    """
    config = config or AdaptationConfig()
    scenarios = Scenarios(network, mesh, batch, config)
    best = Best(scenarios.num_judges, config.standard_errors)
    for moved, loss, errors in moves(scenarios, mesh, config, config.steps):
        yield best.among(moved, loss, errors)


def mean_errors(network: GraphElementNetwork, meshes: Sequence[Mesh], batch: SFTBatch) -> list[float]:
    """The mean error over the items and outputs of a batch on every mesh, in original units."""
    spread = [mesh for mesh in meshes for _ in range(batch.num_items)]
    return _errors(network, collate([batch] * len(meshes)), spread).reshape(len(meshes), -1).nanmean(1).tolist()


class Scenarios:
    """Solved scenarios, of which the last judge and the others move nodes, in turns."""

    def __init__(self, network: GraphElementNetwork, mesh: Mesh, batch: SFTBatch, config: AdaptationConfig) -> None:
        network.validate(batch, mesh)
        fixed = isinstance(network.representation, Multilinear)
        require(not fixed, "multilinear weights need a grid, so nodes cannot move; train with network.representation=barycentric")
        require(len(batch.targets) > 0, "a mesh adapts to solved scenarios; this batch has no targets")
        num = batch.num_items
        require(num > 1, "a mesh adapts to two scenarios or more, of which one judges; got one")
        first = num - min(max(1, round(config.validation * num)), num - 1)
        self.network, self.all, self.moving, self.num_judges = network, batch, batch.selected(range(first)), num - first
        self.turns = [batch.selected(range(turn, first, config.turns)) for turn in range(min(config.turns, first))]

    def loss(self, mesh: Mesh, step: int) -> Float[Tensor, ""]:
        """The loss on those whose turn it is."""
        batch = self.turns[step % len(self.turns)]
        return self.network.loss(self.network(batch, union(mesh, batch.num_items)), batch)

    def errors(self, mesh: Mesh) -> Float[Tensor, " items"]:
        return _errors(self.network, self.all, mesh)


def _errors(network: GraphElementNetwork, batch: SFTBatch, meshes: Meshes) -> Float[Tensor, " items"]:
    """The mean error over the outputs of every item, in original units."""
    return torch.stack(list(item_errors(network, batch, meshes).values())).nanmean(0)


def moves(scenarios: Scenarios, mesh: Mesh, config: AdaptationConfig, steps: int) -> Iterator[tuple[Mesh, float, Tensor]]:
    """The mesh, its loss and the error of every scenario, before the first step and after each; errors are found anew after whole
    turns and at the end, and are those of the mesh before in between."""
    nest, space = mesh.nest, mesh.space
    positions = [level.positions.detach().clone().requires_grad_() for level in nest]
    optimizer = torch.optim.Adam(positions, lr=config.learning_rate * space.unit_length)
    current, errors = _placed(nest, positions), torch.empty(0)
    losses: deque[float] = deque(maxlen=len(scenarios.turns))
    for step in range(steps + 1):
        loss = scenarios.loss(current, step)
        losses.append(float(loss.detach()))
        here = [nodes.detach().clone() for nodes in positions]
        if step % len(scenarios.turns) == 0 or step == steps:
            errors = scenarios.errors(current)
        yield _placed(current.nest, here), math.fsum(losses) / len(losses), errors
        if step < steps:
            for nodes, gradient in zip(positions, torch.autograd.grad(loss, positions), strict=True):
                nodes.grad = gradient
            optimizer.step()
            with torch.no_grad():
                for level, nodes, before in zip(nest, positions, here, strict=True):
                    nodes.copy_(kept_apart(before, space.project(nodes), least_distance(level, config.closest)))
            current = _placed([level.moved(nodes) for level, nodes in zip(nest, positions, strict=True)], positions)


def _placed(nest: Sequence[Mesh], positions: Sequence[Float[Tensor, "_nodes dim"]]) -> Mesh:
    """The meshes of a nest, finest first, with these positions of their nodes, one behind the other."""
    placed = None
    for level, nodes in zip(reversed(nest), reversed(positions), strict=True):
        placed = replace(level, positions=nodes, coarser=placed)
    assert placed is not None
    return placed


class Best:
    """The best mesh so far, by the error of every scenario, the last of which judge; NaN where a scenario has no queries.

    It has the least error among those that surely help the judges, or is the first. With a tolerance it has the fewest nodes
    among those whose error is at most so much, if there are any.
    """

    def __init__(self, num_judges: int, standard_errors: float, tolerance: float | None = None) -> None:
        self.num_judges, self.standard_errors, self.tolerance = num_judges, standard_errors, tolerance
        self.first: Tensor | None = None

    def among(self, mesh: Mesh, loss: float, errors: Float[Tensor, " items"]) -> AdaptedMesh:
        error, reached = self.error(errors), self.reached(errors)
        key = (mesh.num_nodes if reached else math.inf, error)
        if self.first is None:
            judged = not bool(errors[-self.num_judges :].isnan().all())
            require(judged, "the last scenarios judge, but have no queries; give some with queries and targets last")
            self.first, self.mesh, self.key = errors, mesh, key
        elif key < self.key and (reached or self._helps(self.first, errors)):  # errors of a mesh before are never less
            self.mesh, self.key = mesh, key
        return AdaptedMesh(mesh, loss, error, self.mesh, self.key[1])

    def error(self, errors: Float[Tensor, " items"]) -> float:
        """The mean over all scenarios; with a tolerance that over the judges, where it is larger."""
        mean = float(errors.nanmean())
        return mean if self.tolerance is None else max(mean, float(errors[-self.num_judges :].nanmean()))

    def reached(self, errors: Float[Tensor, " items"]) -> bool:
        return self.tolerance is not None and self.error(errors) <= self.tolerance

    def _helps(self, first: Float[Tensor, " items"], errors: Float[Tensor, " items"]) -> bool:
        """Whether the errors of the judges have surely fallen since the first mesh."""
        least = max(NO_ERROR * float(first.nanmean()), torch.finfo(first.dtype).tiny)  # logarithms of less say nothing
        before, after = (each[-self.num_judges :].clamp(min=least).log() for each in (first, errors))
        gains = (before - after)[~before.isnan()]
        doubt = float(gains.std()) / math.sqrt(len(gains)) if len(gains) > 1 else 0.0
        return float(gains.mean()) > self.standard_errors * doubt
