"""The meshes of a batch as one graph: their disjoint union."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import torch
from jaxtyping import Float, Int
from torch import Tensor

from .errors import require
from .meshes import Mesh, mesh_at
from .spaces import Space
from .topology import EdgeTables, build_tables

Value = TypeVar("Value")


def _constant(make: Callable[[MeshUnion], Any]) -> property:
    """A property that is made once; anew each time where positions need gradients, which one made without them would lose."""

    def get(self: MeshUnion) -> Any:
        if self.positions.requires_grad:
            return make(self)
        if make.__name__ not in self.__dict__:
            self.__dict__[make.__name__] = make(self)
        return self.__dict__[make.__name__]

    return property(get, doc=make.__doc__)


@dataclass(frozen=True, eq=False)
class MeshUnion:
    """The disjoint union of the meshes of a batch: one graph, with the item of every node.

    `parts` are the distinct meshes, `part_of_item` says which one an item uses; a mesh shared by all items is one part.
    """

    parts: tuple[Mesh, ...]
    part_of_item: tuple[int, ...]
    positions: Float[Tensor, "nodes dim"]
    senders: Int[Tensor, " edges"]
    receivers: Int[Tensor, " edges"]
    levels: Int[Tensor, " edges"]
    items: Int[Tensor, " nodes"]
    starts: Int[Tensor, " items"]

    @property
    def space(self) -> Space:
        return self.parts[0].space

    @property
    def num_items(self) -> int:
        return len(self.part_of_item)

    @property
    def num_nodes(self) -> int:
        return len(self.positions)

    @_constant
    def spacing(self) -> Float[Tensor, " nodes"]:
        """The mean length of a node's incoming edges of the finest scale, in units of the space; 1 for a node without any."""
        finest = torch.where(self.levels == 0, 1.0, 0.0)
        space = self.space
        lengths = space.distance(self.positions[self.senders], self.positions[self.receivers]) / space.unit_length
        total = torch.zeros_like(self.positions[:, 0]).index_add(0, self.receivers, lengths * finest)
        count = torch.zeros_like(self.positions[:, 0]).index_add(0, self.receivers, finest.to(total))
        # coinciding nodes have length 0: keep ratios finite
        return torch.where(count > 0, total / count.clamp(min=1), 1.0).clamp(min=1e-4)

    @_constant
    def log_spacing(self) -> Float[Tensor, " nodes"]:
        """The logarithm of the spacing."""
        return self.spacing.log()

    @_constant
    def mean_spacing(self) -> Float[Tensor, "items 1"]:
        """The spacing of every item's mesh: the geometric mean over its nodes."""
        nodes = torch.zeros_like(self.has_coarser).index_add(0, self.items, torch.ones_like(self.log_spacing)[:, None])
        return (torch.zeros_like(nodes).index_add(0, self.items, self.log_spacing[:, None]) / nodes).exp()

    @_constant
    def edge_features(self) -> Float[Tensor, "edges features"]:
        """The offset of every edge in units of its receiver's spacing, its length in the same units, and its level."""
        space, spacing = self.space, self.spacing[self.receivers][:, None] * self.space.unit_length
        ends = self.positions[self.senders], self.positions[self.receivers]
        levels = self.levels.to(self.positions)[:, None]
        return torch.cat([space.offset(*ends) / spacing, space.distance(*ends)[:, None] / spacing, levels], -1)

    def node_features(self, place: bool) -> Float[Tensor, "nodes features"]:
        """What nodes see of themselves: the logarithm of their spacing, and with `place` their coordinates."""
        spacing = self.log_spacing[:, None]
        return torch.cat([spacing, self.space.coordinates(self.positions)], -1) if place else spacing

    @cached_property
    def degrees(self) -> Float[Tensor, " nodes"]:
        """How many edges come in at every node."""
        ones = torch.ones_like(self.receivers, dtype=self.positions.dtype)
        return torch.zeros_like(self.positions[:, 0]).index_add(0, self.receivers, ones)

    @_constant
    def areas(self) -> Float[Tensor, " nodes"]:
        """The length, area or volume around each node, in units of the space: the integral of its P1 hat function on flat cells.

        That is an equal share of each cell at the node; spacing^dim on a mesh whose cells do not fill the space.
        """
        of_parts = [_areas(part) for part in self.parts]
        return torch.cat([of_parts[part] for part in self.part_of_item])

    @cached_property
    def tables(self) -> EdgeTables:
        """Neighbour tables for the compiled kernels."""
        return build_tables(self.senders, self.receivers, self.num_nodes)

    @cached_property
    def coarser(self) -> MeshUnion | None:
        """The union of the coarser meshes; an item whose mesh has none is there with a single node that `refines` leaves out."""
        if all(part.coarser is None for part in self.parts):
            return None
        parts = [part.coarser or _single_node(part) for part in self.parts]
        return union([parts[part] for part in self.part_of_item])

    @cached_property
    def couplings(self) -> WeakKeyDictionary[Any, Any]:
        """How the nodes touch those of the coarser meshes, for every representation that asked; kept by networks."""
        return WeakKeyDictionary()

    @cached_property
    def has_coarser(self) -> Float[Tensor, "items 1"]:
        """1 for an item whose mesh has a coarser one behind it, else 0."""
        return self.positions.new_tensor(self.per_item([float(part.coarser is not None) for part in self.parts]))[:, None]

    @cached_property
    def refines(self) -> Float[Tensor, "nodes 1"]:
        """1 for the nodes of a mesh with a coarser one behind it, else 0."""
        return self.has_coarser[self.items]

    def to(self, device: torch.device | str) -> MeshUnion:
        """The union on another device; shared parts stay shared."""
        if self.positions.device == torch.device(device):
            return self
        parts = [part.to(device) for part in self.parts]
        return union([parts[part] for part in self.part_of_item])

    def per_item(self, values: Sequence[Value]) -> list[Value]:
        """One value per part, spread over the items."""
        return [values[part] for part in self.part_of_item]


