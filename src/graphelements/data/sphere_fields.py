"""Fields on the unit sphere: the paper's Poisson problem (A.3), and the harder one of stations that are scattered unevenly."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import torch
from jaxtyping import Float

from ..functions import SFT, InputFunction, OutputFunction
from ..samples import FunctionSamples, Queries, SFTBatch
from ..spaces import Sphere
from .harmonics import degrees, harmonics
from .sampled_fields import SampledFields

UNIT_SPHERE = Sphere()
NUM_SCENARIOS, NUM_QUERIES = 32, 128

POISSON_SPHERE = SFT(UNIT_SPHERE, (InputFunction("laplacian", scales=True),), (OutputFunction("solution", scales=True),))
NUM_DIRECTIONS, NUM_SAMPLES = 8, 128

SCATTERED_SPHERE = SFT(UNIT_SPHERE, (InputFunction("stations", scales=True),), (OutputFunction("field", scales=True),))
DEGREE = 8  # the finest waves of a field have a period of 45 degrees
FEWEST, MOST = 5, 200  # stations
SEA_DENSITY = 0.1  # of that on land
COAST_DEGREE = 3  # land is where a random field of this degree is positive

Points = Float[np.ndarray, "*n 3"]


def random_points(rng: np.random.Generator, *shape: int) -> Points:
    """Uniform on the unit sphere."""
    points = rng.normal(size=(*shape, 3))
    return points / np.linalg.norm(points, axis=-1, keepdims=True)


def cubes(points: Points, directions: Float[np.ndarray, "directions 3"], factors: Float[np.ndarray, " directions"]) -> np.ndarray:
    """sum of k (x . v)^3, a field whose mean over the sphere is 0."""
    return (points @ directions.T) ** 3 @ factors


def laplacian_of_cubes(
    points: Points, directions: Float[np.ndarray, "directions 3"], factors: Float[np.ndarray, " directions"]
) -> np.ndarray:
    """Exactly: with t = x . v and |v| = 1, the Laplacian of t^3 on the unit sphere is 6 t - 12 t^3."""
    t = points @ directions.T
    return (6 * t - 12 * t**3) @ factors


def numerical_laplacian(
    field: Callable[[Float[np.ndarray, "n 3"]], Float[np.ndarray, " n"]], points: Float[np.ndarray, "n 3"], step: float = 3e-5
) -> Float[np.ndarray, " n"]:
    """As in the paper: differences along two tangents at every point, by `step` and back onto the sphere, in double precision.

    Divided by the square of the step, as the sum of two second differences has to be; the paper writes four times that.
    """
    points = points.astype(np.float64)
    least = np.eye(3)[np.abs(points).argmin(-1)]  # an axis that is not along the point
    first = least - (least * points).sum(-1, keepdims=True) * points
    first /= np.linalg.norm(first, axis=-1, keepdims=True)
    differences = -4 * field(points)
    for tangent in (first, np.cross(points, first)):
        for sign in (-1, 1):
            beside = points + sign * step * tangent
            differences = differences + field(beside / np.linalg.norm(beside, axis=-1, keepdims=True))
    return differences / step**2


def poisson_fields(num: int, seed: int) -> Iterator[SampledFields]:
    """One house after the other: 8 directions (heaters and coolers), in every scenario other strengths, samples and queries."""
    for number in range(num):
        rng = np.random.default_rng((seed, number))
        directions = random_points(rng, NUM_DIRECTIONS)
        factors = rng.normal(size=(NUM_SCENARIOS, NUM_DIRECTIONS))
        points, asked = random_points(rng, NUM_SCENARIOS, NUM_SAMPLES), random_points(rng, NUM_SCENARIOS, NUM_QUERIES)
        values = [laplacian_of_cubes(x, directions, k) for x, k in zip(points, factors, strict=True)]
        targets = [cubes(x, directions, k) for x, k in zip(asked, factors, strict=True)]
        yield _group(POISSON_SPHERE, number, list(points), values, list(asked), targets)


def station_variances() -> Float[np.ndarray, " terms"]:
    """Of the coefficients of a field: those of degree n share 1 / n^2; the sum, which is the variance of the field, is 1."""
    n = degrees(DEGREE)
    shares = np.where(n == 0, 0.0, 1.0 / np.maximum(n, 1) ** 2.0 / (2 * n + 1))
    return shares / shares.sum()


def random_coast(rng: np.random.Generator) -> Float[np.ndarray, " terms"]:
    """The coefficients of a field that is positive on land."""
    return rng.normal(size=(COAST_DEGREE + 1) ** 2) * (degrees(COAST_DEGREE) > 0)


def random_stations(rng: np.random.Generator, coast: Float[np.ndarray, " terms"], most: int) -> Points:
    """All of so many random places that are on land, and few of those at sea."""
    places = random_points(rng, most)
    return places[(harmonics(places, COAST_DEGREE) @ coast > 0) | (rng.random(most) < SEA_DENSITY)]


def scattered_fields(num: int, seed: int) -> Iterator[SampledFields]:
    """One world after the other: its land, and in every scenario another field, measured at 5 to 200 stations."""
    for number in range(num):
        rng = np.random.default_rng((seed, number))
        coast = random_coast(rng)
        stations, values, asked, targets = [], [], [], []
        for _ in range(NUM_SCENARIOS):
            many = int(np.exp(rng.uniform(np.log(FEWEST), np.log(MOST + 1))))
            places = random_stations(rng, coast, 12 * many)
            while len(places) < many:  # a world of almost only sea
                places = np.concatenate([places, random_stations(rng, coast, 12 * many)])
            factors = np.sqrt(station_variances()) * rng.normal(size=len(station_variances()))
            stations.append(places[:many])
            asked.append(random_points(rng, NUM_QUERIES))
            values.append(harmonics(stations[-1], DEGREE) @ factors)
            targets.append(harmonics(asked[-1], DEGREE) @ factors)
        yield _group(SCATTERED_SPHERE, number, stations, values, asked, targets)


def _group(
    sft: SFT, number: int, points: list[np.ndarray], values: list[np.ndarray], asked: list[np.ndarray], targets: list[np.ndarray]
) -> SampledFields:
    def rows(arrays: list[np.ndarray]) -> torch.Tensor:
        return torch.as_tensor(np.concatenate(arrays), dtype=torch.float32)

    def items(arrays: list[np.ndarray]) -> torch.Tensor:
        return torch.arange(len(arrays)).repeat_interleave(torch.tensor([len(array) for array in arrays]))

    samples = FunctionSamples(rows(points), rows(values)[:, None], items(points))
    queries, name = Queries(rows(asked), items=items(asked)), sft.outputs[0].name
    batch = SFTBatch({sft.inputs[0].name: samples}, {name: queries}, {name: rows(targets)[:, None]}, len(points))
    return SampledFields(batch, torch.full((len(points),), number))
