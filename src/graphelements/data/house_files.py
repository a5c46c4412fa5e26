"""Files of houses: our own `.npz`, the authors' directories, and a single house in JSON.

Our format is one `.npz` without pickles: `manifest` (JSON: format, version, library, counts, and what its maker adds,
such as seed and generator parameters), `numbers` (houses), `num_heaters` (houses), `rectangles` (all heaters, 4),
`powers` (all heaters, scenarios), `exterior_temperatures` (houses, scenarios), `query_points` (houses, scenarios,
queries, 2), `temperatures` (houses, scenarios, queries).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import require
from .archives import named, opened, real_numbers, save_archive
from .houses import Heater, House, Houses, Scenario, some

_ARRAYS = {
    "numbers": 1,
    "num_heaters": 1,
    "rectangles": 2,
    "powers": 2,
    "exterior_temperatures": 2,
    "query_points": 4,
    "temperatures": 3,
}


def save_houses(path: str | Path, houses: Houses, manifest: Mapping[str, Any] | None = None) -> None:
    """Write solved houses to one `.npz`, all or nothing; `manifest` says how they were made (seed, parameters)."""
    path = Path(path)
    temperatures = [house.temperatures for house in houses.houses if house.temperatures is not None]
    require(len(temperatures) == len(houses), "only houses with temperatures can be saved; solve them first")
    counts = {"houses": len(houses), "scenarios": houses.num_scenarios, "queries": houses.num_queries}
    arrays = {
        "numbers": np.array(houses.numbers),
        "num_heaters": np.array([len(house.rectangles) for house in houses.houses]),
        "rectangles": np.concatenate([house.rectangles for house in houses.houses]),
        "powers": np.concatenate([house.powers.T for house in houses.houses]),
        "exterior_temperatures": np.stack([house.exterior_temperatures for house in houses.houses]),
        "query_points": np.stack([house.query_points for house in houses.houses]),
        "temperatures": np.stack(temperatures),
    }
    save_archive(path, "houses", arrays, {**(manifest or {}), "counts": counts})


def load_houses(path: str | Path, numbers: Sequence[int] | None = None) -> Houses:
    """The houses of a `.npz` or of a directory in the authors' format; all of them, or those of these numbers."""
    path = Path(path)
    with named(path, "no such file or directory"):
        require(path.exists(), "no such file or directory; name a .npz or a directory with desc_<i>.json files")
        is_directory = path.is_dir()
    return _load_directory(path, numbers) if is_directory else _load_npz(path, numbers)


def read_house_json(path: str | Path) -> Scenario:
    """The scenario in a JSON file: `heaters` [[x0, y0, x1, y1, power], ...] and `exterior_temperature`."""
    path = Path(path)
    with named(path, 'not readable as JSON with "heaters" and "exterior_temperature"; see the docs for an example'):
        content = _parsed(path)
        return Scenario(
            _heaters(_entry(content, "heaters")), _number("exterior_temperature", _entry(content, "exterior_temperature"))
        )


def _load_npz(path: Path, numbers: Sequence[int] | None) -> Houses:
    with opened(path, "houses") as archive:
        arrays = {name: _array(archive, name, ndim) for name, ndim in _ARRAYS.items()}
        for name in ("numbers", "num_heaters"):
            require(
                bool((arrays[name] % 1 == 0).all()) and bool((abs(arrays[name]) < 1e9).all()), f"{name} must be whole numbers"
            )
        num_heaters, per_house = arrays["num_heaters"].astype(int), len(arrays["numbers"])
        require(
            per_house > 0 and bool((num_heaters > 0).all()), "a file of houses needs houses, and each of them heaters; found none"
        )
        for name in ("num_heaters", "exterior_temperatures", "query_points", "temperatures"):
            require(len(arrays[name]) == per_house, f"{name} must have one row per house, {per_house}; got {len(arrays[name])}")
        for name in ("rectangles", "powers"):
            total = int(num_heaters.sum())
            require(len(arrays[name]) == total, f"{name} must have one row per heater, {total}; got {len(arrays[name])}")
        stops = np.cumsum(num_heaters)[:-1]
        rows = zip(
            arrays["numbers"].astype(int).tolist(),
            np.split(arrays["rectangles"], stops),
            [powers.T for powers in np.split(arrays["powers"], stops)],
            arrays["exterior_temperatures"],
            arrays["query_points"],
            arrays["temperatures"],
            strict=True,
        )
        houses = Houses(tuple(House(*row) for row in rows))
        return houses if numbers is None else houses.selected(numbers)


