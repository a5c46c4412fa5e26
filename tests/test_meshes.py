"""Meshes: plain frozen data, made on grids or scattered nodes, moved, and united for a batch."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, replace

import numpy as np
import pytest
import torch
from cases import MESHES, SPACES, seeded
from scipy.spatial import ConvexHull

from graphelements.errors import InputError
from graphelements.meshes import Mesh, MeshConfig, build_grid, grid_mesh, mesh_at, scattered_mesh
from graphelements.spaces import Box
from graphelements.topology import Edges, delaunay_edges, grid_edges, multiscale_edges, radius_edges
from graphelements.unions import union


@pytest.mark.parametrize("space", SPACES)
@pytest.mark.parametrize("k", [1, 2, 3, 7])
def test_grids_have_k_nodes_along_each_axis_and_reach_the_borders(space, k):
    box = SPACES[space]
    mesh = grid_mesh(box, k)
    assert mesh.num_nodes == k**box.dim
    if k == 1:
        assert torch.allclose(box.coordinates(mesh.positions), torch.zeros(1, box.dim), atol=1e-6)
    else:
        assert mesh.positions.amin(0).tolist() == pytest.approx(list(box.lower))
        assert mesh.positions.amax(0).tolist() == pytest.approx(list(box.upper))
    assert mesh.axes is not None
    assert torch.equal(torch.cartesian_prod(*mesh.axes).reshape(-1, box.dim), mesh.positions)


def test_the_last_axis_of_a_grid_varies_fastest():
    positions = grid_mesh(Box((0.0, 0.0), (1.0, 2.0)), (2, 3)).positions
    assert positions.tolist() == [[0, 0], [0, 1], [0, 2], [1, 0], [1, 1], [1, 2]]


@pytest.mark.parametrize("k", [1, 2, 3, 7])
def test_the_diameter_of_a_grid_mesh_is_the_papers_number_of_rounds(k):
    assert grid_mesh(Box(), k).diameter == 2 * (k - 1)


@pytest.mark.parametrize("resolution", [0, -1, (2,), (2, 0), (2, 2, 2)])
def test_impossible_resolutions_are_refused(resolution):
    with pytest.raises(InputError, match="positive resolutions"):
        grid_mesh(Box(), resolution)


@pytest.mark.parametrize("resolution", [2.7, 3.0, (2, 2.5)])
@pytest.mark.usefixtures("unchecked")
def test_resolutions_that_are_no_whole_numbers_are_refused(resolution):
    with pytest.raises(InputError, match="whole numbers"):
        grid_mesh(Box(), resolution)


def test_resolutions_may_be_integers_of_numpy():
    assert grid_mesh(Box(), np.int64(3)).num_nodes == 9
    assert grid_mesh(Box(), (np.int32(3), 2)).num_nodes == 6


@pytest.mark.parametrize("space", SPACES)
@pytest.mark.parametrize("k", [1, 2, 9])
def test_delaunay_and_multiscale_edges_of_a_grid_have_its_fixed_diagonals(space, k):
    box = SPACES[space]
    fixed = pairs_of(grid_edges([k] * box.dim, "one"))
    assert pairs_of(grid_mesh(box, k, delaunay_edges).edges) == fixed
    multiscale = build_grid(MeshConfig(edges="multiscale"), box, k)
    finest = multiscale.levels == 0
    assert pairs_of(Edges(multiscale.senders[finest], multiscale.receivers[finest], multiscale.levels[finest])) == fixed


def pairs_of(edges: Edges) -> set[tuple[int, int]]:
    return set(zip(edges.senders.tolist(), edges.receivers.tolist(), strict=True))


@pytest.mark.parametrize("space", SPACES)
@pytest.mark.parametrize("mesh", MESHES)
def test_meshes_lie_in_their_space_and_join_all_nodes(space, mesh):
    made = MESHES[mesh](SPACES[space])
    assert SPACES[space].contains(made.positions).all()
    reached = torch.zeros(made.num_nodes)
    reached[0] = 1
    for _ in range(made.diameter):
        reached = reached.index_add(0, made.receivers, reached[made.senders]).clamp(max=1)
    assert reached.all()


def test_scattered_nodes_are_well_spread_and_repeat_with_their_seed():
    mesh, again = (scattered_mesh(Box(), 64, seeded(5)) for _ in range(2))
    assert torch.equal(mesh.positions, again.positions)
    assert not torch.equal(mesh.positions, scattered_mesh(Box(), 64, seeded(6)).positions)
    quarters = (mesh.positions * 4).long().clamp(max=3) @ torch.tensor([4, 1])
    assert torch.bincount(quarters, minlength=16).min() >= 2  # 64 independent points leave a sixteenth that bare


def test_meshes_are_frozen():
    mesh = grid_mesh(Box(), 2)
    with pytest.raises(FrozenInstanceError):
        mesh.positions = torch.rand(4, 2)
    with pytest.raises(FrozenInstanceError):
        union(mesh, 2).positions = torch.rand(8, 2)


def test_a_moved_mesh_is_a_new_one_whose_edges_follow_and_whose_positions_keep_gradients():
    mesh = scattered_mesh(Box(), 12, seeded(0))
    positions = torch.rand(12, 2, generator=seeded(1)).requires_grad_()
    before = mesh.positions.clone()
    moved = mesh.moved(positions)
    assert torch.equal(mesh.positions, before)
    assert not torch.equal(moved.senders, mesh.senders)
    (gradient,) = torch.autograd.grad(union(moved, 3).positions.square().sum(), positions)
    assert torch.allclose(gradient, 6 * positions)
    (gradient,) = torch.autograd.grad(union(moved, 1).spacing.sum(), positions)
    assert gradient.abs().sum() > 0
    assert len(mesh.moved(positions.detach(), radius_edges(1e-6)).senders) == 0


@pytest.mark.parametrize(
    ("positions", "said"),
    [
        (torch.full((3, 2), torch.nan), "finite"),
        (torch.tensor([[0.5, 1.5]]), "project"),
        (torch.zeros(0, 2), "at least one node"),
        (torch.zeros(2, 3), "2 coordinates"),
    ],
)
def test_impossible_positions_are_refused_in_one_line(positions, said):
    with pytest.raises(InputError, match=said) as caught:
        mesh_at(Box(), positions)
    assert "\n" not in str(caught.value)


def test_edges_need_as_many_senders_as_receivers():
    with pytest.raises(InputError, match="one sender, receiver and level each"), torch.no_grad():
        Mesh.__post_init__(unchecked_mesh(senders=torch.zeros(2, dtype=torch.long)))


def unchecked_mesh(**fields: torch.Tensor) -> Mesh:
    """A mesh put together behind the back of its constructor."""
    mesh, none = object.__new__(Mesh), torch.zeros(0, dtype=torch.long)
    parts = {"space": Box(), "positions": torch.zeros(1, 2), "senders": none, "receivers": none, "levels": none}
    for name, value in (parts | fields).items():
        object.__setattr__(mesh, name, value)
    return mesh


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"positions": torch.tensor([[torch.nan, 0.0]])}, "finite"),
        ({"positions": torch.tensor([[0.5, 1.5]])}, "project"),
        ({"cells": torch.tensor([[0, 0, 1]])}, "cells have corners 0 to 0"),
        ({"cells": torch.tensor([[0, 0, -1]])}, "cells have corners 0 to 0"),
        ({name: torch.tensor([1]) for name in ("senders", "receivers", "levels")}, "edges join 0 to 0"),
    ],
)
def test_a_mesh_put_together_by_hand_is_checked_too(fields, said):
    one = grid_mesh(Box(), 1)
    with pytest.raises(InputError, match=said):
        replace(one, **fields)


def test_meshes_are_compared_by_identity():
    mesh = grid_mesh(Box(), 2)
    assert mesh == mesh
    assert mesh != grid_mesh(Box(), 2)
    assert union(mesh, 2) != union(mesh, 2)
    assert len({mesh, mesh}) == 1


def test_a_union_keeps_the_meshes_apart():
    parts = [grid_mesh(Box(), 2), scattered_mesh(Box(), 5, seeded(0)), grid_mesh(Box(), 1), scattered_mesh(Box(), 30, seeded(1))]
    together = union(parts)
    assert together.num_nodes == 4 + 5 + 1 + 30
    assert together.starts.tolist() == [0, 4, 9, 10]
    assert torch.equal(together.items[together.senders], together.items[together.receivers])
    for item, part in enumerate(parts):
        nodes, edges = together.items == item, together.items[together.senders] == item
        assert torch.equal(together.positions[nodes], part.positions)
        assert torch.equal(together.senders[edges] - together.starts[item], part.senders)
        assert torch.equal(together.receivers[edges] - together.starts[item], part.receivers)
        assert torch.allclose(together.spacing[nodes], union(part, 1).spacing)


def test_a_shared_mesh_is_one_part():
    a, b = grid_mesh(Box(), 2), grid_mesh(Box(), 3)
    assert union(a, 3).parts == (a,)
    assert union([a, a, a]).parts == (a,)
    mixed = union([b, a, b, a])
    assert mixed.parts == (b, a)
    assert mixed.part_of_item == (0, 1, 0, 1)
    assert mixed.per_item([7, 8]) == [7, 8, 7, 8]
    shared, listed = union(a, 3), union([grid_mesh(Box(), 2) for _ in range(3)])
    for name in ("positions", "senders", "receivers", "levels", "items", "starts"):
        assert torch.equal(getattr(shared, name), getattr(listed, name))


def test_a_union_needs_a_mesh_for_every_item_in_one_space():
    a = grid_mesh(Box(), 2)
    with pytest.raises(InputError, match="as many meshes"):
        union([a, a], 3)
    with pytest.raises(InputError, match="as many meshes"):
        union(union(a, 2), 3)
    with pytest.raises(InputError, match="got none"):
        union([])
    with pytest.raises(InputError, match="same space"):
        union([a, grid_mesh(Box((0.0, 0.0), (2.0, 2.0)), 2)])


def test_spacing_is_the_mean_length_of_the_finest_edges_in_units_of_the_space():
    line = grid_mesh(Box((0.0,), (8.0,)), 5)
    assert union(line, 1).spacing.tolist() == pytest.approx([0.25] * 5)
    corner = union(grid_mesh(Box((0.0, 0.0), (2.0, 2.0)), 3, "none"), 1).spacing
    assert corner.tolist() == pytest.approx([0.5] * 9)
    assert union(grid_mesh(Box(), 1), 2).spacing.tolist() == [1.0, 1.0]
    many = scattered_mesh(Box(), 100, seeded(0), multiscale_edges())
    assert torch.allclose(union(many, 1).spacing, union(scattered_mesh(Box(), 100, seeded(0)), 1).spacing)


def test_spacing_of_coinciding_nodes_is_positive():
    assert union(mesh_at(Box(), torch.full((3, 2), 0.5)), 1).spacing.min() > 0


@pytest.mark.parametrize("space", SPACES)
def test_the_areas_of_a_scattered_mesh_sum_to_that_of_its_hull(space):
    box = SPACES[space]
    parts = [scattered_mesh(box, num, seeded(num)) for num in (30, 8)]
    together = union([parts[0], parts[1], parts[0]])
    for item, part in enumerate((parts[0], parts[1], parts[0])):
        points = part.positions.double().numpy()
        hull = np.ptp(points) if box.dim == 1 else ConvexHull(points).volume
        total = together.areas[together.items == item].sum().item()
        assert total * box.unit_length**box.dim == pytest.approx(hull, rel=1e-5)


def test_areas_weigh_nodes_as_the_trapezoid_rule_does():
    mesh = union(grid_mesh(Box(), 9), 1)
    trapezoid = np.trapezoid(np.linspace(0, 1, 9) ** 2, dx=1 / 8)
    squares = mesh.positions[:, 0].square()
    assert ((mesh.areas * squares).sum() / mesh.areas.sum()).item() == pytest.approx(trapezoid, abs=1e-6)
    line = union(grid_mesh(Box((0.0,), (8.0,)), 5), 1)
    assert line.areas.tolist() == pytest.approx([0.125, 0.25, 0.25, 0.25, 0.125])


def test_areas_do_not_depend_on_the_other_meshes_of_a_batch_and_are_powers_of_the_spacing_without_cells():
    chain, scattered = grid_mesh(Box(), (1, 4)), scattered_mesh(Box(), 12, seeded(0))
    together = union([chain, scattered])
    assert torch.equal(together.areas, torch.cat([union(chain, 1).spacing ** 2, union(scattered, 1).areas]))
    assert union(grid_mesh(Box(), 1), 1).areas.tolist() == [1.0]


@pytest.mark.usefixtures("double")
def test_gradients_of_areas_reach_the_positions():
    mesh = scattered_mesh(Box(), 9, seeded(0))

    def areas(positions: torch.Tensor) -> torch.Tensor:
        return union(replace(mesh, positions=positions), 2).areas

    assert torch.autograd.gradcheck(areas, (mesh.positions.clone().requires_grad_(),), fast_mode=True)
    flat = torch.full((9, 2), 0.5).requires_grad_()
    (gradient,) = torch.autograd.grad(areas(flat).sum(), flat)
    assert gradient.isfinite().all()


@pytest.mark.parametrize(
    ("config", "num_edges"),
    [
        (MeshConfig(), 2 * (24 + 9)),
        (MeshConfig(edges="grid", diagonals="none"), 2 * 24),
        (MeshConfig(edges="grid", diagonals="both"), 2 * (24 + 18)),
        (MeshConfig(edges="radius", radius=1.0), 2 * 24),
        (MeshConfig(edges="radius", radius=1.5), 2 * (24 + 18)),
    ],
)
def test_mesh_configs_build_the_edges_they_name(config, num_edges):
    assert len(build_grid(config, Box(), 4).senders) == num_edges
    assert build_grid(config, Box(), 1).num_nodes == 1


def test_the_multiscale_config_keeps_a_large_grid_close_together():
    assert build_grid(MeshConfig(edges="multiscale"), Box(), 15).diameter <= 8 < build_grid(MeshConfig(), Box(), 15).diameter


def test_moving_a_mesh_to_a_device_keeps_its_diameter_and_cells():
    mesh = grid_mesh(Box(), 3)
    assert mesh.diameter == 4
    there = mesh.to("meta")
    assert there.positions.is_meta
    assert union(there, 2).areas.shape == (18,)
    assert there.cells is not None
    assert there.cells.is_meta
    assert there.diameter == 4


def test_moving_a_union_keeps_shared_parts_shared():
    a, b = grid_mesh(Box(), 2), grid_mesh(Box(), 3)
    mixed = union([a, b, a])
    assert mixed.to("cpu") is mixed
    there = mixed.to("meta")
    assert len(there.parts) == 2
    assert there.part_of_item == (0, 1, 0)
    assert there.positions.is_meta
    assert there.parts[1].senders.is_meta
    assert there.num_nodes == mixed.num_nodes
