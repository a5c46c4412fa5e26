"""Meshes that grow and shrink for one problem instance, and meshes for inputs of which nothing is solved yet.

Between the moves of `adaptation`, nodes come in where the network errs most and go where they are missed least, and a change that
does not help is undone, in the spirit of BounceGrad (Alet et al. 2018), which the paper proposes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from .adaptation import AdaptationConfig, AdaptedMesh, Best, Scenarios, mean_errors, moves
from .configs import require_types
from .errors import require
from .functions import SFT
from .meshes import Mesh
from .moving_meshes import least_distance
from .neighbours import nearest
from .network import GraphElementNetwork
from .sample_cells import sample_cells
from .samples import SFTBatch
from .sft_network import item_means

AT_ONCE = 0.2  # of its nodes come to a mesh for inputs before edges are judged anew


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
    scenarios = Scenarios(network, mesh, batch, config)
    best = Best(scenarios.num_judges, config.standard_errors, growth.tolerance)
    rng = torch.Generator().manual_seed(growth.seed)
    kept, kept_loss, change = mesh, math.inf, "none"
    for _ in range(growth.changes + 1):
        loss, reached = math.inf, False
        for moved, loss, errors in moves(scenarios, mesh, config, growth.moves):
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
