"""Meshes that grow: nodes come where they help and go where they are not missed, budgets and tolerances hold."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from bumps import HEAT, assert_valid, network, scenarios
from cases import seeded

from graphelements.adaptation import Scenarios, adapt_mesh, mean_errors
from graphelements.errors import InputError
from graphelements.mesh_growth import GrowthConfig, grow_mesh, mesh_for_inputs, with_nodes, without_least
from graphelements.meshes import grid_mesh, mesh_at, scattered_mesh


def test_new_nodes_come_where_the_error_is():
    batch, gen, mesh = scenarios(), network(), grid_mesh(HEAT.space, 5)
    queries = batch.queries["warmth"]
    answers = gen.predict(replace(batch, targets={}), mesh)["warmth"]
    assert queries.points is not None
    corner = (queries.points - torch.tensor([2.0, 1.0])).norm(dim=-1, keepdim=True) < 0.5
    wrong = replace(batch, targets={"warmth": torch.where(corner, answers + 1.0, answers)})
    grown = with_nodes(gen, mesh, wrong, 2)
    assert grown.num_nodes == 27
    assert torch.equal(grown.positions[:25], mesh.positions)
    assert float((grown.positions[25:] - torch.tensor([2.0, 1.0])).norm(dim=-1).max()) < 0.8
    assert with_nodes(gen, mesh, wrong, 2, least=9.0).num_nodes == 25


def test_nodes_come_where_inputs_are_large_and_leave_nothing_out():
    batch = scenarios()
    mesh = mesh_for_inputs(HEAT, grid_mesh(HEAT.space, 3).nested(1.5), batch, 40)
    assert mesh.num_nodes == 40
    assert_valid(mesh, 1e-3)
    heat = batch.inputs["heat"]
    elsewhere = replace(batch, inputs={"heat": replace(heat, points=torch.tensor([2.0, 0.0]) - heat.points)})
    other = mesh_for_inputs(HEAT, grid_mesh(HEAT.space, 3).nested(1.5), elsewhere, 40)
    near, far = (int(((m.positions - torch.tensor([1.5, 0.5])).norm(dim=-1) < 0.5).sum()) for m in (mesh, other))
    assert near > 2 * far
    assert float(torch.cdist(HEAT.space.sample(200, seeded(3)), mesh.positions).min(1).values.max()) < 0.8
    assert [m.num_nodes for m in mesh.nest] == [m.num_nodes for m in mesh_at(HEAT.space, mesh.positions).nested(1.5).nest]
    constant = replace(HEAT, inputs=(replace(HEAT.inputs[0], shifts=True),))
    level = {"heat": replace(batch.inputs["heat"], values=torch.full((100, 1), 5.0))}
    even = mesh_for_inputs(constant, grid_mesh(HEAT.space, 3), replace(batch, inputs=level), 25)
    lengths = HEAT.space.distance(even.positions[even.senders], even.positions[even.receivers])
    assert float(lengths.max()) < 1.1
    with pytest.raises(InputError, match="needs samples"):
        mesh_for_inputs(HEAT, grid_mesh(HEAT.space, 3), replace(batch, inputs={}), 25)


def test_the_node_that_is_missed_least_goes():
    batch, gen, mesh = scenarios(), network(), scattered_mesh(HEAT.space, 9, seeded(0))
    less = without_least(gen, mesh, batch, candidates=9)
    others = [mesh_at(HEAT.space, mesh.positions[torch.arange(9) != node]) for node in range(9)]
    assert less.num_nodes == 8
    assert mean_errors(gen, [less], batch)[0] == pytest.approx(min(mean_errors(gen, others, batch)), rel=1e-5)


def test_a_budget_is_reached_and_never_exceeded():
    growth = GrowthConfig(num_nodes=14, changes=5, moves=2, temperature=1e9)
    found = list(grow_mesh(network(), grid_mesh(HEAT.space, 3).nested(), scenarios(), growth))
    sizes = [step.mesh.num_nodes for step in found]
    assert sizes[0] == 9
    assert max(sizes) == sizes[-1] == 14
    assert len(found) == 6 * 3
    assert found[-1].best_error == min(step.error for step in found)
    assert all(step.mesh.coarser is not None for step in found)
    again = list(grow_mesh(network(), grid_mesh(HEAT.space, 3).nested(), scenarios(), growth))
    assert torch.equal(again[-1].mesh.positions, found[-1].mesh.positions)


def test_a_mesh_is_nested_as_the_one_that_it_grew_from():
    growth = GrowthConfig(num_nodes=20, changes=4, moves=1, inserted=1.0, temperature=1e9)
    for ratio in (1.5, 2.0):
        grown = list(grow_mesh(network(), grid_mesh(HEAT.space, 2).nested(ratio), scenarios(), growth))[-1].mesh
        assert grown.num_nodes == 20
        assert [m.num_nodes for m in grown.nest] == [m.num_nodes for m in mesh_at(HEAT.space, grown.positions).nested(ratio).nest]
        assert grown.coarser is not None
        more = grown.of_nodes(torch.cat([grown.positions, grown.positions.new_tensor([[0.123, 0.456]])]))
        known = {level.num_nodes: level.positions for level in grown.nest[1:]}  # those of as many nodes stay where they went
        assert all(torch.equal(m.positions, known[m.num_nodes]) for m in more.nest[1:] if m.num_nodes in known)
        assert set(known) & {level.num_nodes for level in more.nest[1:]}
    assert list(grow_mesh(network(), grid_mesh(HEAT.space, 2), scenarios(), growth))[-1].mesh.coarser is None


@pytest.mark.parametrize(("temperature", "sizes"), [(1e-9, [9, 13, 9, 13, 9]), (1e9, [9, 13, 18, 25, 30])])
def test_changes_that_do_not_help_are_undone(temperature, sizes, monkeypatch):
    monkeypatch.setattr(Scenarios, "loss", lambda _, mesh, step: mesh.num_nodes + 0.0 * mesh.positions.sum())
    monkeypatch.setattr(Scenarios, "errors", lambda _, mesh: torch.full((8,), float(mesh.num_nodes)))
    growth = GrowthConfig(num_nodes=30, changes=4, moves=1, temperature=temperature)
    found = list(grow_mesh(network(), grid_mesh(HEAT.space, 3), scenarios(), growth))
    assert [step.mesh.num_nodes for step in found[::2]] == sizes
    assert found[-1].best.num_nodes == 9


def test_a_removal_that_breaks_the_tolerance_is_undone(monkeypatch):
    monkeypatch.setattr(Scenarios, "loss", lambda _, mesh, step: 1.0 / mesh.num_nodes + 0.0 * mesh.positions.sum())
    monkeypatch.setattr(Scenarios, "errors", lambda _, mesh: torch.full((8,), 1.0 if mesh.num_nodes >= 9 else 2.0))
    growth = GrowthConfig(num_nodes=20, tolerance=1.5, changes=6, moves=1, temperature=1e9)
    found = list(grow_mesh(network(), scattered_mesh(HEAT.space, 11, seeded(0)), scenarios(), growth))
    assert [step.mesh.num_nodes for step in found[::2]] == [11, 10, 9, 8, 9, 8, 9]
    assert found[-1].best.num_nodes == 9


def test_with_a_tolerance_nodes_go_as_long_as_it_holds():
    first = next(adapt_mesh(network(), grid_mesh(HEAT.space, 3), scenarios()))
    growth = GrowthConfig(num_nodes=20, tolerance=10 * first.error, changes=4, moves=1)
    found = list(grow_mesh(network(), grid_mesh(HEAT.space, 3), scenarios(), growth))
    assert found[-1].best.num_nodes == 5
    assert found[-1].best_error <= 10 * first.error
    easy = GrowthConfig(num_nodes=20, tolerance=1e9, changes=20, moves=1)
    assert list(grow_mesh(network(), grid_mesh(HEAT.space, 3), scenarios(), easy))[-1].best.num_nodes == 3
    impossible = GrowthConfig(num_nodes=12, tolerance=1e-9, changes=4, moves=1)
    assert list(grow_mesh(network(), grid_mesh(HEAT.space, 3), scenarios(), impossible))[-1].best_error > 1e-9


def test_a_mesh_above_its_budget_is_refused():
    with pytest.raises(InputError, match="begins with 9; begin with fewer"):
        next(grow_mesh(network(), grid_mesh(HEAT.space, 3), scenarios(), GrowthConfig(num_nodes=8)))
    with pytest.raises(InputError, match="the mesh has 9 already"):
        mesh_for_inputs(HEAT, grid_mesh(HEAT.space, 3), scenarios(), 8)
    with pytest.raises(InputError, match="the mesh has none"):
        mesh_for_inputs(HEAT, grid_mesh(HEAT.space, 1), scenarios(), 8)


@pytest.mark.parametrize("name", ["num_nodes", "tolerance", "inserted"])
def test_growth_that_makes_no_sense_is_refused(name):
    with pytest.raises(InputError, match=f"{name} must be positive"):
        GrowthConfig(**{name: 0 if name == "num_nodes" else 0.0})
