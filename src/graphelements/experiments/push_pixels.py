"""What the pixels leave open: how differently objects move that look the same at the 64 pixels a network is given.

An ideal observer knows how objects look and move, and which are to be expected. Of all objects with the pixels that it sees, and
with room for the tip where the push starts, it answers with the mean motion, each as likely as it was to be expected: no answer
has a smaller squared error, if objects come as often as it expects. All of these objects are simulated. (That tips start in the
way of some objects more often, by 6 % at most, and these a little less often with the tip where it is, is left out.)
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

PUSHES_EACH, QUICK_EACH = 100, 4
KNOWN = {
    "sides": "how often each side comes",
    "weights": "which weights come together",
    "directions": "how often each side comes in each direction of the picture",
    "objects": "all objects of training by heart, and that none of them comes again",
}
"""What observers know of the objects to come, each besides what those before it know."""


@dataclass(frozen=True, eq=False)
class Expected:
    """Which objects an observer expects: the share of every side in each of the four directions, and keys that it rules out."""

    shares: Float[np.ndarray, "4 sides"]
    ruled_out: Callable[[str], bool] = lambda key: False

    def prior(self, key: str) -> float:
        """How much an object is to be expected before anything is seen of it, up to a factor."""
        return float(np.prod([self.shares[turn, SIDES.index(side)] for turn, side in enumerate(PushObject(key).sides)]))


@dataclass(frozen=True, eq=False)
class Possible:
    """Pushes, and of each all objects that have the pixels seen and leave the tip room: pairs of a push and an object.

    `rows` says of every pair which push it is of, `others` which object; `moved` is what the push does to it.
    """

    keys: Sequence[str]
    pushes: Float[np.ndarray, "n 3"]
    motions: Float[np.ndarray, "n 3"]
    rows: Int[np.ndarray, " pairs"]
    others: Sequence[str]
    moved: Float[np.ndarray, "pairs 3"]

    def chances(self, expected: Expected) -> Float[np.ndarray, " pairs"]:
        """How likely each object is, given the pixels; where all of a push are ruled out, none is."""
        prior = np.array([expected.prior(key) for key in self.others])
        kept = prior * np.array([not expected.ruled_out(key) for key in self.others])
        likely = np.where(self._summed(kept)[self.rows] > 0, kept, prior)
        return likely / self._summed(likely)[self.rows]

    def observed(self, expected: Expected) -> tuple[Float[np.ndarray, " n"], Float[np.ndarray, " n"]]:
        """The squared error of an observer in every push, and the one it expects to make: the variance of what is possible.

        In squared deviations, the mean over the three parts of a motion.
        """
        chances, moved = self.chances(expected), self.moved / MOTION_SCALE
        answers = np.stack([self._summed(chances * part) for part in moved.T], -1)
        variances = self._summed(chances * np.square(moved - answers[self.rows]).mean(1))
        return np.square(self.motions / MOTION_SCALE - answers).mean(1), variances

    def _summed(self, values: Float[np.ndarray, " pairs"]) -> Float[np.ndarray, " n"]:
        return np.bincount(self.rows, values, len(self.keys))


def expectations(training_keys: Sequence[str]) -> dict[str, Expected]:
    """Those of the observers of `KNOWN`; one is added to every count, so that no side is impossible."""
    sides = [PushObject(key).sides for key in training_keys]
    counts = np.array([[1.0 + sum(each[turn] == side for each in sides) for side in SIDES] for turn in range(4)])
    names, together = {PushObject(key).name for key in training_keys}, set(map(_weights, training_keys))
    anywhere = np.tile(counts.mean(0), (4, 1))

    def unknown(key: str) -> bool:
        return _weights(key) not in together

    return {
        "sides": Expected(anywhere),
        "weights": Expected(anywhere, unknown),
        "directions": Expected(counts, unknown),
        "objects": Expected(counts, lambda key: unknown(key) or PushObject(key).name in names),
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


def possible_objects(
    allowed: Bool[np.ndarray, "n 4 sides"], pushes: Float[np.ndarray, "n 3"]
) -> dict[str, Int[np.ndarray, " pushes_of_it"]]:
    """Keys of all objects of allowed sides, each with the pushes for which it is one and leaves the tip room."""
    found: dict[str, list[int]] = {}
    for row, sides in enumerate(allowed):
        for each in product(*map(np.flatnonzero, sides)):
            found.setdefault("".join(SIDES[number] for number in each), []).append(row)
    free = {key: np.array(rows)[starts_free(PushObject(key), pushes[rows])] for key, rows in found.items()}
    return {key: rows for key, rows in free.items() if len(rows)}


def left_open(
    data: Path, quick: bool = False, progress: Callable[[int, int], None] = lambda *_: None
) -> tuple[dict[str, Any], Possible, Float[np.ndarray, "n pixels 2"]]:
    """The errors of the observers on the test objects of a file; the objects that are possible, and where pixels are seen."""
    started = time.perf_counter()
    training, test = (TASK.load(data, subset) for subset in ("train", "test"))
    require(test.exact is not None, f"{data} has real pushes; what objects that look the same would do only a simulator knows")
    assert test.exact is not None
    members = [rows[: QUICK_EACH if quick else PUSHES_EACH] for rows in test.members.values()]
    tried, owner = torch.cat(members), np.repeat(np.arange(len(members)), [len(rows) for rows in members])
    pixels = test.drawn("pixels", tried, None).numpy()
    pushes, exact, keys = test.pushes[tried], test.exact[tried], [test.keys[row] for row in test.objects[tried]]
    jobs = list(possible_objects(allowed_sides(pixels, keys), pushes).items())
    moved = []
    for done, motions in enumerate(on_all_cores(motions_of, [(key, pushes[rows]) for key, rows in jobs]), 1):
        moved.append(motions)
        progress(done, len(jobs))
    found = Possible(
        keys,
        pushes,
        exact,
        np.concatenate([rows for _, rows in jobs]),
        [key for key, rows in jobs for _ in rows],
        np.concatenate(moved),
    )
    counts = np.bincount(found.rows)
    return (
        {
            "experiment": PUSHING_PIXELS,
            "data": data.name,
            "contents": TASK.describe(test),
            "pushes": len(tried),
            "pixels": NUM_PIXELS,
            "quick": quick,
            "observers": {
                name: _told(*found.observed(expected), owner) for name, expected in expectations(training.keys).items()
            },
            "possible": float(np.median(counts)),
            "certain": float((counts == 1).mean()),
            "cores": os.cpu_count(),
            "seconds": round(time.perf_counter() - started, 1),
        },
        found,
        PLACES.numpy()[pixels],
    )


def _told(errors: Float[np.ndarray, " n"], variances: Float[np.ndarray, " n"], owner: Int[np.ndarray, " n"]) -> dict[str, Any]:
    """Means over the objects, with the interval over them."""
    of_object, expected = (np.bincount(owner, values) / np.bincount(owner) for values in (errors, variances))
    low, high = interval(of_object)
    return {
        "error": float(of_object.mean()),
        "low": low,
        "high": high,
        "variance": float(expected.mean()),
        "of_object": of_object.tolist(),
    }


def table_of(summary: Mapping[str, Any]) -> str:
    """What was found, in Markdown."""
    rows = []
    for name, told in summary["observers"].items():
        spread = f"{told['low']:.4f} to {told['high']:.4f}"
        rows.append([KNOWN[name], f"{told['error']:.4f} ({spread})", f"{told['variance']:.4f}"])
    intro = (
        f"{'Quick form, few pushes. ' if summary['quick'] else ''}What {summary['pixels']} pixels leave open of "
        f"{summary['contents']['houses']} unseen objects: {summary['pushes']:,} pushes (simulated), from `{summary['data']}`; "
        f"{summary['seconds']:.0f} s on {summary['cores']} cores. The pixels allow "
        f"{summary['possible']:.0f} objects in the median, in {summary['certain']:.0%} of the pushes one alone. Errors are mean "
        "squared errors of an observer that knows how objects look and move, in squared deviations, in brackets the 95 % "
        "bootstrap interval over objects; beside them what it expects its error to be."
    )
    heads = ["an observer that also knows", "error", "expected by itself"]
    return "\n\n".join([f"# {PUSHING_PIXELS}", intro, markdown(heads, rows)]) + "\n"


def draw(found: Possible, pixels: Float[np.ndarray, "n pixels 2"], num: int = 4) -> Figure | None:
    """Objects above and others with the same pixels below that move most differently; None if all move alike."""
    from matplotlib.figure import Figure

    apart = np.square((found.moved - found.motions[found.rows]) / MOTION_SCALE).mean(1)
    worst: dict[str, int] = {}
    for pair in apart.argsort()[::-1].tolist():
        if apart[pair] > 0:
            worst.setdefault(found.keys[int(found.rows[pair])], pair)
    chosen = list(worst.values())[:num]
    if not chosen:
        return None
    figure = Figure(figsize=(3.3 * len(chosen), 7.2), layout="constrained")
    figure.suptitle("Objects with the same 64 pixels that the same push moves differently (simulated)", fontsize=10)
    panels = figure.subplots(2, len(chosen), squeeze=False)
    for column, pair in enumerate(chosen):
        row = int(found.rows[pair])
        shown = (found.keys[row], found.motions[row], TRUE), (found.others[pair], found.moved[pair], PREDICTED)
        for axes, (key, motion, colour) in zip(panels[:, column], shown, strict=True):
            draw_picture(axes, picture_of(key))
            axes.scatter(*(1e3 * pixels[row].T), s=7, color="black")
            draw_push(axes, found.pushes[row])
            draw_motion(axes, picture_of(key), motion, colour, key, False)
            axes.set_title(f"{key}: {np.degrees(motion[2]):.0f} degrees", fontsize=9)
    return figure
