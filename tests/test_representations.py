"""Invariants of r over all spaces, meshes and representations; closed forms; reproduction."""

from __future__ import annotations

import math

import pytest
import torch
from cases import (
    ALL_MESHES,
    ALL_SPACES,
    COMBINATIONS,
    MESHES,
    REPRESENTATIONS,
    SPACES,
    field_at,
    interesting_points,
    largest_jump,
    relabelled,
    seeded,
    union_of,
    with_positions,
)
from scipy.spatial import ConvexHull, Delaunay

from graphelements.cell_representations import Barycentric, Multilinear
from graphelements.compilation import compiler_available
from graphelements.errors import InputError
from graphelements.meshes import grid_mesh, mesh_at, scattered_mesh
from graphelements.neighbours import DENSE_SITES, nearest
from graphelements.representations import NearestNodes, Representation, SoftNearest
from graphelements.spaces import Box, Sphere
from graphelements.unions import MeshUnion, union

everywhere = pytest.mark.parametrize(("space", "mesh", "representation"), COMBINATIONS)
SCATTERED = [(s, r) for s, m, r in COMBINATIONS if m == "scattered_30"]
on_scattered_nodes = pytest.mark.parametrize(("space", "representation"), SCATTERED)


def zeros(num: int) -> torch.Tensor:
    return torch.zeros(num, dtype=torch.long)


@everywhere
def test_weights_are_shares_that_sum_to_one_everywhere(space, mesh, representation):
    one = ALL_MESHES[mesh](ALL_SPACES[space])
    points = interesting_points(one, 0)
    coupling = REPRESENTATIONS[representation]()(points, zeros(len(points)), union(one, 1))
    assert (coupling.weights.sum(-1) - 1).abs().max() < 1e-5
    assert coupling.weights.min() > -1e-5
    assert coupling.nodes.min() >= 0
    assert coupling.nodes.max() < one.num_nodes
    here = points[:, None].expand(*coupling.nodes.shape, -1)
    expected = one.space.offset(here, one.positions[coupling.nodes])
    rounding = 0 if space in SPACES else 1e-5 * one.space.unit_length  # angles round otherwise in other shapes
    torch.testing.assert_close(coupling.offsets, expected, rtol=0, atol=rounding)


def jump_of(representation: Representation, mesh: MeshUnion, **lines: int) -> float:
    """The largest jump of a field with random values between 0 and 1 at the nodes."""
    values = torch.rand(mesh.num_nodes, 1, generator=seeded(7))
    return largest_jump(lambda points: field_at(representation, mesh, values, points).detach()[:, 0], mesh.space, 8, **lines)


# a sphere has no continuous map to a part of it that leaves this part in place: triangles must go all around
AROUND = [c for c in COMBINATIONS if c[0] in SPACES or c[2] != "barycentric" or c[1] not in ("latitudes_2", "scattered_3")]


@pytest.mark.parametrize(("space", "mesh", "representation"), AROUND)
@pytest.mark.usefixtures("double")
def test_fields_do_not_jump_along_random_lines(space, mesh, representation):
    assert jump_of(REPRESENTATIONS[representation](), union_of(ALL_SPACES[space], mesh)) < 1e-3


@pytest.mark.parametrize("fineness", [0.1, 0.05, 0.02])
@pytest.mark.usefixtures("double")
def test_fields_do_not_jump_where_fine_and_coarse_parts_of_a_mesh_meet(fineness):
    fine, coarse = fineness * torch.rand(24, 2, generator=seeded(2)), torch.rand(8, 2, generator=seeded(52))
    mesh = union(mesh_at(Box(), torch.cat([fine, coarse])), 1)
    for sharpness in (3.0, 10.0):
        assert jump_of(NearestNodes(4, sharpness), mesh, num_lines=40, num_steps=600) < 1e-3


