"""Fields on the sphere: the Laplacian by differences and exactly, means, harmonics, and least squares that solve or choose."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from graphelements.data.harmonics import degrees, harmonics, inverse_laplacian, least_squares, left_out_error, most_likely
from graphelements.data.sphere_fields import (
    COAST_DEGREE,
    DEGREE,
    FEWEST,
    MOST,
    SEA_DENSITY,
    cubes,
    laplacian_of_cubes,
    numerical_laplacian,
    poisson_fields,
    random_coast,
    random_points,
    random_stations,
    scattered_fields,
    station_variances,
)


@pytest.fixture(scope="module")
def field() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(1)
    return random_points(rng, 8), rng.normal(size=8)


def evenly_spread() -> np.ndarray:
    """A quadrature that is exact for low degrees: Gauss along the axis, even around it."""
    heights, weights = np.polynomial.legendre.leggauss(24)
    angles = 2 * np.pi * np.arange(48) / 48
    z, phi = (each.ravel() for each in np.meshgrid(heights, angles, indexing="ij"))
    around = np.sqrt(1 - z**2)
    points = np.stack([around * np.cos(phi), around * np.sin(phi), z], -1)
    return np.column_stack([points, np.repeat(weights, 48) / 96])


@pytest.mark.parametrize("step", [3e-6, 3e-5, 3e-4])
def test_differences_give_the_exact_laplacian_whatever_their_step(field, step):
    points = np.concatenate([random_points(np.random.default_rng(2), 500), np.eye(3), -np.eye(3)])
    exact = laplacian_of_cubes(points, *field)
    numerical = numerical_laplacian(lambda x: cubes(x, *field), points, step)
    assert numerical == pytest.approx(exact, abs=2e-3)
    assert np.abs(exact).max() > 1


def test_fields_and_laplacians_have_the_mean_zero(field):
    grid = evenly_spread()
    for values in (cubes(grid[:, :3], *field), laplacian_of_cubes(grid[:, :3], *field)):
        assert grid[:, 3] @ values == pytest.approx(0, abs=1e-12)
        assert grid[:, 3] @ values**2 > 0.1


def test_harmonics_are_orthonormal_and_waves_of_the_laplacian():
    grid = evenly_spread()
    basis = harmonics(grid[:, :3], DEGREE)
    assert basis.T @ (grid[:, 3:] * basis) == pytest.approx(np.eye((DEGREE + 1) ** 2), abs=1e-10)
    points = random_points(np.random.default_rng(3), 50)
    for column in (0, 2, 7, 30, 80):
        numerical = numerical_laplacian(lambda x, column=column: harmonics(x, DEGREE)[:, column], points, 1e-4)
        n = degrees(DEGREE)[column]
        assert numerical == pytest.approx(-n * (n + 1) * harmonics(points, DEGREE)[:, column], abs=1e-4)
        assert inverse_laplacian(DEGREE)[column] * n * (n + 1) == (0 if n == 0 else pytest.approx(-1))


def test_least_squares_of_degree_three_solves_the_papers_problem(field):
    points, asked = (random_points(np.random.default_rng(seed), 128) for seed in (4, 5))
    factors = least_squares(points, laplacian_of_cubes(points, *field), 3) * inverse_laplacian(3)
    assert harmonics(asked, 3) @ factors == pytest.approx(cubes(asked, *field), abs=1e-10)


def test_leaving_out_is_what_fitting_without_each_point_gives():
    rng = np.random.default_rng(6)
    points, values = random_points(rng, 20), rng.normal(size=20)
    errors = []
    for left in range(20):
        rest = np.arange(20) != left
        errors.append((harmonics(points[[left]], 2) @ least_squares(points[rest], values[rest], 2) - values[left]).item())
    assert left_out_error(points, values, 2) == pytest.approx(np.mean(np.square(errors)))
    assert left_out_error(points, values, 4) == np.inf  # 25 terms for 20 points


def test_no_estimate_is_better_than_the_most_likely_field():
    """Of fields of the known distribution: better than least squares of any degree, and exact where there are enough stations."""
    rng, variances = np.random.default_rng(7), station_variances()
    errors: dict[str, list[float]] = {}
    for _ in range(60):
        factors = np.sqrt(variances) * rng.normal(size=len(variances))
        points, asked = random_points(rng, 30), random_points(rng, 200)
        values, truth = harmonics(points, DEGREE) @ factors, harmonics(asked, DEGREE) @ factors
        estimates = {"likely": harmonics(asked, DEGREE) @ most_likely(points, values, variances)}
        estimates |= {str(d): harmonics(asked, d) @ least_squares(points, values, d) for d in range(DEGREE + 1)}
        for name, estimate in estimates.items():
            errors.setdefault(name, []).append(float(np.mean((estimate - truth) ** 2)))
        many = random_points(rng, 200)
        exact = most_likely(many, harmonics(many, DEGREE) @ factors, variances)
        assert exact == pytest.approx(factors, abs=1e-5)
    means = {name: np.mean(found) for name, found in errors.items()}
    assert min(means, key=lambda name: means[name]) == "likely"
    assert variances.sum() == pytest.approx(1)


def test_houses_on_the_sphere_are_the_papers():
    """250 houses of 32 scenarios have 128 inputs and queries each; the same seed gives the same."""
    first, second = poisson_fields(2, seed=5)
    assert first.items.num_items == 32
    assert {len(first.items.inputs["laplacian"].items), len(second.items.queries["solution"])} == {32 * 128}
    again = next(poisson_fields(1, seed=5))
    assert torch.equal(again.items.targets["solution"], first.items.targets["solution"])
    assert not torch.equal(second.items.targets["solution"], first.items.targets["solution"])
    assert not torch.equal(next(poisson_fields(1, seed=6)).items.targets["solution"], first.items.targets["solution"])


def test_stations_are_ten_times_as_dense_on_land():
    rng = np.random.default_rng(0)
    coast = random_coast(rng)
    stations, anywhere = random_stations(rng, coast, 100_000), random_points(rng, 100_000)
    on_land, land = (float(np.mean(harmonics(each, COAST_DEGREE) @ coast > 0)) for each in (stations, anywhere))
    assert 0.1 < land < 0.9
    at_sea_by_land = (1 - on_land) / (1 - land) / (on_land / land)
    assert at_sea_by_land == pytest.approx(SEA_DENSITY, rel=0.05)


def test_stations_are_ragged():
    groups = list(scattered_fields(4, seed=0))
    counts = torch.cat([torch.bincount(group.items.inputs["stations"].items) for group in groups])
    assert counts.min() >= FEWEST
    assert counts.max() <= MOST
    assert len(counts.unique()) > 30
