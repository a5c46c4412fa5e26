"""The representation function r : X -> R^n of the paper (sections 3.3 and A.1), for writing to and reading from nodes.

Every one is a partition of unity, defined everywhere (outside the hull of the nodes: the weights of the closest hull point,
where r is sparse), continuous in the point, and differentiable in the positions of the nodes. It returns a `Coupling`.
"""

from __future__ import annotations

import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import no_type_check

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from .edge_kernels import run
from .errors import require
from .functions import FunctionSamples
from .neighbours import nearest
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
        return self.blend(states[self.nodes])

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


def _coupling(
    points: Float[Tensor, "points dim"],
    mesh: MeshUnion,
    nodes: Int[Tensor, "points touched"],
    weights: Float[Tensor, "points touched"],
) -> Coupling:
    offsets = mesh.space.offset(points[:, None].expand(*nodes.shape, points.shape[-1]), mesh.positions[nodes])
    return Coupling(nodes, weights, offsets, mesh.num_nodes)


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
        there, here = mesh.positions[nodes], points[:, None].expand(*nodes.shape, points.shape[-1])
        distances = mesh.space.distance(here, there) / mesh.space.unit_length
        scores = torch.where(filled, -self.log_sharpness.exp() * distances, -torch.inf)
        offsets = mesh.space.offset(here, there)
        return Coupling(nodes, scores.softmax(-1), offsets, mesh.num_nodes, self._block(items, counts))

    def touched(self, mesh: MeshUnion) -> int:
        return max(_counts(mesh))

    @staticmethod
    def _block(items: Int[Tensor, " points"], counts: list[int]) -> tuple[int, int, int] | None:
        per_item, rest = divmod(len(items), len(counts))
        if len(set(counts)) > 1 or rest or items.device.type == "meta":
            return None
        regular = torch.arange(len(counts), device=items.device).repeat_interleave(per_item)
        return (len(counts), per_item, counts[0]) if torch.equal(items, regular) else None


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
    here, there = points[:, None].expand(*nodes.shape, points.shape[-1]), positions[nodes]
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


class Multilinear(Representation):
    """The paper's generalised barycentric coordinates on a regular grid of any dimension: 2^dim corners of the point's cell.

    The printed formula v = |x - x_l| |y - y_l| gives the far corner the most weight; this is the intended one, the opposite
    box's share. The nodes of a grid line share their coordinate, so gradients reach the positions of the first line of nodes
    along each axis only.
    """

    def forward(
        self, points: Float[Tensor, "points dim"], items: Int[Tensor, " points"], mesh: MeshUnion, compiled: bool = False
    ) -> Coupling:
        nodes = torch.zeros(len(points), 2 ** points.shape[-1], dtype=torch.long, device=points.device)
        parts = torch.tensor(mesh.part_of_item, device=points.device)[items]
        weights = points.new_zeros(nodes.shape)
        for number, part in enumerate(mesh.parts):
            require(part.axes is not None, "multilinear weights need a grid mesh; use barycentric or nearest_nodes on this one")
            assert part.axes is not None
            if len(mesh.parts) == 1:
                nodes, weights = self._locate(points, part.axes, part.positions)
            else:
                chosen = torch.nonzero(parts == number)[:, 0]
                found, shares = self._locate(points[chosen], part.axes, part.positions)
                nodes = nodes.index_copy(0, chosen, found)
                weights = weights.index_copy(0, chosen, shares)
        return _coupling(points, mesh, nodes + mesh.starts[items][:, None], weights)

    def touched(self, mesh: MeshUnion) -> int:
        return 2**mesh.space.dim

    @staticmethod
    def _locate(
        points: Float[Tensor, "points dim"], axes: tuple[Float[Tensor, " _"], ...], positions: Float[Tensor, "nodes dim"]
    ) -> tuple[Int[Tensor, "points touched"], Float[Tensor, "points touched"]]:
        shape = [len(axis) for axis in axes]
        strides = [math.prod(shape[d + 1 :]) for d in range(len(shape))]
        lows, shares = [], []
        for d, axis in enumerate(axes):
            x = points[:, d].contiguous()
            low = (torch.searchsorted(axis, x, right=True) - 1).clamp(0, max(shape[d] - 2, 0))
            high = (low + 1).clamp(max=shape[d] - 1)
            # coordinates come from the positions, so that gradients reach them
            along = positions[:, d].reshape(shape).movedim(d, 0).reshape(shape[d], -1)[:, 0]
            width = along[high] - along[low]
            share = (x - along[low]) / torch.where(high > low, width, 1.0)
            lows.append(low)
            shares.append(torch.where(high > low, share, 0.0).clamp(0, 1))
        nodes, weights = [], []
        for corner in itertools.product((0, 1), repeat=len(axes)):
            steps = [min(c, n - 1) for c, n in zip(corner, shape, strict=True)]
            nodes.append(sum((low + step) * stride for low, step, stride in zip(lows, steps, strides, strict=True)))
            weights.append(math.prod(s if c else 1 - s for c, s in zip(corner, shares, strict=True)))
        return torch.stack(nodes, -1), torch.stack(weights, -1)


