"""Edges as a function of positions: grid, Delaunay, radius, several scales; the hop diameter and neighbour tables of a graph."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int, Int32
from torch import Tensor

from .errors import require
from .spaces import Space

Diagonals = Literal["none", "one", "both"]


class Edges(NamedTuple):
    """Directed edges; `levels` is 0 for the finest scale and grows with coarser ones."""

    senders: Int[Tensor, " edges"]
    receivers: Int[Tensor, " edges"]
    levels: Int[Tensor, " edges"]


Connect = Callable[[Space, Float[Tensor, "nodes dim"]], Edges]


def both_ways(pairs: Int[Tensor, "pairs 2"], level: int = 0) -> Edges:
    """Each unordered pair once, without loops, as two directed edges."""
    pairs = pairs.sort(-1).values
    pairs = torch.unique(pairs[pairs[:, 0] != pairs[:, 1]], dim=0)
    first, second = pairs.unbind(-1)
    senders = torch.cat([first, second])
    return Edges(senders, torch.cat([second, first]), torch.full_like(senders, level))


def grid_edges(shape: Sequence[int], diagonals: Diagonals = "one") -> Edges:
    """Edges of a regular grid whose nodes are numbered with the last axis fastest.

    Neighbours along the axes are always joined. "one" adds the diagonal of each cell's low and high corner (in two dimensions the
    Delaunay triangulation with one fixed choice among its ties, so that the hop diameter is 2(k-1)); "both" joins all nodes of
    a cell.
    """
    numbers = torch.arange(math.prod(shape)).reshape(*shape)
    steps = [s for s in itertools.product((-1, 0, 1), repeat=len(shape)) if s > (0,) * len(shape)]
    if diagonals == "none":
        steps = [s for s in steps if sum(map(abs, s)) == 1]
    elif diagonals == "one":
        steps = [s for s in steps if min(s) >= 0]
    pairs = []
    for step in steps:
        low = tuple(slice(max(0, -s), n - max(0, s)) for s, n in zip(step, shape, strict=True))
        high = tuple(slice(max(0, s), n - max(0, -s)) for s, n in zip(step, shape, strict=True))
        pairs.append(torch.stack([numbers[low].flatten(), numbers[high].flatten()], -1))
    return both_ways(torch.cat(pairs))


def grid_triangles(shape: Sequence[int]) -> Int[Tensor, "cells corners"]:
    """The triangles of `grid_edges(shape, "one")` on a planar grid of at least 2 x 2 nodes."""
    numbers = torch.arange(math.prod(shape)).reshape(*shape)
    a, b, c, d = numbers[:-1, :-1], numbers[:-1, 1:], numbers[1:, :-1], numbers[1:, 1:]
    return torch.cat([torch.stack([a, b, d], -1), torch.stack([a, d, c], -1)]).flatten(0, 1)


def cell_edges(cells: Int[Tensor, "cells corners"], level: int = 0) -> Edges:
    """Join the corners of every cell."""
    corners = list(itertools.combinations(range(cells.shape[1]), 2))
    pairs = [cells[:, [i, j]] for i, j in corners] or [cells.new_zeros(0, 2)]
    return both_ways(torch.cat(pairs), level)


def delaunay_edges(
    space: Space, positions: Float[Tensor, "nodes dim"], cells: Int[Tensor, "cells corners"] | None = None
) -> Edges:
    """The Delaunay triangulation (paper A.4), of `cells` where they are known; a chain for collinear nodes.

    Nodes that coincide with one of these join it.
    """
    cells = space.triangulate(positions) if cells is None else cells
    edges = cell_edges(cells)
    in_cell = torch.zeros(len(positions), dtype=torch.bool, device=positions.device)
    in_cell[cells.flatten()] = True
    if not bool(in_cell.all()):
        from scipy.spatial import KDTree

        used, left = torch.nonzero(in_cell)[:, 0], torch.nonzero(~in_cell)[:, 0]
        points = positions.detach().double()
        _, closest = KDTree(points[used].cpu().numpy()).query(points[left].cpu().numpy())
        pairs = torch.stack([left, used[torch.as_tensor(closest, device=used.device)]], -1)
        edges = both_ways(torch.cat([torch.stack(edges[:2], -1), pairs]))
    return edges


def radius_edges(radius: float) -> Connect:
    """Join all nodes at most `radius` apart, in the space's metric and units."""
    require(math.isfinite(radius) and radius > 0, f"the radius of edges must be positive; got {radius}")

    def connect(space: Space, positions: Float[Tensor, "nodes dim"]) -> Edges:
        from scipy.spatial import KDTree

        points = positions.detach()
        # chords are never longer than distances along the space, so the tree finds every candidate
        pairs = KDTree(points.cpu().double().numpy()).query_pairs(radius * (1 + 1e-6), output_type="ndarray")
        pairs = torch.as_tensor(pairs, dtype=torch.long, device=points.device).reshape(-1, 2)
        near = space.distance(points[pairs[:, 0]], points[pairs[:, 1]]) <= radius * (1 + 1e-6)
        return both_ways(pairs[near])

    return connect


