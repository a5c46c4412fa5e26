"""Random houses whose places, sizes, powers and temperatures are distributed like those of the authors' houses."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from ..errors import require
from .houses import MAX_HEATERS, House, Houses


@dataclass(frozen=True)
class HouseDistribution:
    """How random houses are drawn; the defaults follow the authors' 200 houses (docs/figures/house_distributions.png).

    There, all heaters but the last keep out of the vertical strip between `strip` and 1 - `strip` and do not overlap
    each other; the last one lies anywhere. Nobody says why; a tenth of the houses have an overlap because of it.
    """

    max_heaters: int = 4
    num_scenarios: int = 32
    num_queries: int = 256
    min_side: float = 0.05
    max_side: float = 0.25
    strip: float = 0.4
    max_power: float = 384.0

    def __post_init__(self) -> None:
        require(1 <= self.max_heaters <= MAX_HEATERS, f"max_heaters must be 1 to {MAX_HEATERS}; got {self.max_heaters}")
        sides = self.min_side, self.max_side, self.strip
        ordered = 0.01 <= self.min_side <= self.max_side <= self.strip <= 0.5
        require(ordered, f"heaters need 0.01 <= min_side <= max_side <= strip <= 0.5; got {sides}")
        counts = self.num_scenarios, self.num_queries
        require(min(counts) > 0, f"a house needs at least one scenario and one query; got {counts}")


def draw_houses(num: int, generator: np.random.Generator, distribution: HouseDistribution | None = None) -> Houses:
    """Random houses, numbered from 0, without temperatures; as in the authors' files, everything is rounded.

    Places are multiples of 0.01, powers are uniform and multiples of 0.01, exterior temperatures are uniform in
    [-1, 1] and multiples of 0.02, query points are uniform on the 101 x 101 grid, new ones in every scenario.
    """
    require(num > 0, f"the number of houses must be 1 or more; got {num}")
    d = distribution or HouseDistribution()
    houses = []
    for number in range(num):
        rectangles = _draw_rectangles(int(generator.integers(1, d.max_heaters + 1)), generator, d)
        powers = generator.uniform(-d.max_power, d.max_power, (d.num_scenarios, len(rectangles))).round(2)
        exterior_temperatures = 2 * generator.uniform(-0.5, 0.5, d.num_scenarios).round(2)
        query_points = generator.integers(0, 101, (d.num_scenarios, d.num_queries, 2)) / 100
        houses.append(House(number, rectangles, powers, exterior_temperatures, query_points))
    return Houses(tuple(houses))


def _draw_rectangles(num: int, generator: np.random.Generator, d: HouseDistribution) -> Float[np.ndarray, "heaters 4"]:
    drawn: list[Float[np.ndarray, " 4"]] = []
    while len(drawn) < num:
        lower = generator.uniform(0, 1, 2).round(2)
        rectangle = np.concatenate([lower, lower + generator.uniform(d.min_side, d.max_side, 2).round(2)]).round(2)
        last = len(drawn) == num - 1
        beside_strip = rectangle[2] <= d.strip or rectangle[0] >= 1 - d.strip
        apart = all((rectangle[:2] >= other[2:]).any() or (rectangle[2:] <= other[:2]).any() for other in drawn)
        if (rectangle <= 1).all() and (last or (beside_strip and apart)):
            drawn.append(rectangle)
    return np.stack(drawn)
