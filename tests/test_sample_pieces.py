"""Samples of equal values stand for the box around them together."""

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
from graphelements.sample_cells import num_shapes, sample_cells, sample_pieces
from graphelements.samples import FunctionSamples
from graphelements.spaces import Box, Sphere


def heaters(*powers_and_rectangles: tuple[float, ...]) -> FunctionSamples:
    return encode(Scenario(tuple(Heater(*sides, power=power) for power, *sides in powers_and_rectangles), 0.0))["heaters"]


def test_the_samples_of_heaters_that_touch_know_their_own_heater():
    samples = heaters((1.0, 0.1, 0.2, 0.4, 0.3), (2.0, 0.4, 0.25, 0.5, 0.85))
    (pieces,) = sample_pieces([samples], 1, Box())
    first = samples.values[:, 0] == 1.0  # on the common side the second one is on top
    assert (first.sum(), (~first).sum()) == (7, 11)
    sizes, (shape, *places, count) = pieces.log_sizes.exp(), pieces.shapes.T
    torch.testing.assert_close(sizes[9:], torch.tensor([[0.1, 0.6]]).expand(9, 2) / 11**0.5)
    torch.testing.assert_close(sizes[first].prod(-1), torch.full((7,), 0.3 * 0.1 / 7))
    torch.testing.assert_close(count.exp(), torch.where(first, 7.0, 11.0))
    expected = 2 * (samples.points[9:] - torch.tensor([0.4, 0.25])) / torch.tensor([0.1, 0.6]) - 1
    torch.testing.assert_close(torch.stack(places, -1)[9:], expected, atol=1e-5, rtol=1e-5)
    assert shape.abs().max() < 0.7


def test_a_heater_that_is_partly_covered_keeps_its_corners():
    samples = heaters((1.0, 0.1, 0.1, 0.5, 0.5), (2.0, 0.4, 0.4, 0.8, 0.6))
    (pieces,) = sample_pieces([samples], 1, Box())
    own = samples.values[:, 0] == 1.0
    assert own.sum() == 8
    boxes = (pieces.log_sizes + pieces.shapes[:, -1:] / 2).exp()
    torch.testing.assert_close(boxes, torch.where(own[:, None], torch.tensor([0.4, 0.4]), torch.tensor([0.4, 0.2])))
    assert pieces.shapes[own, 0].unique().numel() == 1
    assert pieces.shapes[own, 0][0] < -0.1  # what is missing at the upper right


def test_samples_without_an_equal_have_the_cells_of_their_nearest_fellows():
    samples = FunctionSamples(Box().sample(20, seeded(0)), torch.randn(20, 1, generator=seeded(1)))
    (pieces,), (cells,) = sample_pieces([samples], 1, Box()), sample_cells([samples], 1, Box())
    torch.testing.assert_close(pieces.log_sizes, cells.log_sizes)
    torch.testing.assert_close(pieces.shapes, torch.cat([cells.shapes, torch.zeros(20, 1)], -1))


@pytest.mark.parametrize("dim", [1, 2, 3])
def test_items_and_functions_do_not_mix(dim: int):
    space = Box((0.0,) * dim, (2.0,) * dim)
    items = torch.arange(2).repeat_interleave(9)
    functions = [
        FunctionSamples(space.sample(18, seeded(n)), torch.ones(18, n), items[torch.randperm(18, generator=seeded(n))])
        for n in (1, 2)
    ]
    for found, each in zip(sample_pieces(functions, 2, space), functions, strict=True):
        assert found.shapes.shape == (18, num_shapes(dim, pieces=True))
        for item in (0, 1):
            rows = each.items == item
            (alone,) = sample_pieces([FunctionSamples(each.points[rows], each.values[rows])], 1, space)
            torch.testing.assert_close(found.log_sizes[rows], alone.log_sizes)
            torch.testing.assert_close(found.shapes[rows], alone.shapes)


def test_values_are_equal_if_all_channels_are():
    points = torch.cartesian_prod(torch.linspace(0, 1, 2), torch.linspace(0, 1, 2))
    values = torch.tensor([[1.0, 1.0], [1.0, 1.0], [1.0, 2.0], [1.0, 2.0]])
    (found,) = sample_pieces([FunctionSamples(points, values)], 1, Box())
    torch.testing.assert_close(found.shapes[:, -1].exp(), torch.full((4,), 2.0))


def test_none_and_one_sample():
    for num in (0, 1):
        (found,) = sample_pieces([FunctionSamples(torch.full((num, 2), 0.5), torch.ones(num, 1))], 1, Box())
        assert found.shapes.shape == (num, 4)
        assert found.log_sizes.isfinite().all()


def test_pieces_need_a_box():
    sft = SFT(Sphere(), (InputFunction("u"),), (OutputFunction("v"),))
    for config in (DEFAULT, ATTENTION):
        with pytest.raises(InputError, match=r"samples_see=cell"):
            build_network(sft, replace(config, samples_see="piece"))