@pytest.mark.parametrize(
    ("space", "mesh", "representation"),
    [c for c in COMBINATIONS if c[1] in ("grid_3", "latitudes_3", "icosahedral_1", "scattered_30")],
)
@pytest.mark.usefixtures("double")
def test_gradients_reach_node_positions_and_match_finite_differences(space, mesh, representation):
    one = ALL_MESHES[mesh](ALL_SPACES[space])
    r = REPRESENTATIONS[representation]()
    points = one.space.sample(6, seeded(9))
    values = torch.rand(one.num_nodes, 2, generator=seeded(10))

    def read(positions: torch.Tensor) -> torch.Tensor:
        return field_at(r, union(with_positions(one, positions), 1), values, points)

    positions = one.positions.clone().requires_grad_()
    assert torch.autograd.gradcheck(read, (positions,), eps=1e-7, atol=1e-5, fast_mode=True)
    (gradient,) = torch.autograd.grad(read(positions).square().sum(), positions)
    assert 1e-6 < gradient.abs().max() < torch.inf


@everywhere
def test_gradients_stay_finite_at_nodes_corners_and_far_away(space, mesh, representation):
    one = ALL_MESHES[mesh](ALL_SPACES[space])
    positions = one.positions.clone().requires_grad_()
    points = interesting_points(one, 1).requires_grad_()
    values = torch.rand(one.num_nodes, 1, generator=seeded(0))
    out = field_at(REPRESENTATIONS[representation](), union(with_positions(one, positions), 1), values, points)
    if out.requires_grad:
        found = torch.autograd.grad(out.sum(), (positions, points), allow_unused=True)
        assert all(gradient.isfinite().all() for gradient in found if gradient is not None)


@on_scattered_nodes
def test_relabelling_nodes_changes_nothing(space, representation):
    one = MESHES["scattered_30"](ALL_SPACES[space])
    order = torch.randperm(30, generator=seeded(2))
    values, points = torch.rand(30, 3, generator=seeded(3)), one.space.sample(50, seeded(4))
    r = REPRESENTATIONS[representation]()
    before = field_at(r, union(one, 1), values, points)
    after = field_at(r, union(relabelled(one, order), 1), values[order], points)
    assert (before - after).abs().max() < 1e-5


@on_scattered_nodes
def test_reordering_samples_changes_nothing(space, representation):
    one = union_of(ALL_SPACES[space], "scattered_30")
    points, codes = one.space.sample(40, seeded(4)), torch.randn(40, 3, generator=seeded(5))
    order = torch.randperm(40, generator=seeded(6))
    r = REPRESENTATIONS[representation]()
    before = r(points, zeros(40), one).scatter(codes)
    after = r(points[order], zeros(40), one).scatter(codes[order])
    assert (before - after).abs().max() < 1e-5


@pytest.mark.parametrize(
    "meshes", [("scattered_30",) * 3, ("scattered_5", "scattered_30", "scattered_1"), ("grid_3", "grid_1", "grid_7")]
)
@pytest.mark.parametrize("representation", REPRESENTATIONS)
@pytest.mark.parametrize("mixed", [False, True])
def test_batching_with_other_items_changes_nothing(meshes, representation, mixed):
    if representation == "multilinear" and not meshes[0].startswith("grid"):
        meshes = ("grid_7",) * 3
    space, r = SPACES["oblong"], REPRESENTATIONS[representation]()
    made = {name: MESHES[name](space) for name in meshes}
    parts = [made[name] for name in meshes]
    points = space.sample(36, seeded(0))
    items = torch.randint(3, (36,), generator=seeded(1)) if mixed else torch.arange(3).repeat_interleave(12)
    together = union(parts)
    coupling = r(points, items, together)
    values, codes = torch.rand(together.num_nodes, 2, generator=seeded(2)), torch.randn(36, 2, generator=seeded(3))
    for item, part in enumerate(parts):
        mine, nodes = items == item, together.items == item
        alone = r(points[mine], zeros(int(mine.sum())), union(part, 1))
        assert (coupling.gather(values)[mine] - alone.gather(values[nodes])).abs().max() < 1e-5
        assert (coupling.scatter(codes)[nodes] - alone.scatter(codes[mine])).abs().max() < 1e-5


