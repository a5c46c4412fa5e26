"""Meshes that adapt: nodes stay in the space and apart, and the best mesh is kept."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from bumps import HEAT, SMALL, assert_valid, network, scenarios
from cases import seeded

from graphelements.adaptation import (
    AdaptationConfig,
    Best,
    adapt_mesh,
    mean_errors,
)
from graphelements.building import build_network
from graphelements.errors import InputError
from graphelements.meshes import grid_mesh, scattered_mesh


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


@pytest.mark.parametrize("change", [{"passes": 2, "gated": True}, {"fitted": True}], ids=str)
def test_a_mesh_adapts_to_all_passes_of_a_network_and_to_fields(change):
    """What a step is judged by is what the network answers."""
    batch, gen = scenarios(8), build_network(HEAT, replace(SMALL, **change), seed=1).eval()
    mesh, config = scattered_mesh(HEAT.space, 9, seeded(2)).nested(), AdaptationConfig(steps=6, turns=1, learning_rate=2e-3)
    first, *_, last = adapt_mesh(gen, mesh, batch, config)
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
    judge = Best(num_judges=2, standard_errors=1.0)
    judge.among(meshes[0], 1.0, torch.tensor([9.0, 9.0, 4.0, 4.0]))
    step = judge.among(meshes[1], 1.0, torch.tensor([1.0, 1.0, *of_judges]))
    assert step.best is meshes[best]
    bold = Best(num_judges=2, standard_errors=0.0)
    bold.among(meshes[0], 1.0, torch.tensor([9.0, 9.0, 4.0, 4.0]))
    assert bold.among(meshes[1], 1.0, torch.tensor([1.0, 1.0, 5.0, 1.0])).best is meshes[1]


def test_a_judge_without_queries_does_not_count_and_one_without_error_does():
    meshes = [grid_mesh(HEAT.space, 3) for _ in range(2)]
    judge = Best(num_judges=2, standard_errors=1.0)
    judge.among(meshes[0], 1.0, torch.tensor([9.0, math.nan, 4.0]))
    assert judge.among(meshes[1], 1.0, torch.tensor([1.0, math.nan, 2.0])).best is meshes[1]
    judge = Best(num_judges=2, standard_errors=1.0)
    judge.among(meshes[0], 1.0, torch.tensor([9.0, 0.0, 4.0]))
    assert judge.among(meshes[1], 1.0, torch.tensor([1.0, 8.0, 3.0])).best is meshes[0]
    with pytest.raises(InputError, match="the last scenarios judge, but have no queries"):
        Best(num_judges=2, standard_errors=1.0).among(meshes[0], 1.0, torch.tensor([9.0, math.nan, math.nan]))


def test_nodes_that_cannot_leave_their_grid_are_refused():
    gen = build_network(HEAT, replace(SMALL, representation="multilinear"))
    with pytest.raises(InputError, match="nodes cannot move; train with"):
        next(adapt_mesh(gen, grid_mesh(HEAT.space, 3), scenarios(4)))


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
    ],
)
def test_settings_that_make_no_sense_are_refused(made, message):
    with pytest.raises(InputError, match=message):
        made()
