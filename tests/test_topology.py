"""Edges from positions, and the hop diameter of what they make."""

from __future__ import annotations

from collections import deque
from itertools import pairwise

import pytest
import torch
from cases import SPACES, seeded
from hypothesis import given, settings
from hypothesis import strategies as st

from graphelements.errors import InputError
from graphelements.spaces import Box
from graphelements.topology import (
    EXACT_DIAMETER_NODES,
    Edges,
    both_ways,
    boundary_segments,
    delaunay_edges,
    grid_edges,
    grid_triangles,
    hop_diameter,
    multiscale_edges,
    radius_edges,
    spread_order,
)


def pairs_of(edges: Edges) -> set[tuple[int, int]]:
    return set(zip(edges.senders.tolist(), edges.receivers.tolist(), strict=True))


def is_connected(edges: Edges, num_nodes: int) -> bool:
    return len(hops_from(0, edges, num_nodes)) == num_nodes


def hops_from(start: int, edges: Edges, num_nodes: int) -> dict[int, int]:
    """Plain breadth-first search."""
    out: list[list[int]] = [[] for _ in range(num_nodes)]
    for sender, receiver in pairs_of(edges):
        out[sender].append(receiver)
    hops, waiting = {start: 0}, deque([start])
    while waiting:
        node = waiting.popleft()
        for other in out[node]:
            if other not in hops:
                hops[other] = hops[node] + 1
                waiting.append(other)
    return hops


@pytest.mark.parametrize("k", [1, 2, 3, 7])
def test_planar_grids_have_the_edges_of_their_diagonals(k):
    straight, cells = 2 * k * (k - 1), (k - 1) ** 2
    for diagonals, per_cell in (("none", 0), ("one", 1), ("both", 2)):
        edges = grid_edges((k, k), diagonals)
        assert len(edges.senders) == len(pairs_of(edges)) == 2 * (straight + per_cell * cells)
        assert all((b, a) in pairs_of(edges) for a, b in pairs_of(edges))


@pytest.mark.parametrize("k", [1, 2, 3, 5, 7])
def test_the_diameter_of_a_grid_is_twice_k_minus_one(k):
    """T = 2(k - 1), paper section 4: also with one diagonal, because it does not help between the other two corners."""
    assert hop_diameter(grid_edges((k, k), "one"), k * k) == 2 * (k - 1)
    assert hop_diameter(grid_edges((k, k), "none"), k * k) == 2 * (k - 1)
    assert hop_diameter(grid_edges((k, k), "both"), k * k) == k - 1


def test_grids_of_other_dimensions_have_the_right_edges():
    assert pairs_of(grid_edges((3,))) == {(0, 1), (1, 0), (1, 2), (2, 1)}
    assert len(pairs_of(grid_edges((2, 2, 2), "none"))) == 24
    assert len(pairs_of(grid_edges((2, 2, 2), "both"))) == 8 * 7
    assert hop_diameter(grid_edges((3, 4, 2), "none"), 24) == 2 + 3 + 1
    assert len(pairs_of(grid_edges((1, 4)))) == 6


def test_the_triangles_of_a_grid_have_the_edges_of_one_diagonal():
    triangles = grid_triangles((3, 4))
    assert len(triangles) == 2 * 2 * 3
    sides = torch.cat([triangles[:, [0, 1]], triangles[:, [1, 2]], triangles[:, [2, 0]]])
    assert pairs_of(both_ways(sides)) == pairs_of(grid_edges((3, 4), "one"))


@pytest.mark.parametrize("space", SPACES)
@pytest.mark.parametrize("num_nodes", [1, 2, 3, 5, 30, 200])
def test_delaunay_joins_all_nodes_in_every_dimension(space, num_nodes):
    positions = SPACES[space].sample(num_nodes, seeded(num_nodes))
    edges = delaunay_edges(SPACES[space], positions)
    assert is_connected(edges, num_nodes)
    assert len(pairs_of(edges)) == len(edges.senders)
    assert all(a != b for a, b in pairs_of(edges))


