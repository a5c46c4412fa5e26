"""Meshes of the sphere: the paper's latitudes and longitudes, and icosahedra with ever finer faces."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor

from .errors import require
from .meshes import Mesh, MeshConfig, mesh_at
from .spaces import Space, Sphere
from .topology import cell_edges, delaunay_edges, multiscale_edges, radius_edges

LARGEST = 300


def build_sphere(config: MeshConfig, space: Sphere, resolution: int) -> Mesh:
    """The regular mesh of a resolution under a config: so many latitudes, one being a single node; or, of an icosahedron, so
    many pieces of each of its edges, a power of two.
    """
    require(1 <= resolution <= LARGEST, f"the resolution must be 1 to {LARGEST}; got {resolution}")
    even = config.layout == "icosahedron"
    require(
        not even or resolution & (resolution - 1) == 0,
        f"the resolution of an icosahedron is the number of pieces of its edges, 1, 2, 4, ...; got {resolution}",
    )
    require(
        config.edges in ("delaunay", "multiscale") or (config.edges == "radius" and not even),
        "meshes of a sphere have delaunay or multiscale edges, latitudes also those within a radius; "
        f"got mesh.edges={config.edges} and mesh.layout={config.layout}",
    )
    if resolution == 1 and not even:
        return mesh_at(space, space.project(torch.tensor([[0.0, 0.0, space.radius]])))
    if config.edges == "radius":
        mesh = sphere_mesh(space, resolution, config.radius)
    else:
        exact = _icosahedron(resolution.bit_length() - 1)[-1][0] if even else _latitudes(resolution)
        connect = delaunay_edges if config.edges == "delaunay" else multiscale_edges(config.scale_ratio)
        mesh = mesh_at(space, _placed(space, exact), connect)
    return mesh.nested(config.nesting_ratio) if config.nested else mesh


def sphere_mesh(space: Space, order: int, reach: float = 1.0) -> Mesh:
    """The paper's mesh of the sphere (A.3): `order` latitudes with 2 order - 2 nodes each, poles one; pi / (order - 1) apart.

    All nodes at most `reach` times so far apart are joined: neighbours along and across latitudes, and near the poles many more.
    """
    radius = _radius(space)
    require(order > 1, f"a mesh of the sphere has two latitudes, its poles, or more; got {order}")
    exact = _latitudes(order)
    # of exact positions: so many are just so far apart
    edges = radius_edges(reach * math.pi / (order - 1) * radius)(space, radius * exact)
    positions = _placed(space, exact)
    return Mesh(space, positions, *edges, cells=space.triangulate(positions))


def _latitudes(order: int) -> Float[Tensor, "nodes 3"]:
    """The nodes of `sphere_mesh` on the unit sphere, in double precision."""
    step = math.pi / (order - 1)
    places = [(0.0, 0.0)]
    places += [(latitude * step, around * step) for latitude in range(1, order - 1) for around in range(2 * order - 2)]
    polar, azimuth = torch.tensor([*places, (math.pi, 0.0)], dtype=torch.float64).unbind(-1)
    around = polar.sin()
    return torch.stack([around * azimuth.cos(), around * azimuth.sin(), polar.cos()], -1)


def _placed(space: Space, exact: Float[Tensor, "nodes 3"]) -> Float[Tensor, "nodes 3"]:
    """Points of the unit sphere on the sphere of a space."""
    return space.project((_radius(space) * exact).to(torch.get_default_dtype()))


def icosahedral_mesh(space: Space, level: int) -> Mesh:
    """An icosahedron whose faces were split into four `level` times: 12, 42, 162, 642, ... nodes, almost evenly spread.

    Behind each one is that of the level below it, whose nodes are its first.
    """
    _radius(space)
    require(0 <= level <= 8, f"the level of an icosahedral mesh is 0 to 8; got {level}")
    mesh = None
    for exact, cells in _icosahedron(level):
        mesh = Mesh(space, _placed(space, exact), *cell_edges(cells), cells=cells, coarser=mesh, nesting_ratio=2.0)
    assert mesh is not None
    return mesh


def _icosahedron(level: int) -> list[tuple[Float[Tensor, "nodes 3"], Int[Tensor, "cells 3"]]]:
    """Nodes on the unit sphere, in double precision, and triangles of every level up to this one."""
    golden = (1 + math.sqrt(5)) / 2
    signs = torch.cartesian_prod(*(torch.tensor([-size, size], dtype=torch.float64) for size in (1.0, golden)))
    flat = torch.nn.functional.pad(signs, (1, 0))
    exact = torch.cat([flat.roll(shift, -1) for shift in range(3)])
    unit, levels = Sphere(), []
    exact, cells = unit.project(exact), unit.triangulate(unit.project(exact))
    for done in range(level + 1):
        levels.append((exact, cells))
        if done < level:
            sides = torch.stack([cells[:, [1, 2]], cells[:, [2, 0]], cells[:, [0, 1]]], 1).sort(-1).values
            pairs, which = torch.unique(sides.flatten(0, 1), dim=0, return_inverse=True)
            (a, b, c), (x, y, z) = cells.unbind(-1), (which.reshape(-1, 3) + len(exact)).unbind(-1)
            exact = torch.cat([exact, unit.project(exact[pairs].mean(1))])
            cells = torch.cat([torch.stack(face, -1) for face in ((a, z, y), (z, b, x), (y, x, c), (x, y, z))])
    return levels


def _radius(space: Space) -> float:
    require(isinstance(space, Sphere), f"a mesh of the sphere needs a sphere; got {space}, in a box use grid_mesh")
    assert isinstance(space, Sphere)
    return space.radius
