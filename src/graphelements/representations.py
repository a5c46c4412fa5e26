"""The representation function r : X -> R^n of the paper (sections 3.3 and A.1), for writing to and reading from nodes.

Every one is a partition of unity, defined everywhere (outside the hull of the nodes: the weights of the closest hull point,
where r is sparse), continuous in the point, and differentiable in the positions of the nodes. It returns a `Coupling`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import no_type_check

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from .compilation import rows_of, run
from .errors import require
from .neighbours import nearest
from .samples import FunctionSamples, count_per_item
from .spaces import Space
from .unions import MeshUnion


@dataclass(frozen=True)
class Coupling:
    """For every point the nodes that it touches, r_l(x) and the offsets x - x_l.

    `block` is set where every point of an item touches all nodes of the item and items are alike: (items, points, nodes) of the
    dense weights, so that sums over points or nodes are matrix products.
    """

    nodes: Int[Tensor, "points touched"]
    weights: Float[Tensor, "points touched"]
    offsets: Float[Tensor, "points touched dim"]
    num_nodes: int
    block: tuple[int, int, int] | None = None

    def local_coordinates(self, mesh: MeshUnion) -> Float[Tensor, "points touched local"]:
        """x - x_l in units of the node's spacing, and the logarithm of the spacing."""
        unit = mesh.space.unit_length
        if torch.compiler.is_compiling():  # points are last in memory: compiled loops run along them
            nodes = self.nodes.mT  # touched, points
            scaled = self.offsets.permute(2, 1, 0) / (unit * mesh.spacing[nodes])
            return torch.cat([scaled, mesh.log_spacing[nodes][None]]).permute(2, 1, 0)
        spacing, log_spacing = rows_of(torch.stack([mesh.spacing, mesh.log_spacing], -1), self.nodes).chunk(2, -1)
        return torch.cat([self.offsets / (unit * spacing), log_spacing], -1)

    def scatter(self, codes: Float[Tensor, "points *touched latent"]) -> Float[Tensor, "nodes latent"]:
        """z_l = sum over x of r_l(x) code(x), for one code per point or one per point and touched node."""
        if codes.ndim == 2 and self.block is not None:
            items, points, nodes = self.block
            weights = self.weights.reshape(items, points, nodes)
            return torch.bmm(weights.mT, codes.reshape(items, points, codes.shape[-1])).flatten(0, 1)
        if codes.ndim == 2:
            codes = codes[:, None]
        weighted = self.weights[..., None] * codes
        return codes.new_zeros(self.num_nodes, codes.shape[-1]).index_add(0, self.nodes.flatten(), weighted.flatten(0, 1))

    def gather(self, states: Float[Tensor, "nodes latent"]) -> Float[Tensor, "points latent"]:
        """z(x) = sum over l of r_l(x) z_l."""
        if self.block is not None:
            items, points, nodes = self.block
            latents = torch.bmm(self.weights.reshape(items, points, nodes), states.reshape(items, nodes, states.shape[-1]))
            return latents.flatten(0, 1)
        return self.blend(rows_of(states, self.nodes))

    def blend(self, values: Float[Tensor, "points touched latent"]) -> Float[Tensor, "points latent"]:
        """sum over l of r_l(x) value(x, l)."""
        return torch.einsum("pt,ptl->pl", self.weights, values)


class Representation(nn.Module, ABC):
    """r: points of items on meshes -> `Coupling`. Abstract; the classes below are final."""

    @abstractmethod
    def forward(
        self, points: Float[Tensor, "points dim"], items: Int[Tensor, " points"], mesh: MeshUnion, compiled: bool = False
    ) -> Coupling:
        """Which nodes each point touches, and how much; with compiled kernels where there are any."""

    def couple(self, samples: Sequence[FunctionSamples], mesh: MeshUnion, compiled: bool = False) -> list[Coupling]:
        """The coupling of the samples of every function."""
        return [self(each.points, each.items, mesh, compiled) for each in samples]

    @abstractmethod
    def touched(self, mesh: MeshUnion) -> int:
        """How many nodes a point touches on these meshes."""


def _counts(mesh: MeshUnion) -> list[int]:
    return mesh.per_item([part.num_nodes for part in mesh.parts])


class SoftNearest(Representation):
    """r(x) = softmax over all nodes of -sharpness * dist(x, x_l), distances in units of the space.

    The paper's sharpness is 1; `learned` makes it a weight. Dense: every point touches every node of its mesh.
    """

    def __init__(self, sharpness: float = 1.0, learned: bool = False) -> None:
        super().__init__()
        self.log_sharpness = _log_sharpness(sharpness, learned)

    def forward(
        self, points: Float[Tensor, "points dim"], items: Int[Tensor, " points"], mesh: MeshUnion, compiled: bool = False
    ) -> Coupling:
        counts = _counts(mesh)
        slots = torch.arange(max(counts), device=points.device)
        filled = (slots < torch.tensor(counts, device=points.device)[:, None])[items]  # points, touched
        nodes = torch.where(filled, mesh.starts[items][:, None] + slots, mesh.starts[items][:, None])
        there, here = rows_of(mesh.positions, nodes), points[:, None].expand(*nodes.shape, points.shape[-1])
        distances = mesh.space.distance(here, there) / mesh.space.unit_length
        scores = torch.where(filled, -self.log_sharpness.exp() * distances, -torch.inf)
        offsets = mesh.space.offset(here, there)
        num = count_per_item(items, len(counts)) if len(set(counts)) == 1 else None
        block = None if num is None else (len(counts), num, counts[0])
        return Coupling(nodes, scores.softmax(-1), offsets, mesh.num_nodes, block)

    def touched(self, mesh: MeshUnion) -> int:
        return max(_counts(mesh))


