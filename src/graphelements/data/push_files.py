"""Pushes in files: simulated ones in one `.npz` without pickles, and the folder of Omnipush as it is published.

Omnipush has two files for every object, `KEY...X_3_not_norm...npy` with x, y of the tip and the angle of its way, and the same
with y for X with dx, dy, dtheta; and `split.json` with `train_keys` and `test_keys`. A key read from another side is the same
object.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from jaxtyping import Bool, Float

from ..errors import InputError, require
from ..files import read_json
from .archives import named, opened, real_numbers, save_archive
from .push_objects import PushObject, random_keys
from .pushes import TRAVEL, Pushes
from .quasi_static import EllipsoidFriction, PatchFriction, Tip, pushed

TIP = Tip(radius=0.00475, travel=TRAVEL, grip=0.3)  # the radius is Omnipush's, the friction is assumed
RING = (0.07, 0.087)  # m: tips start at this distance from the middle. Deviations of x and y are then those of Omnipush
ASIDE = math.pi / 3  # and go towards the middle but for so much. Assumed
CLEARANCE = 0.001  # m, between tip and object at first
NOISE = (0.0007, 0.0007, 0.01)  # m, m, rad: deviations of measured motions
PUSHES = 250  # of every object
MOST_TURN = math.pi / 4  # larger turns in Omnipush are errors of tracking
SPLIT = "split.json"
X_FILE, Y_FILE = "X_3_not_norm", "y_3_not_norm"


Result = TypeVar("Result")
Simulated = tuple[Float[np.ndarray, "n 3"], Float[np.ndarray, "n 3"], Float[np.ndarray, "n 3"]]
"""Pushes, what they do, and what is measured of it."""


def random_pushes(made: PushObject, num: int, rng: np.random.Generator) -> Float[np.ndarray, "num 3"]:
    """Where tips start around an object, and the angles of their ways."""
    found = np.zeros((0, 3))
    while len(found) < num:
        around, distance = rng.uniform(-math.pi, math.pi, num), rng.uniform(*RING, num)
        places = distance[:, None] * np.stack([np.cos(around), np.sin(around)], -1)
        angles = (around + rng.uniform(-ASIDE, ASIDE, num)) % (2 * math.pi) - math.pi  # the way back, aside
        drawn = np.column_stack([places, angles])
        found = np.concatenate([found, drawn[starts_free(made, drawn)]])
    return found[:num]


def simulate(key: str, seed: tuple[int, ...], num: int = PUSHES, ellipsoid: bool = False) -> Simulated:
    """So many random pushes of an object, what they do, and what is measured of it; with `ellipsoid` faster and less exact."""
    made, rng = PushObject(key), np.random.default_rng(seed)
    drawn = random_pushes(made, num, rng)
    friction = EllipsoidFriction(made.support()) if ellipsoid else PatchFriction(made.support())
    exact = pushed(friction, made.outline, TIP, drawn[:, :2], drawn[:, 2])
    return drawn, exact, exact + rng.normal(size=exact.shape) * NOISE


def simulated(keys: list[str], seed: int) -> Iterator[Simulated]:
    """The pushes of object after object, simulated on all cores."""
    return on_all_cores(simulate, [(key, (seed, number), PUSHES) for number, key in enumerate(keys)])


def motions_of(key: str, pushes: Float[np.ndarray, "n 3"]) -> Float[np.ndarray, "n 3"]:
    """What pushes do to an object, without noise."""
    made = PushObject(key)
    return pushed(PatchFriction(made.support()), made.outline, TIP, pushes[:, :2], pushes[:, 2])


def starts_free(made: PushObject, pushes: Float[np.ndarray, "n 3"]) -> Bool[np.ndarray, " n"]:
    """Whether tips have room where they start."""
    return made.outline.nearest(pushes[:, :2])[1] > TIP.radius + CLEARANCE


def on_all_cores(work: Callable[..., Result], jobs: Sequence[tuple[Any, ...]]) -> Iterator[Result]:
    """What `work` makes of one job after another, in processes of their own."""
    workers = min(os.cpu_count() or 1, len(jobs))
    with _one_thread_each(), ProcessPoolExecutor(workers, get_context("spawn")) as pool:
        started = [pool.submit(work, *job) for job in jobs]
        try:
            for job in started:
                yield job.result()
        finally:
            pool.shutdown(cancel_futures=True)


def joined(keys: list[str], held_out: list[bool], done: Sequence[Simulated]) -> Pushes:
    """The pushes of all objects, the first with the number 0."""
    drawn, exact, measured = (np.concatenate(parts) for parts in zip(*done, strict=True))
    objects = np.repeat(np.arange(len(keys)), [len(each[0]) for each in done])
    return Pushes(tuple(keys), tuple(range(len(keys))), np.array(held_out), objects, drawn, measured, exact)


@contextmanager
def _one_thread_each() -> Iterator[None]:
    """Processes that are started meanwhile calculate with one thread: there is one of them for every core."""
    before = os.environ.get("OMP_NUM_THREADS")
    os.environ["OMP_NUM_THREADS"] = "1"
    try:
        yield
    finally:
        del os.environ["OMP_NUM_THREADS"]
        os.environ.update({} if before is None else {"OMP_NUM_THREADS": before})


def read_split(path: Path) -> tuple[list[str], list[str]]:
    """The keys of training and test objects in a `split.json` of Omnipush."""
    told = read_json(path, f"the {SPLIT} of Omnipush, with train_keys and test_keys")
    with named(path, "not a split"):
        lists = [told.get(name) if isinstance(told, dict) else None for name in ("train_keys", "test_keys")]
        require(all(isinstance(keys, list) and keys for keys in lists), "a split has lists train_keys and test_keys; got others")
        train, test = ([PushObject(key).key for key in keys or []] for keys in lists)
        names = [PushObject(key).name for key in (*train, *test)]
        twice = [name for name in names if names.count(name) > 1]
        require(not twice, f"every object is in a split once; {', '.join(sorted(set(twice)))} are there twice")
        return train, test


def read_omnipush(folder: Path) -> Pushes:
    """The real pushes in a folder; turns of more than 45 degrees are left out, as errors of tracking."""
    train, test = read_split(folder / SPLIT)
    is_test = {PushObject(key).name: key in test for key in (*train, *test)}
    keys, given = [], []
    for path in sorted(folder.rglob(f"*{X_FILE}*.npy")):
        with named(path, "not an array of pushes"):
            made, other = PushObject(path.name[:8]), path.with_name(path.name.replace(X_FILE, Y_FILE))
            require(made.name in is_test, f"{SPLIT} does not have the object {made.key}")
            require(other.exists(), f"{other.name} is missing beside it")
            loaded = [np.load(file, allow_pickle=False) for file in (path, other)]
            require(all(isinstance(array, np.ndarray) for array in loaded), "a file of pushes is one array; got an archive")
            found = [real_numbers(file.name, array) for file, array in zip((path, other), loaded, strict=True)]
            shapes = [array.shape for array in found]
            require(shapes[0] == shapes[1] and shapes[0][1:] == (3,), f"pushes and motions are n x 3 arrays; got {shapes}")
            kept = np.abs(found[1][:, 2]) <= MOST_TURN
            require(bool(kept.any()), "no push of this object turns it by less than 45 degrees; are its angles in radians?")
            keys.append(made.key)
            given.append([array[kept] for array in found])
    require(len(keys) > 0, f"{folder} has no files KEY...{X_FILE}...npy; name the folder of Omnipush")
    names = [PushObject(key).name for key in keys]
    twice = sorted({name for name in names if names.count(name) > 1})
    require(not twice, f"{folder} has {', '.join(twice)} more than once, read from several sides; leave one")
    pushes, motions = (np.concatenate(parts) for parts in zip(*given, strict=True))
    objects = np.repeat(np.arange(len(keys)), [len(part[0]) for part in given])
    held_out = np.array([is_test[name] for name in names])
    return Pushes(tuple(keys), tuple(range(len(keys))), held_out, objects, pushes, motions)


def save_pushes(path: Path, pushes: Pushes, manifest: Mapping[str, Any]) -> None:
    """Write simulated pushes to one `.npz`, all or nothing; `manifest` says how they were made."""
    assert pushes.exact is not None
    arrays = {
        "keys": np.array(pushes.keys),
        "held_out": pushes.held_out,
        "objects": pushes.objects,
        "pushes": pushes.pushes,
        "motions": pushes.motions,
        "exact": pushes.exact,
    }
    counts = {"objects": len(pushes), "pushes": pushes.num_items}
    save_archive(path, "pushes", arrays, {**manifest, "simulated": True, "counts": counts})


def load_pushes(path: Path) -> Pushes:
    """The pushes in a file that `save_pushes` wrote, or in the folder of Omnipush."""
    if path.is_dir():
        return read_omnipush(path)
    with opened(path, "pushes") as archive:
        try:
            keys, held_out, objects = (archive[name] for name in ("keys", "held_out", "objects"))
            rows = [real_numbers(name, archive[name]) for name in ("pushes", "motions", "exact")]
        except KeyError as error:
            raise InputError(f"a file of pushes has keys, held_out, objects, pushes, motions and exact; {error}") from None
        fits = keys.dtype.kind == "U" and held_out.dtype == bool and objects.dtype.kind == "i" and objects.ndim == keys.ndim == 1
        require(fits and all(r.shape == (len(objects), 3) for r in rows), "the arrays of pushes do not fit; make the file again")
        for key in keys.tolist():
            PushObject(key)
        pushes, motions, exact = rows
        return Pushes(tuple(keys.tolist()), tuple(range(len(keys))), held_out, objects, pushes, motions, exact)


def keys_to_simulate(split: Path | None, num: int, seed: int) -> tuple[list[str], list[bool]]:
    """The objects of a `split.json` and which of them are held out; without one, random objects, of which every fifth is."""
    if split is None:
        keys = random_keys(num, np.random.default_rng(seed))
        return keys, [number % 5 == 4 for number in range(num)]
    train, test = read_split(split)
    return [*train, *test], [False] * len(train) + [True] * len(test)
