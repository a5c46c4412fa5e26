"""What the pixels leave open: how differently objects move that look the same at the 64 pixels a network is given.

The least mean squared error that anything can have which knows the pixels and the push is the mean variance of the motion over
the objects that it may be. That is half the mean squared difference between the motion of the object itself and that of another
one, drawn from those with the same pixels. The four sides of an object are drawn apart, each as often as in the training objects.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int

from ..data.push_files import motions_of, on_all_cores, starts_free
from ..data.push_objects import SIDES, PushObject
from ..data.pushes import MOTION_SCALE, NUM_PIXELS, picture_of, sft_given
from ..errors import require
from ..tasks.push_motions import PREDICTED, TRUE, draw_motion, draw_picture, draw_push
from ..tasks.pushing import TASK
from .comparison import interval
from .push_experiments import PUSHING_PIXELS
from .summaries import markdown

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PUSHES_EACH, QUICK_EACH = 100, 4


@dataclass(frozen=True, eq=False)
class Alike:
    """Pushes, for each the 64 pixels that a network is given, and the key and the motion of an object with the same pixels."""

    keys: Sequence[str]
    pushes: Float[np.ndarray, "n 3"]
    motions: Float[np.ndarray, "n 3"]
    pixels: Float[np.ndarray, "n pixels 2"]
    other_keys: Sequence[str]
    other_motions: Float[np.ndarray, "n 3"]

    @property
    def differences(self) -> Float[np.ndarray, " n"]:
        """Squared, in squared deviations, the mean over the three parts of a motion."""
        return np.square((self.other_motions - self.motions) / MOTION_SCALE).mean(1)


def allowed_sides(points: Float[np.ndarray, "n pixels 2"], seen: Int[np.ndarray, "n pixels"]) -> Bool[np.ndarray, "n 4 sides"]:
    """Which sides each object may have, in each of its four directions, that is seen like this at these points."""
    facing = np.round(np.arctan2(points[..., 1], points[..., 0]) / (np.pi / 2)).astype(int) % 4
    allowed = np.ones((len(points), 4, len(SIDES)), dtype=bool)
    for number, side in enumerate(SIDES):
        # what a picture shows in a direction is of the side there alone
        looks = PushObject(4 * side).classes(points.reshape(-1, 2)).reshape(seen.shape)
        rows, pixels = np.nonzero(looks != seen)
        allowed[rows, facing[rows, pixels], number] = False
    return allowed


def draw_alike(
    allowed: Bool[np.ndarray, "n 4 sides"], shares: Float[np.ndarray, " sides"], pushes: Float[np.ndarray, "n 3"], seed: int
) -> list[str]:
    """For each push the key of an object of allowed sides that leaves the tip room where it starts."""
    rng, keys, left = np.random.default_rng(seed), [""] * len(pushes), list(range(len(pushes)))
    while left:
        chances = (allowed[left] * shares).cumsum(-1)
        chosen = (rng.random((len(left), 4, 1)) * chances[..., -1:] >= chances).sum(-1)
        for row, sides in zip(left, chosen, strict=True):
            keys[row] = "".join(SIDES[side] for side in sides)
        left = [row for row in left if not starts_free(keys[row], pushes[row : row + 1])[0]]
    return keys


def left_open(
    data: Path, quick: bool = False, seed: int = 0, progress: Callable[[int, int], None] = lambda *_: None
) -> tuple[dict[str, Any], Alike]:
    """The least error on the test objects of a file; and the objects that were taken for them."""
    started = time.perf_counter()
    training, test = (TASK.load(data, subset).giving(sft_given(("pixels",))) for subset in ("train", "test"))
    require(test.exact is not None, f"{data} has real pushes; what objects that look the same would do only a simulator knows")
    assert test.exact is not None
    members = [rows[: QUICK_EACH if quick else PUSHES_EACH] for rows in test.members.values()]
    tried = torch.cat(members)
    pixels = test.batch(tried).inputs["pixels"]
    points = pixels.points.double().numpy().reshape(len(tried), -1, 2)
    allowed = allowed_sides(points, pixels.values.argmax(-1).numpy().reshape(len(tried), -1))
    shares = np.array([1.0 + sum(PushObject(key).sides.count(side) for key in training.keys) for side in SIDES])
    pushes, exact, keys = test.pushes[tried], test.exact[tried], [test.keys[row] for row in test.objects[tried]]
    others = draw_alike(allowed, shares, pushes, seed)
    found = Alike(keys, pushes, exact, points, others, _motions(keys, others, pushes, exact, progress))
    owner = np.repeat(np.arange(len(members)), [len(rows) for rows in members])
    of_object = np.array([found.differences[owner == number].mean() / 2 for number in range(len(members))])
    low, high = interval(of_object)
    possible = allowed.sum(-1).prod(-1)
    return {
        "experiment": PUSHING_PIXELS,
        "data": data.name,
        "contents": TASK.describe(test),
        "pushes": len(tried),
        "pixels": NUM_PIXELS,
        "seed": seed,
        "quick": quick,
        "error": float(of_object.mean()),
        "low": low,
        "high": high,
        "of_object": of_object.tolist(),
        "possible": float(np.median(possible)),
        "certain": float((possible == 1).mean()),
        "cores": os.cpu_count(),
        "seconds": round(time.perf_counter() - started, 1),
    }, found


def _motions(
    keys: Sequence[str],
    others: Sequence[str],
    pushes: Float[np.ndarray, "n 3"],
    exact: Float[np.ndarray, "n 3"],
    progress: Callable[[int, int], None],
) -> Float[np.ndarray, "n 3"]:
    """How the other objects move; where it is the same object, as is known."""
    rows: dict[str, list[int]] = {}
    for row, (key, other) in enumerate(zip(keys, others, strict=True)):
        if key != other:
            rows.setdefault(other, []).append(row)
    motions = exact.copy()
    jobs = [(other, pushes[of_other]) for other, of_other in rows.items()]
    for number, moved in enumerate(on_all_cores(motions_of, jobs) if jobs else ()):
        motions[rows[jobs[number][0]]] = moved
        progress(number + 1, len(jobs))
    return motions


def table_of(summary: Mapping[str, Any]) -> str:
    """What was found, in Markdown."""
    rows = [
        ["least mean squared error, in squared deviations", f"{summary['error']:.4f}"],
        ["95 % bootstrap interval over objects", f"{summary['low']:.4f} to {summary['high']:.4f}"],
        ["objects that the pixels allow, in the median", f"{summary['possible']:.0f}"],
        ["pushes with pixels of one object alone", f"{summary['certain']:.0%}"],
    ]
    intro = (
        f"What {summary['pixels']} pixels and the push leave open of {summary['contents']['houses']} unseen objects: "
        f"{summary['pushes']:,} pushes (simulated), from `{summary['data']}`; seed {summary['seed']}, "
        f"{summary['seconds']:.0f} s on {summary['cores']} cores."
    )
    return "\n\n".join([f"# {PUSHING_PIXELS}", intro, markdown(["", ""], rows)]) + "\n"


def draw(found: Alike, num: int = 4) -> Figure:
    """Objects above and others with the same pixels below that move most differently."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(3.3 * num, 7.2), layout="constrained")
    figure.suptitle("Objects with the same 64 pixels that the same push moves differently (simulated)", fontsize=10)
    panels = figure.subplots(2, num, squeeze=False)
    worst: dict[str, int] = {}
    for row in map(int, found.differences.argsort()[::-1]):
        worst.setdefault(found.keys[row], row)
    for column, row in enumerate(list(worst.values())[:num]):
        shown = (found.keys[row], found.motions[row], TRUE), (found.other_keys[row], found.other_motions[row], PREDICTED)
        for axes, (key, motion, colour) in zip(panels[:, column], shown, strict=True):
            draw_picture(axes, picture_of(key))
            axes.scatter(*(1e3 * found.pixels[row].T), s=7, color="black")
            draw_push(axes, found.pushes[row])
            draw_motion(axes, picture_of(key), motion, colour, key, False)
            axes.set_title(f"{key}: {np.degrees(motion[2]):.0f} degrees", fontsize=9)
    return figure
