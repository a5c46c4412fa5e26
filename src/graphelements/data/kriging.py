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
) -> Float[np.ndarray, " places"]:
    """Simple kriging with a mean of 0, a Matern correlation of this length and straight distances."""

    def correlations(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return matern(np.linalg.norm(a[:, None] - b, axis=-1), length)

    known = correlations(points, points) + JITTER * np.eye(len(points))
    return correlations(there, points) @ np.linalg.solve(known, values)
