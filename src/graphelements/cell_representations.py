"""Representations by the cells of a mesh: r interpolates between the corners of the cell around a point (paper appendix A.1)."""

from __future__ import annotations

import itertools
import math

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from .compilation import rows_of
from .errors import require
from .meshes import Mesh
from .neighbours import nearest
from .representations import Coupling, Representation
from .spaces import Sphere
from .unions import MeshUnion

FEW_PLACES = 32  # on an axis: with no more a compiled loop that compares with all is faster than a search


class Multilinear(Representation):
    """The paper's generalised barycentric coordinates on a regular grid of any dimension: 2^dim corners of the point's cell.

    The printed formula v = |x - x_l| |y - y_l| gives the far corner the most weight; this is the intended one, the opposite
    box's share. The nodes of a grid line share their coordinate, so gradients reach the positions of the first line of nodes
    along each axis only.
    """

    def forward(
        self, points: Float[Tensor, "points dim"], items: Int[Tensor, " points"], mesh: MeshUnion, compiled: bool = False
    ) -> Coupling:
        gridded = all(part.axes is not None for part in mesh.parts)
        require(gridded, "multilinear weights need a grid mesh; use barycentric or nearest_nodes on this one")
        if len(mesh.parts) == 1:
            nodes, weights = self._locate(points, mesh.parts[0])
        else:
            parts = torch.tensor(mesh.part_of_item, device=points.device)[items]
            nodes = torch.zeros(len(points), 2 ** points.shape[-1], dtype=torch.long, device=points.device)
            weights = points.new_zeros(nodes.shape)
            for number, part in enumerate(mesh.parts):
                chosen = torch.nonzero(parts == number)[:, 0]
                found, shares = self._locate(points[chosen], part)
                nodes = nodes.index_copy(0, chosen, found)
                weights = weights.index_copy(0, chosen, shares)
        return _coupling(points, mesh, nodes + mesh.starts[items][:, None], weights)

    def touched(self, mesh: MeshUnion) -> int:
        return 2**mesh.space.dim

    @staticmethod
    def _locate(
        points: Float[Tensor, "points dim"], mesh: Mesh
    ) -> tuple[Int[Tensor, "points touched"], Float[Tensor, "points touched"]]:
        axes, positions = mesh.axes, mesh.positions
        assert axes is not None
        shape = [len(axis) for axis in axes]
        strides = [math.prod(shape[d + 1 :]) for d in range(len(shape))]
        lows, shares = [], []
        for d, axis in enumerate(axes):
            x = points[:, d].contiguous()
            low = (_num_below(axis, x) - 1).clamp(0, max(shape[d] - 2, 0))
            lows.append(low)
            # coordinates come from the positions, so that gradients reach them
            along = positions[:, d].reshape(shape).movedim(d, 0).reshape(shape[d], -1)[:, 0]
            cells = (along[:-1], along.diff()) if shape[d] > 1 else (along, torch.ones_like(along))
            start, width = rows_of(torch.stack(cells, -1), low).unbind(-1)
            shares.append(((x - start) / width).clamp(0, min(shape[d] - 1, 1)))
        nodes, weights = [], []
        for corner in itertools.product((0, 1), repeat=len(axes)):
            steps = [min(c, n - 1) for c, n in zip(corner, shape, strict=True)]
            nodes.append(sum([(low + step) * stride for low, step, stride in zip(lows, steps, strides, strict=True)]))
            weights.append(math.prod([s if c else 1 - s for c, s in zip(corner, shares, strict=True)]))
        return torch.stack(nodes).mT, torch.stack(weights).mT  # points are last in memory: compiled loops run along them


def _num_below(axis: Float[Tensor, " places"], x: Float[Tensor, " points"]) -> Int[Tensor, " points"]:
    """How many places of an ascending axis are not above each x."""
    if torch.compiler.is_compiling() and len(axis) <= FEW_PLACES:
        return torch.stack([place <= x for place in axis.unbind()]).sum(0)
    return torch.searchsorted(axis, x, right=True)