def test_delaunay_of_collinear_nodes_is_a_chain_of_neighbours():
    positions = torch.tensor([0.3, 0.1, 0.9, 0.5])[:, None].expand(4, 2)
    assert pairs_of(delaunay_edges(Box(), positions)) == pairs_of(both_ways(torch.tensor([[1, 0], [0, 3], [3, 2]])))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    ("lower", "upper"),
    [
        ((0.0, 0.0), (1.0, 1.0)),
        ((0.0, 0.0), (30.0, 20.0)),
        ((-3.0, 10.0), (5.0, 12.5)),
        ((1000.0, 5000.0), (1030.0, 5020.0)),
    ],
)
def test_nodes_on_any_line_are_a_chain_although_positions_are_rounded(lower, upper, dtype):
    box, generator = Box(lower, upper), seeded(0)
    for num_nodes in range(2, 32):
        ends = box.from_cube(torch.rand(2, 2, generator=generator).to(dtype))
        positions = torch.lerp(ends[0], ends[1], torch.rand(num_nodes, 1, generator=generator).to(dtype))
        assert len(positions.unique(dim=0)) == num_nodes
        edges = delaunay_edges(box, positions)
        assert len(edges.senders) == 2 * (num_nodes - 1)
        assert hop_diameter(edges, num_nodes) == num_nodes - 1


@settings(max_examples=150, deadline=None, derandomize=True)
@given(
    seed=st.integers(0, 10**6),
    num_clusters=st.integers(1, 5),
    num_nodes=st.integers(2, 40),
    gap=st.floats(9, 15),
    double=st.booleans(),
    flat=st.booleans(),
)
def test_delaunay_joins_nodes_in_the_tightest_clusters(seed, num_clusters, num_nodes, gap, double, flat):
    generator, dtype = seeded(seed), torch.float64 if double else torch.float32
    scale = 10**-gap if double else 10 ** (3 - gap)
    centres = torch.rand(num_clusters, 2, generator=generator, dtype=dtype)
    if flat:
        centres[:, 1] = 0.5
    positions = centres[torch.randint(num_clusters, (num_nodes,), generator=generator)]
    positions = positions + scale * torch.randn(num_nodes, 2, generator=generator, dtype=dtype)
    assert is_connected(delaunay_edges(Box(), positions), num_nodes)


@pytest.mark.parametrize("num_distinct", [1, 2, 4, 60])
@pytest.mark.parametrize("seed", range(4))
def test_delaunay_joins_nodes_that_coincide_to_each_other_and_to_the_rest(num_distinct, seed):
    distinct = torch.rand(num_distinct, 2, generator=seeded(seed))
    twins = torch.cat([torch.arange(num_distinct), torch.tensor([num_distinct - 1] * 3 + [0])])
    twins = twins[torch.randperm(num_distinct + 4, generator=seeded(9))]
    edges = delaunay_edges(Box(), distinct[twins])
    assert is_connected(edges, num_distinct + 4)
    joined = {(int(twins[a]), int(twins[b])) for a, b in pairs_of(edges)}
    assert (0, 0) in joined
    assert (num_distinct - 1, num_distinct - 1) in joined


def test_delaunay_has_at_most_three_edges_a_node():
    assert len(delaunay_edges(Box(), torch.rand(100, 2, generator=seeded(0))).senders) <= 2 * (3 * 100 - 6)


@pytest.mark.parametrize("space", SPACES)
def test_radius_joins_exactly_the_nodes_within_it(space):
    box = SPACES[space]
    positions = box.sample(60, seeded(0))
    radius = 0.3 * box.unit_length
    distances = box.distance(positions[:, None].expand(-1, 60, -1), positions.expand(60, -1, -1))
    near = (distances <= radius) & ~torch.eye(60, dtype=torch.bool)
    assert pairs_of(radius_edges(radius)(box, positions)) == set(map(tuple, near.nonzero().tolist()))


def test_radius_of_far_nodes_joins_nothing():
    assert len(radius_edges(0.01)(Box(), torch.tensor([[0.0, 0.0], [1.0, 1.0]])).senders) == 0
    assert len(radius_edges(0.01)(Box(), torch.tensor([[0.0, 0.0]])).senders) == 0


@pytest.mark.parametrize("radius", [0.0, -1.0, float("nan"), float("inf")])
def test_impossible_radii_are_refused(radius):
    with pytest.raises(InputError, match="radius of edges must be positive"):
        radius_edges(radius)


def test_multiscale_edges_keep_the_finest_and_add_coarser_levels():
    positions = torch.rand(225, 2, generator=seeded(0))
    edges = multiscale_edges(4.0)(Box(), positions)
    levels = dict(zip(zip(edges.senders.tolist(), edges.receivers.tolist(), strict=True), edges.levels.tolist(), strict=True))
    assert len(levels) == len(edges.senders)
    finest = {pair for pair, level in levels.items() if level == 0}
    assert finest == pairs_of(delaunay_edges(Box(), positions))
    nodes = [{a for (a, _), level in levels.items() if level >= lowest} for lowest in range(max(levels.values()) + 1)]
    assert [len(of) for of in nodes] == pytest.approx([225, 57, 15], abs=2)
    assert all(coarse <= fine for fine, coarse in pairwise(nodes))
    lengths = (positions[edges.senders] - positions[edges.receivers]).norm(dim=-1)
    means = [lengths[edges.levels == level].mean() for level in range(3)]
    assert all(coarse > 1.5 * fine for fine, coarse in pairwise(means))
    assert all(levels[b, a] == level for (a, b), level in levels.items())


