"""Classical solvers of many houses at once: P1 finite elements with three ways to solve their equations, and a sine series.

All of them know the equation. Loads are integrated exactly; everything is vectorised over the houses. On a regular grid the P1
stiffness matrix is the five-point Laplacian, so that a dense inverse, sparse factors and a sine transform give the same numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from scipy.fft import dstn
from scipy.sparse import coo_array, csc_array
from scipy.sparse.linalg import splu

from graphelements.data.houses import House
from graphelements.data.poisson import triangles, visible_parts

Solve = Callable[[np.ndarray], np.ndarray]
"""Loads of the inner nodes -> their temperatures above the border's, both (houses, n - 2, n - 2)."""


@dataclass(frozen=True)
class Problems:
    """The first scenario of every house: what is visible of its heaters, one rectangle after another, and where to answer."""

    rectangles: np.ndarray  # parts, 4
    powers: np.ndarray  # parts
    items: np.ndarray  # parts: the house of each, ascending
    exterior_temperatures: np.ndarray  # houses
    points: np.ndarray  # houses, queries, 2


def problems(houses: Sequence[House]) -> Problems:
    """What the solvers need to know of the houses; part of their time."""
    rectangles, powers, items = [], [], []
    for item, house in enumerate(houses):
        for power, parts in zip(house.powers[0].tolist(), visible_parts(house.rectangles.tolist()), strict=True):
            rectangles += parts
            powers += [power] * len(parts)
            items += [item] * len(parts)
    exterior_temperatures = np.array([house.exterior_temperatures[0] for house in houses])
    points = np.stack([house.query_points[0] for house in houses])
    return Problems(np.array(rectangles), np.array(powers), np.array(items), exterior_temperatures, points)


def finite_elements(houses: Sequence[House], resolution: int, solve: Solve) -> np.ndarray:
    """Temperatures at the queries of every house, (houses, queries)."""
    given = problems(houses)
    inner = solve(p1_loads(given, resolution)[:, 1:-1, 1:-1])
    return given.exterior_temperatures[:, None] + p1_values(np.pad(inner, ((0, 0), (1, 1), (1, 1))), given.points)


def p1_loads(given: Problems, resolution: int) -> np.ndarray:
    """The exact integrals of power times hat function, (houses, n, n); the first axis is x.

    In a cell with coordinates (s, t), a P1 hat is the bilinear hat plus or minus min(s, t) - s t; the bilinear part is a product.
    Only a window of cells around each rectangle is looked at.
    """
    cells = resolution - 1
    low, high = np.split(given.rectangles * cells, 2, axis=1)  # parts, 2
    first = np.floor(low).astype(int)
    starts = first[..., None] + np.arange(int((np.ceil(high) - first).max()))  # parts, 2, window
    low, high = (np.clip(end[..., None] - starts, 0, 1) for end in (low, high))
    rising = (high**2 - low**2) / 2
    hats = np.pad(high - low - rising, ((0, 0), (0, 0), (0, 1))) + np.pad(rising, ((0, 0), (0, 0), (1, 0)))
    loads = hats[:, 0, :, None] * hats[:, 1, None, :]  # parts, window + 1, window + 1
    from_corner = [_bubble(s[:, 0, :, None], t[:, 1, None, :]) for s, t in ((high, high), (low, low), (low, high), (high, low))]
    bubble = from_corner[0] + from_corner[1] - from_corner[2] - from_corner[3]
    loads[:, :-1, :-1] += bubble
    loads[:, 1:, 1:] += bubble
    loads[:, 1:, :-1] -= bubble
    loads[:, :-1, 1:] -= bubble
    loads *= (given.powers / cells**2)[:, None, None]
    nodes = np.minimum(first[..., None] + np.arange(loads.shape[-1]), cells)  # beyond the last node there is no load
    flat = (given.items[:, None, None] * resolution + nodes[:, 0, :, None]) * resolution + nodes[:, 1, None, :]
    shape = len(given.points), resolution, resolution
    return np.bincount(flat.ravel(), loads.ravel(), minlength=int(np.prod(shape))).reshape(shape)


def _bubble(s: np.ndarray, t: np.ndarray) -> np.ndarray:
    """The integral of min(s, t) - s t over [0, s] x [0, t]."""
    least = np.minimum(s, t)
    return least**2 * (3 * np.maximum(s, t) - least) / 6 - (s * t) ** 2 / 4


