"""Meshes of many kinds for training: weights that have seen them run on whatever mesh a user brings or adaptation makes."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from .errors import require
from .meshes import Mesh, halton, mesh_at
from .spaces import Space
from .topology import Connect, delaunay_edges

JITTER = 0.35  # of the grid's spacing, at most
STRETCH = 0.15  # by which scattered nodes reach beyond the space at most, from where they are moved to its border
GRADING = 0.8  # at most; 0 is even, 1 would put nodes infinitely close


def random_mesh(space: Space, num_nodes: int, generator: torch.Generator, connect: Connect = delaunay_edges) -> Mesh:
    """About `num_nodes` nodes: a jittered grid or a scrambled Halton sequence, every other one graded towards a random place."""
    require(num_nodes > 0, f"a mesh needs at least one node; got {num_nodes}")

    def uniform(*size: int) -> Tensor:
        return torch.rand(*size, generator=generator)

    dim, flat = space.intrinsic_dim, space.intrinsic_dim == space.dim  # elsewhere a grid of the cube meets itself at its borders
    per_axis = round(num_nodes ** (1 / dim))
    if flat and per_axis > 1 and uniform(1) < 0.5:
        cube = torch.cartesian_prod(*[torch.linspace(0, 1, per_axis)] * dim).reshape(-1, dim)
        cube = cube + JITTER * uniform(1) * (2 * uniform(*cube.shape) - 1) / (per_axis - 1)
    else:
        cube = 0.5 + (halton(dim, num_nodes, generator) - 0.5) * (1 + (STRETCH if flat else 0.0) * uniform(1))
    cube = cube.clamp(0, 1)
    if uniform(1) < 0.5:
        cube = _graded(cube, uniform(dim), GRADING * uniform(1))
    return mesh_at(space, space.from_cube(cube), connect)


def _graded(cube: Float[Tensor, "nodes dim"], centre: Float[Tensor, " dim"], strength: Tensor) -> Float[Tensor, "nodes dim"]:
    """Points of the unit cube drawn towards a centre along every axis, borders kept."""
    offsets = cube - centre
    reach = torch.where(offsets > 0, 1 - centre, centre).clamp(min=1e-6)
    share = (offsets.abs() / reach).clamp(max=1)
    return (centre + offsets.sign() * reach * ((1 - strength) * share + strength * share**2.5)).clamp(0, 1)
