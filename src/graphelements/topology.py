"""Edges as a function of positions: grid, Delaunay, radius, several scales; the hop diameter and neighbour tables of a graph."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
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


class Bucket(NamedTuple):
    """Nodes of similar degree, in order, and the other ends of their edges, in order, a column of slots each.

    The node in an empty slot is one beyond the last; its edge is any edge. Where every edge has its opposite, `senders` and
    `receivers` are one tensor, so that compiled loops over both are one.
    """

    nodes: Int[Tensor, " rows"]
    senders: Int[Tensor, "incoming rows"]
    incoming: Int[Tensor, "incoming rows"]
    receivers: Int[Tensor, "outgoing rows"]
    outgoing: Int[Tensor, "outgoing rows"]


@dataclass(frozen=True)
class EdgeTables:
    """Incoming and outgoing edges of every node, as neighbour tables bucketed by degree; no buckets without edges."""

    buckets: tuple[Bucket, ...]
    senders: Int[Tensor, " edges"]
    receivers: Int[Tensor, " edges"]
    num_nodes: int

    @property
    def num_edges(self) -> int:
        return len(self.senders)


def build_tables(senders: Int[Tensor, " edges"], receivers: Int[Tensor, " edges"], num_nodes: int) -> EdgeTables:
    """The tables of a graph, which may be directed and have loops, repeated edges and hubs; build them once per graph."""
    require(senders.shape == receivers.shape, f"every edge has a sender and a receiver; got {len(senders)} and {len(receivers)}")
    for ends in (senders, receivers):
        # Kernels trust the tables: an index beyond the nodes would read foreign memory.
        inside = len(ends) == 0 or bool((ends.min() >= 0) & (ends.max() < num_nodes))
        require(inside, f"edges join nodes 0 to {num_nodes - 1}; found others, build the edges from the same nodes")
    senders, receivers = senders.clone(), receivers.clone()  # the compiler tells a tensor from a row of one
    buckets, first = [], 0
    if len(senders) > 0:
        incoming, outgoing = _Rows.of(receivers, senders, num_nodes), _Rows.of(senders, receivers, num_nodes)
        degrees = torch.maximum(incoming.degrees, outgoing.degrees)
        by_degree = torch.argsort(degrees.int(), stable=True)
        for num in _bucket_sizes(*torch.unique_consecutive(degrees[by_degree], return_counts=True)):
            nodes = by_degree[first : first + num].sort().values
            (heard, edges_in), (told, edges_out) = incoming.slots(nodes), outgoing.slots(nodes)
            buckets.append(Bucket(nodes, heard, edges_in, heard if torch.equal(heard, told) else told, edges_out))
            first += num
    return EdgeTables(tuple(buckets), senders, receivers, num_nodes)


class _Rows(NamedTuple):
    """The edges sorted by the node at one of their ends, then the other, and where those of each node end."""

    edges: Int[Tensor, " edges"]
    others: Int[Tensor, " edges"]
    degrees: Int[Tensor, " nodes"]
    ends: Int[Tensor, " nodes"]

    @staticmethod
    def of(own: Int[Tensor, " edges"], other: Int[Tensor, " edges"], num_nodes: int) -> _Rows:
        by_other = torch.argsort(other.int())  # int32 sorts twice as fast
        edges = by_other[torch.argsort(own[by_other].int(), stable=True)]
        degrees = torch.bincount(own, minlength=num_nodes)
        return _Rows(edges, other[edges], degrees, degrees.cumsum(0))

    def slots(self, nodes: Int[Tensor, " rows"]) -> tuple[Int[Tensor, "width rows"], Int[Tensor, "width rows"]]:
        """The other ends and the numbers of the edges of `nodes`."""
        degrees, ends = self.degrees[nodes], self.ends[nodes]
        width = max(int(degrees.max()), 2)  # torch would compile a width of 1 for itself
        numbers = torch.arange(width, device=nodes.device)[:, None]
        places = torch.minimum(ends - degrees + numbers, ends - 1).clamp(min=0)
        return torch.where(numbers < degrees, self.others[places], len(self.degrees)), self.edges[places]


def _bucket_sizes(degrees: Int[Tensor, " kinds"], counts: Int[Tensor, " kinds"]) -> Iterator[int]:
    """How many nodes are in each bucket, for ascending degrees: one bucket as long as empty slots cost less than a call."""
    nodes = filled = 0
    for degree, count in zip(degrees.tolist(), counts.tolist(), strict=True):
        if nodes > 0 and nodes * degree - filled > 2048 + (filled + count * degree) // 4:
            yield nodes
            nodes = filled = 0
        nodes += count
        filled += count * degree
    yield nodes