def p1_values(nodal: np.ndarray, points: np.ndarray) -> np.ndarray:
    """Piecewise linear functions, (houses, n, n), at points, (houses, queries, 2)."""
    cells = nodal.shape[-1] - 1
    scaled = points * cells
    corner = np.minimum(scaled.astype(int), cells - 1)
    s, t = np.moveaxis(scaled - corner, -1, 0)
    at = (np.arange(len(nodal))[:, None] * (cells + 1) + corner[..., 0]) * (cells + 1) + corner[..., 1]
    flat, least, most = nodal.ravel(), np.minimum(s, t), np.maximum(s, t)
    here, across = flat[at] * (1 - most), flat[at + cells + 2] * least
    return here + across + flat[at + cells + 1] * (s - least) + flat[at + 1] * (t - least)


def stiffness(resolution: int) -> csc_array:
    """The P1 stiffness matrix of the inner nodes, assembled triangle by triangle as on any mesh."""
    axis = np.linspace(0, 1, resolution)
    positions = np.stack(np.meshgrid(axis, axis, indexing="ij"), -1).reshape(-1, 2)
    cells = triangles(resolution)
    a, b, c = (positions[cells[:, corner]] for corner in range(3))
    opposite = np.stack([c - b, a - c, b - a], 1)  # triangles, 3, 2
    twice_area = np.abs(opposite[:, 0, 0] * opposite[:, 1, 1] - opposite[:, 0, 1] * opposite[:, 1, 0])
    entries = opposite @ opposite.swapaxes(1, 2) / (2 * twice_area)[:, None, None]
    number = np.full((resolution, resolution), -1)
    number[1:-1, 1:-1] = np.arange((resolution - 2) ** 2).reshape(resolution - 2, resolution - 2)
    inner = number.ravel()[cells]
    rows, columns = np.broadcast_arrays(inner[:, :, None], inner[:, None, :])
    kept = (rows >= 0) & (columns >= 0)
    size = (resolution - 2) ** 2
    return coo_array((entries[kept], (rows[kept], columns[kept])), shape=(size, size)).tocsc()


def factorised(resolution: int) -> Solve:
    """Sparse factors; making them is most of the work of a solve from scratch."""
    matrix = stiffness(resolution)
    solve = splu(matrix, permc_spec="MMD_AT_PLUS_A", options={"SymmetricMode": True}).solve
    return lambda loads: solve(loads.reshape(len(loads), -1).T).T.reshape(loads.shape)


def dense_inverse(resolution: int) -> Solve:
    """The inverse as a matrix: the fastest for few nodes."""
    inverse = torch.from_numpy(np.linalg.inv(stiffness(resolution).toarray()))
    return lambda loads: (torch.from_numpy(loads.reshape(len(loads), -1)) @ inverse).numpy().reshape(loads.shape)


def sine_transform(resolution: int) -> Solve:
    """The five-point Laplacian is diagonal in the basis of sines; fast where n - 1 is a power of two."""
    line = 2 - 2 * np.cos(np.pi * np.arange(1, resolution - 1) / (resolution - 1))
    eigenvalues, threads = line[:, None] + line, torch.get_num_threads()

    def transformed(values: np.ndarray) -> np.ndarray:
        return np.asarray(dstn(values, type=1, axes=(1, 2), norm="ortho", workers=threads))

    return lambda loads: transformed(transformed(loads) / eigenvalues)


def sine_series(houses: Sequence[House], waves: int) -> np.ndarray:
    """The first waves x waves terms of the exact solution, phi = T + sum of u_kl sin(k pi x) sin(l pi y)."""
    given = problems(houses)
    numbers = np.pi * np.arange(1, waves + 1)
    cosines = np.cos(given.rectangles[..., None] * numbers) / numbers  # parts, 4, waves
    along_x, along_y = (2 * (cosines[:, low] - cosines[:, low + 2]) for low in (0, 1))
    terms = (given.powers[:, None] * along_x)[:, :, None] * along_y[:, None, :]
    firsts = np.searchsorted(given.items, np.arange(len(given.points)))
    coefficients = np.add.reduceat(terms, firsts) / (numbers[:, None] ** 2 + numbers**2)
    angles = np.pi * given.points  # houses, queries, 2
    twice_cosine, sines = 2 * np.cos(angles), np.empty((waves + 1, *angles.shape))
    sines[0], sines[1] = 0, np.sin(angles)
    for k in range(1, waves):
        sines[k + 1] = twice_cosine * sines[k] - sines[k - 1]
    x, y = np.moveaxis(sines[1:], (0, -1), (-1, 0))  # houses, queries, waves
    return given.exterior_temperatures[:, None] + ((x @ coefficients) * y).sum(-1)
