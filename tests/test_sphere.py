"""The sphere: metric, tangent offsets, meshes, weights on spherical triangles, and a network that needs nothing else changed."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from cases import relabelled, seeded

from graphelements.adaptation import AdaptationConfig, adapt_mesh
from graphelements.building import build_network
from graphelements.cell_representations import Barycentric
from graphelements.errors import InputError
from graphelements.functions import SFT, InputFunction, OutputFunction
from graphelements.mesh_files import load_mesh, save_mesh
from graphelements.mesh_quality import inspect_mesh
from graphelements.meshes import Mesh, grid_mesh, mesh_at, scattered_mesh
from graphelements.network_config import DEFAULT, PAPER
from graphelements.random_meshes import random_mesh
from graphelements.representations import NearestNodes, Representation, SoftNearest
from graphelements.samples import FunctionSamples, Queries, SFTBatch, collate
from graphelements.spaces import Box, Sphere
from graphelements.sphere_meshes import icosahedral_mesh, sphere_mesh
from graphelements.unions import union

EARTH = Sphere(6371.0)
UNIT = Sphere()
each_sphere = pytest.mark.parametrize("space", [UNIT, EARTH], ids=["unit", "earth"])

MESHES = {
    **{f"latitudes_{k}": lambda space, k=k: sphere_mesh(space, k) for k in (2, 3, 4, 7)},
    **{f"icosahedral_{level}": lambda space, level=level: icosahedral_mesh(space, level) for level in (0, 1)},
    "scattered_30": lambda space: scattered_mesh(space, 30, seeded(1)),
}
SURROUNDING = [name for name in MESHES if name != "latitudes_2"]  # with triangles all around
REPRESENTATIONS = {"soft_nearest": SoftNearest, "nearest_nodes": NearestNodes, "barycentric": Barycentric}


def rotation(seed: int) -> torch.Tensor:
    axes, _ = torch.linalg.qr(torch.randn(3, 3, generator=seeded(seed)))
    return axes * torch.linalg.det(axes)


def weights_at(representation: Representation, mesh: Mesh, points: torch.Tensor) -> torch.Tensor:
    """(points, nodes)"""
    coupling = representation(points, torch.zeros(len(points), dtype=torch.long), union(mesh, 1))
    return coupling.gather(torch.eye(mesh.num_nodes))


@each_sphere
def test_distances_are_angles_times_the_radius(space):
    x, y, z = (space.sample(300, seeded(seed)) for seed in range(3))
    angles = ((x * y).sum(-1) / space.radius**2).clamp(-1, 1).double().acos().float()
    torch.testing.assert_close(space.distance(x, y) / space.radius, angles, atol=1e-3, rtol=0)
    torch.testing.assert_close(space.distance(x, y), space.distance(y, x))
    assert (space.distance(x, z) <= space.distance(x, y) + space.distance(y, z) + 1e-5 * space.radius).all()
    assert space.distance(x, x).abs().max() == 0
    torch.testing.assert_close(space.distance(x, -x) / space.radius, torch.full((300,), math.pi))


@pytest.mark.parametrize("angle", [0.0, 1e-7, 1e-3, 1.0, math.pi - 1e-3, math.pi])
def test_gradients_of_the_distance_are_finite_and_of_length_one_or_zero(angle):
    x = torch.tensor([[math.sin(angle), 0.0, math.cos(angle)]], dtype=torch.float64, requires_grad=True)
    if angle == math.pi:
        x = torch.tensor([[0.0, 0.0, -1.0]], dtype=torch.float64, requires_grad=True)
    north = torch.tensor([[0.0, 0.0, 1.0]], dtype=torch.float64)
    (gradient,) = torch.autograd.grad(UNIT.distance(x, north).sum(), x)
    along = gradient - (gradient * x).sum(-1, keepdim=True) * x  # what moves a point on the sphere
    assert along.norm().item() == pytest.approx(0.0 if angle in (0.0, math.pi) else 1.0, abs=1e-5)
    (gradient,) = torch.autograd.grad(UNIT.offset(x, north).sum(), x)
    assert gradient.isfinite().all()


@each_sphere
def test_offsets_are_tangent_and_as_long_as_distances(space):
    x, y = (space.project(space.sample(200, seeded(seed)).double()) for seed in (0, 1))
    offsets = space.offset(x, y)
    torch.testing.assert_close(offsets.norm(dim=-1), space.distance(x, y))
    assert ((offsets * y).sum(-1) / space.radius**2).abs().max() < 1e-9
    angle = (space.distance(x, y) / space.radius)[:, None]
    there = angle.cos() * y + angle.sin() * offsets / angle  # along the great circle for so long
    torch.testing.assert_close(there, x, rtol=0, atol=1e-9 * space.radius)


@each_sphere
def test_project_and_samples(space):
    points = space.sample(4000, seeded(0))
    assert space.contains(points).all()
    assert torch.equal(space.project(points), points)
    assert (points.mean(0) / space.radius).abs().max() < 0.05
    assert (points[:, 2] > 0.5 * space.radius).float().mean().item() == pytest.approx(0.25, abs=0.02)  # Archimedes
    torch.testing.assert_close(space.project(7 * points), points)
    assert space.contains(space.project(torch.zeros(1, 3))).all()
    assert not space.contains(1.01 * points).any()


@pytest.mark.parametrize("radius", [0.0, -1.0, math.nan, math.inf])
def test_impossible_spheres_are_refused(radius):
    with pytest.raises(InputError, match="radius of a sphere must be a positive length"):
        Sphere(radius)


@each_sphere
@pytest.mark.parametrize("order", range(2, 13))
def test_meshes_by_latitude_have_the_papers_nodes_and_are_in_one_piece(space, order):
    mesh = sphere_mesh(space, order)
    assert mesh.num_nodes == 2 + (order - 2) * (2 * order - 2)
    report = inspect_mesh(mesh)
    assert report.pieces == 1
    assert report.closest_nodes > 0
    assert mesh.diameter == order - 1
    assert report.longest_edge <= math.pi / (order - 1) * space.radius * (1 + 1e-4)
    assert order == 2 or report.coverage == pytest.approx(1, abs=1e-4)
    assert report.problems == []


@pytest.mark.parametrize("level, nodes", [(0, [12]), (1, [42, 12]), (3, [642, 162, 42, 12])])
def test_icosahedral_meshes_are_even_and_nested(level, nodes):
    mesh = icosahedral_mesh(EARTH, level)
    assert [m.num_nodes for m in mesh.nest] == nodes
    report = inspect_mesh(mesh)
    assert (report.degrees[0], report.degrees[2]) == (5, 5 if level == 0 else 6)
    assert report.longest_edge < 1.2 * report.shortest_edge
    assert report.smallest_angle > 50
    assert mesh.cells is not None
    assert len(mesh.cells) == 20 * 4**level
    assert mesh.coarser is None or torch.equal(mesh.positions[: mesh.coarser.num_nodes], mesh.coarser.positions)


def test_meshes_of_other_spaces_or_impossible_sizes_are_refused():
    for make, said in (
        (lambda: sphere_mesh(Box(), 3), "in a box use grid_mesh"),
        (lambda: icosahedral_mesh(Box(), 3), "in a box use grid_mesh"),
        (lambda: grid_mesh(UNIT, 3), "on a sphere use sphere_mesh"),
        (lambda: sphere_mesh(UNIT, 1), "two latitudes"),
        (lambda: icosahedral_mesh(UNIT, 9), "is 0 to 8"),
    ):
        with pytest.raises(InputError, match=said):
            make()


@pytest.mark.parametrize("mesh", MESHES)
@pytest.mark.parametrize("ratio", [2.0, 1.5])
def test_nests_of_spirals_are_even_and_end_with_four_nodes(mesh, ratio):
    nest = MESHES[mesh](UNIT).nested(ratio).nest
    assert nest[-1].num_nodes == min(4, nest[0].num_nodes)
    for coarser in nest[1:]:
        report = inspect_mesh(coarser)
        assert report.pieces == 1
        assert report.longest_edge < 3 * report.shortest_edge


@pytest.mark.parametrize("num", [1, 2, 3, 4, 5, 20])
def test_triangles_of_few_nodes_and_of_nodes_on_one_circle(num):
    mesh = mesh_at(UNIT, UNIT.spiral(num))
    assert inspect_mesh(mesh).pieces == 1
    around = torch.arange(num) * 2 * math.pi / num
    circle = torch.stack([0.6 * around.cos(), 0.6 * around.sin(), torch.full((num,), 0.8)], -1)
    assert inspect_mesh(mesh_at(UNIT, UNIT.project(circle))).pieces == 1


@pytest.mark.parametrize("representation", REPRESENTATIONS)
@pytest.mark.parametrize("mesh", MESHES)
def test_weights_sum_to_one_and_do_not_change_when_all_is_turned(mesh, representation):
    one, turn = MESHES[mesh](UNIT), rotation(3)
    points = torch.cat([UNIT.sample(200, seeded(0)), one.positions])
    weights = weights_at(REPRESENTATIONS[representation](), one, points)
    torch.testing.assert_close(weights.sum(-1), torch.ones(len(points)))
    assert weights.min() >= 0
    turned = replace(one, positions=UNIT.project(one.positions @ turn.T))
    found = weights_at(REPRESENTATIONS[representation](), turned, UNIT.project(points[:200] @ turn.T))
    torch.testing.assert_close(found, weights[:200], rtol=0, atol=1e-4)


@pytest.mark.parametrize("mesh", MESHES)
def test_barycentric_weights_are_one_at_their_own_node_and_give_linear_directions(mesh):
    one = MESHES[mesh](EARTH)
    own = weights_at(Barycentric(), one, one.positions)
    torch.testing.assert_close(own, torch.eye(one.num_nodes), rtol=0, atol=1e-4)
    if mesh in SURROUNDING:
        points = EARTH.sample(300, seeded(2))
        mean = weights_at(Barycentric(), one, points) @ one.positions
        torch.testing.assert_close(EARTH.project(mean), points, rtol=0, atol=1e-3 * EARTH.radius)


@pytest.mark.parametrize("representation", REPRESENTATIONS)
@pytest.mark.parametrize("mesh", SURROUNDING)
def test_fields_do_not_jump(mesh, representation):
    one, steps = MESHES[mesh](UNIT), 4000
    values = torch.randn(one.num_nodes, 1, generator=seeded(6))
    largest = []
    for num in (steps, 4 * steps):  # a jump does not shrink with the steps
        angles = torch.linspace(0, 2 * math.pi, num)[:, None]
        u, v = UNIT.sample(2, seeded(8))
        circle = UNIT.project(u * angles.cos() + UNIT.project((v - (v @ u) * u)[None]) * angles.sin())
        with torch.no_grad():
            heights = weights_at(REPRESENTATIONS[representation](), one, circle) @ values
        largest.append(float(heights.diff(dim=0).abs().max()))
    assert largest[1] < 0.5 * largest[0]


def test_the_border_of_an_open_mesh_is_no_seam():
    cap = UNIT.project(torch.randn(30, 3, generator=seeded(3)) * 0.3 + torch.tensor([0.0, 0.0, 1.0]))
    one = mesh_at(UNIT, cap)
    for a, b in one.boundary[:8].tolist():
        share = torch.linspace(0.1, 0.9, 9)[:, None]
        along = torch.lerp(one.positions[a], one.positions[b], share)
        for shift in (0.999, 1.001):  # towards the inside and the outside, or the other way round
            weights = weights_at(Barycentric(), one, UNIT.project(along * torch.tensor([shift, shift, 1.0])))
            torch.testing.assert_close(weights[:, [a, b]], torch.cat([1 - share, share], 1), rtol=0, atol=0.03)


def test_open_and_closed_meshes_may_be_in_one_batch():
    meshes = [mesh_at(UNIT, UNIT.spiral(1)), sphere_mesh(UNIT, 2), icosahedral_mesh(UNIT, 2)]
    points = UNIT.sample(300, seeded(5))
    together = Barycentric()(points.repeat(3, 1), torch.arange(3).repeat_interleave(300), union(meshes))
    alone = [Barycentric()(points, torch.zeros(300, dtype=torch.long), union(mesh, 1)) for mesh in meshes]
    torch.testing.assert_close(together.weights, torch.cat([coupling.weights for coupling in alone]))


@pytest.mark.parametrize("representation", REPRESENTATIONS)
def test_gradients_reach_positions(representation):
    mesh = icosahedral_mesh(UNIT, 0)
    positions = mesh.positions.clone().requires_grad_()
    moved = mesh.moved(positions)
    points, values = UNIT.sample(50, seeded(1)), torch.randn(12, 1, generator=seeded(2))
    (gradient,) = torch.autograd.grad((weights_at(REPRESENTATIONS[representation](), moved, points) @ values).sum(), positions)
    assert gradient.isfinite().all()
    assert gradient.any()


def test_meshes_of_spheres_survive_files_and_random_ones_are_in_one_piece(tmp_path):
    mesh = icosahedral_mesh(EARTH, 1)
    save_mesh(mesh, tmp_path / "mesh.safetensors")
    found = load_mesh(tmp_path / "mesh.safetensors")
    assert found.space == EARTH
    assert torch.equal(found.positions, mesh.positions)
    for seed in range(10):
        report = inspect_mesh(random_mesh(UNIT, 30, seeded(seed)))
        assert report.pieces == 1
        assert report.closest_nodes > 1e-3


WIND = SFT(EARTH, (InputFunction("pressure"),), (OutputFunction("wind", 2),))


CONFIGS = {"paper": PAPER, "default": DEFAULT, "barycentric": replace(PAPER, representation="barycentric")}


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_a_network_needs_no_change_for_the_sphere(config):
    network = build_network(WIND, config)
    stations = EARTH.sample(40, seeded(0))
    queries = {"wind": Queries(EARTH.sample(30, seeded(1)))}
    batch = SFTBatch({"pressure": FunctionSamples(stations, torch.randn(40, 1, generator=seeded(2)))}, queries)
    batch = replace(batch, targets={"wind": torch.randn(30, 2, generator=seeded(3))})
    network.fit_normalisation([batch])
    for mesh in (sphere_mesh(EARTH, 3), icosahedral_mesh(EARTH, 1), sphere_mesh(EARTH, 5).nested(1.5)):
        loss = network.loss(network(batch, mesh), batch)
        loss.backward()
        assert loss.isfinite()
        assert network.predict(batch, mesh)["wind"].isfinite().all()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in network.parameters() if p.requires_grad)


def test_meshes_of_the_sphere_adapt():
    network = build_network(WIND, replace(DEFAULT, num_heard=0), seed=1)
    inputs = FunctionSamples(EARTH.sample(60, seeded(0)), torch.randn(60, 1, generator=seeded(1)), torch.arange(3).repeat(20))
    queries = Queries(EARTH.sample(90, seeded(2)), items=torch.arange(3).repeat(30))
    batch = SFTBatch({"pressure": inputs}, {"wind": queries}, {"wind": torch.randn(90, 2, generator=seeded(3))}, 3)
    network.fit_normalisation([batch])
    steps = list(adapt_mesh(network, icosahedral_mesh(EARTH, 0), batch, AdaptationConfig(steps=4)))
    assert EARTH.contains(steps[-1].mesh.positions).all()
    assert inspect_mesh(steps[-1].mesh).pieces == 1
    assert not torch.equal(steps[-1].mesh.positions, steps[0].mesh.positions)
    assert steps[-1].loss < steps[0].loss


@pytest.mark.parametrize(
    "config",
    [PAPER, DEFAULT, replace(DEFAULT, gated=True, passes=2), replace(DEFAULT, fitted=True)],
    ids=["paper", "default", "passes", "fitted"],
)
def test_items_on_spheres_do_not_know_of_each_other_nor_of_the_order_of_nodes(config):
    network = build_network(WIND, config, seed=2)
    meshes = [sphere_mesh(EARTH, 3), icosahedral_mesh(EARTH, 1), scattered_mesh(EARTH, 9, seeded(4)).nested(1.5)]
    items = []
    for number, samples in enumerate((30, 7, 1)):
        values = FunctionSamples(EARTH.sample(samples, seeded(number)), torch.randn(samples, 1, generator=seeded(9 + number)))
        items.append(SFTBatch({"pressure": values}, {"wind": Queries(EARTH.sample(5 + number, seeded(20 + number)))}))
    together = network(collate(items), meshes)["wind"].split([5, 6, 7])
    for found, item, mesh in zip(together, items, meshes, strict=True):
        torch.testing.assert_close(found, network(item, mesh)["wind"], rtol=1e-3, atol=1e-4)
    order = torch.randperm(42, generator=seeded(1))
    turned = relabelled(replace(meshes[1], coarser=None, nesting_ratio=None), order)
    plain = network(items[1], replace(meshes[1], coarser=None, nesting_ratio=None))["wind"]
    torch.testing.assert_close(network(items[1], turned)["wind"], plain, rtol=1e-3, atol=1e-4)
