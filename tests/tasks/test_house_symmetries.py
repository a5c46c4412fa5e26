"""Augmentation: a transformed solved scenario is a solved scenario."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from graphelements.data.houses import Heater, Houses, Scenario
from graphelements.data.poisson import p1_solution, solved
from graphelements.data.random_houses import draw_houses
from graphelements.samples import SFTBatch
from graphelements.tasks.house_symmetries import transformed

ALL = ("square", "sign", "scale", "shift")


@pytest.fixture(scope="module")
def batch() -> SFTBatch:
    houses = draw_houses(12, np.random.default_rng(0))
    one_heater = [house.number for house in houses.houses if len(house.rectangles) == 1][:2]
    solution: Houses = solved(houses.selected(one_heater))
    return solution.batch(np.repeat([0, 1], 8), np.arange(16))


def scenario_of(batch: SFTBatch, item: int) -> Scenario:
    """The scenario that an item's samples describe."""
    heaters, border = (batch.inputs[name] for name in ("heaters", "border"))
    corners = heaters.points[heaters.items == item].double().clamp(0, 1)
    (power,) = heaters.values[heaters.items == item].unique().tolist()
    (x0, y0), (x1, y1) = corners.amin(0).tolist(), corners.amax(0).tolist()
    (temperature,) = border.values[border.items == item].unique().tolist()
    return Scenario((Heater(x0, y0, x1, y1, power=power),), temperature)


@pytest.mark.parametrize("symmetries", [*[(name,) for name in ALL], ALL], ids="-".join)
def test_the_transformed_temperatures_solve_the_transformed_scenario(batch, symmetries):
    new = transformed(batch, symmetries, np.random.default_rng(1))
    queries = new.queries["temperature"]
    worst = 0.0
    for item in range(batch.num_items):
        points = queries.points[queries.items == item].double().numpy()
        truth = new.targets["temperature"][queries.items == item, 0].numpy()
        worst = max(worst, float(np.abs(p1_solution(scenario_of(new, item), points) - truth).max()))
    assert worst < 5e-3 * float(new.targets["temperature"].std())


def test_all_eight_symmetries_and_both_signs_occur_and_only_what_is_asked_for(batch):
    rng = np.random.default_rng(2)
    seen, signs = set(), set()
    for _ in range(20):
        new = transformed(batch, ("square", "sign"), rng)
        first = new.inputs["heaters"].items == 0
        seen.add(tuple(np.round(new.inputs["heaters"].points[first].flatten().tolist(), 4)))
        signs.add(bool(new.inputs["heaters"].values[first][0] * batch.inputs["heaters"].values[first][0] > 0))
        assert torch.equal(new.targets["temperature"].abs(), batch.targets["temperature"].abs())
    assert len(seen) == 8
    assert signs == {True, False}
    same = transformed(batch, (), rng)
    assert torch.equal(same.inputs["border"].points, batch.inputs["border"].points)
    assert torch.equal(same.targets["temperature"], batch.targets["temperature"])