@pytest.mark.parametrize("num_nodes", [1, 2, 3, 5, 17])
def test_multiscale_works_on_few_nodes(num_nodes):
    assert is_connected(multiscale_edges()(Box(), torch.rand(num_nodes, 2, generator=seeded(0))), num_nodes)


def test_multiscale_keeps_the_diameter_of_large_meshes_small():
    found = {}
    for k in (8, 15, 30):
        axis = torch.linspace(0, 1, k)
        positions = torch.cartesian_prod(axis, axis)
        found[k] = hop_diameter(multiscale_edges()(Box(), positions), k * k)
    assert found[15] <= 8
    assert found[30] <= found[8] + 6
    assert hop_diameter(grid_edges((15, 15)), 225) == 28


def test_a_ratio_of_one_between_scales_is_refused():
    with pytest.raises(InputError, match="ratio between scales"):
        multiscale_edges(1.0)


def test_every_prefix_of_a_spread_order_covers_the_nodes_well():
    positions = torch.rand(300, 2, generator=seeded(0))
    order = spread_order(positions, 300)
    assert sorted(order.tolist()) == list(range(300))
    for num in (4, 16, 64):
        chosen = positions[order[:num]]
        reach = torch.cdist(positions, chosen).amin(-1).max()
        gap = (torch.cdist(chosen, chosen) + torch.eye(num) * 9).min()
        assert gap >= reach  # farthest-point orderings: no two chosen are closer than the farthest node is from them
    assert len(spread_order(positions, 0)) == 0


def test_the_boundary_of_a_grid_goes_around_it():
    assert len(boundary_segments(grid_triangles((4, 5)))) == 2 * (3 + 4)
    assert boundary_segments(torch.tensor([[0]])).tolist() == [[0, 0]]
    assert boundary_segments(torch.tensor([[0, 1], [1, 2]])).tolist() == [[0, 1], [1, 2]]


@settings(max_examples=60, deadline=None, derandomize=True)
@given(num_nodes=st.integers(1, 12), seed=st.integers(0, 10**6), density=st.floats(0, 0.5), directed=st.booleans())
def test_the_hop_diameter_is_that_of_a_breadth_first_search(num_nodes, seed, density, directed):
    joined = (torch.rand(num_nodes, num_nodes, generator=seeded(seed)) < density).nonzero()
    edges = both_ways(joined)
    if directed:
        edges = Edges(*joined[joined[:, 0] != joined[:, 1]].unbind(-1), joined[joined[:, 0] != joined[:, 1]][:, 0])
    longest = max(max(hops_from(node, edges, num_nodes).values()) for node in range(num_nodes))
    assert hop_diameter(edges, num_nodes) == longest


def test_the_hop_diameter_of_separate_parts_is_that_of_the_longest():
    assert hop_diameter(both_ways(torch.tensor([[0, 1], [2, 3], [3, 4], [4, 5]])), 7) == 3
    assert hop_diameter(both_ways(torch.zeros(0, 2, dtype=torch.long)), 5) == 0


@pytest.mark.parametrize(
    ("shape", "diagonals", "diameter"), [((50, 50), "one", 98), ((50, 50), "none", 98), ((45, 60), "both", 59)]
)
def test_the_hop_diameter_of_large_grids_is_exact(shape, diagonals, diameter):
    num_nodes = shape[0] * shape[1]
    assert num_nodes > EXACT_DIAMETER_NODES
    assert hop_diameter(grid_edges(shape, diagonals), num_nodes) == diameter


def test_the_hop_diameter_of_a_large_random_mesh_is_exact(monkeypatch):
    edges = delaunay_edges(Box(), torch.rand(2500, 2, generator=seeded(0)))
    by_sweeps = hop_diameter(edges, 2500)
    monkeypatch.setattr("graphelements.topology.EXACT_DIAMETER_NODES", 2500)
    assert by_sweeps == hop_diameter(edges, 2500)


def test_the_hop_diameter_of_large_separate_parts_is_that_of_the_longest():
    short, long = torch.arange(100), torch.arange(100, EXACT_DIAMETER_NODES + 200)
    pairs = torch.cat([torch.stack([part[:-1], part[1:]], -1) for part in (short, long)])
    assert hop_diameter(both_ways(pairs), EXACT_DIAMETER_NODES + 200) == len(long) - 1
