"""Samples of equal values are one sample, that stands for the box around them."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from cases import seeded

from graphelements.building import build_network
from graphelements.data.houses import Heater, Scenario, encode
from graphelements.errors import InputError
from graphelements.functions import SFT, InputFunction, OutputFunction
from graphelements.network_config import ATTENTION, DEFAULT
from graphelements.sample_cells import num_shapes, sample_boxes, sample_cells
from graphelements.samples import FunctionSamples
from graphelements.spaces import Box, Sphere


def heaters(*powers_and_rectangles: tuple[float, ...]) -> FunctionSamples:
    return encode(Scenario(tuple(Heater(*sides, power=power) for power, *sides in powers_and_rectangles), 0.0))["heaters"]


def test_the_samples_of_heaters_that_touch_make_a_box_for_each():
    given = heaters((1.0, 0.1, 0.2, 0.4, 0.3), (2.0, 0.4, 0.25, 0.5, 0.85))
    (samples,), (boxes,) = sample_boxes([given], 1, Box())
    torch.testing.assert_close(samples.values, torch.tensor([[1.0], [2.0]]))
    torch.testing.assert_close(samples.points, torch.tensor([[0.25, 0.25], [0.45, 0.55]]))
    torch.testing.assert_close(boxes.shapes, torch.tensor([[0.3, 0.1], [0.1, 0.6]]))
    torch.testing.assert_close(boxes.log_sizes.exp(), boxes.shapes)


@pytest.mark.parametrize("swapped", [False, True])
def test_what_two_heaters_share_is_taken_from_the_one_that_is_covered(swapped: bool):
    below, above = (1.0, 0.1, 0.1, 0.5, 0.5), (2.0, 0.4, 0.4, 0.8, 0.6)
    if swapped:
        below, above = (3.0, *below[1:]), above  # the order of values is not that of heaters
    (samples,), (boxes,) = sample_boxes([heaters(below, above)], 1, Box())
    torch.testing.assert_close(samples.values.sum(), torch.tensor(2.0))  # the lower one's is taken back
    torch.testing.assert_close(samples.values[-1], torch.tensor([-below[0]]))
    torch.testing.assert_close(samples.points[-1], torch.tensor([0.45, 0.45]))
    torch.testing.assert_close(boxes.shapes[-1], torch.tensor([0.1, 0.1]))
    volumes = boxes.shapes.prod(-1, keepdim=True)
    torch.testing.assert_close((samples.values * volumes).sum(), torch.tensor(below[0] * (0.16 - 0.01) + 2.0 * 0.08))


def test_a_heater_inside_another_leaves_the_rest_of_it():
    (samples,), (boxes,) = sample_boxes([heaters((1.0, 0.1, 0.1, 0.5, 0.5), (5.0, 0.25, 0.25, 0.4, 0.35))], 1, Box())
    found = dict(zip(samples.values[:, 0].tolist(), boxes.shapes.prod(-1).tolist(), strict=True))
    assert found == pytest.approx({1.0: 0.16, 5.0: 0.015, -1.0: 0.015})


def test_without_a_sample_that_tells_both_count_by_halves():
    along, across = torch.linspace(0, 1, 2), torch.tensor([0.45, 0.55])
    points = torch.cat([torch.cartesian_prod(along, across), torch.cartesian_prod(across, along)])
    values = torch.tensor([1.0] * 4 + [3.0] * 4)[:, None]
    (samples,), (boxes,) = sample_boxes([FunctionSamples(points, values)], 1, Box())
    torch.testing.assert_close(samples.values, torch.tensor([[1.0], [3.0], [-2.0]]))
    torch.testing.assert_close(boxes.shapes[-1], torch.tensor([0.1, 0.1]))


def test_samples_without_an_equal_stay_and_have_the_cells_of_their_nearest_fellows():
    given = FunctionSamples(Box().sample(20, seeded(0)), torch.randn(20, 1, generator=seeded(1)))
    ((samples,), (boxes,)), (cells,) = sample_boxes([given], 1, Box()), sample_cells([given], 1, Box())
    order = given.values[:, 0].argsort()
    torch.testing.assert_close(samples.values, given.values[order])
    torch.testing.assert_close(samples.points, given.points[order])
    torch.testing.assert_close(boxes.log_sizes, cells.log_sizes[order])
    assert torch.equal(boxes.shapes, torch.zeros(20, 2))


@pytest.mark.parametrize("dim", [1, 2, 3])
def test_items_and_functions_do_not_mix(dim: int):
    space = Box((0.0,) * dim, (2.0,) * dim)
    items = torch.arange(2).repeat_interleave(9)
    functions = [
        FunctionSamples(
            space.sample(18, seeded(n)),
            torch.randint(2, (18, n), generator=seeded(n)).float(),
            items[torch.randperm(18, generator=seeded(n))],
        )
        for n in (1, 2)
    ]
    for samples, boxes, given in zip(*sample_boxes(functions, 2, space), functions, strict=True):
        assert boxes.shapes.shape == (len(samples.points), num_shapes(dim, boxes=True))
        for item in (0, 1):
            rows, own = given.items == item, samples.items == item
            (one,), (alone,) = sample_boxes([FunctionSamples(given.points[rows], given.values[rows])], 1, space)
            assert len(one.points) > 2  # some boxes overlap
            torch.testing.assert_close(samples.points[own], one.points)
            torch.testing.assert_close(samples.values[own], one.values)
            torch.testing.assert_close(boxes.log_sizes[own], alone.log_sizes)
            torch.testing.assert_close(boxes.shapes[own], alone.shapes)


def test_values_are_equal_if_all_channels_are():
    points = torch.cartesian_prod(torch.linspace(0, 1, 2), torch.linspace(0, 1, 2))
    values = torch.tensor([[1.0, 1.0], [1.0, 1.0], [1.0, 2.0], [1.0, 2.0]])
    (samples,), (boxes,) = sample_boxes([FunctionSamples(points, values)], 1, Box())
    torch.testing.assert_close(samples.values, torch.tensor([[1.0, 1.0], [1.0, 2.0]]))
    torch.testing.assert_close(boxes.shapes, torch.tensor([[0.0, 1.0], [0.0, 1.0]]))


def test_none_and_one_sample():
    for num in (0, 1):
        (samples,), (boxes,) = sample_boxes([FunctionSamples(torch.full((num, 2), 0.5), torch.ones(num, 1))], 1, Box())
        assert len(samples.points) == num
        assert boxes.shapes.shape == (num, num_shapes(2, boxes=True))
        assert boxes.log_sizes.isfinite().all()


def test_boxes_of_samples_need_a_box():
    sft = SFT(Sphere(), (InputFunction("u"),), (OutputFunction("v"),))
    for config in (DEFAULT, ATTENTION):
        with pytest.raises(InputError, match=r"samples_see=cell"):
            build_network(sft, replace(config, samples_see="box"))
