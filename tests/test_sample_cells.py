"""Cells of samples: sizes, shapes, and samples that are alone."""

from __future__ import annotations

import math

import pytest
import torch
from cases import SPACES, seeded

from graphelements.compilation import compiler_available
from graphelements.sample_cells import THINNEST, Cells, num_shapes, sample_cells
from graphelements.samples import FunctionSamples
from graphelements.spaces import Box, Space


def cells_of(points: torch.Tensor, space: Space | None = None, **options) -> Cells:
    return sample_cells([FunctionSamples(points, torch.zeros(len(points), 1))], 1, space or Box(), **options)[0]


def rectangle(low: tuple[float, float], sides: tuple[float, float], num: int = 3) -> torch.Tensor:
    axes = [torch.linspace(a, a + side, num) for a, side in zip(low, sides, strict=True)]
    return torch.cartesian_prod(*axes)


def test_the_middle_of_nine_points_has_their_spacing_as_its_size():
    cells = cells_of(rectangle((0.2, 0.3), (0.4, 0.6)))
    sizes = cells.log_sizes.exp()[4]  # fellows at (+-0.2, 0) and (0, +-0.3): half of them along each axis
    assert sizes.tolist() == pytest.approx([0.2 / math.sqrt(2), 0.3 / math.sqrt(2)], rel=1e-3)
    assert cells.shapes[4].abs().max() < 1e-5


def test_corners_know_on_which_side_their_fellows_are():
    shapes = cells_of(rectangle((0.2, 0.2), (0.3, 0.3))).shapes
    assert shapes[0, 1:].min() > 0.3  # of the lower left corner: up and to the right
    assert shapes[8, 1:].max() < -0.3
    assert shapes[:, 0].abs().max() <= 1 + 1e-6


@pytest.mark.parametrize("space", SPACES.values(), ids=SPACES)
def test_cells_do_not_depend_on_units_order_and_other_items(space):
    points, items = space.sample(30, seeded(0)), torch.randint(3, (30,), generator=seeded(2))
    together = sample_cells([FunctionSamples(points, torch.zeros(30, 1), items)], 4, space)[0]
    assert together.shapes.shape == (30, num_shapes(space.dim))
    for item in range(3):
        rows = items == item
        alone = cells_of(points[rows], space)
        torch.testing.assert_close(together.log_sizes[rows], alone.log_sizes, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(together.shapes[rows], alone.shapes, rtol=1e-4, atol=1e-4)
    lower, upper = (torch.tensor(bound) * 7 for bound in (space.lower, space.upper))
    larger = cells_of(points * 7, Box(tuple(lower.tolist()), tuple(upper.tolist())))
    torch.testing.assert_close(larger.log_sizes, cells_of(points, space).log_sizes, rtol=1e-3, atol=1e-3)


def test_samples_alone_at_one_place_or_not_there_have_finite_cells():
    assert cells_of(torch.tensor([[0.5, 0.5]])).log_sizes.tolist() == [[0.0, 0.0]]
    same = cells_of(torch.full((7, 2), 0.5))
    assert same.log_sizes.exp().flatten().tolist() == pytest.approx(14 * [THINNEST], rel=1e-3)
    assert same.shapes.abs().max() == 0
    assert cells_of(torch.zeros(0, 2)).shapes.shape == (0, 3)


@pytest.mark.skipif(not compiler_available(), reason="no C++ compiler")
def test_compiled_cells_are_the_same():
    points = Box().sample(50, seeded(3))
    compiled, plain = cells_of(points, compiled=True), cells_of(points)
    torch.testing.assert_close(compiled.shapes, plain.shapes, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(compiled.log_sizes, plain.log_sizes, rtol=1e-4, atol=1e-5)


def test_samples_of_other_functions_are_no_fellows():
    functions = [FunctionSamples(Box().sample(n, seeded(n)), torch.zeros(n, 1), torch.arange(n) % 2) for n in (9, 0, 14)]
    for cells, alone in zip(sample_cells(functions, 2, Box()), functions, strict=True):
        expected = sample_cells([alone], 2, Box())[0]
        torch.testing.assert_close(cells.log_sizes, expected.log_sizes)
        torch.testing.assert_close(cells.shapes, expected.shapes)


def test_with_likeness_another_thing_close_by_does_not_make_cells_small():
    stencil = torch.cartesian_prod(torch.linspace(0.0, 0.2, 3), torch.linspace(0.0, 0.26, 3))
    points = torch.cat([stencil + 0.3, stencil + torch.tensor([0.53, 0.3])])
    values = torch.tensor([1.0, -1.0]).repeat_interleave(9)[:, None]
    (alone,) = sample_cells([FunctionSamples(points[:9], values[:9])], 1, Box(), likeness=0.3)
    for likeness, same in ((0.0, False), (0.3, True)):
        (beside,) = sample_cells([FunctionSamples(points, values)], 1, Box(), likeness=likeness)
        assert torch.allclose(beside.log_sizes[:9], alone.log_sizes, atol=1e-5) == same
    (equal,) = sample_cells([FunctionSamples(points, torch.ones(18, 1))], 1, Box(), likeness=0.3)
    (by_place,) = sample_cells([FunctionSamples(points, torch.ones(18, 1))], 1, Box())
    assert torch.equal(equal.log_sizes, by_place.log_sizes)


def test_functions_with_other_numbers_of_channels_have_the_same_cells_together_and_alone():
    drawn = torch.Generator().manual_seed(0)
    functions = [FunctionSamples(torch.rand(12, 2, generator=drawn), torch.randn(12, n, generator=drawn)) for n in (1, 3)]
    for cells, alone in zip(sample_cells(functions, 1, Box(), likeness=0.3), functions, strict=True):
        assert torch.allclose(cells.log_sizes, sample_cells([alone], 1, Box(), likeness=0.3)[0].log_sizes)


def test_equally_near_fellows_are_chosen_whatever_else_is_in_the_batch():
    heater = rectangle((0.25, 0.25), (0.5, 0.25))  # the middle of a side has several fellows that are equally near
    alone = cells_of(heater)
    for others in (5, 12, 40, 90, 200):  # beside the largest a tree searches
        points = torch.cat([heater, torch.rand(others, 2, generator=seeded(others))])
        items = torch.tensor([0] * len(heater) + [1] * others)
        both = sample_cells([FunctionSamples(points, torch.zeros(len(points), 1), items)], 2, Box())[0]
        assert torch.equal(both.log_sizes[: len(heater)], alone.log_sizes)
        assert torch.equal(both.shapes[: len(heater)], alone.shapes)
