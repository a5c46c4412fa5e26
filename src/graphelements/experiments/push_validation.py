"""The simulator against real pushes: the final poses of a block in logs of a robot, nothing fitted to a push."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..data.push_logs import FINGER, PushLog, read_logs
from ..data.quasi_static import EllipsoidFriction, PatchFriction, pushed
from .push_experiments import PUSHING_LOGS
from .summaries import markdown

if TYPE_CHECKING:
    from matplotlib.figure import Figure

METHODS = {
    "simulator": "simulator, true integral",
    "ellipsoid": "simulator, ellipsoidal limit surface",
    "still": "no motion",
    "mean": "mean motion of the other pushes",
}
Answers = Mapping[str, dict[str, np.ndarray]]


def answers_of(logs: list[PushLog]) -> Iterator[tuple[str, dict[str, np.ndarray]]]:
    """What every method says of every log, by their names."""
    for log in logs:
        others = (log.motions.sum(0) - log.motions) / (len(log.motions) - 1)
        found = {"still": np.zeros_like(log.motions), "mean": others}
        for name, kind in (("simulator", PatchFriction), ("ellipsoid", EllipsoidFriction)):
            found[name] = pushed(kind(log.support), log.outline, FINGER, log.starts, log.angles)
        yield log.name, found


def validated(folder: Path, progress: Callable[[str], None] = lambda _: None) -> tuple[dict[str, Any], list[PushLog], Answers]:
    """Mean errors in mm and degrees of every log and method, the logs, and the answers."""
    logs, answers = read_logs(folder), {}
    for name, found in answers_of(logs):
        progress(name)
        answers[name] = found
    rows = []
    for log in logs:
        for method in METHODS:
            off = answers[log.name][method] - log.motions
            apart, turned = 1e3 * np.hypot(*off[:, :2].T), np.degrees(np.abs(off[:, 2]))
            turn = float(turned.mean())
            errors = {"mm": float(apart.mean()), "degrees": turn, "rad": math.radians(turn), "mm_of_push": apart.tolist()}
            rows.append({"log": log.name, "pushes": len(log.motions), "method": method} | errors)
    constants = {"travel_m": FINGER.travel, "grip": FINGER.grip, "tip_radius_m": FINGER.radius, "steps": FINGER.num_steps}
    return {"experiment": PUSHING_LOGS, "folder": folder.name, "constants": constants, "rows": rows}, logs, answers


def table_of(summary: Mapping[str, Any]) -> str:
    """The errors in Markdown: a row a log and a column a method."""
    rows = summary["rows"]
    names = list(dict.fromkeys(row["log"] for row in rows))
    found = {(row["log"], row["method"]): row for row in rows}
    lines = []
    for name in names:
        cells = [f"{found[name, m]['mm']:.2f} mm, {found[name, m]['degrees']:.2f}°" for m in METHODS]
        lines.append([name, str(found[name, "still"]["pushes"]), *cells])
    means = [[float(np.mean([found[name, m][unit] for name in names])) for unit in ("mm", "degrees")] for m in METHODS]
    num = str(sum(found[name, "still"]["pushes"] for name in names))
    lines.append(["mean over logs", num, *(f"{a:.2f} mm, {b:.2f}° ({math.radians(b):.4f} rad)" for a, b in means)])
    told = summary["constants"]
    intro = (
        f"Mean error of the final pose (of the centre of mass, and of the angle) on real pushes, from `{summary['folder']}`. "
        f"The same constants for all: travel {1e3 * told['travel_m']:.1f} mm, friction at the contact {told['grip']}."
    )
    return "\n\n".join([f"# {PUSHING_LOGS}", intro, markdown(["log", "pushes", *METHODS.values()], lines)]) + "\n"


def draw(logs: list[PushLog], answers: Answers) -> Figure:
    """Simulated against measured displacements and turns, a colour a log."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 4.8), layout="constrained")
    left, right = figure.subplots(1, 2)
    for log in logs:
        told = answers[log.name]["simulator"]
        far = [1e3 * np.hypot(*each[:, :2].T) for each in (log.motions, told)]
        turned = [np.degrees(each[:, 2]) for each in (log.motions, told)]
        left.scatter(*far, s=10, alpha=0.7, label=log.name.split("_exp")[0])
        right.scatter(*turned, s=10, alpha=0.7)
    for axes, name in ((left, "displacement / mm"), (right, "turn / degrees")):
        low, high = axes.get_xlim()
        axes.plot([low, high], [low, high], color="#777777", linewidth=0.8)
        axes.set(xlabel=f"measured {name}", ylabel=f"simulated {name}")
        axes.spines[["top", "right"]].set_visible(False)
    left.legend(fontsize=7, title="support", title_fontsize=8)
    return figure
