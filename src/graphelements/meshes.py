"""Meshes: nodes placed in the space and the edges between them. The network never owns one; they meet only in the call."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from numbers import Integral
from typing import TYPE_CHECKING, Literal, SupportsFloat, SupportsIndex

import torch
from jaxtyping import Float, Int
from torch import Tensor

from .configs import require_types
from .errors import InputError, require
from .spaces import Box, Space, Sphere
from .topology import (
    Connect,
    Diagonals,
    Edges,
    boundary_segments,
    cell_edges,
    delaunay_edges,
    grid_edges,
    grid_triangles,
    hop_diameter,
    multiscale_edges,
    radius_edges,
)

if TYPE_CHECKING:
    import meshio
    from torch_geometric.data import Data


@dataclass(frozen=True, eq=False)
class Mesh:
    """N and E of one item: plain data.

    `axes` holds a regular grid's coordinates along each axis, `cells` the simplices that the nodes span; `Multilinear` needs
    the one, `Barycentric` the other. `coarser` is a mesh of fewer nodes from which this one takes what is known already, and so
    on down to a handful of nodes; `nested()` makes them, and `nesting_ratio` is what it made them by.
    """

    space: Space
    positions: Float[Tensor, "nodes dim"]
    senders: Int[Tensor, " edges"]
    receivers: Int[Tensor, " edges"]
    levels: Int[Tensor, " edges"]
    axes: tuple[Float[Tensor, " _"], ...] | None = None
    cells: Int[Tensor, "cells corners"] | None = None
    coarser: Mesh | None = None
    nesting_ratio: float | None = None

    def __post_init__(self) -> None:
        _check_shape(self.space, self.positions)
        _check_finite(self.positions)
        require(
            self.positions.is_meta or bool(self.space.contains(self.positions.detach()).all()),
            "node positions must lie in the space; move them there with space.project",
        )
        for name, nodes in (("edges join", self.senders), ("edges join", self.receivers), ("cells have corners", self.cells)):
            known = nodes is None or nodes.is_meta or bool(((nodes >= 0) & (nodes < self.num_nodes)).all())
            require(known, f"{name} 0 to {self.num_nodes - 1}, the nodes of this mesh; found others, build them from its nodes")
        require(
            self.senders.shape == self.receivers.shape == self.levels.shape,
            "edges need one sender, receiver and level each; "
            f"got {len(self.senders)}, {len(self.receivers)} and {len(self.levels)}",
        )
        require(self.coarser is None or self.coarser.space == self.space, "a mesh and its coarser one must lie in the same space")

    @property
    def num_nodes(self) -> int:
        return len(self.positions)

    @property
    def edges(self) -> Edges:
        return Edges(self.senders, self.receivers, self.levels)

    @property
    def nest(self) -> list[Mesh]:
        """The mesh and the coarser ones behind it, finest first."""
        return [self, *([] if self.coarser is None else self.coarser.nest)]

    @cached_property
    def diameter(self) -> int:
        """The hop diameter: as many rounds make local information global."""
        return hop_diameter(self.edges, self.num_nodes)

    @cached_property
    def boundary(self) -> Int[Tensor, "segments 2"]:
        """The segments around the cells."""
        require(self.cells is not None, "this mesh has no cells: build it with delaunay or grid edges to use barycentric weights")
        assert self.cells is not None
        return boundary_segments(self.cells)

    def moved(self, positions: Float[Tensor, "nodes dim"], connect: Connect = delaunay_edges) -> Mesh:
        """The mesh with its nodes elsewhere and edges made anew, before the same coarser meshes; gradients reach `positions`."""
        return replace(mesh_at(self.space, positions, connect), coarser=self.coarser, nesting_ratio=self.nesting_ratio)

    def of_nodes(self, positions: Float[Tensor, "_nodes dim"]) -> Mesh:
        """A mesh of other nodes, more or fewer, nested as this one is; coarser meshes of as many nodes as before stay."""
        if self.nesting_ratio is None:
            return self.moved(positions)
        known, made = {level.num_nodes: level for level in self.nest[1:]}, None
        finest, *coarser = mesh_at(self.space, positions).nested(self.nesting_ratio).nest
        for level in reversed(coarser):
            made = replace(known.get(level.num_nodes, level), coarser=made)
        return replace(finest, coarser=made)

    def nested(self, ratio: float = 2.0) -> Mesh:
        """The mesh with ever coarser regular grids behind it, each with `ratio` times fewer nodes along every dimension.

        They cover the space, or what a grid covers, and depend on the number of nodes alone: meshes with their nodes elsewhere,
        and finer ones, contain the very same coarse computation. The coarsest has 2^dim nodes. On a sphere they are spirals of
        evenly spread nodes, the coarsest of four.
        """
        require(ratio > 1, f"coarser meshes have fewer nodes, so the ratio must be above 1; got {ratio}")
        if isinstance(self.space, Sphere):
            num = max(min(math.ceil(self.num_nodes / ratio**2), self.num_nodes - 1), 4)
            coarser = None
            if num < self.num_nodes:
                coarser = mesh_at(self.space, self.space.project(self.space.spiral(num).to(self.positions))).nested(ratio)
            return replace(self, coarser=coarser, nesting_ratio=float(ratio))
        axes = self.axes or _even_axes(self.space, self.positions)
        fewer = [max(min(math.ceil(len(axis) / ratio), len(axis) - 1), min(len(axis), 2)) for axis in axes]
        if fewer == [len(axis) for axis in axes]:
            return replace(self, nesting_ratio=float(ratio))
        coarser = _grid_at(self.space, tuple(_between(axis[0], axis[-1], n, axis) for axis, n in zip(axes, fewer, strict=True)))
        coarser = coarser.to(self.positions.device).nested(ratio)
        while coarser is not None and coarser.num_nodes >= self.num_nodes:
            coarser = coarser.coarser
        return replace(self, coarser=coarser, nesting_ratio=float(ratio))

    def to(self, device: torch.device | str) -> Mesh:
        """The mesh on another device; what was derived from its graph comes along."""
        there = replace(
            self,
            positions=self.positions.to(device),
            senders=self.senders.to(device),
            receivers=self.receivers.to(device),
            levels=self.levels.to(device),
            axes=None if self.axes is None else tuple(axis.to(device) for axis in self.axes),
            cells=None if self.cells is None else self.cells.to(device),
            coarser=None if self.coarser is None else self.coarser.to(device),
        )
        if "diameter" in self.__dict__:
            there.__dict__["diameter"] = self.diameter
        return there

    def to_pyg(self) -> Data:
        """PyTorch Geometric data: `pos`, `edge_index`, `edge_level`, and `face` for triangles."""
        from torch_geometric.data import Data

        face = self.cells.T if self.cells is not None and self.cells.shape[1] == 3 else None
        return Data(pos=self.positions, edge_index=torch.stack([self.senders, self.receivers]), edge_level=self.levels, face=face)

    @classmethod
    def from_pyg(cls, data: Data, space: Space) -> Mesh:
        """A mesh from PyTorch Geometric data with `pos` and `edge_index`; `edge_level` and `face` are kept where present."""
        require(
            data.pos is not None and data.edge_index is not None, "PyTorch Geometric data need pos and edge_index to be a mesh"
        )
        senders, receivers = data.edge_index  # type: ignore[misc]
        levels = data["edge_level"] if "edge_level" in data else torch.zeros_like(senders)
        cells = None if data.face is None else data.face.T.contiguous()
        return cls(space, data.pos, senders, receivers, levels, cells=cells)  # type: ignore[arg-type]

    def to_meshio(self) -> meshio.Mesh:
        """The nodes and cells as a meshio mesh, which writes VTK, Gmsh and many others; edges are the cells' own."""
        import meshio

        require(self.cells is not None, "only a mesh with cells can be written by meshio; this one has none")
        assert self.cells is not None
        kind = {1: "vertex", 2: "line", 3: "triangle", 4: "tetra"}[self.cells.shape[1]]
        return meshio.Mesh(self.positions.detach().cpu().numpy(), [(kind, self.cells.cpu().numpy())])

    @classmethod
    def from_meshio(cls, mesh: meshio.Mesh, space: Space) -> Mesh:
        """A mesh from the highest-dimensional cells of a meshio mesh: lines, triangles or tetrahedra, and the edges of those."""
        for kind in ("tetra", "triangle", "line"):
            found = [torch.as_tensor(block.data, dtype=torch.long) for block in mesh.cells if block.type == kind]
            if found:
                break
        else:
            raise InputError(f"a mesh needs lines, triangles or tetrahedra; got cells {[block.type for block in mesh.cells]}")
        cells = torch.cat(found)
        positions = torch.as_tensor(mesh.points, dtype=torch.get_default_dtype())
        # many formats store planar points with a third coordinate of zero
        extra = positions[:, space.dim :]
        require(not bool(extra.any()), f"points need {space.dim} coordinates; got {positions.shape[1]}, the last not all zero")
        return cls(space, positions[:, : space.dim].contiguous(), *cell_edges(cells), cells=cells)


