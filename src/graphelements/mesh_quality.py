"""What a mesh is like: sizes, degrees, lengths, the worst cell, and how much of the space it covers."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from .meshes import Mesh
from .unions import union


@dataclass(frozen=True)
class MeshReport:
    """Lengths are in the units of the space, angles in degrees, `coverage` is the share of the space that the cells fill.

    `degrees` are the least, the mean and the most edges that come in at a node; `pieces` have no edges between them; `spread` is
    the ratio of the widest to the narrowest spacing. What a mesh has nothing for, such as angles without triangles, is NaN.
    """

    nodes: int
    coarser: tuple[int, ...]
    edges: int
    degrees: tuple[int, float, int]
    diameter: int
    pieces: int
    shortest_edge: float
    longest_edge: float
    closest_nodes: float
    spread: float
    smallest_angle: float
    coverage: float

    @property
    def problems(self) -> list[str]:
        """What one should know before relying on the mesh."""
        found = {
            "the mesh falls apart: pieces without edges between them never hear of each other, add edges": self.pieces > 1,
            "nodes coincide: remove all but one of them": self.closest_nodes == 0,
            "there are very thin triangles: move or remove a node of theirs": self.smallest_angle < 1,
            "the cells cover less than half of the space: elsewhere the nearest nodes answer": self.coverage < 0.5,
        }
        return [text for text, is_so in found.items() if is_so]


def inspect_mesh(mesh: Mesh) -> MeshReport:
    """The report on a mesh."""
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import connected_components
    from scipy.spatial import KDTree

    num, positions = mesh.num_nodes, mesh.positions.detach().cpu()
    senders, receivers = mesh.senders.cpu(), mesh.receivers.cpu()
    lengths = mesh.space.distance(positions[senders], positions[receivers]).double().numpy()
    degrees = np.bincount(receivers.numpy(), minlength=num)
    graph = csr_array((np.ones(len(senders)), (senders.numpy(), receivers.numpy())), shape=(num, num))
    points = positions.double().numpy()
    spacing = union(mesh, 1).spacing
    return MeshReport(
        nodes=num,
        coarser=tuple(level.num_nodes for level in mesh.nest[1:]),
        edges=len(senders),
        degrees=(int(degrees.min()), float(degrees.mean()), int(degrees.max())),
        diameter=mesh.diameter,
        pieces=int(connected_components(graph, directed=False)[0]),
        shortest_edge=float(lengths.min(initial=math.inf)),
        longest_edge=float(lengths.max(initial=0.0)),
        closest_nodes=float(KDTree(points).query(points, k=2)[0][:, 1].min()) if num > 1 else math.inf,
        spread=float(spacing.max() / spacing.min()),
        smallest_angle=_smallest_angle(mesh),
        coverage=_coverage(mesh),
    )


def _smallest_angle(mesh: Mesh) -> float:
    """Of all triangles, in degrees."""
    if mesh.cells is None or mesh.cells.shape[1] != 3 or len(mesh.cells) == 0:
        return math.nan
    corners = mesh.positions.detach().cpu().double().numpy()[mesh.cells.cpu().numpy()]
    ahead, behind = np.roll(corners, -1, 1) - corners, np.roll(corners, 1, 1) - corners
    lengths = np.linalg.norm(ahead, axis=-1) * np.linalg.norm(behind, axis=-1)
    cosines = (ahead * behind).sum(-1) / np.maximum(lengths, 1e-300)
    return float(np.degrees(np.arccos(np.clip(cosines, -1, 1))).min())


def _coverage(mesh: Mesh) -> float:
    if mesh.cells is None or mesh.cells.shape[1] != mesh.space.intrinsic_dim + 1:
        return math.nan
    areas = union(mesh, 1).areas.detach().double().sum() * mesh.space.unit_length**mesh.space.intrinsic_dim
    return float(areas) / mesh.space.measure
