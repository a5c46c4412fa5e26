"""Boxes: metric, projection, measure-preserving samples, Delaunay simplices of awkward nodes."""

from __future__ import annotations

import math

import pytest
import torch
from cases import ALL_SPACES, SPACES, seeded

from graphelements.errors import InputError
from graphelements.spaces import Box, delaunay, safe_norm

each_space = pytest.mark.parametrize("space", ALL_SPACES.values(), ids=ALL_SPACES)
each_box = pytest.mark.parametrize("space", SPACES.values(), ids=SPACES)


@each_space
def test_distance_is_a_metric(space):
    x, y, z = (space.sample(200, seeded(seed)) for seed in range(3))
    assert torch.allclose(space.distance(x, y), space.distance(y, x))
    assert (space.distance(x, z) <= space.distance(x, y) + space.distance(y, z) + 1e-5 * space.unit_length).all()
    assert space.distance(x, x).abs().max() == 0
    assert space.distance(x, y).min() > 0


@each_space
def test_offsets_are_as_long_as_distances(space):
    x, y = space.sample(100, seeded(0)), space.sample(100, seeded(1))
    assert torch.allclose(space.offset(x, y).norm(dim=-1), space.distance(x, y), atol=1e-5 * space.unit_length)
    if space.intrinsic_dim == space.dim:  # elsewhere they are tangents at different points
        assert torch.allclose(space.offset(x, y), -space.offset(y, x))


@each_space
def test_samples_lie_in_the_space_and_are_left_alone_by_project(space):
    points = space.sample(500, seeded(0))
    assert points.shape == (500, space.dim)
    assert space.contains(points).all()
    assert torch.equal(space.project(points), points)


@each_box
def test_project_brings_far_points_to_the_closest_point_of_the_space(space):
    far = space.sample(100, seeded(0)) + 10 * torch.randn(100, space.dim, generator=seeded(1))
    near = space.project(far)
    assert space.contains(near).all()
    rivals = space.sample(400, seeded(2))
    others = space.distance(far[:, None].expand(-1, 400, -1), rivals.expand(100, -1, -1)).amin(-1)
    assert (space.distance(far, near) <= others + 1e-5).all()


@each_box
def test_samples_fill_the_space_evenly(space):
    points = space.from_cube(torch.rand(20000, space.intrinsic_dim, generator=seeded(0)))
    low = points[:, 0] < (space.lower[0] + 0.25 * space.sides[0])
    assert low.float().mean().item() == pytest.approx(0.25, abs=0.015)


@each_box
def test_network_coordinates_are_of_order_one(space):
    seen = space.coordinates(space.sample(1000, seeded(0)))
    assert 0.45 < seen.abs().max() <= 0.5 + 1e-6
    assert seen.mean(0).abs().max() < 0.05


def test_measure_is_the_product_of_sides():
    assert Box((-3.0, 10.0), (5.0, 12.5)).measure == pytest.approx(20.0)
    assert Box((1.0,), (4.0,)).measure == pytest.approx(3.0)


def test_boxes_with_one_unit_share_a_scale():
    small, large = Box((0.0,), (1.0,), unit=2.0), Box((0.0,), (8.0,), unit=2.0)
    assert small.unit_length == large.unit_length == 2.0
    step = torch.tensor([[0.0], [1.0]])
    assert torch.equal(small.coordinates(step).diff(dim=0), large.coordinates(step).diff(dim=0))
    assert Box((0.0, 0.0), (1.0, 5.0)).unit_length == 5.0


def test_distance_has_a_zero_gradient_where_points_coincide():
    x = torch.zeros(3, 2, requires_grad=True)
    (gradient,) = torch.autograd.grad(safe_norm(x).sum(), x)
    assert torch.equal(gradient, torch.zeros(3, 2))