def _load_directory(path: Path, numbers: Sequence[int] | None) -> Houses:
    with named(path, "not a readable directory"):
        matches = (re.fullmatch(r"desc_(0|[1-9]\d{0,8})\.json", entry.name) for entry in path.iterdir())
        present = sorted(int(match[1]) for match in matches if match)
    require(
        bool(present), f"{path}: a directory of houses has desc_<i>.json, <i>-X.npy and <i>-y.npy files; found no desc_<i>.json"
    )
    wanted = present if numbers is None else list(numbers)
    missing = sorted(set(wanted) - set(present))
    require(not missing, f"{path}: there are {len(present)} houses, {some(present)}; not among them: {some(missing)}")
    houses = tuple(_load_authors_house(path, number) for number in wanted)
    with named(path, "not readable as houses"):
        return Houses(houses)


def _load_authors_house(directory: Path, number: int) -> House:
    """One house in the authors' format: `boxes` [x0, y0, x1, y1, C] and `exterior_temp` of every scenario, X, y."""
    description = directory / f"desc_{number}.json"
    with named(description, "not readable as a list of scenarios; copy the file again"):
        content = _parsed(description)
        require(isinstance(content, list) and bool(content), "a house needs a list of scenarios; got something else or none")
        scenarios = [
            Scenario(_heaters(_entry(s, "boxes")), _number("exterior_temp", _entry(s, "exterior_temp"))) for s in content
        ]
        placements = {len(s.heaters) for s in scenarios}
        require(len(placements) == 1, f"the scenarios of a house share its heaters; got {sorted(placements)} heaters")
        rectangles = np.array([[heater.rectangle for heater in s.heaters] for s in scenarios])
        require(
            bool(np.allclose(rectangles, rectangles[:1], rtol=0, atol=1e-9)),
            "the scenarios of a house share its heaters; got different places, make them houses of their own",
        )
    points, values = (_load_npy(directory / f"{number}-{kind}.npy") for kind in "Xy")
    expected = f"(scenarios, queries, 2) and (scenarios, queries, 1); got {points.shape} and {values.shape}"
    with named(directory / f"{number}-X.npy", "not readable as a house"):
        require(points.ndim == values.ndim == 3 and values.shape[2] == 1, f"X and y need the shapes {expected}")
        return House(
            number,
            rectangles[0],
            np.array([[heater.power for heater in s.heaters] for s in scenarios]),
            np.array([s.exterior_temperature for s in scenarios]),
            points,
            values[:, :, 0],
        )


def _load_npy(path: Path) -> np.ndarray:
    with named(path, "not a readable .npy of numbers without pickles; copy the file again"), path.open("rb") as file:
        return real_numbers(path.name, np.lib.format.read_array(file, allow_pickle=False))


def _array(archive: np.lib.npyio.NpzFile, name: str, ndim: int) -> np.ndarray:
    require(name in archive.files, f"a file of houses needs the arrays {', '.join(_ARRAYS)}; {name} is missing")
    array = real_numbers(name, archive[name])
    require(array.ndim == ndim, f"{name} must have {ndim} axes; got shape {array.shape}")
    return array


def _parsed(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def _entry(content: Any, key: str) -> Any:
    require(isinstance(content, dict) and key in content, f"an object with the key {key!r} is needed; it is missing")
    return content[key]


def _heaters(rows: Any) -> tuple[Heater, ...]:
    expected = "heaters must be a list of [x0, y0, x1, y1, power]"
    require(isinstance(rows, list), f"{expected}; got {type(rows).__name__}")
    for row in rows:
        require(isinstance(row, list) and len(row) == 5, f"{expected}; got {str(row)[:60]!r}")
    return tuple(Heater(*(_number("a number of a heater", value) for value in row)) for row in rows)


def _number(name: str, value: Any) -> float:
    require(type(value) in (int, float) and abs(value) < 1e300, f"{name} must be a finite number; got {str(value)[:60]!r}")
    return float(value)
