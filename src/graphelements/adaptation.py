"""Meshes that adapt to one problem instance: the nodes of a trained network move, are added and are removed (paper section 3.4).

The weights stay as they are. Nodes, and those of the coarser meshes behind them, move down the gradient of the loss on a few
solved scenarios; edges are made anew after every step. Between such steps, nodes come in where the network errs most and go where
they are missed least, and a change that does not help is undone, in the spirit of BounceGrad (Alet et al. 2018), which the paper
proposes.
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
from .functions import SFT
from .meshes import Mesh
from .moving_meshes import CLOSEST, kept_apart, least_distance
from .neighbours import nearest
from .network import GraphElementNetwork
from .sample_cells import sample_cells
from .samples import SFTBatch, collate
from .sft_network import Meshes, item_means
from .training import item_errors
from .unions import union

NO_ERROR = 1e-6  # of the mean error: as good as none
AT_ONCE = 0.2  # of its nodes come to a mesh for inputs before edges are judged anew


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


@dataclass(frozen=True)
class GrowthConfig:
    """How a mesh grows: up to `num_nodes`, or until its error is at most `tolerance`, in original units.

    After every `moves` steps a share of `inserted` nodes comes in. At `num_nodes`, one is exchanged instead; at `tolerance`, one
    goes that is missed least of `candidates`, as long as a cell is left. A change after which the loss is larger by a share of x
    stays with probability exp(-x / temperature), a removal only if the tolerance holds. `changes` bounds the number of tries.
    """

    num_nodes: int = 25
    tolerance: float | None = None
    changes: int = 11
    moves: int = 10
    inserted: float = 0.35
    candidates: int = 8
    temperature: float = 0.01
    seed: int = 0

    def __post_init__(self) -> None:
        require_types(self)
        for name in ("num_nodes", "changes", "moves", "candidates"):
            require(getattr(self, name) > 0, f"{name} must be positive; got {getattr(self, name)}")
        for name in ("inserted", "temperature"):
            require(0 < getattr(self, name) < math.inf, f"{name} must be positive; got {getattr(self, name)}")
        require(self.tolerance is None or self.tolerance > 0, f"tolerance must be positive; got {self.tolerance}")


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
    scenarios = _Scenarios(network, mesh, batch, config)
    best = _Best(scenarios.num_judges, config.standard_errors)
    for moved, loss, errors in _moves(scenarios, mesh, config, config.steps):
        yield best.among(moved, loss, errors)


def grow_mesh(
    network: GraphElementNetwork,
    mesh: Mesh,
    batch: SFTBatch,
    growth: GrowthConfig | None = None,
    config: AdaptationConfig | None = None,
) -> Iterator[AdaptedMesh]:
    """Grow a mesh for the items of a batch, and move its nodes; yields it after every step.

    The best mesh is that of `adapt_mesh`: judges compare with the mesh as it was given, however much it has grown since. With a
    tolerance it has the fewest nodes of those that reach it, on the judging items and on all of them: a few could do so by
    chance.
    """
    growth, config = growth or GrowthConfig(), config or AdaptationConfig()
    require(
        mesh.num_nodes <= growth.num_nodes,
        f"a mesh grows to {growth.num_nodes} nodes at most, but begins with {mesh.num_nodes}; begin with fewer, or allow more",
    )
    scenarios = _Scenarios(network, mesh, batch, config)
    best = _Best(scenarios.num_judges, config.standard_errors, growth.tolerance)
    rng = torch.Generator().manual_seed(growth.seed)
    kept, kept_loss, change = mesh, math.inf, "none"
    for _ in range(growth.changes + 1):
        loss, reached = math.inf, False
        for moved, loss, errors in _moves(scenarios, mesh, config, growth.moves):
            yield best.among(moved, loss, errors)
            mesh, reached = moved, best.reached(errors)
        chance = math.exp(min(0.0, -(loss / kept_loss - 1) / growth.temperature))
        stays = reached if change == "removal" else change == "none" or float(torch.rand((), generator=rng)) < chance
        if not stays:
            mesh, change = kept, "none"  # nodes move once more before the next try, which then is another one
            continue
        kept, kept_loss = mesh, loss
        if reached:
            if mesh.num_nodes <= mesh.space.intrinsic_dim + 1:
                return  # no fewer than one cell has
            mesh, change = without_least(network, mesh, scenarios.moving, growth.candidates), "removal"
        else:
            change = "insertion" if mesh.num_nodes < growth.num_nodes else "exchange"
            num = math.ceil(growth.inserted * mesh.num_nodes) if change == "insertion" else 1
            if change == "exchange":
                mesh = without_least(network, mesh, scenarios.moving, growth.candidates)
            num = min(num, growth.num_nodes - mesh.num_nodes)
            mesh = with_nodes(network, mesh, scenarios.moving, num, least_distance(mesh, config.closest))


def mesh_for_inputs(sft: SFT, mesh: Mesh, batch: SFTBatch, num_nodes: int) -> Mesh:
    """The mesh with more nodes, `num_nodes` in all, where the inputs of a batch are: before anything is solved.

    Nodes come in the middle of edges that are long and near to much of the inputs. A sample is worth its size times the space
    that it stands for, in units of all samples of its function; where a function shifts, its size is the distance from the item's
    mean. As much as all inputs counts the space around the edges, so that nothing is left out. Begin with a mesh of half as many
    nodes or so.
    """
    sft.validate(batch, mesh.positions.dtype, mesh.space)
    require(mesh.num_nodes <= num_nodes, f"nodes are added, up to {num_nodes}; the mesh has {mesh.num_nodes} already")
    given = [(f, batch.inputs[f.name]) for f in sft.inputs if f.name in batch.inputs and len(batch.inputs[f.name].points) > 0]
    require(len(given) > 0, "a mesh for inputs needs samples; this batch has none")
    worths = []
    for function, samples in given:
        values = samples.values
        if function.shifts:
            values = values - item_means(values, samples.items, batch.num_items)[samples.items]
        (cells,) = sample_cells([samples], batch.num_items, sft.space)
        worth = values.abs().mean(-1) * (sft.space.intrinsic_dim * cells.log_sizes.mean(-1)).exp()
        worths.append(worth / worth.sum().clamp(min=1e-12))
    worth, points = torch.cat(worths), torch.cat([samples.points for _, samples in given])
    worth = worth / worth.sum().clamp(min=1e-12)
    while mesh.num_nodes < num_nodes:
        middles, lengths = _middles(mesh)
        areas = lengths**mesh.space.intrinsic_dim
        order = (lengths * (_nearest_sums(points, worth, middles) + areas / areas.sum())).argsort(descending=True)
        num = min(num_nodes - mesh.num_nodes, max(1, round(AT_ONCE * mesh.num_nodes)))
        mesh = mesh.of_nodes(torch.cat([mesh.positions, middles[order[:num]]]))
    return mesh


def with_nodes(network: GraphElementNetwork, mesh: Mesh, batch: SFTBatch, num: int, least: float = 0.0) -> Mesh:
    """The mesh with up to `num` more nodes: in the middle of the edges that are nearest to most of the error on a batch."""
    middles, _ = _middles(mesh)
    errors = _errors_at(network, mesh, batch, middles)
    positions = mesh.positions
    for middle in middles[errors.argsort(descending=True)]:
        if len(positions) >= mesh.num_nodes + num:
            break
        if bool((mesh.space.distance(positions, middle.expand(positions.shape)) >= least).all()):
            positions = torch.cat([positions, middle[None]])
    return mesh.of_nodes(positions)


def without_least(network: GraphElementNetwork, mesh: Mesh, batch: SFTBatch, candidates: int = 8) -> Mesh:
    """The mesh without the node that is missed least on a batch, of those around which there is the least error."""
    errors = _errors_at(network, mesh, batch, mesh.positions)
    others = [torch.arange(mesh.num_nodes, device=errors.device) != node for node in errors.argsort()[:candidates]]
    meshes = [mesh.of_nodes(mesh.positions[rows]) for rows in others]
    found = mean_errors(network, meshes, batch)
    return meshes[found.index(min(found))]


def mean_errors(network: GraphElementNetwork, meshes: Sequence[Mesh], batch: SFTBatch) -> list[float]:
    """The mean error over the items and outputs of a batch on every mesh, in original units."""
    spread = [mesh for mesh in meshes for _ in range(batch.num_items)]
    return _errors(network, collate([batch] * len(meshes)), spread).reshape(len(meshes), -1).nanmean(1).tolist()


class _Scenarios:
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


def _moves(scenarios: _Scenarios, mesh: Mesh, config: AdaptationConfig, steps: int) -> Iterator[tuple[Mesh, float, Tensor]]:
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


def _middles(mesh: Mesh) -> tuple[Float[Tensor, "edges dim"], Float[Tensor, " edges"]]:
    """The middles of the edges of the finest scale, each once, and the lengths of these edges."""
    once = (mesh.senders < mesh.receivers) & (mesh.levels == 0)
    require(bool(once.any()), "nodes come in the middle of edges, but the mesh has none; begin with two nodes or more")
    ends = mesh.positions[mesh.senders[once]], mesh.positions[mesh.receivers[once]]
    return mesh.space.project((ends[0] + ends[1]) / 2), mesh.space.distance(*ends)


def _nearest_sums(
    points: Float[Tensor, "points dim"], values: Float[Tensor, " points"], places: Float[Tensor, "places dim"]
) -> Float[Tensor, " places"]:
    """The sum of the values at the points that are nearest to each place."""
    items = torch.zeros(len(points), dtype=torch.long, device=points.device)
    found = nearest(points, items, places, items.new_zeros(1), [len(places)], 1)[:, 0]
    return places.new_zeros(len(places)).index_add(0, found, values)


def _errors_at(
    network: GraphElementNetwork, mesh: Mesh, batch: SFTBatch, places: Float[Tensor, "places dim"]
) -> Float[Tensor, " places"]:
    """The error on a batch summed over the queries that are nearest to each place."""
    total = places.new_zeros(len(places))
    for name, answers in network.predict(batch, mesh).items():
        points = batch.queries[name].points
        if points is not None and name in batch.targets:
            errors = network.losses[name].error(answers, batch.targets[name])  # type: ignore[operator]
            total = total + _nearest_sums(points, errors, places)
    return total


class _Best:
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