class Barycentric(Representation):
    """P1 hat functions on the triangles of any planar mesh; outside of them, the weights of the closest point of their border."""

    CANDIDATES = 6
    TABLE = 2**18  # pairs of points and triangles or segments at a time: bounds the memory

    def forward(
        self, points: Float[Tensor, "points dim"], items: Int[Tensor, " points"], mesh: MeshUnion, compiled: bool = False
    ) -> Coupling:
        require(points.shape[-1] == 2, f"barycentric weights need a planar space; this one has {points.shape[-1]} dimensions")
        triangles, triangle_counts = self._flat(mesh, [_triangles(part.cells) for part in mesh.parts])
        borders, border_counts = self._flat(mesh, [part.boundary for part in mesh.parts])
        here, positions = points.detach(), mesh.positions.detach()
        chosen = self._containing(here, items, positions, triangles, triangle_counts, self.CANDIDATES)
        left = torch.nonzero(chosen < 0)[:, 0]
        within, segment = self._border(here[left], items[left], positions, borders, border_counts)
        # only points inside are worth a wider search, or its cost would grow with the mesh for all outside
        tried, most, hidden = self.CANDIDATES, max(triangle_counts), left[within]
        while len(hidden) and tried < most:
            tried = min(most, tried * 8)
            chosen[hidden] = self._containing(here[hidden], items[hidden], positions, triangles, triangle_counts, tried)
            hidden = hidden[chosen[hidden] < 0]
        triangles = triangles if len(triangles) else triangles.new_zeros(1, 3)
        corners = triangles[chosen.clamp(min=0)]
        weights = _barycentric(points, *mesh.positions[corners].unbind(1))
        outside = chosen[left] < 0
        rows, segment = left[outside], borders[segment[outside]]
        share = _along(points[rows], *mesh.positions[segment].unbind(1))
        edge = torch.cat([segment, segment[:, 1:]], -1)
        edge_weights = torch.stack([1 - share, share, torch.zeros_like(share)], -1)
        return _coupling(points, mesh, corners.index_copy(0, rows, edge), weights.index_copy(0, rows, edge_weights))

    def touched(self, mesh: MeshUnion) -> int:
        return 3

    @staticmethod
    def _flat(mesh: MeshUnion, per_part: list[Int[Tensor, "_ corners"]]) -> tuple[Int[Tensor, "cells corners"], list[int]]:
        """The cells of all items with their nodes numbered in the union, and how many each item has."""
        starts = mesh.starts.tolist()
        rows = [per_part[part] + start for part, start in zip(mesh.part_of_item, starts, strict=True)]
        return torch.cat(rows), mesh.per_item([len(of_part) for of_part in per_part])

    def _containing(
        self,
        points: Float[Tensor, "points 2"],
        items: Int[Tensor, " points"],
        positions: Float[Tensor, "nodes 2"],
        triangles: Int[Tensor, "triangles 3"],
        counts: list[int],
        tried: int,
    ) -> Int[Tensor, " points"]:
        """The triangle around each point among the `tried` of its item with the nearest centres; -1 if none."""
        chosen = torch.full((len(points),), -1, device=points.device)
        if len(triangles) == 0:
            return chosen
        centres = positions[triangles].mean(1)
        starts = torch.tensor([0, *itertools.accumulate(counts)], device=points.device)[:-1]
        for rows in torch.arange(len(points), device=points.device).split(max(1, self.TABLE // tried)):
            found = nearest(points[rows], items[rows], centres, starts, counts, min(tried, max(counts)))
            corners = positions[triangles[found.clamp(min=0)]]  # rows, candidates, 3, 2
            weights = _barycentric(points[rows][:, None].expand(-1, found.shape[1], -1), *corners.unbind(2))
            best, which = torch.where(found >= 0, weights.amin(-1), -torch.inf).max(-1)
            chosen[rows] = torch.where(best >= -1e-6, found.gather(1, which[:, None])[:, 0], -1)
        return chosen

    def _border(
        self,
        points: Float[Tensor, "points 2"],
        items: Int[Tensor, " points"],
        positions: Float[Tensor, "nodes 2"],
        borders: Int[Tensor, "segments 2"],
        counts: list[int],
    ) -> tuple[Bool[Tensor, " points"], Int[Tensor, " points"]]:
        """Whether each point lies inside its item's border (a ray crosses it an odd number of times), and the closest segment."""
        starts = torch.tensor([0, *itertools.accumulate(counts)], device=points.device)[:-1]
        slots, sizes = torch.arange(max(counts), device=points.device), torch.tensor(counts, device=points.device)
        within, closest = torch.zeros_like(items, dtype=torch.bool), torch.zeros_like(items)
        for rows in torch.arange(len(points), device=points.device).split(max(1, self.TABLE // max(counts))):
            filled = slots < sizes[items[rows]][:, None]  # rows, most
            candidates = starts[items[rows]][:, None] + torch.where(filled, slots, 0)
            a, b = positions[borders[candidates]].unbind(2)
            x = points[rows][:, None].expand(a.shape)
            foot = torch.lerp(a, b, _along(x, a, b)[..., None])
            closest[rows] = candidates.gather(1, (foot - x).square().sum(-1).argmin(-1, keepdim=True))[:, 0]
            astride = (a[..., 1] > x[..., 1]) != (b[..., 1] > x[..., 1])
            # the ray to the right of x meets a segment that it is astride of if x lies to the left of it, seen upwards
            left = (_cross(b - a, x - a) > 0) == (b[..., 1] > a[..., 1])
            within[rows] = (astride & left & filled).sum(-1) % 2 == 1
        return within, closest


def _triangles(cells: Int[Tensor, "cells corners"] | None) -> Int[Tensor, "triangles 3"]:
    require(cells is not None, "barycentric weights need a mesh with cells; build it with grid_mesh, scattered_mesh or mesh_at")
    assert cells is not None
    return cells if cells.shape[1] == 3 else cells.new_zeros(0, 3)


def _along(x: Float[Tensor, "*n 2"], a: Float[Tensor, "*n 2"], b: Float[Tensor, "*n 2"]) -> Float[Tensor, "*n"]:
    """How far along the segment a b its point closest to x lies, from 0 to 1."""
    squared = (b - a).square().sum(-1)
    return (((x - a) * (b - a)).sum(-1) / torch.where(squared > 0, squared, 1.0)).clamp(0, 1)


def _cross(u: Float[Tensor, "*n 2"], v: Float[Tensor, "*n 2"]) -> Float[Tensor, "*n"]:
    return u[..., 0] * v[..., 1] - u[..., 1] * v[..., 0]


def _barycentric(
    x: Float[Tensor, "*n 2"], a: Float[Tensor, "*n 2"], b: Float[Tensor, "*n 2"], c: Float[Tensor, "*n 2"]
) -> Float[Tensor, "*n 3"]:
    """Barycentric coordinates of x in the triangle a b c; all -1 for a flat triangle."""
    area = _cross(b - a, c - a)
    flat = area.abs() <= 1e-6 * torch.maximum((b - a).square().sum(-1), (c - a).square().sum(-1))
    safe = torch.where(flat, 1.0, area)
    second, third = _cross(x - a, c - a) / safe, _cross(b - a, x - a) / safe
    weights = torch.stack([1 - second - third, second, third], -1)
    return torch.where(flat[..., None], -1.0, weights)


def _log_sharpness(sharpness: float, learned: bool) -> nn.Parameter:
    require(math.isfinite(sharpness) and sharpness > 0, f"the sharpness of a representation must be positive; got {sharpness}")
    return nn.Parameter(torch.tensor(math.log(sharpness)), requires_grad=learned)
