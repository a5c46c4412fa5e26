"""Meshes that adapt: nodes stay in the space and apart, the best mesh is kept, budgets and tolerances hold."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from cases import seeded

from graphelements.adaptation import (
    AdaptationConfig,
    GrowthConfig,
    _Best,
    _Scenarios,
    adapt_mesh,
    grow_mesh,
    mean_errors,
    mesh_for_inputs,
    with_nodes,
    without_least,
)
from graphelements.building import build_network
from graphelements.errors import InputError
from graphelements.functions import SFT, InputFunction, OutputFunction
from graphelements.meshes import Mesh, grid_mesh, mesh_at, scattered_mesh
from graphelements.network import GraphElementNetwork
from graphelements.network_config import DEFAULT
from graphelements.samples import FunctionSamples, Queries, SFTBatch
from graphelements.spaces import Box

HEAT = SFT(Box((0.0, -1.0), (2.0, 1.0)), (InputFunction("heat"),), (OutputFunction("warmth"),))
SMALL = replace(DEFAULT, latent_size=8, edge_hidden=8, node_hidden=8, message_size=4, encoder_hidden=(8,), rounds=1)


def scenarios(num: int = 5) -> SFTBatch:
    """Bumps of several heights at one place."""
    g, items = seeded(0), torch.arange(num).repeat_interleave(20)
    points, places = HEAT.space.sample(num * 20, g), HEAT.space.sample(num * 20, g)

    def warmth(x: torch.Tensor) -> torch.Tensor:
        return (1.0 + items[:, None]) * (-4 * (x - torch.tensor([1.5, 0.5])).square().sum(-1, keepdim=True)).exp()

    samples = {"heat": FunctionSamples(points, warmth(points), items)}
    return SFTBatch(samples, {"warmth": Queries(places, None, items)}, {"warmth": warmth(places)}, num)


def network() -> GraphElementNetwork:
    return build_network(HEAT, SMALL, seed=1).eval()


def closest(mesh: Mesh) -> float:
    return float((torch.cdist(mesh.positions, mesh.positions) + 9 * torch.eye(mesh.num_nodes)).min())


def assert_valid(mesh: Mesh, least: float) -> None:
    assert bool(HEAT.space.contains(mesh.positions).all())
    assert closest(mesh) >= least
    assert mesh.cells is not None
    a, b, c = mesh.positions[mesh.cells].double().unbind(1)
    u, v = b - a, c - a
    assert bool(((u[:, 0] * v[:, 1] - u[:, 1] * v[:, 0]).abs() > 0).all())


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("rate", [0.01, 0.5])
def test_nodes_move_to_a_smaller_loss_and_stay_in_the_space_and_apart(nested, rate):
    mesh = grid_mesh(HEAT.space, 4)
    mesh = mesh.nested() if nested else mesh
    config = AdaptationConfig(steps=8, learning_rate=rate, turns=1)
    found = list(adapt_mesh(network(), mesh, scenarios(), config))
    assert len(found) == 9
    assert torch.equal(found[0].mesh.positions, mesh.positions)
    for step in found:
        assert [level.num_nodes for level in step.mesh.nest] == [level.num_nodes for level in mesh.nest]
        for level in step.mesh.nest:
            assert_valid(level, config.closest * (4 / level.num_nodes) ** 0.5 * 0.999)
    for before, after in zip(mesh.nest, found[-1].mesh.nest, strict=True):
        assert not torch.equal(before.positions, after.positions)  # those behind it move as well
    assert min(step.loss for step in found) < found[0].loss


def test_scenarios_take_turns_and_the_loss_is_that_of_a_whole_turn():
    batch, gen, mesh = scenarios(7), network(), grid_mesh(HEAT.space, 3)
    found = list(adapt_mesh(gen, mesh, batch, AdaptationConfig(steps=4, learning_rate=1e-9, turns=2)))  # two of them judge
    with torch.no_grad():
        one, two = (float(gen.loss(gen(part, mesh), part)) for part in (batch.selected([0, 2, 4]), batch.selected([1, 3])))
    assert [step.loss for step in found] == pytest.approx([one, *[(one + two) / 2] * 4], rel=5e-3)
    many = list(adapt_mesh(gen, mesh, batch.selected([0, 1]), AdaptationConfig(steps=2)))  # one moves, one judges
    assert len(many) == 3


def test_a_mesh_adapts_to_all_passes_of_a_network():
    """What a step is judged by is what the network answers."""
    batch, gen = scenarios(8), build_network(HEAT, replace(SMALL, passes=2, gated=True), seed=1).eval()
    first, *_, last = adapt_mesh(gen, grid_mesh(HEAT.space, 3).nested(), batch, AdaptationConfig(steps=6, turns=1))
    assert first.error == pytest.approx(mean_errors(gen, [first.mesh], batch)[0], rel=1e-4)
    assert last.loss < first.loss


@pytest.mark.parametrize("ratio", [None, 1.5])
def test_the_best_mesh_is_the_best_on_all_scenarios_if_those_that_move_nothing_agree(ratio):
    batch, gen, mesh = scenarios(8), network(), grid_mesh(HEAT.space, 3)
    mesh = mesh if ratio is None else mesh.nested(ratio)
    config = AdaptationConfig(steps=7, learning_rate=0.05, validation=0.25, turns=2)
    found = list(adapt_mesh(gen, mesh, batch, config))
    errors = np.array([[mean_errors(gen, [step.mesh], batch.selected([item]))[0] for item in range(8)] for step in found])
    judged = [0, 0, 2, 2, 4, 4, 6, 7]  # after whole turns, and at the end
    assert [step.error for step in found] == pytest.approx(errors.mean(1)[judged], rel=1e-4)
    for number, step in enumerate(found):
        gains = {n: np.log(errors[0, 6:] / errors[n, 6:]) for n in judged[: number + 1]}
        sure = [0, *(n for n, gain in gains.items() if gain.mean() > gain.std(ddof=1) / 2**0.5)]
        chosen = min(sure, key=lambda n: errors[n].mean())
        assert torch.equal(step.best.positions, found[chosen].mesh.positions)
        assert step.best_error == pytest.approx(errors[chosen].mean(), rel=1e-4)
    of_judges = batch.queries["warmth"].items[:, None] > 5
    other = replace(batch, targets={"warmth": torch.where(of_judges, 7.0, batch.targets["warmth"])})
    assert torch.equal(list(adapt_mesh(gen, mesh, other, config))[-1].mesh.positions, found[-1].mesh.positions)
    known = gen.predict(batch, mesh)["warmth"]  # as it was given the mesh makes no error for the judges
    perfect = replace(batch, targets={"warmth": torch.where(of_judges, known, batch.targets["warmth"])})
    assert torch.equal(list(adapt_mesh(gen, mesh, perfect, config))[-1].best.positions, mesh.positions)


@pytest.mark.parametrize(
    ("of_judges", "best"), [((2.0, 2.0), 1), ((5.0, 1.0), 0), ((8.0, 8.0), 0), ((0.0, 0.0), 1), ((math.nan, 2.0), 0)]
)
def test_a_mesh_is_kept_only_if_the_judges_surely_gain(of_judges, best):
    meshes = [grid_mesh(HEAT.space, 3) for _ in range(2)]
    judge = _Best(num_judges=2, standard_errors=1.0)
    judge.among(meshes[0], 1.0, torch.tensor([9.0, 9.0, 4.0, 4.0]))
    step = judge.among(meshes[1], 1.0, torch.tensor([1.0, 1.0, *of_judges]))
    assert step.best is meshes[best]
    bold = _Best(num_judges=2, standard_errors=0.0)
    bold.among(meshes[0], 1.0, torch.tensor([9.0, 9.0, 4.0, 4.0]))
    assert bold.among(meshes[1], 1.0, torch.tensor([1.0, 1.0, 5.0, 1.0])).best is meshes[1]


def test_a_judge_without_queries_does_not_count_and_one_without_error_does():
    meshes = [grid_mesh(HEAT.space, 3) for _ in range(2)]
    judge = _Best(num_judges=2, standard_errors=1.0)
    judge.among(meshes[0], 1.0, torch.tensor([9.0, math.nan, 4.0]))
    assert judge.among(meshes[1], 1.0, torch.tensor([1.0, math.nan, 2.0])).best is meshes[1]
    judge = _Best(num_judges=2, standard_errors=1.0)
    judge.among(meshes[0], 1.0, torch.tensor([9.0, 0.0, 4.0]))
    assert judge.among(meshes[1], 1.0, torch.tensor([1.0, 8.0, 3.0])).best is meshes[0]
    with pytest.raises(InputError, match="the last scenarios judge, but have no queries"):
        _Best(num_judges=2, standard_errors=1.0).among(meshes[0], 1.0, torch.tensor([9.0, math.nan, math.nan]))


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
    monkeypatch.setattr(_Scenarios, "loss", lambda _, mesh, step: mesh.num_nodes + 0.0 * mesh.positions.sum())
    monkeypatch.setattr(_Scenarios, "errors", lambda _, mesh: torch.full((8,), float(mesh.num_nodes)))
    growth = GrowthConfig(num_nodes=30, changes=4, moves=1, temperature=temperature)
    found = list(grow_mesh(network(), grid_mesh(HEAT.space, 3), scenarios(), growth))
    assert [step.mesh.num_nodes for step in found[::2]] == sizes
    assert found[-1].best.num_nodes == 9


def test_a_removal_that_breaks_the_tolerance_is_undone(monkeypatch):
    monkeypatch.setattr(_Scenarios, "loss", lambda _, mesh, step: 1.0 / mesh.num_nodes + 0.0 * mesh.positions.sum())
    monkeypatch.setattr(_Scenarios, "errors", lambda _, mesh: torch.full((8,), 1.0 if mesh.num_nodes >= 9 else 2.0))
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


def test_nodes_that_cannot_leave_their_grid_are_refused():
    gen = build_network(HEAT, replace(SMALL, representation="multilinear"))
    with pytest.raises(InputError, match="nodes cannot move; train with"):
        next(adapt_mesh(gen, grid_mesh(HEAT.space, 3), scenarios(4)))


def test_a_mesh_above_its_budget_is_refused():
    with pytest.raises(InputError, match="begins with 9; begin with fewer"):
        next(grow_mesh(network(), grid_mesh(HEAT.space, 3), scenarios(), GrowthConfig(num_nodes=8)))
    with pytest.raises(InputError, match="the mesh has 9 already"):
        mesh_for_inputs(HEAT, grid_mesh(HEAT.space, 3), scenarios(), 8)
    with pytest.raises(InputError, match="the mesh has none"):
        mesh_for_inputs(HEAT, grid_mesh(HEAT.space, 1), scenarios(), 8)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda b: replace(b, targets={}), "solved scenarios"),
        (lambda b: b.selected([0]), "two scenarios or more"),
    ],
)
def test_scenarios_that_cannot_judge_are_refused(change, message):
    with pytest.raises(InputError, match=message):
        next(adapt_mesh(network(), grid_mesh(HEAT.space, 3), change(scenarios())))


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (lambda: AdaptationConfig(steps=-1), "steps must be 0 or more"),
        (lambda: AdaptationConfig(learning_rate=0.0), "learning_rate must be positive"),
        (lambda: AdaptationConfig(validation=1.0), "validation must be above 0"),
        (lambda: AdaptationConfig(standard_errors=-1.0), "standard_errors must be 0 or more"),
        (lambda: GrowthConfig(num_nodes=0), "num_nodes must be positive"),
        (lambda: GrowthConfig(tolerance=0.0), "tolerance must be positive"),
    ],
)
def test_settings_that_make_no_sense_are_refused(made, message):
    with pytest.raises(InputError, match=message):
        made()