def _even_axes(space: Space, positions: Float[Tensor, "nodes dim"]) -> tuple[Float[Tensor, " _"], ...]:
    """The axes of a regular grid over a box with about as many nodes, as far apart along every dimension."""
    assert isinstance(space, Box)
    spacing = (math.prod(space.sides) / len(positions)) ** (1 / space.dim)
    return tuple(
        _between(a, b, max(2, round((b - a) / spacing)), positions) for a, b in zip(space.lower, space.upper, strict=True)
    )


def _between(first: SupportsFloat, last: SupportsFloat, num: int, like: Tensor) -> Float[Tensor, " num"]:
    return torch.linspace(float(first), float(last), num, dtype=like.dtype)


def _check_shape(space: Space, positions: Tensor) -> None:
    require(
        positions.ndim == 2 and len(positions) > 0 and positions.shape[1] == space.dim,
        f"a mesh needs at least one node with {space.dim} coordinates each; got shape {tuple(positions.shape)}",
    )


def _check_finite(positions: Float[Tensor, "nodes dim"]) -> None:
    require(positions.is_meta or bool(positions.isfinite().all()), "node positions must be finite; found NaN or infinity")


def mesh_at(space: Space, positions: Float[Tensor, "nodes dim"], connect: Connect = delaunay_edges) -> Mesh:
    """The mesh of these nodes with edges by `connect` and Delaunay cells."""
    _check_shape(space, positions)
    _check_finite(positions)
    cells = space.triangulate(positions)
    edges = delaunay_edges(space, positions, cells) if connect is delaunay_edges else connect(space, positions)
    return Mesh(space, positions, *edges, cells=cells)


