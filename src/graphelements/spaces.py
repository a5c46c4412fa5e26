"""The space X on which functions live: a bounded metric space (paper section 3.1)."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from itertools import combinations
from typing import Literal, no_type_check

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from .errors import require

ROUNDING = 1e-14  # of the arithmetic below and in Qhull


class Space(ABC):
    """A bounded metric space; a point is a row of `dim` numbers.

    Lengths keep the user's units. What the network sees is divided by `unit`, so that its weights never
    depend on whether a room is measured in metres or in feet.
    """

    @property
    @abstractmethod
    def dim(self) -> int:
        """How many numbers describe a point; also the size of an offset and of network coordinates."""

    @property
    @abstractmethod
    def intrinsic_dim(self) -> int:
        """The dimension as a manifold: `dim` for a box, 2 for a sphere whose points are 3-vectors."""

    @property
    @abstractmethod
    def measure(self) -> float:
        """Length, area or volume."""

    @property
    @abstractmethod
    def unit_length(self) -> float:
        """The length that the network calls 1."""

    @abstractmethod
    def distance(self, x: Float[Tensor, "*n dim"], y: Float[Tensor, "*n dim"]) -> Float[Tensor, "*n"]:
        """The metric, with a finite gradient everywhere (zero where x = y)."""

    @abstractmethod
    def offset(self, x: Float[Tensor, "*n dim"], y: Float[Tensor, "*n dim"]) -> Float[Tensor, "*n dim"]:
        """The vector at y that points to x: its length is the distance."""

    @abstractmethod
    def coordinates(self, points: Float[Tensor, "*n dim"]) -> Float[Tensor, "*n dim"]:
        """Positions as the network sees them: of order one."""

    @abstractmethod
    def project(self, points: Float[Tensor, "*n dim"]) -> Float[Tensor, "*n dim"]:
        """The closest points of the space."""

    @abstractmethod
    def contains(self, points: Float[Tensor, "*n dim"]) -> Bool[Tensor, "*n"]:
        """Which points lie in the space, up to rounding; NaN and infinity do not."""

    @abstractmethod
    def from_cube(self, cube: Float[Tensor, "n intrinsic"]) -> Float[Tensor, "n dim"]:
        """A measure-preserving map of the unit cube onto the space: uniform in, uniform out."""

    @abstractmethod
    def triangulate(self, positions: Float[Tensor, "nodes dim"]) -> Int[Tensor, "cells corners"]:
        """Delaunay simplices of the nodes, of the dimension that the nodes span: `corners - 1`."""

    def sample(self, num_points: int, generator: torch.Generator) -> Float[Tensor, "n dim"]:
        """Points drawn uniformly by measure."""
        return self.from_cube(torch.rand(num_points, self.intrinsic_dim, generator=generator))


@dataclass(frozen=True)
class Box(Space):
    """The axis-parallel box [lower, upper] in any dimension, with the Euclidean metric.

    `unit` is the length that the network calls 1; 0 means the longest side. Boxes of several sizes that share
    one network (supermazes, say) share one explicit unit.
    """

    lower: tuple[float, ...] = (0.0, 0.0)
    upper: tuple[float, ...] = (1.0, 1.0)
    unit: float = 0.0
    kind: Literal["box"] = "box"

    def __post_init__(self) -> None:
        for name in ("lower", "upper"):
            bounds = getattr(self, name)
            require(isinstance(bounds, (tuple, list)), f"the {name} bounds of a box are a tuple, one per axis; got {bounds!r}")
            object.__setattr__(self, name, tuple(float(bound) for bound in bounds))
        object.__setattr__(self, "unit", float(self.unit))
        require(
            len(self.lower) == len(self.upper) > 0,
            f"a box needs as many lower as upper bounds, at least one; got {self.lower} and {self.upper}",
        )
        require(
            all(math.isfinite(a) and math.isfinite(b) and a < b for a, b in zip(self.lower, self.upper, strict=True)),
            f"every lower bound of a box must be finite and below its upper bound; got {self.lower} and {self.upper}",
        )
        require(
            math.isfinite(self.unit) and self.unit >= 0,
            f"the unit of a box must be a positive length, or 0 for its longest side; got {self.unit}",
        )

    @property
    def dim(self) -> int:
        return len(self.lower)

    @property
    @no_type_check
    def intrinsic_dim(self) -> int:
        return len(self.lower)

    @property
    @no_type_check
    def sides(self) -> tuple[float, ...]:
        """The length of each side."""
        return tuple(b - a for a, b in zip(self.lower, self.upper, strict=True))

    @property
    def measure(self) -> float:
        return math.prod(self.sides)

    @property
    @no_type_check
    def unit_length(self) -> float:
        return self.unit or max(self.sides)

    @no_type_check  # compiled kernels call these two, and the compiler cannot see through the shape checks of the tests
    def distance(self, x: Float[Tensor, "*n dim"], y: Float[Tensor, "*n dim"]) -> Float[Tensor, "*n"]:
        return safe_norm(x - y)

    @no_type_check
    def offset(self, x: Float[Tensor, "*n dim"], y: Float[Tensor, "*n dim"]) -> Float[Tensor, "*n dim"]:
        return x - y

    def coordinates(self, points: Float[Tensor, "*n dim"]) -> Float[Tensor, "*n dim"]:
        lower, upper = self._bounds(points)
        return (points - (lower + upper) / 2) / self.unit_length

    def project(self, points: Float[Tensor, "*n dim"]) -> Float[Tensor, "*n dim"]:
        return torch.clamp(points, *self._bounds(points))

    def contains(self, points: Float[Tensor, "*n dim"]) -> Bool[Tensor, "*n"]:
        lower, upper = self._bounds(points)
        slack = 1e-5 * self.unit_length
        return ((points >= lower - slack) & (points <= upper + slack)).all(-1)

    def surely_contains(self, points: Float[Tensor, "n dim"]) -> bool:
        """Whether all points lie within the bounds, by a look at the least and the largest number, then at those of each axis."""
        if len(points) == 0:
            return True
        least, most = points.aminmax()  # one look is faster than one at each axis
        if max(self.lower) <= float(least) and float(most) <= min(self.upper):
            return True
        least, most = (each.tolist() for each in points.aminmax(dim=0))  # NaN is neither above nor below
        return all(a <= x for a, x in zip(self.lower, least, strict=True)) and all(
            x <= b for b, x in zip(self.upper, most, strict=True)
        )

    def from_cube(self, cube: Float[Tensor, "n intrinsic"]) -> Float[Tensor, "n dim"]:
        lower, upper = self._bounds(cube)
        return lower + (upper - lower) * cube

    def triangulate(self, positions: Float[Tensor, "nodes dim"]) -> Int[Tensor, "cells corners"]:
        return delaunay(positions)

    def _bounds(self, like: Tensor) -> tuple[Tensor, Tensor]:
        return like.new_tensor(self.lower), like.new_tensor(self.upper)


@dataclass(frozen=True)
class Sphere(Space):
    """The 3-vectors of length `radius`, with distances along great circles; the unit is the radius."""

    radius: float = 1.0
    kind: Literal["sphere"] = "sphere"

    def __post_init__(self) -> None:
        object.__setattr__(self, "radius", float(self.radius))
        require(
            math.isfinite(self.radius) and self.radius > 0, f"the radius of a sphere must be a positive length; got {self.radius}"
        )

    @property
    def dim(self) -> int:
        return 3

    @property
    @no_type_check
    def intrinsic_dim(self) -> int:
        return 2

    @property
    def measure(self) -> float:
        return 4 * math.pi * self.radius**2

    @property
    @no_type_check
    def unit_length(self) -> float:
        return self.radius

    @no_type_check  # compiled kernels call these two, and the compiler cannot see through the shape checks of the tests
    def distance(self, x: Float[Tensor, "*n dim"], y: Float[Tensor, "*n dim"]) -> Float[Tensor, "*n"]:
        return 2 * self.radius * torch.atan2(safe_norm(x - y), safe_norm(x + y))  # accurate, and smooth, at 0 and at pi

    @no_type_check
    def offset(self, x: Float[Tensor, "*n dim"], y: Float[Tensor, "*n dim"]) -> Float[Tensor, "*n dim"]:
        """Tangent at y, along the great circle to x; zero where x = -y, which has no direction."""
        shared = inner(x, y) / self.radius**2
        along = torch.stack([a - shared * b for a, b in zip(x.unbind(-1), y.unbind(-1), strict=True)], -1)
        squared = inner(along, along)
        straight = squared <= (1e-6 * self.radius) ** 2
        scale = torch.where(straight, 1.0, self.distance(x, y) * torch.where(straight, 1.0, squared).rsqrt())
        return torch.stack([scale * part for part in along.unbind(-1)], -1)

    def coordinates(self, points: Float[Tensor, "*n dim"]) -> Float[Tensor, "*n dim"]:
        return points / self.radius

    def project(self, points: Float[Tensor, "*n dim"]) -> Float[Tensor, "*n dim"]:
        """Towards or away from the centre; the centre itself goes to a pole."""
        lengths = safe_norm(points)[..., None]
        pole = points.new_tensor([0.0, 0.0, self.radius]).expand(points.shape)
        there = torch.where(lengths == 0, pole, points * (self.radius / torch.where(lengths == 0, 1.0, lengths)))
        rounding = 4 * torch.finfo(points.dtype).eps * self.radius
        return torch.where((lengths - self.radius).abs() <= rounding, points, there)

    def contains(self, points: Float[Tensor, "*n dim"]) -> Bool[Tensor, "*n"]:
        return (points.norm(dim=-1) - self.radius).abs() <= 1e-5 * self.radius

    def from_cube(self, cube: Float[Tensor, "n intrinsic"]) -> Float[Tensor, "n dim"]:
        heights, angles = 2 * cube[:, 0] - 1, 2 * math.pi * cube[:, 1]
        around = (1 - heights.square()).clamp(min=0).sqrt()
        return self.project(self.radius * torch.stack([around * angles.cos(), around * angles.sin(), heights], -1))

    def spiral(self, num: int) -> Float[Tensor, "num dim"]:
        """Any number of evenly spread points: from pole to pole, turned by the golden angle from one to the next."""
        numbers = torch.arange(num, dtype=torch.float64)
        turns = numbers * (3 - math.sqrt(5)) / 2
        points = self.from_cube(torch.stack([(numbers + 0.5) / max(num, 1), turns - turns.floor()], -1))
        return self.project(points.to(torch.get_default_dtype()))

    def triangulate(self, positions: Float[Tensor, "nodes dim"]) -> Int[Tensor, "cells corners"]:
        """The faces of the convex hull, but those with the centre before them, where nodes leave half of the sphere empty.

        Nodes on one circle have the triangles of the disc within it.
        """
        points = positions.detach().cpu().double().numpy()
        points = points / np.linalg.norm(points, axis=1, keepdims=True)  # on the sphere again, where rounding has left it
        tolerance = max(8 * torch.finfo(positions.dtype).eps, ROUNDING)
        distinct, first = np.unique(points, axis=0, return_index=True)
        apart = _apart(distinct, tolerance)
        centred = distinct[apart] - distinct[apart].mean(0)
        if len(apart) < 4 or np.abs(centred @ np.linalg.svd(centred, full_matrices=False)[2][-1]).max() <= tolerance:
            return delaunay(positions)
        from scipy.spatial import ConvexHull

        hull = ConvexHull(distinct[apart])
        outward = hull.equations[:, 3] < -1e-5  # others are seen from the centre as lines
        return torch.as_tensor(first[apart[hull.simplices[outward]]], dtype=torch.long, device=positions.device)


@no_type_check
def inner(x: Float[Tensor, "*n dim"], y: Float[Tensor, "*n dim"]) -> Float[Tensor, "*n"]:
    """Inner products, coordinate by coordinate: compiled, that is much faster than one sum over them."""
    return sum(a * b for a, b in zip(x.unbind(-1), y.unbind(-1), strict=True))


@no_type_check
def safe_norm(vectors: Float[Tensor, "*n dim"]) -> Float[Tensor, "*n"]:
    """Euclidean lengths whose gradient at 0 is 0 instead of NaN."""
    squared = inner(vectors, vectors)
    zero = squared == 0
    return torch.where(zero, 0.0, torch.where(zero, 1.0, squared).sqrt())


def delaunay(positions: Float[Tensor, "nodes dim"]) -> Int[Tensor, "cells corners"]:
    """Delaunay simplices in the affine hull of the nodes, so that 1 node, 2 nodes and collinear nodes are no exception.

    One node gives the cell [[0]]; collinear nodes give the segments of a chain. Nodes count as collinear, and Qhull sees nodes as
    coincident, up to the rounding of their positions; of those that coincide only one is in a cell.
    """
    points = positions.detach().cpu().double().numpy()
    tolerance = max(8 * torch.finfo(positions.dtype).eps, ROUNDING) * np.abs(points).max()
    distinct, first = np.unique(points, axis=0, return_index=True)
    apart = _apart(distinct, tolerance)
    centred = distinct - distinct[apart].mean(0)
    flat = centred @ np.linalg.svd(centred[apart], full_matrices=False)[2].T
    flat = flat[:, np.abs(flat[apart]).max(0) > tolerance]
    if flat.shape[1] == 0:
        cells = np.zeros((1, 1), dtype=np.int64)
    elif flat.shape[1] == 1:
        order = np.argsort(flat[:, 0])
        cells = np.stack([order[:-1], order[1:]], axis=1)
    else:
        from scipy.spatial import Delaunay

        cells = apart[Delaunay(flat[apart]).simplices]
        cells = _without_flat(cells, flat, 2 * tolerance) if flat.shape[1] == 2 else cells
    return torch.as_tensor(first[cells], dtype=torch.long, device=positions.device)


def _without_flat(triangles: np.ndarray, points: np.ndarray, height: float) -> np.ndarray:
    """The triangles but those of nodes along a border that rounding has put out of line; their shorter edges are in others."""
    corners = points[triangles]
    opposite = np.linalg.norm(np.roll(corners, -1, 1) - np.roll(corners, 1, 1), axis=-1)  # of every corner
    ahead, behind = corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0]
    flat = np.abs(ahead[:, 0] * behind[:, 1] - ahead[:, 1] * behind[:, 0]) <= height * opposite.max(1)

    sorted_edges = {  # of flat triangles, shortest first
        number: [frozenset(np.delete(triangles[number], corner).tolist()) for corner in np.argsort(opposite[number])]
        for number in np.flatnonzero(flat).tolist()
    }
    dropped: list[int] = []
    near = ~flat & (np.isin(triangles, triangles[flat]).sum(1) > 1)
    known = {frozenset(pair) for triangle in triangles[near].tolist() for pair in combinations(triangle, 2)}
    while gone := [number for number, edges in sorted_edges.items() if known.issuperset(edges[:2])]:
        known |= {sorted_edges.pop(number)[2] for number in gone}  # one can go along the two others
        dropped += gone
    return np.delete(triangles, dropped, 0)


def _apart(points: np.ndarray, tolerance: float) -> np.ndarray:
    """Indices of points no two of which are within the tolerance, and which have all others within it."""
    from scipy.spatial import KDTree

    kept = np.ones(len(points), dtype=bool)
    pairs = KDTree(points).query_pairs(tolerance, output_type="ndarray")
    for one, other in pairs[np.lexsort(pairs.T[::-1])]:
        if kept[one]:
            kept[other] = False
    return np.flatnonzero(kept)
