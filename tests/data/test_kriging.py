"""Kriging: exact at the points, zero far away, and the mean of a normal field."""

from __future__ import annotations

import numpy as np
import pytest

from graphelements.data.kriging import JITTER, common_on_sphere, kriged, matern


def test_values_are_met_at_their_points_and_forgotten_far_away() -> None:
    rng = np.random.default_rng(0)
    points, values = rng.uniform(size=(12, 2)), rng.normal(size=12)
    assert kriged(points, values, points, 0.3) == pytest.approx(values, abs=0.02)
    assert kriged(points, values, np.array([[40.0, 40.0]]), 0.3) == pytest.approx([0.0], abs=1e-9)


def test_one_value_counts_by_its_correlation() -> None:
    there = np.array([[0.0, 0.4]])
    found = kriged(np.zeros((1, 2)), np.array([2.0]), there, 0.7)
    assert found == pytest.approx(2 * matern(np.array([0.4]), 0.7) / (1 + JITTER))
    assert matern(np.array([0.0, 1e9]), 0.7).tolist() == [1.0, 0.0]


def test_it_errs_least_at_the_length_that_fields_have() -> None:
    rng = np.random.default_rng(1)
    points = rng.uniform(size=(40, 2))
    covariance = matern(np.linalg.norm(points[:, None] - points, axis=-1), 0.5) + 1e-9 * np.eye(40)
    fields = np.linalg.cholesky(covariance) @ rng.normal(size=(40, 400))
    errors = {
        length: np.mean([(kriged(points[:30], field[:30], points[30:], length) - field[30:]) ** 2 for field in fields.T])
        for length in (0.1, 0.5, 2.5)
    }
    assert min(errors, key=lambda length: errors[length]) == 0.5


def test_fields_without_a_mean_over_the_sphere_are_estimated_without_one() -> None:
    rng = np.random.default_rng(2)
    everywhere = rng.normal(size=(20000, 3))
    everywhere /= np.linalg.norm(everywhere, axis=-1, keepdims=True)
    points, values, common = everywhere[:8], rng.normal(size=8) + 1, common_on_sphere(0.9)
    assert common == pytest.approx(matern(np.linalg.norm(everywhere - points[0], axis=-1), 0.9).mean(), abs=0.01)
    assert kriged(points, values, everywhere, 0.9).mean() > 0.1
    assert kriged(points, values, everywhere, 0.9, common).mean() == pytest.approx(0.0, abs=0.02)
    assert kriged(points, values, points, 0.9, common) == pytest.approx(values, abs=0.02)
