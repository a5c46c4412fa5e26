"""What the pixels leave open: how differently objects move that look the same at the 64 pixels a network is given.

An ideal observer knows how objects look and move, and which are to be expected. Of all objects with the pixels that it sees, and
with room for the tip where the push starts, it answers with the mean motion, each as likely as it was to be expected. With the
motions a and b of two such objects, drawn apart, and the true motion m, its error is the mean of (m - a)(m - b); and where it
expects objects as often as they come, that is the variance of what it takes for possible, half the mean of (a - b)^2.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int

from ..data.push_files import motions_of, on_all_cores, starts_free
from ..data.push_objects import SIDES, PushObject
from ..data.pushes import MOTION_SCALE, NUM_PIXELS, PLACES, picture_of
from ..errors import require
from ..tasks.push_motions import PREDICTED, TRUE, draw_motion, draw_picture, draw_push
from ..tasks.pushing import TASK
from .comparison import interval
from .push_experiments import PUSHING_PIXELS
from .summaries import markdown

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PUSHES_EACH, QUICK_EACH = 50, 4
OBSERVERS = {
    "sides": "knows how often each side comes",
    "objects": "knows how often in each direction, which weights come together, and that no object of training comes again",
}


@dataclass(frozen=True, eq=False)
class Expected:
    """Which objects an observer expects: the share of every side in each of the four directions, and keys that it rules out."""

    shares: Float[np.ndarray, "4 sides"]
    ruled_out: Callable[[str], bool] = lambda key: False


@dataclass(frozen=True, eq=False)
class Alike:
    """Pushes, for each the pixels that a network is given, and keys and motions of two objects with the same pixels."""

    keys: Sequence[str]
    pushes: Float[np.ndarray, "n 3"]
    motions: Float[np.ndarray, "n 3"]
    pixels: Float[np.ndarray, "n pixels 2"]
    other_keys: tuple[Sequence[str], Sequence[str]]
    other_motions: tuple[Float[np.ndarray, "n 3"], Float[np.ndarray, "n 3"]]

    @property
    def errors(self) -> Float[np.ndarray, " n"]:
        """Unbiased, in squared deviations, the mean over the three parts of a motion; of one push it may be below 0."""
        a, b = (self.motions - other for other in self.other_motions)
        return (a * b / np.square(MOTION_SCALE)).mean(1)

    @property
    def variances(self) -> Float[np.ndarray, " n"]:
        """Of what is taken for possible, in the same units."""
        a, b = self.other_motions
        return np.square((a - b) / MOTION_SCALE).mean(1) / 2


def expectations(training_keys: Sequence[str]) -> dict[str, Expected]:
    """Those of `OBSERVERS`; one is added to every count, so that no side is impossible."""
    sides = [PushObject(key).sides for key in training_keys]
    counts = np.array([[1.0 + sum(each[turn] == side for each in sides) for side in SIDES] for turn in range(4)])
    names, together = {PushObject(key).name for key in training_keys}, set(map(_weights, training_keys))
    return {
        "sides": Expected(np.tile(counts.mean(0), (4, 1))),
        "objects": Expected(counts, lambda key: PushObject(key).name in names or _weights(key) not in together),
    }


def _weights(key: str) -> str:
    return "".join(sorted(key[1::2].lower())).replace("a", "")


def allowed_sides(drawn: Int[np.ndarray, "n pixels"], keys: Sequence[str]) -> Bool[np.ndarray, "n 4 sides"]:
    """Which sides every object may have, in each of its four directions, of which these pixels of its picture are seen."""
    x, y = PLACES.double().numpy().T
    facing = (np.round(np.arctan2(y, x) / (np.pi / 2)).astype(int) % 4)[drawn]
    seen = np.stack([picture_of(key)[pixels] for key, pixels in zip(keys, drawn, strict=True)])
    allowed = np.ones((len(drawn), 4, len(SIDES)), dtype=bool)
    for number, side in enumerate(SIDES):
        # what a picture shows in a direction is of the side there alone
        rows, pixels = np.nonzero(picture_of(4 * side)[drawn] != seen)
        allowed[rows, facing[rows, pixels], number] = False
    return allowed


def draw_alike(
    allowed: Bool[np.ndarray, "4 sides"],
    expected: Expected,
    push: Float[np.ndarray, " 3"],
    rng: np.random.Generator,
    num: int = 2,
) -> list[str]:
    """Keys of so many objects of allowed sides, drawn as they are expected, that leave the tip room where it starts.

    Where all of these are ruled out, none is.
    """
    choices = [[(SIDES[n], expected.shares[turn, n]) for n in np.flatnonzero(allowed[turn])] for turn in range(4)]
    found = {"".join(side for side, _ in each): float(np.prod([share for _, share in each])) for each in product(*choices)}
    found = {key: share for key, share in found.items() if not expected.ruled_out(key)} or found
    drawn: list[str] = []
    while len(drawn) < num:
        require(len(found) > 0, f"no object of these pixels leaves room for a tip that starts at {push[:2]}; simulate again")
        keys, shares = list(found), np.array(list(found.values()))
        key = keys[rng.choice(len(keys), p=shares / shares.sum())]
        if starts_free(PushObject(key), push[None])[0]:
            drawn.append(key)
        else:
            del found[key]
    return drawn


def left_open(
    data: Path, quick: bool = False, seed: int = 0, progress: Callable[[int, int], None] = lambda *_: None
) -> tuple[dict[str, Any], dict[str, Alike]]:
    """The errors of the observers on the test objects of a file; and the objects that each of them took for possible."""
    started = time.perf_counter()
    training, test = (TASK.load(data, subset) for subset in ("train", "test"))
    require(test.exact is not None, f"{data} has real pushes; what objects that look the same would do only a simulator knows")
    assert test.exact is not None
    members = [rows[: QUICK_EACH if quick else PUSHES_EACH] for rows in test.members.values()]
    tried, owner = torch.cat(members), np.repeat(np.arange(len(members)), [len(rows) for rows in members])
    pixels = test.drawn("pixels", tried, None).numpy()
    pushes, exact, keys = test.pushes[tried], test.exact[tried], [test.keys[row] for row in test.objects[tried]]
    allowed, rng = allowed_sides(pixels, keys), np.random.default_rng(seed)
    pairs = {
        name: [draw_alike(sides, expected, push, rng) for sides, push in zip(allowed, pushes, strict=True)]
        for name, expected in expectations(training.keys).items()
    }
    asked = [[pair[which] for pair in found] for found in pairs.values() for which in (0, 1)]
    motions = iter(_motions(keys, asked, pushes, exact, progress))
    found = {
        name: Alike(
            keys,
            pushes,
            exact,
            PLACES.numpy()[pixels],
            ([a for a, _ in pair], [b for _, b in pair]),
            (next(motions), next(motions)),
        )
        for name, pair in pairs.items()
    }
    possible = allowed.sum(-1).prod(-1)
    return {
        "experiment": PUSHING_PIXELS,
        "data": data.name,
        "contents": TASK.describe(test),
        "pushes": len(tried),
        "pixels": NUM_PIXELS,
        "seed": seed,
        "quick": quick,
        "observers": {name: _told(alike, owner) for name, alike in found.items()},
        "possible": float(np.median(possible)),
        "certain": float((possible == 1).mean()),
        "cores": os.cpu_count(),
        "seconds": round(time.perf_counter() - started, 1),
    }, found


def _told(alike: Alike, owner: Int[np.ndarray, " n"]) -> dict[str, Any]:
    """Means over the objects, with the interval over them."""
    counts = np.bincount(owner)
    errors, variances = (np.bincount(owner, values) / counts for values in (alike.errors, alike.variances))
    low, high = interval(errors)
    return {
        "error": float(errors.mean()),
        "low": low,
        "high": high,
        "variance": float(variances.mean()),
        "of_object": errors.tolist(),
    }


def _motions(
    keys: Sequence[str],
    asked: Sequence[Sequence[str]],
    pushes: Float[np.ndarray, "n 3"],
    exact: Float[np.ndarray, "n 3"],
    progress: Callable[[int, int], None],
) -> list[Float[np.ndarray, "n 3"]]:
    """How other objects move, for each of several lists of them; where it is the same object, as is known."""
    rows: dict[str, dict[int, None]] = {}
    for others in asked:
        for row, (key, other) in enumerate(zip(keys, others, strict=True)):
            if key != other:
                rows.setdefault(other, {})[row] = None
    jobs = [(other, pushes[list(of_other)]) for other, of_other in rows.items()]
    known = {(key, row): exact[row] for row, key in enumerate(keys)}
    for number, moved in enumerate(on_all_cores(motions_of, jobs) if jobs else ()):
        other = jobs[number][0]
        known |= {(other, row): motion for row, motion in zip(rows[other], moved, strict=True)}
        progress(number + 1, len(jobs))
    return [np.stack([known[other, row] for row, other in enumerate(others)]) for others in asked]


def table_of(summary: Mapping[str, Any]) -> str:
    """What was found, in Markdown."""
    rows = []
    for name, told in summary["observers"].items():
        spread = f"{told['low']:.4f} to {told['high']:.4f}"
        rows.append([OBSERVERS[name], f"{told['error']:.4f} ({spread})", f"{told['variance']:.4f}"])
    intro = (
        f"{'Quick form, few pushes. ' if summary['quick'] else ''}What {summary['pixels']} pixels leave open of "
        f"{summary['contents']['houses']} unseen objects: {summary['pushes']:,} pushes (simulated), from `{summary['data']}`; "
        f"seed {summary['seed']}, {summary['seconds']:.0f} s on {summary['cores']} cores. The pixels allow "
        f"{summary['possible']:.0f} objects in the median, in {summary['certain']:.0%} of the pushes one alone. Errors are mean "
        "squared errors of an observer that knows how objects look and move, in squared deviations, in brackets the 95 % "
        "bootstrap interval over objects; beside them what it expects its error to be."
    )
    heads = ["an observer that besides", "error", "expected by itself"]
    return "\n\n".join([f"# {PUSHING_PIXELS}", intro, markdown(heads, rows)]) + "\n"


def draw(found: Alike, num: int = 4) -> Figure | None:
    """Objects above and others with the same pixels below that move most differently; None if all move alike."""
    from matplotlib.figure import Figure

    other_keys, other_motions = found.other_keys[0], found.other_motions[0]
    apart = np.square((other_motions - found.motions) / MOTION_SCALE).mean(1)
    worst: dict[str, int] = {}
    for row in map(int, apart.argsort()[::-1]):
        if apart[row] > 0:
            worst.setdefault(found.keys[row], row)
    chosen = list(worst.values())[:num]
    if not chosen:
        return None
    figure = Figure(figsize=(3.3 * len(chosen), 7.2), layout="constrained")
    figure.suptitle("Objects with the same 64 pixels that the same push moves differently (simulated)", fontsize=10)
    panels = figure.subplots(2, len(chosen), squeeze=False)
    for column, row in enumerate(chosen):
        shown = (found.keys[row], found.motions[row], TRUE), (other_keys[row], other_motions[row], PREDICTED)
        for axes, (key, motion, colour) in zip(panels[:, column], shown, strict=True):
            draw_picture(axes, picture_of(key))
            axes.scatter(*(1e3 * found.pixels[row].T), s=7, color="black")
            draw_push(axes, found.pushes[row])
            draw_motion(axes, picture_of(key), motion, colour, key, False)
            axes.set_title(f"{key}: {np.degrees(motion[2]):.0f} degrees", fontsize=9)
    return figure
