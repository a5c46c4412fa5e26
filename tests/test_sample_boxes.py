"""Samples of equal values are one sample, that stands for the box around them."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from cases import seeded

from graphelements import sample_boxes as module
from graphelements.building import build_network
from graphelements.compilation import compiler_available
from graphelements.data.houses import Heater, Scenario, encode
from graphelements.errors import InputError
from graphelements.functions import SFT, InputFunction, OutputFunction
from graphelements.network_config import ATTENTION, DEFAULT
from graphelements.sample_boxes import sample_boxes
from graphelements.sample_cells import num_shapes, sample_cells
from graphelements.samples import FunctionSamples
from graphelements.spaces import Box, Sphere

needs_compiler = pytest.mark.skipif(not compiler_available(), reason="torch finds no C++ compiler here")


def heaters(*powers_and_rectangles: tuple[float, ...]) -> FunctionSamples:
    return encode(Scenario(tuple(Heater(*sides, power=power) for power, *sides in powers_and_rectangles), 0.0))["heaters"]


def test_the_samples_of_heaters_that_touch_make_a_box_for_each():
    given = heaters((1.0, 0.1, 0.2, 0.4, 0.3), (2.0, 0.4, 0.25, 0.5, 0.85))
    samples, boxes = sample_boxes(given, 1, Box())
    torch.testing.assert_close(samples.values, torch.tensor([[1.0], [2.0]]))
    torch.testing.assert_close(samples.points, torch.tensor([[0.25, 0.25], [0.45, 0.55]]))
    torch.testing.assert_close(boxes.shapes, torch.tensor([[0.3, 0.1], [0.1, 0.6]]))
    torch.testing.assert_close(boxes.log_sizes.exp(), boxes.shapes)


@pytest.mark.parametrize("power", [1.0, 3.0])  # the order of values is not that of heaters
def test_what_two_heaters_share_is_taken_from_the_one_that_is_covered(power: float):
    given = heaters((power, 0.1, 0.1, 0.5, 0.5), (2.0, 0.4, 0.4, 0.8, 0.6))
    samples, boxes = sample_boxes(given, 1, Box())
    torch.testing.assert_close(samples.values[-1], torch.tensor([-power]))
    torch.testing.assert_close(samples.points[-1], torch.tensor([0.45, 0.45]))
    torch.testing.assert_close(boxes.shapes[-1], torch.tensor([0.1, 0.1]))
    volumes = boxes.shapes.prod(-1, keepdim=True)
    torch.testing.assert_close((samples.values * volumes).sum(), torch.tensor(power * (0.16 - 0.01) + 2.0 * 0.08))


def test_a_heater_inside_another_leaves_the_rest_of_it():
    samples, boxes = sample_boxes(heaters((1.0, 0.1, 0.1, 0.5, 0.5), (5.0, 0.25, 0.25, 0.4, 0.35)), 1, Box())
    found = dict(zip(samples.values[:, 0].tolist(), boxes.shapes.prod(-1).tolist(), strict=True))
    assert found == pytest.approx({1.0: 0.16, 5.0: 0.015, -1.0: 0.015})


def test_without_a_sample_that_tells_both_count_by_halves():
    along, across = torch.linspace(0, 1, 2), torch.tensor([0.45, 0.55])
    points = torch.cat([torch.cartesian_prod(along, across), torch.cartesian_prod(across, along)])
    values = torch.tensor([1.0] * 4 + [3.0] * 4)[:, None]
    samples, boxes = sample_boxes(FunctionSamples(points, values), 1, Box())
    torch.testing.assert_close(samples.values, torch.tensor([[1.0], [3.0], [-2.0]]))
    torch.testing.assert_close(boxes.shapes[-1], torch.tensor([0.1, 0.1]))


def test_heaters_of_one_power_are_told_apart():
    given = heaters((1.0, 0.1, 0.1, 0.2, 0.35), (1.0, 0.7, 0.7, 0.9, 0.75), (1.0, 0.1, 0.5, 0.3, 0.6))
    samples, boxes = sample_boxes(given, 1, Box())
    order = samples.points[:, 1].argsort()
    torch.testing.assert_close(samples.points[order], torch.tensor([[0.15, 0.225], [0.2, 0.55], [0.8, 0.725]]))
    torch.testing.assert_close(boxes.shapes[order], torch.tensor([[0.1, 0.25], [0.2, 0.1], [0.2, 0.05]]))
    torch.testing.assert_close(samples.values, torch.ones(3, 1))


def rings(*centres_and_radii: tuple[float, float, float]) -> torch.Tensor:
    angles = torch.arange(20) * 2 * torch.pi / 20
    ring = torch.stack([angles.cos(), angles.sin()], -1)
    return torch.cat([torch.tensor([x, y]) + radius * ring for x, y, radius in centres_and_radii])


@pytest.mark.parametrize("in_order", [True, False])
@pytest.mark.parametrize("compiled", [False, pytest.param(True, marks=needs_compiler)])
def test_rings_of_one_value_are_pieces_in_whatever_order_they_are_listed(in_order: bool, compiled: bool):
    points, items = rings((0.25, 0.25, 0.2), (0.75, 0.6, 0.1), (0.5, 0.5, 0.4)), torch.tensor([0, 0, 1]).repeat_interleave(20)
    order = torch.arange(60) if in_order else torch.randperm(60, generator=seeded(0))
    samples, boxes = sample_boxes(FunctionSamples(points[order], torch.ones(60, 1), items[order]), 2, Box(), compiled)
    found = sorted(zip(samples.items.tolist(), boxes.shapes[:, 0].tolist(), strict=True))
    assert found == [(0, pytest.approx(0.2)), (0, pytest.approx(0.4)), (1, pytest.approx(0.8))]


def test_samples_that_are_listed_along_a_line_need_no_search(monkeypatch: pytest.MonkeyPatch):
    search, searches = module.nearest, []
    monkeypatch.setattr(module, "nearest", lambda *given: searches.append(given) or search(*given))
    points, values = rings((0.5, 0.5, 0.4)), torch.ones(20, 1)
    in_order, _ = sample_boxes(FunctionSamples(points, values), 1, Box())
    assert len(in_order.points) == 1
    assert not searches
    order = torch.randperm(20, generator=seeded(0))
    at_random, _ = sample_boxes(FunctionSamples(points[order], values), 1, Box())
    assert searches
    torch.testing.assert_close(at_random.points, in_order.points)
    monkeypatch.setattr(module, "MOST_PAIRS", 399)  # of 20 x 20
    searches.clear()
    sample_boxes(FunctionSamples(points, values), 1, Box())
    assert searches


@pytest.mark.parametrize("sides", [(0.3, 0.01), (0.01, 0.3), (0.2, 0.2)])
def test_the_samples_of_a_heater_are_one_piece_whatever_its_shape(sides: tuple[float, float]):
    _, boxes = sample_boxes(heaters((1.0, 0.1, 0.1, 0.1 + sides[0], 0.1 + sides[1])), 1, Box())
    torch.testing.assert_close(boxes.shapes, torch.tensor([sides]))


def test_the_order_of_samples_does_not_matter():
    given = heaters((1.0, 0.1, 0.1, 0.5, 0.5), (2.0, 0.4, 0.4, 0.8, 0.6), (1.0, 0.7, 0.8, 0.8, 0.9))
    order = torch.randperm(len(given.points), generator=seeded(0))
    (samples, boxes), (other, others) = (sample_boxes(each, 1, Box()) for each in (given, given.mapped(lambda rows: rows[order])))
    rows = [torch.cat([s.points, s.values, b.log_sizes], -1) for s, b in ((samples, boxes), (other, others))]
    first, second = (sorted(each.tolist()) for each in rows)
    assert len(first) == 4
    assert all(a == pytest.approx(b) for a, b in zip(first, second, strict=True))


def test_values_that_scattered_samples_have_in_common_by_chance_are_refused():
    given = FunctionSamples(Box().sample(400, seeded(0)), torch.randint(60, (400, 1), generator=seeded(1)).float())
    with pytest.raises(InputError, match=r"overlap \d+ times: set network.samples_see=cell"):
        sample_boxes(given, 1, Box())


def test_samples_without_an_equal_stay_and_have_the_cells_of_their_nearest_fellows():
    given = FunctionSamples(Box().sample(20, seeded(0)), torch.randn(20, 1, generator=seeded(1)))
    (samples, boxes), (cells,) = sample_boxes(given, 1, Box()), sample_cells([given], 1, Box())
    order = given.values[:, 0].argsort()
    torch.testing.assert_close(samples.values, given.values[order])
    torch.testing.assert_close(samples.points, given.points[order])
    torch.testing.assert_close(boxes.log_sizes, cells.log_sizes[order])
    assert torch.equal(boxes.shapes, torch.zeros(20, 2))


@pytest.mark.parametrize("channels", [1, 2])
@pytest.mark.parametrize("dim", [1, 2, 3])
def test_items_do_not_mix(dim: int, channels: int):
    space = Box((0.0,) * dim, (2.0,) * dim)
    values = torch.randint(2, (18, channels), generator=seeded(4)).float()
    items = 2 * torch.randint(2, (18,), generator=seeded(3))  # item 1 has none
    given = FunctionSamples(space.sample(18, seeded(2)), values, items)
    samples, boxes = sample_boxes(given, 3, space)
    assert boxes.shapes.shape == (len(samples.points), num_shapes(dim, boxes=True))
    assert len(samples.points) > len(torch.cat([items[:, None], values], -1).unique(dim=0))  # some boxes overlap
    for item in (0, 2):
        rows, own = items == item, samples.items == item
        one, alone = sample_boxes(FunctionSamples(given.points[rows], values[rows]), 1, space)
        torch.testing.assert_close(samples.points[own], one.points)
        torch.testing.assert_close(samples.values[own], one.values)
        torch.testing.assert_close(boxes.log_sizes[own], alone.log_sizes)
        torch.testing.assert_close(boxes.shapes[own], alone.shapes)


def test_values_are_equal_if_all_channels_are():
    points = torch.cartesian_prod(torch.linspace(0, 1, 2), torch.linspace(0, 1, 2))
    values = torch.tensor([[1.0, 1.0], [1.0, 1.0], [1.0, 2.0], [1.0, 2.0]])
    samples, boxes = sample_boxes(FunctionSamples(points, values), 1, Box())
    torch.testing.assert_close(samples.values, torch.tensor([[1.0, 1.0], [1.0, 2.0]]))
    torch.testing.assert_close(boxes.shapes, torch.tensor([[0.0, 1.0], [0.0, 1.0]]))


def test_none_and_one_sample():
    for num in (0, 1):
        samples, boxes = sample_boxes(FunctionSamples(torch.full((num, 2), 0.5), torch.ones(num, 1)), 1, Box())
        assert len(samples.points) == num
        assert boxes.shapes.shape == (num, num_shapes(2, boxes=True))
        assert boxes.log_sizes.isfinite().all()


def test_boxes_of_samples_need_a_box():
    sft = SFT(Sphere(), (InputFunction("u"),), (OutputFunction("v"),))
    for config in (DEFAULT, ATTENTION):
        with pytest.raises(InputError, match=r"samples_see=cell"):
            build_network(sft, replace(config, samples_see="box"))


def test_fields_are_not_fitted_to_boxes():
    sft = SFT(Box(), (InputFunction("u"),), (OutputFunction("v"),))
    with pytest.raises(InputError, match=r"not to boxes; set network.samples_see=cell"):
        build_network(sft, replace(DEFAULT, samples_see="box", fitted=True))
