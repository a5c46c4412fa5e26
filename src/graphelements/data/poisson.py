"""P1 finite elements for the houses' Poisson equation: the truth on 250 x 250 nodes, and a reference on few.

The problem is linear: phi = T + sum_h C_h u_h, where -laplace(u_h) = 1 on the visible part of heater h and u_h = 0 on
the border. So a house costs one solve per heater, whatever its number of scenarios. Loads are integrated exactly,
also where a heater's edges cut through elements.

The grid's squares are cut along the diagonal from lower left to upper right. In a square with local coordinates
(s, t), the hat functions are 1 - s, s - t, t below the diagonal and 1 - t, t - s, s above it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache

import numpy as np
from jaxtyping import Float, Int

from ..errors import require
from .houses import House, Houses, Scenario

TRUTH_RESOLUTION = 250

Rectangle = tuple[float, float, float, float]


def solved(houses: Houses, resolution: int = TRUTH_RESOLUTION) -> Houses:
    """The same houses with the temperatures of finite elements on resolution x resolution nodes."""
    return Houses(tuple(replace(house, temperatures=p1_temperatures(house, resolution)) for house in houses.houses))


def p1_temperatures(house: House, resolution: int = TRUTH_RESOLUTION) -> Float[np.ndarray, "scenarios queries"]:
    """Temperatures at a house's query points; 2 x 2 nodes are all on the border, so there it is T everywhere."""
    scenarios, queries, _ = house.query_points.shape
    responses = unit_responses(house.rectangles, house.query_points.reshape(-1, 2), resolution)
    heated = np.einsum("sh,hsq->sq", house.powers, responses.reshape(-1, scenarios, queries))
    return house.exterior_temperatures[:, None] + heated


def p1_solution(
    scenario: Scenario, points: Float[np.ndarray, "points 2"], resolution: int = TRUTH_RESOLUTION
) -> Float[np.ndarray, " points"]:
    """Temperatures of one scenario at any points of the unit square."""
    rectangles = np.array([heater.rectangle for heater in scenario.heaters])
    powers = np.array([heater.power for heater in scenario.heaters])
    return scenario.exterior_temperature + powers @ unit_responses(rectangles, points, resolution)


def unit_responses(
    rectangles: Float[np.ndarray, "heaters 4"], points: Float[np.ndarray, "points 2"], resolution: int
) -> Float[np.ndarray, "heaters points"]:
    """u_h at the points, for every heater h."""
    require(resolution >= 2, f"finite elements on the square need a resolution of 2 or more; got {resolution}")
    if resolution == 2:
        return np.zeros((len(rectangles), len(points)))
    nothing = np.zeros((resolution, resolution))
    loads = np.stack(
        [sum((unit_load(part, resolution) for part in parts), nothing) for parts in visible_parts(rectangles.tolist())]
    )
    inner = _factorised(resolution)(loads[:, 1:-1, 1:-1].reshape(len(loads), -1).T).T
    nodal = np.pad(inner.reshape(-1, resolution - 2, resolution - 2), ((0, 0), (1, 1), (1, 1)))
    return _interpolated(nodal, points)


def visible_parts(rectangles: Sequence[Sequence[float]]) -> list[list[Rectangle]]:
    """For every rectangle, disjoint rectangles that make up what later ones leave of it."""
    visible = []
    for index, (x0, y0, x1, y1) in enumerate(rectangles):
        parts = [(x0, y0, x1, y1)]
        for later in rectangles[index + 1 :]:
            parts = [rest for part in parts for rest in _remaining(part, later)]
        visible.append(parts)
    return visible


def _remaining(part: Rectangle, cover: Sequence[float]) -> list[Rectangle]:
    x0, y0, x1, y1 = part
    a, b = max(x0, cover[0]), min(x1, cover[2])
    c, d = max(y0, cover[1]), min(y1, cover[3])
    if a >= b or c >= d:
        return [part]
    around = [(x0, y0, a, y1), (b, y0, x1, y1), (a, y0, b, c), (a, d, b, y1)]
    return [rest for rest in around if rest[0] < rest[2] and rest[1] < rest[3]]