def multiscale_edges(ratio: float = 4.0, coarsest: int = 4, finest: Connect = delaunay_edges) -> Connect:
    """Delaunay edges of nested well-spread subsets, each `ratio` times smaller, down to about `coarsest` nodes; levels 0, 1, ...

    A pair joined at several scales keeps its finest level. `finest` joins all nodes at level 0: on a regular grid, where Delaunay
    triangulations have ties, by the grid's own rule.
    """
    require(ratio > 1, f"the ratio between scales must be above 1; got {ratio}")

    def connect(space: Space, positions: Float[Tensor, "nodes dim"]) -> Edges:
        num_nodes = len(positions)
        sizes = [num_nodes]
        while sizes[-1] / ratio >= coarsest:
            sizes.append(math.ceil(sizes[-1] / ratio))
        order = spread_order(positions, max(sizes[1:], default=0))
        keys = torch.zeros(0, dtype=torch.long, device=positions.device)
        levels = keys
        for level, size in enumerate(sizes):
            subset = torch.arange(num_nodes, device=positions.device) if level == 0 else order[:size]
            edges = (finest if level == 0 else delaunay_edges)(space, positions[subset])
            key = subset[edges.senders] * num_nodes + subset[edges.receivers]
            key = key[~torch.isin(key, keys)]
            keys = torch.cat([keys, key])
            levels = torch.cat([levels, torch.full_like(key, level)])
        return Edges(keys // num_nodes, keys % num_nodes, levels)

    return connect


def spread_order(positions: Float[Tensor, "nodes dim"], num: int) -> Int[Tensor, " num"]:
    """The first `num` nodes of a farthest-point ordering that starts next to the centre: every prefix is well spread."""
    points = positions.detach().cpu().double().numpy()
    if num == 0:
        return torch.zeros(0, dtype=torch.long, device=positions.device)
    chosen = [int(np.square(points - points.mean(0)).sum(-1).argmin())]
    nearest = np.square(points - points[chosen[0]]).sum(-1)
    for _ in range(num - 1):
        chosen.append(int(nearest.argmax()))
        nearest = np.minimum(nearest, np.square(points - points[chosen[-1]]).sum(-1))
    return torch.as_tensor(chosen, device=positions.device)


def boundary_segments(cells: Int[Tensor, "cells corners"]) -> Int[Tensor, "segments 2"]:
    """The segments around a planar mesh: edges of one triangle only; every segment of a chain; a single node twice."""
    if cells.shape[1] < 3:
        return cells if cells.shape[1] == 2 else cells.expand(-1, 2)
    sides = torch.cat([cells[:, [0, 1]], cells[:, [1, 2]], cells[:, [2, 0]]]).sort(-1).values
    sides, counts = torch.unique(sides, dim=0, return_counts=True)
    return sides[counts == 1]


EXACT_DIAMETER_NODES = 2000
SWEEPS = 64


def hop_diameter(edges: Edges, num_nodes: int) -> int:
    """The most hops between two nodes that reach each other; 0 without edges.

    Exact up to 2,000 nodes. Beyond, at most 64 sweeps over the graph narrow down every eccentricity (Takes and Kosters 2011):
    exact where they suffice, as on regular grids, else a lower bound.
    """
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import shortest_path

    senders, receivers = edges.senders.cpu().numpy(), edges.receivers.cpu().numpy()
    if len(senders) == 0:
        return 0
    graph = csr_array((np.ones(len(senders)), (senders, receivers)), shape=(num_nodes, num_nodes))
    if num_nodes <= EXACT_DIAMETER_NODES:
        hops = shortest_path(graph, method="D", unweighted=True)
        return int(hops[np.isfinite(hops)].max())
    longest, lowest, highest = 0.0, np.zeros(num_nodes), np.full(num_nodes, np.inf)
    for sweep in range(SWEEPS):
        # nodes that may be ends of a longer path; a node in the middle of things bounds the others best
        open_nodes = np.flatnonzero(highest > longest)
        if len(open_nodes) == 0:
            break
        node = open_nodes[highest[open_nodes].argmax() if sweep % 2 == 0 else lowest[open_nodes].argmin()]
        hops = shortest_path(graph, method="D", unweighted=True, indices=node)
        reached = np.isfinite(hops)
        eccentricity = hops[reached].max()
        longest = max(longest, eccentricity)
        lowest[reached] = np.maximum(lowest[reached], np.maximum(hops[reached], eccentricity - hops[reached]))
        highest = np.minimum(highest, eccentricity + hops)
        highest[node] = eccentricity
    return int(longest)


class EdgesOfNodes(NamedTuple):
    """The edges at every node, those of one node after those of the other: from its start to the next one's.

    `others`: the nodes at their other ends; `numbers`: which edges they are. Numbers of 32 bits: compiled loops read them all.
    """

    starts: Int32[Tensor, " starts"]
    others: Int32[Tensor, " edges"]
    numbers: Int32[Tensor, " edges"]

    @staticmethod
    def of(own: Int[Tensor, " edges"], other: Int[Tensor, " edges"], num_nodes: int) -> EdgesOfNodes:
        """From the node at one end of every edge, and that at the other."""
        numbers = torch.argsort(own.int(), stable=True)  # int32 sorts twice as fast
        starts = torch.bincount(own + 1, minlength=num_nodes + 1).cumsum(0)
        return EdgesOfNodes(starts.int(), other[numbers].int(), numbers.int())


@dataclass(frozen=True)
class EdgeTables:
    """Incoming and outgoing edges of every node, and groups of nodes in a row that no edge leaves: where they begin, and the end.

    Groups are small where that is possible, so that what is known of their nodes stays in the cache.
    """

    incoming: EdgesOfNodes
    outgoing: EdgesOfNodes
    groups: Int32[Tensor, " ends"]

    @property
    def num_nodes(self) -> int:
        return len(self.incoming.starts) - 1

    @property
    def num_edges(self) -> int:
        return len(self.incoming.numbers)


def build_tables(senders: Int[Tensor, " edges"], receivers: Int[Tensor, " edges"], num_nodes: int) -> EdgeTables:
    """The tables of a graph, which may be directed and have loops, repeated edges and hubs; build them once per graph."""
    require(senders.shape == receivers.shape, f"every edge has a sender and a receiver; got {len(senders)} and {len(receivers)}")
    require(max(len(senders), num_nodes) < 2**31, f"tables have numbers of 32 bits; got {len(senders)} edges, {num_nodes} nodes")
    for ends in (senders, receivers):
        # Kernels trust the tables: an index beyond the nodes would read foreign memory.
        inside = len(ends) == 0 or bool((ends.min() >= 0) & (ends.max() < num_nodes))
        require(inside, f"edges join nodes 0 to {num_nodes - 1}; found others, build the edges from the same nodes")
    incoming, outgoing = EdgesOfNodes.of(receivers, senders, num_nodes), EdgesOfNodes.of(senders, receivers, num_nodes)
    return EdgeTables(incoming, outgoing, _groups(senders, receivers, num_nodes))


GROUP = 256  # nodes that a group has about


def _groups(senders: Int[Tensor, " edges"], receivers: Int[Tensor, " edges"], num_nodes: int) -> Int32[Tensor, " ends"]:
    low, high = torch.minimum(senders, receivers), torch.maximum(senders, receivers)
    opened, closed = (torch.bincount(ends + 1, minlength=num_nodes + 1) for ends in (low, high))
    ends = torch.nonzero((opened - closed).cumsum(0) == 0)[:, 0]  # no edge joins a node before to one from here on
    first = torch.cat([torch.ones_like(ends[:1]), (ends // GROUP).diff()]) > 0
    return torch.cat([ends[first & (ends < num_nodes)], ends[-1:]]).int()
