"""Meshes of the sphere: the paper's latitudes and longitudes, and icosahedra with ever finer faces."""

from __future__ import annotations

import math

import torch

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
    if config.layout == "icosahedron":
        require(resolution & (resolution - 1) == 0, f"edges of an icosahedron have 1, 2, 4, ... pieces; got {resolution}")
        mesh = icosahedral_mesh(space, resolution.bit_length() - 1)
        positions = mesh.positions
    elif resolution == 1:
        return mesh_at(space, space.project(torch.tensor([[0.0, 0.0, space.radius]])))
    else:
        mesh = sphere_mesh(space, resolution, 1.0 if config.edges == "delaunay" else config.radius)
        positions = mesh.positions
    if config.edges == "multiscale":
        mesh = mesh_at(space, positions, multiscale_edges(config.scale_ratio))
    elif config.edges == "delaunay":
        mesh = mesh_at(space, positions, delaunay_edges)
    else:
        require(config.edges == "radius" and config.layout == "grid", "meshes of a sphere have delaunay or multiscale edges")
    return mesh.nested(config.nesting_ratio) if config.nested else mesh


def sphere_mesh(space: Space, order: int, reach: float = 1.0) -> Mesh:
    """The paper's mesh of the sphere (A.3): `order` latitudes with 2 order - 2 nodes each, poles one; pi / (order - 1) apart.

    All nodes at most `reach` times so far apart are joined: neighbours along and across latitudes, and near the poles many more.
    """
    radius = _radius(space)
    require(order > 1, f"a mesh of the sphere has two latitudes, its poles, or more; got {order}")
    step = math.pi / (order - 1)
    places = [(0.0, 0.0)]
    places += [(latitude * step, around * step) for latitude in range(1, order - 1) for around in range(2 * order - 2)]
    polar, azimuth = torch.tensor([*places, (math.pi, 0.0)], dtype=torch.float64).unbind(-1)
    around = polar.sin()
    exact = radius * torch.stack([around * azimuth.cos(), around * azimuth.sin(), polar.cos()], -1)
    edges = radius_edges(reach * step * radius)(space, exact)  # of exact positions: so many are just so far apart
    positions = space.project(exact.to(torch.get_default_dtype()))
    return Mesh(space, positions, *edges, cells=space.triangulate(positions))


def icosahedral_mesh(space: Space, level: int) -> Mesh:
    """An icosahedron whose faces were split into four `level` times: 12, 42, 162, 642, ... nodes, almost evenly spread.

    Behind each one is that of the level below it, whose nodes are its first.
    """
    radius = _radius(space)
    require(0 <= level <= 8, f"the level of an icosahedral mesh is 0 to 8; got {level}")
    golden = (1 + math.sqrt(5)) / 2
    signs = torch.cartesian_prod(*(torch.tensor([-size, size], dtype=torch.float64) for size in (1.0, golden)))
    flat = torch.nn.functional.pad(signs, (1, 0))
    exact = torch.cat([flat.roll(shift, -1) for shift in range(3)])
    unit, mesh = Sphere(), None
    exact, cells = unit.project(exact), unit.triangulate(unit.project(exact))
    for done in range(level + 1):
        positions = space.project(radius * exact.to(torch.get_default_dtype()))
        mesh = Mesh(space, positions, *cell_edges(cells), cells=cells, coarser=mesh, nesting_ratio=2.0)
        if done < level:
            sides = torch.stack([cells[:, [1, 2]], cells[:, [2, 0]], cells[:, [0, 1]]], 1).sort(-1).values
            pairs, which = torch.unique(sides.flatten(0, 1), dim=0, return_inverse=True)
            (a, b, c), (x, y, z) = cells.unbind(-1), (which.reshape(-1, 3) + len(exact)).unbind(-1)
            exact = torch.cat([exact, unit.project(exact[pairs].mean(1))])
            cells = torch.cat([torch.stack(face, -1) for face in ((a, z, y), (z, b, x), (y, x, c), (x, y, z))])
    assert mesh is not None
    return mesh


def _radius(space: Space) -> float:
    require(isinstance(space, Sphere), f"a mesh of the sphere needs a sphere; got {space}, in a box use grid_mesh")
    assert isinstance(space, Sphere)
    return space.radius
