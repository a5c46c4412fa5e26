"""Ways in which files of houses go wrong, each with what the message must say about it."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np


def rewrite(path: Path, **changes: Any) -> None:
    with np.load(path) as archive:
        arrays = {name: archive[name] for name in archive.files}
    for name, change in changes.items():
        arrays[name] = change(arrays[name])
    with path.open("wb") as file:
        np.savez(file, **{name: array for name, array in arrays.items() if array is not None})


def save_array(path: Path, array: np.ndarray) -> None:
    with path.open("wb") as file:
        np.save(file, array)


def with_nan(array: np.ndarray) -> np.ndarray:
    changed = array.copy()
    changed.flat[0] = np.nan
    return changed


def set_manifest(**changes: Any) -> Callable[[np.ndarray], np.ndarray]:
    return lambda manifest: np.array(json.dumps({**json.loads(str(manifest)), **changes}))


def damage_middle(path: Path) -> None:
    content = bytearray(path.read_bytes())
    for at in range(len(content) // 2, len(content) // 2 + 20):
        content[at] ^= 0xFF
    path.write_bytes(content)


BAD_NPZ: dict[str, tuple[str, Callable[[Path], Any]]] = {
    "empty": ("is a .npz archive", lambda p: p.write_bytes(b"")),
    "text": ("is a .npz archive", lambda p: p.write_text("hello")),
    "a single array": ("is a .npz archive", lambda p: save_array(p, np.zeros(3))),
    "a pickle": ("is a .npz archive", lambda p: p.write_bytes(pickle.dumps({"numbers": [1]}))),
    "truncated": ("is a .npz archive", lambda p: p.write_bytes(p.read_bytes()[:-200])),
    "cut in half": ("is a .npz archive", lambda p: p.write_bytes(p.read_bytes()[: p.stat().st_size // 2])),
    "damaged inside": ("not a readable .npz", damage_middle),
    "no manifest": ("needs a manifest", lambda p: rewrite(p, manifest=lambda _: None)),
    "manifest not JSON": ("not a readable .npz", lambda p: rewrite(p, manifest=lambda _: np.array("{"))),
    "manifest a list": ("format must be", lambda p: rewrite(p, manifest=lambda _: np.array("[]"))),
    "another format": ("format must be", lambda p: rewrite(p, manifest=set_manifest(format="mazes"))),
    "a later version": ("version must be 1; got 2", lambda p: rewrite(p, manifest=set_manifest(version=2))),
    "no temperatures": ("temperatures is missing", lambda p: rewrite(p, temperatures=lambda _: None)),
    "no numbers": ("numbers is missing", lambda p: rewrite(p, numbers=lambda _: None)),
    "objects": ("allow_pickle=False", lambda p: rewrite(p, powers=lambda a: a.astype(object))),
    "strings": ("powers must hold real numbers", lambda p: rewrite(p, powers=lambda a: a.astype(str))),
    "complex": ("powers must hold real numbers", lambda p: rewrite(p, powers=lambda a: a.astype(complex))),
    "NaN temperature": ("temperatures must be finite", lambda p: rewrite(p, temperatures=with_nan)),
    "NaN heater": ("rectangles must be finite", lambda p: rewrite(p, rectangles=with_nan)),
    "too few axes": ("query_points must have 4 axes", lambda p: rewrite(p, query_points=lambda a: a[0])),
    "three coordinates": (
        "query points need shape",
        lambda p: rewrite(p, query_points=lambda a: np.concatenate([a, a[..., :1]], -1)),
    ),
    "a house too few": ("one row per house, 4; got 3", lambda p: rewrite(p, temperatures=lambda a: a[1:])),
    "a heater too few": ("one row per heater", lambda p: rewrite(p, rectangles=lambda a: a[1:])),
    "a query too few": ("temperatures need shape", lambda p: rewrite(p, temperatures=lambda a: a[..., 1:])),
    "wrong counts of heaters": ("one row per heater", lambda p: rewrite(p, num_heaters=lambda a: a + 1)),
    "negative counts of heaters": ("each of them heaters", lambda p: rewrite(p, num_heaters=lambda a: -a)),
    "fractional numbers": ("numbers must be whole", lambda p: rewrite(p, numbers=lambda a: a + 0.5)),
    "no houses": ("needs houses", lambda p: rewrite(p, numbers=lambda a: a[:0])),
    "equal numbers": ("different numbers", lambda p: rewrite(p, numbers=lambda a: a * 0)),
    "heaters outside": ("unit square", lambda p: rewrite(p, rectangles=lambda a: a + 1)),
    "heaters without size": ("x0 < x1", lambda p: rewrite(p, rectangles=lambda a: a[:, [0, 1, 0, 1]])),
    "queries outside": ("query points must lie in the unit square", lambda p: rewrite(p, query_points=lambda a: a - 0.5)),
}


def edit_scenarios(directory: Path, change: Callable[[list], Any]) -> None:
    path = directory / "desc_1.json"
    scenarios = json.loads(path.read_text())
    changed = change(scenarios)
    path.write_text(json.dumps(scenarios if changed is None else changed))


BAD_DIRECTORY: dict[str, tuple[str, str, Callable[[Path], Any]]] = {
    "empty JSON": ("desc_1.json", "not readable as a list", lambda d: (d / "desc_1.json").write_text("")),
    "malformed JSON": ("desc_1.json", "not readable as a list", lambda d: (d / "desc_1.json").write_text('[{"boxes": [')),
    "not UTF-8": ("desc_1.json", "not readable as a list", lambda d: (d / "desc_1.json").write_bytes(b"\xff\xfe[]")),
    "deeply nested JSON": ("desc_1.json", "not readable as a list", lambda d: (d / "desc_1.json").write_text("[" * 100_000)),
    "an object": ("desc_1.json", "needs a list of scenarios", lambda d: edit_scenarios(d, lambda s: s[0])),
    "no scenarios": ("desc_1.json", "needs a list of scenarios", lambda d: edit_scenarios(d, lambda s: [])),
    "scenarios of text": ("desc_1.json", "'boxes' is needed", lambda d: edit_scenarios(d, lambda s: ["a", "b", "c"])),
    "no boxes": ("desc_1.json", "'boxes' is needed", lambda d: edit_scenarios(d, lambda s: s[0].pop("boxes") and None)),
    "no temperature": (
        "desc_1.json",
        "'exterior_temp' is needed",
        lambda d: edit_scenarios(d, lambda s: s[2].pop("exterior_temp") * 0 or None),
    ),
    "four numbers a box": (
        "desc_1.json",
        "[x0, y0, x1, y1, power]",
        lambda d: edit_scenarios(d, lambda s: s[0]["boxes"][0].pop() * 0 or None),
    ),
    "text as a number": (
        "desc_1.json",
        "exterior_temp must be a finite number",
        lambda d: edit_scenarios(d, lambda s: s[0].update(exterior_temp="1.0")),
    ),
    "true as a number": (
        "desc_1.json",
        "exterior_temp must be a finite number",
        lambda d: edit_scenarios(d, lambda s: s[0].update(exterior_temp=True)),
    ),
    "NaN in JSON": (
        "desc_1.json",
        "exterior_temp must be a finite number",
        lambda d: edit_scenarios(d, lambda s: s[0].update(exterior_temp=float("nan"))),
    ),
    "a huge integer": (
        "desc_1.json",
        "exterior_temp must be a finite number",
        lambda d: edit_scenarios(d, lambda s: s[0].update(exterior_temp=10**400)),
    ),
    "no heaters": (
        "desc_1.json",
        "1 to 6 heaters; got 0",
        lambda d: edit_scenarios(d, lambda s: [x.update(boxes=[]) for x in s] and None),
    ),
    "a heater too many": (
        "desc_1.json",
        "share its heaters",
        lambda d: edit_scenarios(d, lambda s: s[1]["boxes"].append([0, 0, 0.1, 0.1, 1])),
    ),
    "a heater that moves": (
        "desc_1.json",
        "different places",
        lambda d: edit_scenarios(d, lambda s: s[1]["boxes"].__setitem__(0, [0, 0, 0.1, 0.1, 1])),
    ),
    "a heater outside": (
        "desc_1.json",
        "unit square",
        lambda d: edit_scenarios(d, lambda s: s[0]["boxes"][0].__setitem__(2, 1.2)),
    ),
    "a heater without size": (
        "desc_1.json",
        "x0 < x1",
        lambda d: edit_scenarios(d, lambda s: s[0]["boxes"][0].__setitem__(2, s[0]["boxes"][0][0])),
    ),
    "a scenario too few": ("1-X.npy", "query points need shape", lambda d: edit_scenarios(d, lambda s: s[1:])),
    "JSON is a directory": ("desc_1.json", "directory", lambda d: ((d / "desc_1.json").unlink(), (d / "desc_1.json").mkdir())),
    "no X": ("1-X.npy", "No such file", lambda d: (d / "1-X.npy").unlink()),
    "no y": ("1-y.npy", "No such file", lambda d: (d / "1-y.npy").unlink()),
    "X truncated": ("1-X.npy", "not a readable .npy", lambda d: (d / "1-X.npy").write_bytes((d / "1-X.npy").read_bytes()[:-50])),
    "X not npy": ("1-X.npy", "not a readable .npy", lambda d: (d / "1-X.npy").write_text("hello")),
    "y pickled": ("1-y.npy", "allow_pickle=False", lambda d: np.save(d / "1-y.npy", np.array([{"a": 1}]), allow_pickle=True)),
    "y a plain pickle": ("1-y.npy", "not a readable .npy", lambda d: (d / "1-y.npy").write_bytes(pickle.dumps([1.0]))),
    "y of text": ("1-y.npy", "must hold real numbers", lambda d: np.save(d / "1-y.npy", np.full((3, 5, 1), "a"))),
    "y with NaN": ("1-y.npy", "must be finite", lambda d: np.save(d / "1-y.npy", np.full((3, 5, 1), np.nan))),
    "y without its last axis": ("1-X.npy", "X and y need the shapes", lambda d: np.save(d / "1-y.npy", np.zeros((3, 5)))),
    "y of another length": ("1-X.npy", "temperatures need shape", lambda d: np.save(d / "1-y.npy", np.zeros((3, 6, 1)))),
    "X outside": ("1-X.npy", "unit square", lambda d: np.save(d / "1-X.npy", np.full((3, 5, 2), 2.0))),
    "another number of queries": (
        "",
        "equally many",
        lambda d: (np.save(d / "1-X.npy", np.zeros((3, 6, 2))), np.save(d / "1-y.npy", np.zeros((3, 6, 1)))),
    ),
}


BAD_HOUSE = {
    "empty": ("not readable as JSON", ""),
    "not JSON": ("not readable as JSON", "heaters: 3"),
    "a list": ("'heaters' is needed", "[]"),
    "a number": ("'heaters' is needed", "3"),
    "no heaters": ("'heaters' is needed", '{"exterior_temperature": 0.0}'),
    "no exterior temperature": ("'exterior_temperature' is needed", '{"heaters": [[0.1, 0.1, 0.2, 0.2, 1.0]]}'),
    "heaters empty": ("1 to 6 heaters", '{"heaters": [], "exterior_temperature": 0.0}'),
    "heaters an object": ("list of [x0", '{"heaters": {"a": 1}, "exterior_temperature": 0.0}'),
    "a heater a number": ("list of [x0", '{"heaters": [1.0], "exterior_temperature": 0.0}'),
    "a heater without power": ("list of [x0", '{"heaters": [[0.1, 0.1, 0.2, 0.2]], "exterior_temperature": 0.0}'),
    "a heater with text": (
        "a number of a heater must be a finite",
        '{"heaters": [[0.1, 0.1, 0.2, 0.2, "hot\\nhot"]], "exterior_temperature": 0.0}',
    ),
    "a heater with null": (
        "a number of a heater must be a finite",
        '{"heaters": [[0.1, 0.1, 0.2, null, 1.0]], "exterior_temperature": 0.0}',
    ),
    "a heater outside": ("unit square", '{"heaters": [[0.1, 0.1, 0.2, 1.2, 1.0]], "exterior_temperature": 0.0}'),
    "a heater reversed": ("x0 < x1", '{"heaters": [[0.3, 0.1, 0.2, 0.2, 1.0]], "exterior_temperature": 0.0}'),
    "infinite power": (
        "a number of a heater must be a finite",
        '{"heaters": [[0.1, 0.1, 0.2, 0.2, 1e999]], "exterior_temperature": 0.0}',
    ),
    "NaN temperature": (
        "exterior_temperature must be a finite",
        '{"heaters": [[0.1, 0.1, 0.2, 0.2, 1.0]], "exterior_temperature": NaN}',
    ),
    "temperature a list": (
        "exterior_temperature must be a finite",
        '{"heaters": [[0.1, 0.1, 0.2, 0.2, 1.0]], "exterior_temperature": [0.0]}',
    ),
    "seven heaters": (
        "1 to 6 heaters; got 7",
        json.dumps({"heaters": [[0.1, 0.1, 0.2, 0.2, 1.0]] * 7, "exterior_temperature": 0.0}),
    ),
}
