"""The figures of the experiment on pushes. All motions in them are simulated."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from ..checkpoints import SHIPPED, load_checkpoint
from ..data.push_files import motions_of, random_pushes, simulate
from ..data.push_objects import CLASSES, PushObject
from ..data.pushes import picture_of
from ..tasks import get_task
from ..tasks.push_motions import COLOURS, PREDICTED, TRUE, draw_motion, draw_picture, draw_push, predict_motion, sampled
from .curve_figures import FAINT, draw_line, finish, label_ends, new_figure
from .push_experiments import OBSERVERS, SIZES
from .summaries import Summary

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SHOWN = "1a2B3c4a"
OBJECTS = ("2a2a2a2a", "1a1a3c3a", "4a2C4a2a", SHOWN)
SHIPPED_NAME, SHIPPED_SIZE = "pushing", 4
UNSEEN = ("1a1a2B2B", "1a1a4a3c", "1a3a3a2C", "2c4a4a4a")  # of the test objects of Omnipush


def draw_errors(summary: Summary) -> Figure:
    """Error against the nodes along a side, and the time that a push takes."""
    figure, (left, right) = new_figure(2, (11.5, 4.6), summary, gridspec_kw={"width_ratios": (1.25, 1)})
    own = [line for line in summary["lines"] if not line["also"]]
    labels = [draw_line(left, line, SIZES) for line in own]
    between = [OBSERVERS["weights"], OBSERVERS["directions"]]  # hardly apart from the first
    for label, errors in summary["references"].items():
        if label in between:
            continue
        value = errors["0"]["mean"]
        left.axhline(value, color=FAINT, linewidth=0.9, linestyle="-" if label == "no motion" else (0, (4, 2)))
        labels.append((value, label, FAINT))
    finish(left, SIZES, "mean squared error, in squared deviations")
    label_ends(left, labels)
    meshed = [line for line in own if str(SIZES[-1]) in line["errors"]]
    times = [draw_line(right, line, SIZES, "seconds_per_scenario") for line in meshed]
    finish(right, SIZES, "milliseconds a push")
    label_ends(right, times)
    return figure


def draw_view(summary: Summary) -> Figure:
    """The paper's picture: the object from above, and the 64 pixels and the push that the network is given."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.5, 4.8), layout="constrained")
    left, right = figure.subplots(1, 2)
    picture = picture_of(SHOWN)
    push = random_pushes(PushObject(SHOWN), 1, np.random.default_rng(2))[0]
    draw_picture(left, picture)
    left.set_title(f"the object {SHOWN} from above (simulated)", fontsize=10)
    points, classes = sampled(picture)
    draw_picture(right, np.zeros_like(picture))
    for number, (name, colour) in enumerate(zip(CLASSES, COLOURS, strict=True)):
        chosen = 1e3 * points[classes == number]
        right.scatter(*chosen.T, s=45, color=colour, edgecolor=FAINT, linewidth=0.5, label=name, marker="s")
    draw_push(right, push)
    right.legend(loc="lower right", fontsize=8)
    right.set_title("what the network is given: 64 pixels and the push", fontsize=10)
    return figure


def draw_pushes(summary: Summary) -> Figure:
    """A few objects and what pushes do to them in the simulator."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(13, 6.8), layout="constrained")
    figure.suptitle("Simulated pushes of 5 cm; the outline where each leaves the object", fontsize=10)
    axes = figure.subplots(2, len(OBJECTS))
    for column, key in enumerate(OBJECTS):
        made, picture = PushObject(key), picture_of(key)
        push = random_pushes(made, 40, np.random.default_rng(column))
        motions = motions_of(key, push)
        turns, far = np.abs(motions[:, 2]), np.flatnonzero(np.hypot(*motions[:, :2].T) > 0.015)
        for row, chosen in enumerate((far[turns[far].argmin()], turns.argmax())):
            here = axes[row, column]
            draw_picture(here, picture)
            draw_push(here, push[chosen])
            draw_motion(here, picture, motions[chosen], TRUE, "after", False)
            x, y = 1e3 * made.support().centre
            here.plot(x, y, "x", color="black", markersize=6)
            here.set_title(f"{key}: {round(np.degrees(motions[chosen, 2]))} degrees", fontsize=9)
    return figure


def draw_motions(summary: Summary) -> Figure | None:
    """True and predicted motions of an object, by the shipped model."""
    from matplotlib.figure import Figure

    if not (SHIPPED / f"{SHIPPED_NAME}.safetensors").exists():
        return None
    loaded = load_checkpoint(SHIPPED_NAME)
    mesh = get_task("pushing").mesh(loaded.mesh, SHIPPED_SIZE)
    figure = Figure(figsize=(13, 6.8), layout="constrained")
    figure.suptitle(
        f"Simulated and predicted motions of unseen objects: the shipped model, {SHIPPED_SIZE}x{SHIPPED_SIZE} nodes", fontsize=10
    )
    for number, axes in enumerate(figure.subplots(2, 4).flat):
        key = UNSEEN[number % len(UNSEEN)]
        pushes, exact, _ = simulate(key, (7, number), 12)
        chosen = int(np.hypot(*exact[:, :2].T).argsort()[len(exact) // 2])
        picture = picture_of(key)
        guess = predict_motion(loaded.network, picture, pushes[chosen : chosen + 1], mesh)[0]
        draw_picture(axes, picture)
        draw_push(axes, pushes[chosen])
        draw_motion(axes, picture, exact[chosen], TRUE, "simulated", False)
        draw_motion(axes, picture, guess, PREDICTED, "predicted", True)
        apart = 1e3 * np.hypot(*(guess - exact[chosen])[:2])
        turned = np.degrees(abs(guess[2] - exact[chosen, 2]))
        axes.set_title(f"{key}: off by {apart:.1f} mm, {turned:.1f} degrees", fontsize=9)
        if number == 0:
            axes.legend(loc="upper right", fontsize=8)
    return figure


FIGURES: dict[str, dict[str, Callable[[Summary], Figure | None]]] = {
    "pushing": {
        "errors.png": draw_errors,
        "view.png": draw_view,
        "pushes.png": draw_pushes,
        "motions.png": draw_motions,
    },
}
