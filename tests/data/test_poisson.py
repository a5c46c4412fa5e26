"""The Poisson solver against exact solutions, against scikit-fem's own quadrature, and against the authors' files."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from real_data import needs_real_houses, real_houses
from skfem import Basis, ElementTriP1, LinearForm, MeshTri, condense, solve
from skfem.models.poisson import laplace

from graphelements.data.houses import Heater, House, Houses, Scenario
from graphelements.data.poisson import (
    TRUTH_RESOLUTION,
    p1_solution,
    p1_temperatures,
    solved,
    triangles,
    unit_load,
    unit_responses,
    visible_parts,
)
from graphelements.data.random_houses import HouseDistribution, draw_houses
from graphelements.errors import InputError

ODD_RECTANGLE = (0.137, 0.291, 0.463, 0.607)


def basis(resolution: int) -> Basis:
    axis = np.linspace(0, 1, resolution)
    nodes = np.stack(np.meshgrid(axis, axis, indexing="ij")).reshape(2, -1)
    return Basis(MeshTri(nodes, np.ascontiguousarray(triangles(resolution).T)), ElementTriP1())


def series(rectangle: tuple[float, float, float, float], points: np.ndarray, terms: int = 600) -> np.ndarray:
    """The exact solution for a unit load on a rectangle: its double sine series."""
    x0, y0, x1, y1 = rectangle
    wave = np.pi * np.arange(1, terms + 1)
    load_x, load_y = ((np.cos(wave * low) - np.cos(wave * high)) / wave for low, high in ((x0, x1), (y0, y1)))
    coefficients = 4 * load_x[:, None] * load_y / (wave[:, None] ** 2 + wave**2)
    return np.einsum("pm,pm->p", np.sin(points[:, :1] * wave) @ coefficients, np.sin(points[:, 1:] * wave))


def error(resolution: int, rectangle: tuple[float, float, float, float], points: np.ndarray) -> float:
    difference = unit_responses(np.array([rectangle]), points, resolution)[0] - series(rectangle, points)
    return float(np.sqrt(np.mean(difference**2)))


@pytest.mark.parametrize("rectangle", [(0.0, 0.0, 1.0, 1.0), ODD_RECTANGLE])
def test_the_error_falls_with_the_square_of_the_spacing(rectangle: tuple[float, float, float, float]) -> None:
    points = np.random.default_rng(0).uniform(0, 1, (1000, 2))
    resolutions = [9, 17, 33, 65]
    errors = [error(k, rectangle, points) for k in resolutions]
    slope = -np.polyfit(np.log(np.array(resolutions) - 1), np.log(errors), 1)[0]
    assert 1.8 < slope < 2.2


def test_the_truth_is_exact_to_four_digits() -> None:
    points = np.random.default_rng(0).uniform(0, 1, (300, 2))
    assert error(TRUTH_RESOLUTION, ODD_RECTANGLE, points) < 1e-4 * np.abs(series(ODD_RECTANGLE, points)).max()


@pytest.mark.parametrize("resolution", [2, 3, 7, 20, 250])
@pytest.mark.parametrize("rectangle", [(0.0, 0.0, 1.0, 1.0), ODD_RECTANGLE, (0.5, 0.999, 0.501, 1.0), (0.25, 0.5, 0.5, 0.75)])
def test_a_load_has_the_area_and_the_centre_of_its_rectangle(
    resolution: int, rectangle: tuple[float, float, float, float]
) -> None:
    x0, y0, x1, y1 = rectangle
    load, area, axis = unit_load(rectangle, resolution), (x1 - x0) * (y1 - y0), np.linspace(0, 1, resolution)
    assert load.min() >= -1e-15
    assert np.isclose(load.sum(), area, rtol=1e-9)
    assert np.isclose(axis @ load.sum(1), area * (x0 + x1) / 2, rtol=1e-9)
    assert np.isclose(load.sum(0) @ axis, area * (y0 + y1) / 2, rtol=1e-9)


@pytest.mark.parametrize("resolution", [3, 6])
def test_a_load_that_cuts_through_triangles_is_the_integral_of_every_hat_function(resolution: int) -> None:
    x0, y0, x1, y1 = ODD_RECTANGLE
    steps = (np.arange(400) + 0.5) / 400
    dense = np.stack(np.meshgrid(x0 + (x1 - x0) * steps, y0 + (y1 - y0) * steps)).reshape(2, -1)
    area = (x1 - x0) * (y1 - y0)
    means = np.asarray(basis(resolution).probes(dense).mean(axis=0)).reshape(resolution, resolution)
    assert np.allclose(unit_load(ODD_RECTANGLE, resolution), area * means, atol=1e-6 * area)


def test_a_whole_solve_is_that_of_scikit_fem_where_a_heater_is_a_union_of_elements() -> None:
    space = basis(9)
    rectangle, points = (0.25, 0.125, 0.75, 0.5), np.random.default_rng(0).uniform(0, 1, (200, 2))

    @LinearForm
    def load(v, w):
        return v * ((w.x[0] > 0.25) & (w.x[0] < 0.75) & (w.x[1] > 0.125) & (w.x[1] < 0.5))

    phi = solve(*condense(laplace.assemble(space), load.assemble(space), D=space.get_dofs()))
    assert np.allclose(space.probes(points.T) @ phi, unit_responses(np.array([rectangle]), points, 9)[0], atol=1e-12)


def test_two_by_two_nodes_know_only_the_border() -> None:
    house = draw_houses(1, np.random.default_rng(0)).houses[0]
    assert (p1_temperatures(house, 2) == house.exterior_temperatures[:, None]).all()


@pytest.mark.parametrize("resolution", [-1, 0, 1])
def test_fewer_than_two_nodes_a_side_are_refused(resolution: int) -> None:
    with pytest.raises(InputError, match="2 or more"):
        p1_temperatures(draw_houses(1, np.random.default_rng(0)).houses[0], resolution)


def test_temperatures_are_continuous_and_equal_the_exterior_on_the_border() -> None:
    scenario = Scenario((Heater(0.0, 0.2, 0.3, 0.4, 200.0),), 0.75)
    along = np.linspace(0, 1, 50)
    border = np.concatenate([np.stack([along, along * 0 + at], -1)[:, ::order] for at in (0.0, 1.0) for order in (1, -1)])
    assert np.allclose(p1_solution(scenario, border, 30), 0.75)
    line = np.linspace([0.01, 0.02], [0.99, 0.93], 20_001)
    assert np.abs(np.diff(p1_solution(scenario, line, 30))).max() < 2e-3


def test_a_house_has_the_temperatures_of_its_scenarios() -> None:
    house = draw_houses(3, np.random.default_rng(2), HouseDistribution(num_scenarios=3, num_queries=11)).houses[2]
    whole = p1_temperatures(house, 12)
    for index in range(3):
        assert np.allclose(whole[index], p1_solution(house.scenario(index), house.query_points[index], 12), atol=1e-12)


@pytest.mark.parametrize("seed", range(5))
def test_visible_parts_are_disjoint_and_are_what_later_rectangles_leave(seed: int) -> None:
    generator = np.random.default_rng(seed)
    lower = generator.uniform(0, 0.5, (4, 2))
    rectangles = np.concatenate([lower, lower + generator.uniform(0.1, 0.5, (4, 2))], 1).tolist()
    points = generator.uniform(0, 1, (4000, 2))

    def inside(r: tuple[float, float, float, float]) -> np.ndarray:
        return (points >= r[:2]).all(1) & (points < r[2:]).all(1)

    later = np.zeros(len(points), dtype=int)
    for rectangle, parts in list(zip(rectangles, visible_parts(rectangles), strict=True))[::-1]:
        times = sum((inside(part).astype(int) for part in parts), np.zeros(len(points), dtype=int))
        assert np.array_equal(times, inside(rectangle) & (later == 0))
        later += inside(rectangle)


def test_the_later_heater_replaces_the_earlier_one() -> None:
    points = np.random.default_rng(0).uniform(0, 1, (50, 2))
    below, above = Heater(0.2, 0.2, 0.6, 0.6, 100.0), Heater(0.4, 0.4, 0.8, 0.8, -200.0)
    pieces = (Heater(0.2, 0.2, 0.4, 0.6, 100.0), Heater(0.4, 0.2, 0.6, 0.4, 100.0), above)
    replaced = p1_solution(Scenario((below, above), 0.1), points, 40)
    assert np.allclose(replaced, p1_solution(Scenario(pieces, 0.1), points, 40), atol=1e-12)
    other_way = p1_solution(Scenario((above, below), 0.1), points, 40)
    assert np.abs(replaced - other_way).max() > 0.5


def test_a_heater_that_is_covered_heats_nothing() -> None:
    points = np.random.default_rng(0).uniform(0, 1, (50, 2))
    above = Heater(0.2, 0.2, 0.7, 0.7, 50.0)
    covered = Scenario((Heater(0.3, 0.3, 0.5, 0.5, 300.0), above), 0.0)
    assert np.allclose(p1_solution(covered, points, 20), p1_solution(Scenario((above,), 0.0), points, 20), atol=1e-12)


def mean_squared_error(ours: Houses, theirs: Houses) -> float:
    pairs = zip(ours.houses, theirs.houses, strict=True)
    return float(np.mean([np.square(a.temperatures - b.temperatures).mean() for a, b in pairs]))


@needs_real_houses
def test_the_truth_agrees_with_the_authors_files() -> None:
    assert mean_squared_error(solved(real_houses()), real_houses()) < 5e-4


@needs_real_houses
def test_in_the_authors_files_the_later_heater_replaces_the_earlier_one() -> None:
    def overlapping(house: House) -> bool:
        rectangles = house.rectangles.tolist()
        return visible_parts(rectangles) != [[tuple(rectangle)] for rectangle in rectangles]

    real = Houses(tuple(h for h in real_houses().houses if overlapping(h)))
    backwards = Houses(tuple(replace(h, rectangles=h.rectangles[::-1], powers=h.powers[:, ::-1]) for h in real.houses))
    assert len(real) == 19
    assert mean_squared_error(solved(real, 100), real) < 1e-3
    assert mean_squared_error(solved(backwards, 100), real) > 5e-3


@needs_real_houses
@pytest.mark.parametrize(
    ("resolution", "expected", "within"),
    [(3, 0.147, 0.015), (4, 0.065, 0.007), (5, 0.0293, 0.004), (6, 0.0152, 0.002), (7, 0.0088, 0.0015)],
)
def test_few_finite_elements_have_the_known_error(resolution: int, expected: float, within: float) -> None:
    assert abs(mean_squared_error(solved(real_houses(), resolution), real_houses()) - expected) < within