class NearestNodes(Representation):
    """A soft choice among the `num_nodes` nearest nodes, continuous because a node's weight fades to zero where it drops out:

    r_l(x) ~ exp(-sharpness * d_l / R) * (1 - (d_l / R)^2)^2, with R the distance of the next nearest node: the local spacing. On
    a mesh without a next one R is the mean spacing, and nothing fades. One scale for all nodes of a point keeps their weights
    comparable, and r gentle, where fine and coarse parts of a mesh meet. A point touches at least 2^dim nodes: as many are
    equally near in the middle of a grid's cell, where r would otherwise depend on the side one comes from.
    """

    def __init__(self, num_nodes: int = 4, sharpness: float = 3.0, learned: bool = True) -> None:
        super().__init__()
        require(num_nodes > 1, f"a point must touch at least two nodes, or r jumps between them; got num_touched = {num_nodes}")
        self.num_nodes = num_nodes
        self.log_sharpness = _log_sharpness(sharpness, learned)

    def forward(
        self, points: Float[Tensor, "points dim"], items: Int[Tensor, " points"], mesh: MeshUnion, compiled: bool = False
    ) -> Coupling:
        found = nearest(points, items, mesh.positions, mesh.starts, _counts(mesh), self.touched(mesh) + 1, compiled)
        given = (points, found, mesh.starts[items], mesh.positions, mesh.spacing, self.log_sharpness.exp())
        learned = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in given)
        nodes, weights, offsets = run(_fading, *given, mesh.space, compiled=compiled and not learned)
        return Coupling(nodes, weights, offsets, mesh.num_nodes)

    def couple(self, samples: Sequence[FunctionSamples], mesh: MeshUnion, compiled: bool = False) -> list[Coupling]:
        """The coupling of the samples of every function, from one search for all."""
        points, items = torch.cat([each.points for each in samples]), torch.cat([each.items for each in samples])
        found, sizes = self(points, items, mesh, compiled), [len(each.points) for each in samples]
        nodes, weights, offsets = (rows.split(sizes) for rows in (found.nodes, found.weights, found.offsets))
        return [Coupling(*rows, found.num_nodes) for rows in zip(nodes, weights, offsets, strict=True)]

    def touched(self, mesh: MeshUnion) -> int:
        return max(self.num_nodes, 2**mesh.space.intrinsic_dim)


@no_type_check  # the compiler cannot see through the shape checks of the tests
def _fading(
    points: Float[Tensor, "points dim"],
    found: Int[Tensor, "points near"],
    starts: Int[Tensor, " points"],
    positions: Float[Tensor, "nodes dim"],
    spacing: Float[Tensor, " nodes"],
    sharpness: Float[Tensor, ""],
    space: Space,
) -> tuple[Int[Tensor, "points touched"], Float[Tensor, "points touched"], Float[Tensor, "points touched dim"]]:
    """Nodes, weights and offsets of `NearestNodes`, from the nearest nodes and one more; -1 where there are fewer."""
    missing = found < 0
    nodes = torch.where(missing, starts[:, None], found)
    here, there = points[:, None].expand(*nodes.shape, points.shape[-1]), rows_of(positions, nodes)
    distances = torch.where(missing, torch.inf, space.distance(here, there) / space.unit_length)
    near, beyond = distances[:, :-1], distances[:, -1:]
    absent = missing[:, :-1]
    near = torch.where(absent, 0.0, near)
    # bounded, because where all nodes are equally far all fade
    fade = 2 * (1 - (near / beyond.clamp(min=1e-12)).square()).clamp(min=1e-15).log()
    mean_spacing = torch.where(missing, 0.0, spacing[nodes]).sum(-1, keepdim=True) / (~missing).sum(-1, keepdim=True)
    scale = torch.where(missing[:, -1:], mean_spacing, beyond).clamp(min=1e-12)
    scores = torch.where(absent, -torch.inf, fade - sharpness * near / scale)
    return nodes[:, :-1], scores.softmax(-1), space.offset(here, there)[:, :-1]


def _log_sharpness(sharpness: float, learned: bool) -> nn.Parameter:
    require(math.isfinite(sharpness) and sharpness > 0, f"the sharpness of a representation must be positive; got {sharpness}")
    return nn.Parameter(torch.tensor(math.log(sharpness)), requires_grad=learned)