@pytest.mark.parametrize(
    ("lower", "upper", "unit", "said"),
    [
        ((0.0,), (1.0, 1.0), 0.0, "as many lower as upper"),
        ((), (), 0.0, "at least one"),
        ((1.0, 0.0), (1.0, 1.0), 0.0, "below its upper"),
        ((0.0, 0.0), (math.inf, 1.0), 0.0, "finite"),
        ((math.nan, 0.0), (1.0, 1.0), 0.0, "finite"),
        ((0.0, 0.0), (1.0, 1.0), -1.0, "positive length"),
        ((0.0, 0.0), (1.0, 1.0), math.nan, "positive length"),
    ],
)
def test_impossible_boxes_are_refused_in_one_line(lower, upper, unit, said):
    with pytest.raises(InputError, match=said) as caught:
        Box(lower, upper, unit)
    assert "\n" not in str(caught.value)


def test_delaunay_of_a_single_node_is_one_corner():
    assert delaunay(torch.rand(1, 3)).tolist() == [[0]]
    assert delaunay(torch.ones(4, 2)).tolist() == [[0]]


def test_delaunay_of_collinear_nodes_is_a_chain():
    along = torch.tensor([0.4, 0.0, 1.0, 0.7])
    cells = delaunay(torch.stack([along, 1 - 2 * along, along], -1))
    assert {frozenset(cell) for cell in cells.tolist()} == {frozenset(p) for p in ((1, 0), (0, 3), (3, 2))}


def test_delaunay_of_flat_nodes_in_space_is_planar():
    flat = torch.rand(12, 2, generator=seeded(0)) @ torch.tensor([[1.0, 0.0, 1.0], [0.0, 1.0, 1.0]])
    assert delaunay(flat).shape[1] == 3
    assert delaunay(torch.rand(12, 3, generator=seeded(0))).shape[1] == 4


def test_delaunay_triangles_tile_the_convex_hull():
    positions = torch.cat(
        [torch.tensor([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]]), torch.rand(40, 2, generator=seeded(0))]
    )
    a, b, c = positions.double()[delaunay(positions)].unbind(1)
    u, v = b - a, c - a
    areas = (u[:, 0] * v[:, 1] - u[:, 1] * v[:, 0]).abs() / 2
    assert areas.sum().item() == pytest.approx(1.0, abs=1e-9)


def test_no_other_node_lies_in_a_delaunay_circle():
    positions = torch.rand(30, 2, generator=seeded(1)).double()
    for cell in delaunay(positions):
        a, b, c = positions[cell]
        centre = torch.linalg.solve(2 * torch.stack([b - a, c - a]), torch.stack([b @ b - a @ a, c @ c - a @ a]))
        others = torch.ones(30, dtype=torch.bool)
        others[cell] = False
        assert (positions[others] - centre).norm(dim=-1).min() >= (a - centre).norm() - 1e-9


def test_a_node_on_top_of_another_is_in_no_cell():
    positions = torch.rand(10, 2, generator=seeded(2))
    cells = delaunay(torch.cat([positions, positions[4:6]]))
    assert set(cells.flatten().tolist()) == set(range(10))


def test_delaunay_keeps_a_single_node_beside_a_long_line():
    along = torch.linspace(0, 1, 1000)
    positions = torch.stack([along, torch.full_like(along, 0.5)], -1)
    positions[300, 1] += 1e-4
    assert delaunay(positions).shape[1] == 3


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_nodes_within_rounding_of_each_other_coincide(dtype):
    positions = torch.rand(10, 2, generator=seeded(2)).to(dtype)
    near = positions[4:6] + 4 * torch.finfo(dtype).eps
    assert not torch.equal(near, positions[4:6])
    assert len(delaunay(torch.cat([positions, near])).unique()) == 10


def test_nodes_along_a_border_make_no_flat_cells():
    for seed in range(20):
        g = torch.Generator().manual_seed(seed)
        inside, along = torch.rand(12, 2, generator=g), torch.rand(8, generator=g)
        border = torch.stack([torch.full((8,), 1.0), along], -1)
        positions = torch.cat([inside, border]) @ torch.tensor([[0.8, 0.6], [-0.6, 0.8]])
        a, b, c = positions[delaunay(positions)].double().unbind(1)
        areas = ((b - a)[:, 0] * (c - a)[:, 1] - (b - a)[:, 1] * (c - a)[:, 0]).abs() / 2
        assert float(areas.min()) > 1e-7
        assert set(delaunay(positions).flatten().tolist()) == set(range(20))
