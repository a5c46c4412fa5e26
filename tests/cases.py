"""Spaces, meshes, representations and random batches that many tests run over."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from graphelements.cell_representations import Barycentric, Multilinear
from graphelements.functions import SFT, InputFunction, OutputFunction
from graphelements.meshes import Mesh, grid_mesh, mesh_at, scattered_mesh
from graphelements.representations import NearestNodes, Representation, SoftNearest
from graphelements.samples import FunctionSamples, Queries, SFTBatch
from graphelements.spaces import Box, Space, Sphere
from graphelements.sphere_meshes import icosahedral_mesh, sphere_mesh
from graphelements.unions import MeshUnion, union

SPACES: dict[str, Space] = {
    "square": Box(),
    "oblong": Box((-3.0, 10.0), (5.0, 12.5)),
    "interval": Box((-1.0,), (2.0,)),
    "block": Box((0.0, -1.0, 2.0), (1.0, 1.0, 2.5)),
}
SPHERES: dict[str, Space] = {"sphere": Sphere(), "earth": Sphere(6371.0)}
ALL_SPACES = SPACES | SPHERES

REPRESENTATIONS: dict[str, Callable[[], Representation]] = {
    "soft_nearest": SoftNearest,
    "soft_nearest_sharp": lambda: SoftNearest(sharpness=20.0),
    "nearest_nodes": NearestNodes,
    "nearest_nodes_six": lambda: NearestNodes(6, sharpness=0.5),
    "nearest_nodes_sharp": lambda: NearestNodes(4, sharpness=20.0),
    "multilinear": Multilinear,
    "barycentric": Barycentric,
}


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def _collinear(space: Space) -> Mesh:
    shares = torch.tensor([0.1, 0.9, 0.35, 0.6])[:, None].expand(4, space.dim)
    return mesh_at(space, space.from_cube(shares))


def _duplicates(space: Space) -> Mesh:
    cube = torch.rand(6, space.dim, generator=seeded(3))
    return mesh_at(space, space.from_cube(torch.cat([cube, cube[2:4]])))


def _graded(space: Space) -> Mesh:
    """Fine in one corner, coarse elsewhere: spacings differ by a factor of about fifty."""
    fine, coarse = torch.rand(24, space.dim, generator=seeded(4)) * 0.05, torch.rand(8, space.dim, generator=seeded(5))
    return mesh_at(space, space.from_cube(torch.cat([fine, coarse])))


MESHES: dict[str, Callable[[Space], Mesh]] = {
    **{f"grid_{k}": lambda space, k=k: grid_mesh(space, k) for k in (1, 2, 3, 7)},
    "grid_uneven": lambda space: grid_mesh(space, [3, 1, 4][: space.dim]),
    **{f"scattered_{n}": lambda space, n=n: scattered_mesh(space, n, seeded(n)) for n in (1, 2, 3, 5, 30)},
    "collinear": _collinear,
    "duplicates": _duplicates,
    "graded": _graded,
}

SPHERE_MESHES: dict[str, Callable[[Space], Mesh]] = {
    **{f"latitudes_{k}": lambda space, k=k: sphere_mesh(space, k) for k in (2, 3, 7)},
    **{f"icosahedral_{level}": lambda space, level=level: icosahedral_mesh(space, level) for level in (0, 1)},
    **{name: make for name, make in MESHES.items() if name.startswith("scattered")},
}
ALL_MESHES = MESHES | SPHERE_MESHES

COMBINATIONS = [
    (space, mesh, representation)
    for space, each in ALL_SPACES.items()
    for mesh in (MESHES if space in SPACES else SPHERE_MESHES)
    for representation in REPRESENTATIONS
    if representation != "multilinear" or mesh.startswith("grid")
    if representation != "barycentric" or each.intrinsic_dim == 2
    if not representation.endswith(("_six", "_sharp")) or space == "square"
]


def placed(space: Space, points: Tensor) -> Tensor:
    """Points anywhere, also outside of a box; of a sphere only those on it are points at all."""
    return space.project(points) if isinstance(space, Sphere) else points


def field_at(representation: Representation, mesh: MeshUnion, values: Tensor, points: Tensor) -> Tensor:
    """The field with the given values at the nodes, at points of item 0."""
    return representation(points, torch.zeros(len(points), dtype=torch.long), mesh).gather(values)


def largest_jump(field: Callable[[Tensor], Tensor], space: Space, seed: int, num_lines: int = 6, num_steps: int = 300) -> float:
    """The largest jump of a field along random lines: go where it changes most with ever smaller steps, and see what is left."""
    if isinstance(space, Sphere):
        ends = space.sample(2 * num_lines, seeded(seed))
    else:
        ends = space.from_cube(1.6 * torch.rand(2 * num_lines, space.dim, generator=seeded(seed)) - 0.3)
    along = torch.linspace(0, 1, num_steps + 1)
    lines = placed(space, torch.lerp(ends[:num_lines], ends[num_lines:], along[:, None, None]))  # steps, lines, dim
    heights = field(lines.flatten(0, 1)).reshape(num_steps + 1, num_lines)
    steps = heights.diff(dim=0).abs().topk(5, dim=0).indices.flatten()
    of_line = torch.arange(num_lines).repeat(5)
    low, high = lines[steps, of_line], lines[steps + 1, of_line]
    jumps = torch.zeros(())
    for _ in range(9):  # steps shrink by 16 ** 9, which is 7e10
        pieces = placed(space, torch.lerp(low, high, torch.linspace(0, 1, 17)[:, None, None]))
        jumps, worst = field(pieces.flatten(0, 1)).reshape(17, -1).diff(dim=0).abs().max(0)
        number = torch.arange(len(worst))
        low, high = pieces[worst, number], pieces[worst + 1, number]
    return float(jumps.max())


def interesting_points(mesh: Mesh, seed: int) -> Tensor:
    """Random points, the nodes, the middles of edges, the corners of the space and points far outside."""
    space, one = mesh.space, torch.rand(40, mesh.space.dim, generator=seeded(seed))
    if isinstance(space, Sphere):
        middles = (mesh.positions[mesh.senders] + mesh.positions[mesh.receivers]) / 2
        axes = space.radius * torch.cat([torch.eye(3), -torch.eye(3)])
        return torch.cat([space.sample(40, seeded(seed)), axes, mesh.positions, -mesh.positions, space.project(middles)])
    corners = torch.cartesian_prod(*[torch.tensor([0.0, 1.0])] * space.dim).reshape(-1, space.dim)
    sides = torch.where(torch.rand(20, space.dim, generator=seeded(seed + 1)) < 0.5, one[:20].round(), one[:20])
    cube = torch.cat([one, corners, sides, 5 * one - 2, 1000 * one - 500])
    middles = (mesh.positions[mesh.senders] + mesh.positions[mesh.receivers]) / 2
    return torch.cat([space.from_cube(cube), mesh.positions, middles])


def with_positions(mesh: Mesh, positions: Tensor) -> Mesh:
    """The same graph with other numbers for the positions."""
    return replace(mesh, positions=positions)


def relabelled(mesh: Mesh, order: Tensor) -> Mesh:
    """The mesh whose node i is the old node order[i]."""
    number = torch.empty_like(order)
    number[order] = torch.arange(len(order))
    cells = None if mesh.cells is None else number[mesh.cells]
    return Mesh(mesh.space, mesh.positions[order], number[mesh.senders], number[mesh.receivers], mesh.levels, None, cells)


RAGGED_SFT = SFT(
    Box((0.0, -1.0), (2.0, 1.0)),
    (InputFunction("heat", 2), InputFunction("border", 1)),
    (OutputFunction("warmth", 1, conditions=2), OutputFunction("flow", 2), OutputFunction("total", 1, integrated=True)),
)


def random_item(sft: SFT, generator: torch.Generator, most: int = 5) -> SFTBatch:
    """One item with its own number of samples and queries of each function, none included."""

    def count() -> int:
        return int(torch.randint(most + 1, (), generator=generator))

    inputs, queries, targets = {}, {}, {}
    for function in sft.inputs:
        points = sft.space.sample(count(), generator)
        inputs[function.name] = FunctionSamples(points, torch.randn(len(points), function.channels, generator=generator))
    for function in sft.outputs:
        num = count()
        queries[function.name] = Queries(
            None if function.integrated else sft.space.sample(num, generator),
            torch.randn(num, function.conditions, generator=generator) if function.conditions else None,
            torch.zeros(num, dtype=torch.long),
        )
        targets[function.name] = torch.randn(num, function.channels, generator=generator)
    return SFTBatch(inputs, queries, targets)


def union_of(space: Space, mesh: str) -> MeshUnion:
    return union(ALL_MESHES[mesh](space), 1)