def union(meshes: Mesh | Sequence[Mesh] | MeshUnion, num_items: int | None = None) -> MeshUnion:
    """The union of one mesh per item; a single mesh is shared by all `num_items` items."""
    if isinstance(meshes, MeshUnion):
        require(
            num_items in (None, meshes.num_items), f"a batch of {num_items} items needs as many meshes; got {meshes.num_items}"
        )
        return meshes
    if isinstance(meshes, Mesh):
        return _repeated(meshes, num_items or 1)
    require(num_items in (None, len(meshes)), f"a batch of {num_items} items needs one mesh or as many meshes; got {len(meshes)}")
    require(len(meshes) > 0, "a union needs at least one mesh; got none")
    numbers = {id(mesh): i for i, mesh in reversed(list(enumerate(meshes)))}
    firsts = sorted(set(numbers.values()))
    parts = tuple(meshes[i] for i in firsts)
    if len(parts) == 1:
        return _repeated(parts[0], len(meshes))
    for part in parts[1:]:
        require(part.space == parts[0].space, "the meshes of a batch must lie in the same space; batch other spaces apart")
    device = meshes[0].positions.device
    nodes = torch.tensor([m.num_nodes for m in meshes], device=device)
    edges = torch.tensor([len(m.senders) for m in meshes], device=device)
    starts = nodes.cumsum(0) - nodes
    shift = starts.repeat_interleave(edges, output_size=sum(len(m.senders) for m in meshes))
    return MeshUnion(
        parts,
        tuple(firsts.index(numbers[id(mesh)]) for mesh in meshes),
        torch.cat([m.positions for m in meshes]),
        torch.cat([m.senders for m in meshes]) + shift,
        torch.cat([m.receivers for m in meshes]) + shift,
        torch.cat([m.levels for m in meshes]),
        torch.arange(len(meshes), device=device).repeat_interleave(nodes, output_size=sum(m.num_nodes for m in meshes)),
        starts,
    )


def _single_node(mesh: Mesh) -> Mesh:
    """The first node of a mesh alone, a grid where the mesh is one."""
    axes = None if mesh.axes is None else tuple(axis[:1] for axis in mesh.axes)
    return replace(mesh_at(mesh.space, mesh.positions[:1]), axes=axes)


def _areas(mesh: Mesh) -> Float[Tensor, " nodes"]:
    cells, dim = mesh.cells, mesh.space.intrinsic_dim
    if cells is None or cells.shape[1] - 1 != dim:
        return _repeated(mesh, 1).spacing ** dim
    corners = mesh.positions[cells] / mesh.space.unit_length
    sides = corners[:, 1:] - corners[:, :1]
    if dim == mesh.space.dim:
        volumes = torch.linalg.det(sides).abs() / math.factorial(dim)
    else:  # the solid angles of triangles on a sphere (van Oosterom and Strackee 1983)
        a, b, c = corners.unbind(1)
        ab, bc, ca = (a * b).sum(-1), (b * c).sum(-1), (c * a).sum(-1)
        volumes = 2 * torch.atan2((a * torch.linalg.cross(sides[:, 0], sides[:, 1])).sum(-1).abs(), 1 + ab + bc + ca)
    shares = (volumes / (dim + 1))[:, None].expand(cells.shape)
    return torch.zeros_like(mesh.positions[:, 0]).index_add(0, cells.flatten(), shares.flatten())


def _repeated(mesh: Mesh, num_items: int) -> MeshUnion:
    items = torch.arange(num_items, device=mesh.positions.device)
    starts = items * mesh.num_nodes
    shift = starts.repeat_interleave(len(mesh.senders))
    return MeshUnion(
        (mesh,),
        (0,) * num_items,
        mesh.positions.repeat(num_items, 1),
        mesh.senders.repeat(num_items) + shift,
        mesh.receivers.repeat(num_items) + shift,
        mesh.levels.repeat(num_items),
        items.repeat_interleave(mesh.num_nodes),
        starts,
    )