@pytest.mark.parametrize(("representation", "touched"), [("nearest_nodes", 4), ("multilinear", 4), ("barycentric", 3)])
def test_sparse_representations_touch_as_few_nodes_on_large_meshes(representation, touched):
    points = torch.rand(20, 2, generator=seeded(0))
    for resolution in (2, 6, 30):
        mesh = union(grid_mesh(Box(), resolution), 1)
        assert REPRESENTATIONS[representation]()(points, zeros(20), mesh).nodes.shape == (20, touched)


@pytest.mark.parametrize("counts", [[700, 3, 0, 40], [600]])
def test_the_tree_finds_the_same_nearest_nodes_as_the_dense_search(counts, monkeypatch):
    space = SPACES["block"]
    sites, points = space.sample(sum(counts), seeded(0)), space.sample(200, seeded(1))
    items = torch.randint(len(counts), (200,), generator=seeded(2))
    sizes = torch.tensor(counts)
    starts = sizes.cumsum(0) - sizes
    assert max(counts) > DENSE_SITES
    by_tree = nearest(points, items, sites, starts, counts, 5)
    monkeypatch.setattr("graphelements.neighbours.DENSE_SITES", 10**6)
    dense = nearest(points, items, sites, starts, counts, 5)
    assert torch.equal(by_tree, dense)
    assert torch.equal((dense >= 0).sum(-1), sizes[items].clamp(max=5))


def test_nearest_sites_are_those_of_a_brute_force_search():
    sites, points = torch.rand(50, 2, generator=seeded(0)), torch.rand(30, 2, generator=seeded(1))
    found = nearest(points, zeros(30), sites, zeros(1), [50], 3)
    assert torch.equal(found, (points[:, None] - sites).norm(dim=-1).argsort(-1)[:, :3])


def test_soft_nearest_is_the_softmax_of_negative_distances():
    mesh = scattered_mesh(Box(), 9, seeded(0))
    points = torch.rand(20, 2, generator=seeded(1))
    distances = torch.tensor([[math.dist(p, q) for q in mesh.positions.tolist()] for p in points.tolist()])
    expected = (-distances).exp() / (-distances).exp().sum(-1, keepdim=True)
    assert (SoftNearest()(points, zeros(20), union(mesh, 1)).weights - expected).abs().max() < 1e-6


def test_soft_nearest_does_not_depend_on_the_unit_of_length():
    metres, feet = Box((0.0, 0.0), (2.0, 4.0)), Box((0.0, 0.0), (6.56, 13.12))
    cube = torch.rand(20, 2, generator=seeded(1))
    weights = [SoftNearest()(s.from_cube(cube), zeros(20), union(grid_mesh(s, 3), 1)).weights for s in (metres, feet)]
    assert (weights[0] - weights[1]).abs().max() < 1e-6


def test_multilinear_weights_are_the_opposite_boxes_shares():
    mesh = union(grid_mesh(Box((0.0, 0.0), (2.0, 4.0)), 3), 1)  # cells of 1 x 2
    coupling = Multilinear()(torch.tensor([[1.25, 0.5]]), zeros(1), mesh)
    found = dict(zip(coupling.nodes[0].tolist(), coupling.weights[0].tolist(), strict=True))
    assert found == pytest.approx({3: 0.75 * 0.75, 4: 0.75 * 0.25, 6: 0.25 * 0.75, 7: 0.25 * 0.25})


@pytest.mark.parametrize("space", SPACES)
@pytest.mark.parametrize("resolution", [2, 3, 7])
def test_multilinear_reproduces_multilinear_functions(space, resolution):
    box = SPACES[space]
    mesh, points = union(grid_mesh(box, resolution), 1), box.sample(60, seeded(0))

    def function(x: torch.Tensor) -> torch.Tensor:
        return (1 + 0.5 * box.coordinates(x)).prod(-1, keepdim=True) + box.coordinates(x)[:, :1]

    assert (field_at(Multilinear(), mesh, function(mesh.positions), points) - function(points)).abs().max() < 1e-5