def unit_load(rectangle: Rectangle, resolution: int) -> Float[np.ndarray, "resolution resolution"]:
    """The exact integral of every node's hat function over the rectangle; the first axis is x."""
    cells = resolution - 1
    (first_x, s), (first_y, t) = (
        _cut(low, high, cells) for low, high in ((rectangle[0], rectangle[2]), (rectangle[1], rectangle[3]))
    )
    # below the diagonal; above it is the same with s and t exchanged
    one, of_s, of_t = _integrals(s, t)
    other_one, other_of_t, other_of_s = (part.T for part in _integrals(t, s))
    load = np.zeros((resolution, resolution))
    x, y = (slice(first, first + len(cut)) for first, cut in ((first_x, s), (first_y, t)))
    next_x, next_y = slice(x.start + 1, x.stop + 1), slice(y.start + 1, y.stop + 1)
    load[x, y] += one - of_s + other_one - other_of_t
    load[next_x, y] += of_s - of_t
    load[x, next_y] += other_of_t - other_of_s
    load[next_x, next_y] += of_t + other_of_s
    return load / cells**2


def _cut(low: float, high: float, cells: int) -> tuple[int, Float[np.ndarray, "touched 2"]]:
    """The first cell that the interval touches, and what it covers of each cell, in the cell's own coordinate."""
    first, stop = int(np.floor(low * cells)), int(np.ceil(high * cells))
    starts = np.arange(first, stop)[:, None]
    return first, np.clip(np.array([[low, high]]) * cells - starts, 0, 1)


def _integrals(s: Float[np.ndarray, "n 2"], t: Float[np.ndarray, "m 2"]) -> list[Float[np.ndarray, "n m"]]:
    """The integrals of 1, s and t over [s0, s1] x [t0, t1] where t <= s, for every pair of intervals in [0, 1]."""
    high, low = s[:, None, :, None], t[None, :, None, :]
    least = np.minimum(high, low)
    from_corner = (
        high * least - least**2 / 2,
        least**3 / 3 + least * (high**2 - least**2) / 2,
        least**3 / 6 + least**2 * (high - least) / 2,
    )
    return [f[..., 1, 1] - f[..., 0, 1] - f[..., 1, 0] + f[..., 0, 0] for f in from_corner]


def _interpolated(
    nodal: Float[np.ndarray, "functions resolution resolution"], points: Float[np.ndarray, "points 2"]
) -> Float[np.ndarray, "functions points"]:
    cells = nodal.shape[-1] - 1
    scaled = np.clip(points, 0, 1) * cells
    corner = np.minimum(scaled.astype(int), cells - 1)
    i, j = corner.T
    s, t = (scaled - corner).T
    return (
        nodal[:, i, j] * (1 - np.maximum(s, t))
        + nodal[:, i + 1, j] * np.maximum(s - t, 0)
        + nodal[:, i, j + 1] * np.maximum(t - s, 0)
        + nodal[:, i + 1, j + 1] * np.minimum(s, t)
    )


def triangles(resolution: int) -> Int[np.ndarray, "triangles 3"]:
    """Corners of the grid's triangles; node (i, j) has the index i * resolution + j."""
    node = np.arange(resolution**2).reshape(resolution, resolution)
    here, right, up, across = node[:-1, :-1], node[1:, :-1], node[:-1, 1:], node[1:, 1:]
    return np.concatenate([np.stack([here, right, across], -1), np.stack([here, across, up], -1)]).reshape(-1, 3)


@cache
def _factorised(resolution: int) -> Callable[[np.ndarray], np.ndarray]:
    """Solves the stiffness equations of the inner nodes; the factors are kept, for all houses share them."""
    from scipy.sparse.linalg import splu
    from skfem import Basis, ElementTriP1, MeshTri, condense
    from skfem.models.poisson import laplace

    axis = np.linspace(0, 1, resolution)
    nodes = np.stack(np.meshgrid(axis, axis, indexing="ij")).reshape(2, -1)
    stiffness = laplace.assemble(Basis(MeshTri(nodes, np.ascontiguousarray(triangles(resolution).T)), ElementTriP1()))
    inner = np.arange(resolution**2).reshape(resolution, resolution)[1:-1, 1:-1].ravel()
    matrix = condense(stiffness, I=inner, expand=False)
    return splu(matrix.tocsc(), permc_spec="MMD_AT_PLUS_A", options={"SymmetricMode": True}).solve