def scattered_mesh(space: Space, num_nodes: int, generator: torch.Generator, connect: Connect = delaunay_edges) -> Mesh:
    """Nodes of a scrambled Halton sequence: random but well spread (paper A.4)."""
    require(num_nodes > 0, f"a mesh needs at least one node; got {num_nodes}")
    return mesh_at(space, space.from_cube(halton(space.intrinsic_dim, num_nodes, generator)), connect)


def halton(dim: int, num: int, generator: torch.Generator) -> Float[Tensor, "num dim"]:
    """The first points of a scrambled Halton sequence in the unit cube."""
    from scipy.stats import qmc

    seed = int(torch.randint(2**31, (), generator=generator))
    return torch.as_tensor(qmc.Halton(dim, scramble=True, rng=seed).random(num), dtype=torch.get_default_dtype())


def grid_mesh(space: Space, resolution: SupportsIndex | Sequence[SupportsIndex], connect: Connect | Diagonals = "one") -> Mesh:
    """`resolution` nodes along each axis, borders included (a single node sits in the centre); the last axis varies fastest.

    Delaunay edges have ties on a grid; they are those with one diagonal.
    """
    require(isinstance(space, Box), f"a grid fills a box; got {space}, on a sphere use sphere_mesh or icosahedral_mesh")
    assert isinstance(space, Box)
    counts = list(resolution) if isinstance(resolution, Sequence) else [resolution] * space.dim
    shape = [int(count) for count in counts if isinstance(count, Integral)]
    require(
        len(shape) == len(counts) == space.dim and min(shape) > 0,
        f"a grid in {space.dim} dimensions needs {space.dim} positive resolutions, whole numbers; got {counts}",
    )
    if connect is delaunay_edges:
        connect = "one"
    axes = tuple(
        torch.linspace(a, b, n) if n > 1 else torch.tensor([(a + b) / 2])
        for a, b, n in zip(space.lower, space.upper, shape, strict=True)
    )
    return _grid_at(space, axes, connect)


def _grid_at(space: Space, axes: tuple[Float[Tensor, " _"], ...], connect: Connect | Diagonals = "one") -> Mesh:
    shape = [len(axis) for axis in axes]
    positions = torch.cartesian_prod(*axes).reshape(-1, space.dim)
    edges = connect(space, positions) if callable(connect) else grid_edges(shape, connect)
    cells = (
        None if space.dim > 2 else grid_triangles(shape) if space.dim == 2 and min(shape) > 1 else space.triangulate(positions)
    )
    return Mesh(space, positions, *edges, axes=axes, cells=cells)


@dataclass(frozen=True)
class MeshConfig:
    """How a task places nodes and joins them, for any resolution.

    `layout`: "grid" (on a sphere latitudes and longitudes) or "icosahedron" (of a sphere).
    `edges`: "grid" (axes and `diagonals`), "delaunay" (on a grid: its fixed tie-break, the same as "grid" with one diagonal),
    "radius" (`radius` in units of the grid spacing) or "multiscale" (nested subsets, each `scale_ratio` times smaller).
    `nested` puts ever coarser meshes behind each one, each with `nesting_ratio` times fewer nodes along every dimension.
    """

    layout: Literal["grid", "icosahedron"] = "grid"
    edges: Literal["grid", "delaunay", "radius", "multiscale"] = "delaunay"
    diagonals: Diagonals = "one"
    radius: float = 1.5
    scale_ratio: float = 4.0
    nested: bool = False
    nesting_ratio: float = 2.0

    def __post_init__(self) -> None:
        require_types(self)
        require(self.nesting_ratio > 1, f"nesting_ratio must be above 1; got {self.nesting_ratio}")


def build_grid(config: MeshConfig, space: Box, resolution: int) -> Mesh:
    """The regular mesh of a resolution under a config."""
    require(config.layout == "grid", f"a box has meshes with mesh.layout=grid; got {config.layout}")
    mesh = _build_grid(config, space, resolution)
    return mesh.nested(config.nesting_ratio) if config.nested else mesh


def _build_grid(config: MeshConfig, space: Box, resolution: int) -> Mesh:
    if config.edges == "radius":
        step = max(space.sides) / max(resolution - 1, 1)
        return grid_mesh(space, resolution, radius_edges(config.radius * step))
    if config.edges == "multiscale":
        fixed = grid_edges([resolution] * space.dim)
        return grid_mesh(space, resolution, multiscale_edges(config.scale_ratio, finest=lambda *_: fixed))
    return grid_mesh(space, resolution, config.diagonals if config.edges == "grid" else "one")
