"""Houses with heaters: -laplace(phi) = C inside the heaters, 0 elsewhere, phi = T on the border (paper section 4.1).

A house is a placement of heaters; a scenario gives every heater its power C and the outside its temperature T.
Where heaters overlap, the later one replaces the earlier one, as in the authors' data.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from ..errors import require
from ..functions import SFT, InputFunction, OutputFunction
from ..samples import FunctionSamples, Queries, SFTBatch
from ..spaces import Box

UNIT_SQUARE = Box((0.0, 0.0), (1.0, 1.0))
POISSON_SQUARE = SFT(  # linear: all functions scale, and temperatures follow that of the border
    UNIT_SQUARE,
    (InputFunction("heaters", scales=True), InputFunction("border", scales=True, shifts=True)),
    (OutputFunction("temperature", scales=True, shifts=True),),
)
NUM_SAMPLES = 64
SAMPLES_PER_HEATER = 9
MAX_HEATERS = 6  # leaves at least 10 samples for the border

THINNEST_SIDE = 1e-6  # far above `_SLACK`
MOST = 1e12
"""Powers and temperatures are no larger, which is well within what networks take (`LARGEST`)."""

_HALVES = np.array([0.0, 0.5, 1.0])  # where a heater is sampled, along x and along y
_SLACK = 1e-9  # 0.8 + 0.07 is 0.8699999999999999 in the authors' files
_APART = 1e-6  # some steps of single precision


@dataclass(frozen=True)
class Heater:
    """A rectangle in the unit square with power C."""

    x0: float
    y0: float
    x1: float
    y1: float
    power: float

    def __post_init__(self) -> None:
        _check_rectangle(self.x0, self.y0, self.x1, self.y1)
        _check_size("a heater's power", self.power)

    @property
    def rectangle(self) -> tuple[float, float, float, float]:
        return self.x0, self.y0, self.x1, self.y1


@dataclass(frozen=True)
class Scenario:
    """One state of one house: its heaters, the last one on top, and the temperature on its border."""

    heaters: tuple[Heater, ...]
    exterior_temperature: float

    def __post_init__(self) -> None:
        _check_num_heaters(len(self.heaters))
        _check_size("the exterior temperature", self.exterior_temperature)


@dataclass(frozen=True, eq=False)
class House:
    """One placement of heaters in many scenarios, with query points and, once solved, the temperatures there."""

    number: int
    rectangles: Float[np.ndarray, "_heaters _corners"]
    powers: Float[np.ndarray, "_scenarios _heaters"]
    exterior_temperatures: Float[np.ndarray, " _scenarios"]
    query_points: Float[np.ndarray, "_scenarios _queries _dim"]
    temperatures: Float[np.ndarray, "_scenarios _queries"] | None = None

    def __post_init__(self) -> None:
        require(self.number >= 0, f"a house's number must be 0 or more; got {self.number}")
        _check_num_heaters(len(self.rectangles))
        _check_array("rectangles", self.rectangles, (len(self.rectangles), 4))
        for rectangle in self.rectangles.tolist():
            _check_rectangle(*rectangle)
        scenarios = self.exterior_temperatures.shape
        require(
            len(scenarios) == 1 and scenarios[0] > 0,
            f"a house needs one exterior temperature per scenario; got shape {scenarios}",
        )
        _check_array("powers", self.powers, (*scenarios, len(self.rectangles)))
        _check_array("exterior temperatures", self.exterior_temperatures, scenarios)
        for name, values in (("powers", self.powers), ("exterior temperatures", self.exterior_temperatures)):
            _check_size(f"the largest of the {name}", float(np.abs(values).max()))
        queries = self.query_points.shape[1:2]
        require(queries != () and queries[0] > 0, f"a scenario needs query points; got shape {self.query_points.shape}")
        _check_array("query points", self.query_points, (*scenarios, *queries, 2))
        low, high = float(self.query_points.min()), float(self.query_points.max())
        require(low >= 0 and high <= 1, f"query points must lie in the unit square; got coordinates from {low} to {high}")
        if self.temperatures is not None:
            _check_array("temperatures", self.temperatures, (*scenarios, *queries))

    def scenario(self, index: int) -> Scenario:
        """The scenario of this index, on its own."""
        powers = self.powers[index].tolist()
        heaters = tuple(Heater(*r, power=p) for r, p in zip(self.rectangles.tolist(), powers, strict=True))
        return Scenario(heaters, float(self.exterior_temperatures[index]))


@dataclass(frozen=True, eq=False)
class Houses:
    """A set of houses that have equally many scenarios and queries."""

    houses: tuple[House, ...]

    def __post_init__(self) -> None:
        require(len(self.houses) > 0, "a set of houses needs at least one house; got none")
        require(len(set(self.numbers)) == len(self.numbers), f"houses need different numbers; got {some(self.numbers)}")
        shapes = {house.query_points.shape for house in self.houses}
        require(len(shapes) == 1, f"houses need equally many scenarios and queries; got query points of shapes {sorted(shapes)}")
        solved = sum(house.temperatures is not None for house in self.houses)
        require(
            solved in (0, len(self)), f"all houses or none need temperatures; got {solved} of {len(self)}, solve the others first"
        )

    def __len__(self) -> int:
        return len(self.houses)

    @property
    def numbers(self) -> tuple[int, ...]:
        return tuple(house.number for house in self.houses)

    @property
    def num_scenarios(self) -> int:
        return self.houses[0].query_points.shape[0]

    @property
    def num_queries(self) -> int:
        return self.houses[0].query_points.shape[1]

    def selected(self, numbers: Collection[int]) -> Houses:
        """The houses of these numbers, in this order."""
        by_number = dict(zip(self.numbers, self.houses, strict=True))
        missing = [number for number in numbers if number not in by_number]
        require(not missing, f"there are {len(self)} houses, {some(self.numbers)}; not among them: {some(missing)}")
        return Houses(tuple(by_number[number] for number in numbers))

    def batch(
        self,
        houses: Int[Tensor, " items"] | Int[np.ndarray, " items"],
        scenarios: Int[Tensor, " items"] | Int[np.ndarray, " items"],
        queries: Int[Tensor, "_items queries"] | Int[np.ndarray, "_items queries"] | None = None,
    ) -> SFTBatch:
        """The items (houses[n], scenarios[n]), by position in this set; all queries, or those of the given indices."""
        house, scenario = np.asarray(houses), np.asarray(scenarios)
        num = len(house)
        require(len(scenario) == num, f"a batch needs one scenario per house; got {num} houses and {len(scenario)} scenarios")
        _check_indices("houses", house, len(self))
        _check_indices("scenarios", scenario, self.num_scenarios)
        at = (house, scenario)
        if queries is not None:
            query = np.asarray(queries)
            require(query.ndim == 2 and len(query) == num, f"a batch needs one row of queries per item; got shape {query.shape}")
            _check_indices("queries", query, self.num_queries)
            at = (house[:, None], scenario[:, None], query)
        tables = self._tables
        points, values = tables.points[house].reshape(-1, 2), tables.values[house, scenario].reshape(-1, 1)
        on_heater, inputs = tables.on_heater[house].ravel(), {}
        for name, chosen in (("heaters", on_heater), ("border", ~on_heater)):
            (rows,) = chosen.nonzero()
            columns = points.take(rows, 0), values.take(rows, 0), rows // NUM_SAMPLES
            inputs[name] = FunctionSamples(*map(torch.from_numpy, columns))
        asked = tables.query_points[at]
        items = torch.from_numpy(np.arange(num).repeat(asked.shape[1]))  # torch's repeat_interleave wakes all threads
        targets = {}
        if tables.temperatures is not None:
            targets["temperature"] = torch.from_numpy(tables.temperatures[at].reshape(-1, 1))
        return SFTBatch(inputs, {"temperature": Queries(torch.from_numpy(asked.reshape(-1, 2)), items=items)}, targets, num)

    @cached_property
    def _tables(self) -> _Tables:
        powers, outside = [h.powers for h in self.houses], np.stack([h.exterior_temperatures for h in self.houses])
        points, values, nums = _encoded([h.rectangles for h in self.houses], powers, outside)
        temperatures = [h.temperatures for h in self.houses if h.temperatures is not None]
        return _Tables(
            points.astype(np.float32),
            values.astype(np.float32),
            np.arange(NUM_SAMPLES) < nums[:, None],
            np.array([h.query_points for h in self.houses], np.float32),
            np.array(temperatures, np.float32) if temperatures else None,
        )


@dataclass(frozen=True)
class _Tables:
    """What batches are cut from: every scenario has the same number of samples, only their division differs."""

    points: Float[np.ndarray, "houses samples 2"]
    values: Float[np.ndarray, "houses scenarios samples"]
    on_heater: Bool[np.ndarray, "houses samples"]
    query_points: Float[np.ndarray, "houses scenarios queries 2"]
    temperatures: Float[np.ndarray, "houses scenarios queries"] | None


def encode(scenario: Scenario) -> dict[str, FunctionSamples]:
    """A scenario as 64 samples: 9 per heater (corners, edge midpoints, centre) and the rest evenly along the border.

    Values keep their units: the power C on heaters (the authors' files divide it by 768; here the network normalises),
    the temperature T on the border. Where heaters overlap, a sample has the power of the last heater that covers
    its place, edges included: it is a sample of the function, not of the heater that put it there. Heaters that only
    touch each other keep their samples. Of heaters of equal power the later ones have some millionths more, so that
    `sample_boxes`, which makes one of equal samples, tells them apart.
    """
    rectangles = np.array([h.rectangle for h in scenario.heaters])
    powers = np.array([[h.power for h in scenario.heaters]])
    (points,), ((values,),), (num,) = _encoded([rectangles], [powers], np.array([[scenario.exterior_temperature]]))
    rows = {"heaters": slice(num), "border": slice(num, None)}
    points, values = (torch.from_numpy(each.astype(np.float32)) for each in (points, values[:, None]))
    return {name: FunctionSamples(points[row], values[row]) for name, row in rows.items()}


def _encoded(
    rectangles: Sequence[Float[np.ndarray, "_heaters _corners"]],
    powers: Sequence[Float[np.ndarray, "_scenarios _heaters"]],
    exterior_temperatures: Float[np.ndarray, "houses scenarios"],
) -> tuple[Float[np.ndarray, "houses samples 2"], Float[np.ndarray, "houses scenarios samples"], Int[np.ndarray, " houses"]]:
    """Of many houses at once: points, values in each scenario, and how many samples, which come first, are on heaters."""
    counts = np.array([len(of_house) for of_house in rectangles])
    there = np.arange(counts.max()) < counts[:, None]  # houses, heaters
    boxes = np.full((*there.shape, 4), 2.0)  # one that is not there lies outside, and covers nothing
    boxes[there] = np.concatenate(rectangles)
    strengths = np.zeros((*exterior_temperatures.shape, there.shape[1]))
    strengths.swapaxes(1, 2)[there] = np.concatenate(powers, 1).T
    for _ in range(there.shape[1]):  # what is made a little larger may meet the next one
        rounded = strengths.astype(np.float32)
        earlier = (rounded[..., None] == rounded[..., None, :]) & np.tri(there.shape[1], k=-1, dtype=bool)  # of equal power
        earlier &= rounded[..., None] != 0
        if not earlier.any():
            break
        strengths *= 1 + _APART * earlier.sum(-1)
    lower, upper = boxes[..., :2, None], boxes[..., 2:, None]  # houses, heaters, 2, 1
    lines = lower + (upper - lower) * _HALVES  # houses, heaters, 2, 3: the x and the y of a heater's samples
    least, most = lower[:, :, None], upper[:, :, None]
    within = (lines[:, None] >= least - _SLACK) & (lines[:, None] <= most + _SLACK)
    within &= np.minimum(upper[:, None], most) - np.maximum(lower[:, None], least) > _SLACK  # what only touches covers nothing
    covered = within[..., 0, None, :] & within[..., 1, :, None]  # houses, which heater, of which heater, y, x
    on_top = there.shape[1] - 1 - covered[:, ::-1].argmax(1)
    points, values = _BORDERS[counts], np.repeat(exterior_temperatures[..., None], NUM_SAMPLES, -1)
    house, heater, y, x = np.broadcast_to(there[..., None, None], on_top.shape).nonzero()
    sample = (heater * len(_HALVES) + y) * len(_HALVES) + x
    points[house, sample, 0], points[house, sample, 1] = lines[house, heater, 0, x], lines[house, heater, 1, y]
    values[house, :, sample] = strengths[house, :, on_top[house, heater, y, x]]
    return points, values, SAMPLES_PER_HEATER * counts


def _along_border(num: int) -> Float[np.ndarray, "num 2"]:
    """Evenly spaced points along the border, counterclockwise from (0, 0)."""
    walked = 4 * np.arange(num) / num
    x = np.clip(np.minimum(walked, 3 - walked), 0, 1)
    y = np.clip(np.minimum(walked - 1, 4 - walked), 0, 1)
    return np.stack([x, y], -1)


_BORDERS = np.stack(
    [
        np.pad(_along_border(NUM_SAMPLES - SAMPLES_PER_HEATER * n), ((SAMPLES_PER_HEATER * n, 0), (0, 0)))
        for n in range(MAX_HEATERS + 1)
    ]
)
"""The samples of a house by its number of heaters: those on the border, behind zeros for those on heaters."""


def _check_rectangle(x0: float, y0: float, x1: float, y1: float) -> None:
    received = f"got x0={x0}, y0={y0}, x1={x1}, y1={y1}"
    require(all(map(math.isfinite, (x0, y0, x1, y1))), f"a heater's coordinates must be finite; {received}")
    require(x0 < x1 and y0 < y1, f"a heater needs x0 < x1 and y0 < y1; {received}")
    require(min(x1 - x0, y1 - y0) > THINNEST_SIDE - _SLACK, f"a heater's sides must be {THINNEST_SIDE:g} or longer; {received}")
    require(min(x0, y0) >= 0 and max(x1, y1) <= 1, f"a heater must lie in the unit square; {received}")


def _check_size(name: str, value: float) -> None:
    require(math.isfinite(value), f"{name} must be finite; got {value}")
    require(abs(value) <= MOST, f"{name} must be {MOST:g} at most, whatever its sign; got {value:g}")


def _check_num_heaters(num: int) -> None:
    require(1 <= num <= MAX_HEATERS, f"a house needs 1 to {MAX_HEATERS} heaters; got {num}")


def _check_array(name: str, array: np.ndarray, shape: tuple[int, ...]) -> None:
    require(array.shape == shape, f"{name} need shape {shape}; got {array.shape}")
    require(bool(np.isfinite(array).all()), f"{name} must be finite; found NaN or infinity")


def _check_indices(name: str, indices: Int[np.ndarray, "*n"], num: int) -> None:
    require(indices.size > 0, f"a batch needs at least one index of {name}; got none")
    low, high = int(indices.min()), int(indices.max())
    require(low >= 0 and high < num, f"indices of {name} must be 0 to {num - 1}; got {low} to {high}")


def some(numbers: Sequence[int]) -> str:
    """The first few numbers, for messages."""
    return ", ".join(map(str, numbers[:5])) + (", ..." if len(numbers) > 5 else "")