class Barycentric(Representation):
    """P1 hat functions on the triangles of any planar mesh; outside of them, the weights of the closest point of their border.

    On a sphere, seen from its centre: x lies on the ray of a weighted mean of the corners, and these are its weights. Where nodes
    leave half of a sphere empty, the closest point of the border, and r with it, jumps somewhere in there.
    """

    DENSE = 256  # triangles: with no more every point is compared with all, else with the CANDIDATES nearest
    CANDIDATES = 6
    TABLE = 2**18  # pairs of points and triangles or segments at a time: bounds the memory

    def forward(
        self, points: Float[Tensor, "points dim"], items: Int[Tensor, " points"], mesh: MeshUnion, compiled: bool = False
    ) -> Coupling:
        curved = isinstance(mesh.space, Sphere)
        require(curved or mesh.space.dim == 2, f"barycentric weights need a plane or a sphere; this space is {mesh.space}")
        triangles, triangle_counts = self._flat(mesh, [_triangles(part.cells) for part in mesh.parts])
        borders, border_counts = self._flat(mesh, [part.boundary for part in mesh.parts])
        here, positions = points.detach(), mesh.positions.detach()
        tried, most = self.CANDIDATES, max(triangle_counts)
        if most <= self.DENSE:
            tried, chosen = most, self._among_all(here, items, mesh, triangle_counts)
        else:
            chosen = self._containing(here, items, positions, triangles, triangle_counts, tried)
        left = torch.nonzero(chosen < 0)[:, 0]
        within, segment = self._border(here[left], items[left], positions, borders, border_counts)
        # only points inside are worth a wider search, or its cost would grow with the mesh for all outside
        hidden = left[within]
        while len(hidden) and tried < most:
            tried = min(most, tried * 8)
            chosen[hidden] = self._containing(here[hidden], items[hidden], positions, triangles, triangle_counts, tried)
            hidden = hidden[chosen[hidden] < 0]
        if len(hidden) and len(triangles):  # seams that rounding has opened, where there is no border
            seams = hidden[torch.tensor(border_counts, device=items.device)[items[hidden]] == 0]
            there = here[seams], items[seams], positions, triangles, triangle_counts
            chosen[seams] = self._containing(*there, most, slack=torch.inf)
        triangles = triangles if len(triangles) else triangles.new_zeros(1, 3)
        corners = triangles[chosen.clamp(min=0)]
        weights = _barycentric(points, *mesh.positions[corners].unbind(1))
        if curved:
            weights = weights.clamp(min=0)
            weights = weights / weights.sum(-1, keepdim=True).clamp(min=1e-12)
        outside = chosen[left] < 0
        rows, segment = left[outside], borders[segment[outside]]
        share = (_seen_along if curved else _along)(points[rows], *mesh.positions[segment].unbind(1))
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

    def _among_all(
        self, points: Float[Tensor, "points dim"], items: Int[Tensor, " points"], mesh: MeshUnion, counts: list[int]
    ) -> Int[Tensor, " points"]:
        """The triangle around each point, up to rounding, among all of its item; -1 if none. Items of one mesh go together."""
        chosen, parts = torch.full_like(items, -1), torch.tensor(mesh.part_of_item, device=items.device)[items]
        starts = torch.tensor([0, *itertools.accumulate(counts)], device=items.device)[items]
        for number, part in enumerate(mesh.parts):
            cells, all_rows = _triangles(part.cells), torch.nonzero(parts == number)[:, 0]
            middle = part.positions.detach().double().mean(0) * (points.shape[-1] == 2)  # digits of places far from 0
            a, b, c = _lifted(part.positions.detach() - middle)[cells].unbind(1)
            volume = (a * torch.linalg.cross(b, c)).sum(-1)
            flat = volume.abs() <= _FLAT * _longest(a, b, c) * (a.norm(dim=-1) if points.shape[-1] == 3 else 1.0)
            volume = torch.where(flat, torch.nan, volume)[:, None]
            sides = [torch.linalg.cross(v, w) / volume for v, w in ((b, c), (c, a), (a, b))]
            for rows in all_rows.split(max(1, self.TABLE // max(1, len(cells)))) if len(cells) else ():
                first, second, third = (_lifted(points[rows] - middle) @ side.T for side in sides)  # the weights of all corners
                best, which = torch.minimum(torch.minimum(first, second), third).nan_to_num(-torch.inf).max(-1)
                chosen[rows] = torch.where(best >= -1e-6, starts[rows] + which, -1)
        return chosen

    def _containing(
        self,
        points: Float[Tensor, "points dim"],
        items: Int[Tensor, " points"],
        positions: Float[Tensor, "nodes dim"],
        triangles: Int[Tensor, "triangles 3"],
        counts: list[int],
        tried: int,
        slack: float = 1e-6,
    ) -> Int[Tensor, " points"]:
        """The triangle around each point, up to `slack`, among the `tried` of its item with the nearest centres; -1 if none."""
        chosen = torch.full((len(points),), -1, device=points.device)
        if len(triangles) == 0:
            return chosen
        centres = positions[triangles].mean(1)
        starts = torch.tensor([0, *itertools.accumulate(counts)], device=points.device)[:-1]
        for rows in torch.arange(len(points), device=points.device).split(max(1, self.TABLE // tried)):
            found = nearest(points[rows], items[rows], centres, starts, counts, min(tried, max(counts)))
            corners = positions[triangles[found.clamp(min=0)]]  # rows, candidates, 3, dim
            weights = _barycentric(points[rows][:, None].expand(-1, found.shape[1], -1), *corners.unbind(2))
            best, which = torch.where(found >= 0, weights.amin(-1), -torch.inf).max(-1)
            chosen[rows] = torch.where(best >= -slack, found.gather(1, which[:, None])[:, 0], -1)
        return chosen

    def _border(
        self,
        points: Float[Tensor, "points dim"],
        items: Int[Tensor, " points"],
        positions: Float[Tensor, "nodes dim"],
        borders: Int[Tensor, "segments 2"],
        counts: list[int],
    ) -> tuple[Bool[Tensor, " points"], Int[Tensor, " points"]]:
        """Whether each point lies inside its item's border (a ray crosses it an odd number of times), and the closest segment.

        On a sphere every point may lie inside, and there may be no border.
        """
        planar = points.shape[-1] == 2
        if max(counts) == 0:
            return torch.ones_like(items, dtype=torch.bool), torch.zeros_like(items)
        starts = torch.tensor([0, *itertools.accumulate(counts)], device=points.device)[:-1]
        slots, sizes = torch.arange(max(counts), device=points.device), torch.tensor(counts, device=points.device)
        within, closest = torch.zeros_like(items, dtype=torch.bool), torch.zeros_like(items)
        for rows in torch.arange(len(points), device=points.device).split(max(1, self.TABLE // max(counts))):
            filled = slots < sizes[items[rows]][:, None]  # rows, most
            candidates = (starts[items[rows]][:, None] + torch.where(filled, slots, 0)).clamp(max=len(borders) - 1)
            a, b = positions[borders[candidates]].unbind(2)
            x = points[rows][:, None].expand(a.shape)
            foot = torch.lerp(a, b, _along(x, a, b)[..., None])
            apart = torch.where(filled, (foot - x).square().sum(-1), torch.inf)
            closest[rows] = candidates.gather(1, apart.argmin(-1, keepdim=True))[:, 0]
            if not planar:
                within[rows] = True
                continue
            astride = (a[..., 1] > x[..., 1]) != (b[..., 1] > x[..., 1])
            # the ray to the right of x meets a segment that it is astride of if x lies to the left of it, seen upwards
            left = (_cross(b - a, x - a) > 0) == (b[..., 1] > a[..., 1])
            within[rows] = (astride & left & filled).sum(-1) % 2 == 1
        return within, closest


def _triangles(cells: Int[Tensor, "cells corners"] | None) -> Int[Tensor, "triangles 3"]:
    require(cells is not None, "barycentric weights need a mesh with cells; build it with grid_mesh, scattered_mesh or mesh_at")
    assert cells is not None
    return cells if cells.shape[1] == 3 else cells.new_zeros(0, 3)


def _along(x: Float[Tensor, "*n dim"], a: Float[Tensor, "*n dim"], b: Float[Tensor, "*n dim"]) -> Float[Tensor, "*n"]:
    """How far along the segment a b its point closest to x lies, from 0 to 1."""
    squared = (b - a).square().sum(-1)
    return (((x - a) * (b - a)).sum(-1) / torch.where(squared > 0, squared, 1.0)).clamp(0, 1)


def _seen_along(x: Float[Tensor, "*n 3"], a: Float[Tensor, "*n 3"], b: Float[Tensor, "*n 3"]) -> Float[Tensor, "*n"]:
    """The same seen from the centre of a sphere, as triangles are: the share of b in what of a and b comes nearest to x."""
    aa, ab, bb = (a * a).sum(-1), (a * b).sum(-1), (b * b).sum(-1)
    ax, bx = (a * x).sum(-1), (b * x).sum(-1)
    first, second = (bb * ax - ab * bx).clamp(min=0), (aa * bx - ab * ax).clamp(min=0)
    total = first + second
    return torch.where(total > 0, second / torch.where(total > 0, total, 1.0), _along(x, a, b))


def _cross(u: Float[Tensor, "*n 2"], v: Float[Tensor, "*n 2"]) -> Float[Tensor, "*n"]:
    return u[..., 0] * v[..., 1] - u[..., 1] * v[..., 0]


_FLAT = 1e-6  # of the square of its longest side: a triangle of a smaller area contains nothing


def _longest(a: Float[Tensor, "*n dim"], b: Float[Tensor, "*n dim"], c: Float[Tensor, "*n dim"]) -> Float[Tensor, "*n"]:
    """The square of the longer of the sides at a."""
    return torch.maximum((b - a).square().sum(-1), (c - a).square().sum(-1))


def _lifted(points: Float[Tensor, "n dim"]) -> Float[Tensor, "n 3"]:
    """In double precision; a plane stands at height 1, so that a point is a weighted sum of corners as it is on a sphere."""
    points = points.double()
    return points if points.shape[-1] == 3 else torch.cat([points, torch.ones_like(points[:, :1])], -1)


def _barycentric(
    x: Float[Tensor, "*n dim"], a: Float[Tensor, "*n dim"], b: Float[Tensor, "*n dim"], c: Float[Tensor, "*n dim"]
) -> Float[Tensor, "*n 3"]:
    """Barycentric coordinates of x in the triangle a b c; all -1 for a flat triangle.

    In space those for which the weighted mean of the corners is x itself, which need not sum to one.
    """
    if x.shape[-1] == 3:
        # x . (b x c) and so on, by differences: the corners are almost equal where triangles are small
        volume = (a * torch.linalg.cross(b - a, c - a)).sum(-1)
        flat = volume.abs() <= _FLAT * _longest(a, b, c) * a.norm(dim=-1)
        parts = [(x * torch.linalg.cross(v - x, w - x)).sum(-1) for v, w in ((b, c), (c, a), (a, b))]
        weights = torch.stack(parts, -1) / torch.where(flat, 1.0, volume)[..., None]
        return torch.where(flat[..., None], -1.0, weights)
    area = _cross(b - a, c - a)
    flat = area.abs() <= _FLAT * _longest(a, b, c)
    safe = torch.where(flat, 1.0, area)
    second, third = _cross(x - a, c - a) / safe, _cross(b - a, x - a) / safe
    weights = torch.stack([1 - second - third, second, third], -1)
    return torch.where(flat[..., None], -1.0, weights)


def _coupling(
    points: Float[Tensor, "points dim"],
    mesh: MeshUnion,
    nodes: Int[Tensor, "points touched"],
    weights: Float[Tensor, "points touched"],
) -> Coupling:
    there = rows_of(mesh.positions, nodes.mT)  # touched, points, dim
    return Coupling(nodes, weights, mesh.space.offset(points.expand_as(there), there).transpose(0, 1), mesh.num_nodes)