@pytest.mark.parametrize("space", ["square", "oblong"])
@pytest.mark.parametrize("num_nodes", [3, 5, 30])
def test_barycentric_reproduces_linear_functions_in_the_hull(space, num_nodes):
    box = SPACES[space]
    mesh = scattered_mesh(box, num_nodes, seeded(num_nodes))
    shares = torch.rand(60, num_nodes, generator=seeded(0)).pow(4)
    inside = shares / shares.sum(-1, keepdim=True) @ mesh.positions

    def function(x: torch.Tensor) -> torch.Tensor:
        return 1 + box.coordinates(x) @ torch.tensor([[2.0], [-3.0]])

    assert (field_at(Barycentric(), union(mesh, 1), function(mesh.positions), inside) - function(inside)).abs().max() < 1e-5


@pytest.mark.parametrize("representation", ["multilinear", "barycentric"])
def test_interpolating_representations_give_the_value_of_a_node_at_the_node(representation):
    for mesh in (grid_mesh(SPACES["oblong"], 5), grid_mesh(SPACES["oblong"], 2)):
        values = torch.rand(mesh.num_nodes, 1, generator=seeded(0))
        assert (field_at(REPRESENTATIONS[representation](), union(mesh, 1), values, mesh.positions) - values).abs().max() < 1e-5


@pytest.mark.parametrize("representation", ["multilinear", "barycentric"])
def test_outside_the_hull_the_weights_are_those_of_the_closest_hull_point(representation):
    space = Box((-1.0, -1.0), (2.0, 2.0))
    positions = torch.cartesian_prod(torch.tensor([0.0, 0.5, 1.0]), torch.tensor([0.0, 0.5, 1.0]))
    mesh = mesh_at(space, positions) if representation == "barycentric" else grid_mesh(Box(), 3)
    points = 3 * torch.rand(60, 2, generator=seeded(1)) - 1
    values = torch.rand(9, 1, generator=seeded(0))
    r = REPRESENTATIONS[representation]()
    outside = (points != points.clamp(0, 1)).any(-1)
    there, closest = field_at(r, union(mesh, 1), values, points), field_at(r, union(mesh, 1), values, points.clamp(0, 1))
    assert outside.sum() > 20
    assert (there - closest)[outside].abs().max() < 1e-5


@pytest.mark.parametrize("num_nodes", [6, 30, 400])
@pytest.mark.usefixtures("double")
def test_barycentric_finds_the_triangle_around_a_point_or_else_the_closest_point_of_the_hull(num_nodes):
    mesh = mesh_at(Box(), torch.rand(num_nodes, 2, generator=seeded(num_nodes)).pow(3))  # graded, with slivers along the hull
    points = 2 * torch.rand(500, 2, generator=seeded(1)) - 0.5
    points[:200] = points[:200].clamp(0, 1).pow(3)
    coupling = Barycentric()(points, zeros(500), union(mesh, 1))
    reached = coupling.gather(mesh.positions)
    inside = torch.as_tensor(Delaunay(mesh.positions.numpy()).find_simplex(points.numpy()) >= 0)
    assert 10 <= inside.sum() <= 490
    assert (reached - points)[inside].abs().max() < 1e-9
    a, b = mesh.positions[torch.as_tensor(ConvexHull(mesh.positions.numpy()).simplices).long()].unbind(1)
    feet = a + (b - a) * torch.linspace(0, 1, 2001)[:, None, None]  # steps, segments, dim
    closest = torch.cdist(points[~inside], feet.flatten(0, 1)).amin(-1)
    assert ((reached - points)[~inside].norm(dim=-1) - closest).abs().max() < 1e-3


def test_barycentric_searches_few_triangles_for_points_outside_of_a_large_mesh(monkeypatch):
    tried = []
    search = Barycentric._containing

    def counting(self: Barycentric, points: torch.Tensor, *rest) -> torch.Tensor:
        tried.append(len(points) * rest[-1])
        return search(self, points, *rest)

    monkeypatch.setattr(Barycentric, "_containing", counting)
    angles = torch.rand(200, generator=seeded(0)) * 2 * math.pi
    outside = 0.5 + 0.8 * torch.stack([angles.cos(), angles.sin()], -1)
    Barycentric()(outside, zeros(200), union(grid_mesh(Box(), 30), 1))
    assert sum(tried) == 200 * Barycentric.CANDIDATES


