"""Real spherical harmonics: a basis, least squares in it, and what is best to do when one knows how fields are distributed."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from ..errors import require


def harmonics(points: Float[np.ndarray, "points 3"], degree: int) -> Float[np.ndarray, "points terms"]:
    """The (degree + 1)^2 real harmonics at points of the unit sphere, orthonormal in the mean over the sphere, by degree."""
    from scipy.special import sph_harm_y

    require(degree >= 0, f"the degree of harmonics is 0 or more; got {degree}")
    polar = np.arctan2(np.hypot(points[:, 0], points[:, 1]), points[:, 2])
    azimuth = np.arctan2(points[:, 1], points[:, 0])
    columns = []
    for n in range(degree + 1):
        for m in range(-n, n + 1):
            wave = np.sqrt(4 * np.pi) * sph_harm_y(n, abs(m), polar, azimuth)
            columns.append(wave.real if m == 0 else np.sqrt(2) * (wave.imag if m < 0 else wave.real))
    return np.stack(columns, 1)


def degrees(degree: int) -> np.ndarray:
    """The degree of each of the columns of `harmonics`."""
    return np.concatenate([np.full(2 * n + 1, n) for n in range(degree + 1)])


def inverse_laplacian(degree: int) -> np.ndarray:
    """What the Laplacian divides every harmonic by, -n (n + 1); of the constant, which has none, nothing is left."""
    n = degrees(degree)
    return np.where(n == 0, 0.0, -1.0 / np.maximum(n * (n + 1.0), 1.0))


def least_squares(
    points: Float[np.ndarray, "points 3"], values: Float[np.ndarray, " points"], degree: int
) -> Float[np.ndarray, " terms"]:
    """The coefficients of the best fit; of several the smallest."""
    return np.linalg.lstsq(harmonics(points, degree), values, rcond=None)[0]


def left_out_error(points: Float[np.ndarray, "points 3"], values: Float[np.ndarray, " points"], degree: int) -> float:
    """The mean squared error at every point of the least squares fit to all others; infinite where these do not decide it."""
    basis = harmonics(points, degree)
    if len(points) <= basis.shape[1]:
        return np.inf
    q, _ = np.linalg.qr(basis)
    own = np.einsum("ij,ij->i", q, q)  # how much every value decides its own fit
    if own.max() > 1 - 1e-9:
        return np.inf
    return float(np.mean(((values - q @ (q.T @ values)) / (1 - own)) ** 2))


def most_likely(
    points: Float[np.ndarray, "points 3"], values: Float[np.ndarray, " points"], variances: Float[np.ndarray, " terms"]
) -> Float[np.ndarray, " terms"]:
    """The mean of normal coefficients of known variances, given exact values at points: no estimate has a smaller error."""
    basis = harmonics(points, round(len(variances) ** 0.5) - 1) * np.sqrt(variances)
    return np.sqrt(variances) * np.linalg.lstsq(basis, values, rcond=1e-7)[0]
