"""Kriging: the mean of a normal field given its values at points, where only its covariance is known."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

JITTER = 1e-4  # of the variance, so that points close to each other do not make the system singular


def matern(distances: Float[np.ndarray, "*n"], length: float) -> Float[np.ndarray, "*n"]:
    """The Matern correlation of fields that can be derived once (smoothness 3/2)."""
    scaled = np.sqrt(3) * distances / length
    return (1 + scaled) * np.exp(-scaled)


def kriged(
    points: Float[np.ndarray, "points dim"],
    values: Float[np.ndarray, " points"],
    there: Float[np.ndarray, "places dim"],
    length: float,
    common: float = 0.0,
) -> Float[np.ndarray, " places"]:
    """Simple kriging with an expected value of 0, a Matern correlation of this length and straight distances, less what all
    points have in `common`: see `common_on_sphere`."""

    def correlations(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return matern(np.linalg.norm(a[:, None] - b, axis=-1), length) - common

    known = correlations(points, points) + JITTER * (1 - common) * np.eye(len(points))
    return correlations(there, points) @ np.linalg.solve(known, values)


def common_on_sphere(length: float, num: int = 4000) -> float:
    """The mean correlation of a point of the unit sphere with all others; it is what the mean of a field over the sphere
    contributes to all correlations. A field whose mean is known to be 0 has these correlations less that.

    The squares of straight distances are uniform from 0 to 4.
    """
    shares = (np.arange(num) + 0.5) / num
    return float(matern(2 * np.sqrt(shares), length).mean())