@pytest.mark.parametrize(("limit", "value"), [("TABLE", 50), ("DENSE", 0)])
@pytest.mark.parametrize("space", [Box(), Box((5e6, 1e5), (5e6 + 100, 1e5 + 200)), Sphere(6371.0)], ids=["unit", "far", "sphere"])
@pytest.mark.usefixtures("double")
def test_barycentric_weights_do_not_depend_on_how_triangles_are_searched(space, limit, value, monkeypatch):
    first, second = (scattered_mesh(space, num, seeded(num)) for num in (40, 12))
    mesh, items = union([first, second, second]), torch.randint(3, (100,), generator=seeded(2))
    points = space.sample(100, seeded(1))
    points[:50] += 0.3 * space.unit_length * torch.randn(points[:50].shape, generator=seeded(3))  # in a box: some are outside
    at_once = Barycentric()(points, items, mesh)
    monkeypatch.setattr(Barycentric, limit, value)
    in_chunks = Barycentric()(points, items, mesh)
    assert torch.equal(at_once.nodes, in_chunks.nodes)
    assert torch.equal(at_once.weights, in_chunks.weights)


@everywhere
def test_points_touch_as_many_nodes_as_their_representation_says(space, mesh, representation):
    other = ALL_MESHES["grid_3" if space in SPACES else "latitudes_3"]
    r, together = REPRESENTATIONS[representation](), union([ALL_MESHES[mesh](ALL_SPACES[space]), other(ALL_SPACES[space])])
    points = ALL_SPACES[space].sample(4, seeded(0))
    assert r(points, torch.tensor([0, 0, 1, 1]), together).nodes.shape == (4, r.touched(together))


def test_a_node_that_is_not_among_the_nearest_has_no_weight_where_it_enters():
    mesh = union(grid_mesh(Box((0.0,), (9.0,)), 10), 1)
    coupling = NearestNodes(2)(torch.tensor([[4.0]]), zeros(1), mesh)  # nodes 3 and 5 are equally far: neither may count
    assert coupling.weights[0, 0] > 1 - 1e-6


def test_learned_sharpness_gets_a_gradient_and_fixed_sharpness_none():
    points, mesh = torch.rand(10, 2, generator=seeded(0)), union(grid_mesh(Box(), 3), 1)
    for kind in (SoftNearest, NearestNodes):
        learned = kind(sharpness=2.0, learned=True)
        learned(points, zeros(10), mesh).weights.square().sum().backward()
        assert learned.log_sharpness.grad.abs() > 1e-4
        assert not kind(sharpness=2.0, learned=False).log_sharpness.requires_grad


@pytest.mark.parametrize("sharpness", [0.0, -1.0, math.inf, math.nan])
def test_impossible_sharpness_is_refused(sharpness):
    with pytest.raises(InputError, match="sharpness"):
        SoftNearest(sharpness)


def test_representations_say_which_meshes_they_need():
    points = torch.rand(2, 2)
    with pytest.raises(InputError, match="grid mesh"):
        Multilinear()(points, zeros(2), union(scattered_mesh(Box(), 5, seeded(0)), 1))
    with pytest.raises(InputError, match="a plane or a sphere"):
        Barycentric()(torch.rand(2, 3), zeros(2), union(grid_mesh(SPACES["block"], 2), 1))
    with pytest.raises(InputError, match="at least two"):
        NearestNodes(1)


@pytest.mark.skipif(not compiler_available(), reason="no C++ compiler")
@pytest.mark.parametrize("space", [Box(), Sphere(2.0)], ids=["box", "sphere"])
def test_compiled_nearest_nodes_are_the_same(space):
    sizes = (1, 4, 25)
    mesh = union([grid_mesh(space, round(n**0.5)) if space == Box() else mesh_at(space, space.spiral(n)) for n in sizes])
    for num in (40, 0):
        points, items = space.sample(num, seeded(0)), torch.arange(num) % 3
        plain, compiled = (NearestNodes(learned=False)(points, items, mesh, compiled) for compiled in (False, True))
        assert torch.equal(compiled.nodes[items == 2], plain.nodes[items == 2])
        torch.testing.assert_close(compiled.weights, plain.weights, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(compiled.offsets, plain.offsets, rtol=1e-4, atol=1e-5)
