"""Real pushes of one block on known supports: the logs of Zhou, Paolini, Bagnell and Mason (ICRA 2016) as JSON, a file a support.

Each push has the pose of the block before and after; the finger is a point that starts short of the block and goes straight on.
"""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float

from ..errors import require
from .archives import named
from .quasi_static import Outline, Support, Tip, spread

FINGER = Tip(radius=0.0005, travel=0.0175, grip=0.42, num_steps=100)
"""A point that slides at 0.42: the mean lean of the measured forces in all pushes that slide. It is commanded to go 17.5 mm."""
FOOT = 0.002  # m, the side of a foot. Assumed
GRID = 30  # patches along the legs where the whole underside bears the load


@dataclass(frozen=True, eq=False)
class PushLog:
    """The pushes on one support, in the frame of the block before each; the origin is its centre of mass. Metres and radians."""

    name: str
    support: Support
    outline: Outline
    starts: Float[np.ndarray, "n 2"]
    angles: Float[np.ndarray, " n"]
    motions: Float[np.ndarray, "n 3"]


def read_logs(folder: Path) -> list[PushLog]:
    """All logs in a folder."""
    files = sorted(folder.glob("*.json.gz"))
    require(len(files) > 0, f"{folder} has no logs of pushes; expected files such as NAME.json.gz")
    return [read_log(file) for file in files]


def read_log(path: Path) -> PushLog:
    """One log."""
    with named(path, "not a log of pushes: expected gzipped JSON with object, support and pushes"):
        with gzip.open(path, "rt") as file:
            log = json.load(file)
        try:
            centre = np.array(log["object"]["com_mm"], dtype=float)
            outline = np.array(log["object"]["outline_mm"], dtype=float) - centre
            before = np.array([push["object_before"] for push in log["pushes"]], dtype=float)
            tips = np.array([push["tip_start"] for push in log["pushes"]], dtype=float)
            ahead = np.array([push["push_dir_world"] for push in log["pushes"]], dtype=float)
            motions = np.array([push["com_twist_obj"] for push in log["pushes"]], dtype=float)
            support = _support(log["support"], centre, outline)
            shapes = [array.shape[1:] for array in (before, tips, ahead, motions)]
        except (TypeError, IndexError) as error:
            raise ValueError(str(error)) from None
        fits = shapes == [(3,), (2,), (2,), (3,)] and all(np.isfinite(a).all() for a in (before, tips, ahead, motions))
        require(fits and len(motions) > 1, "a log has two pushes or more, all their numbers finite; got others")
        cos, sin = np.cos(before[:, 2]), np.sin(before[:, 2])
        (x, y), (u, v) = (tips - before[:, :2]).T, ahead.T
        starts = np.stack([cos * x + sin * y, cos * y - sin * x], -1) - centre
        angles = np.arctan2(cos * v - sin * u, cos * u + sin * v)
        in_metres = motions / [1e3, 1e3, 1.0]
        return PushLog(str(log["name"]), support, Outline(1e-3 * outline), 1e-3 * starts, angles, in_metres)


def _support(told: dict, centre: np.ndarray, outline: np.ndarray) -> Support:
    """Feet with the load that statics gives each, or the whole underside."""
    if told["kind"] == "three_points":
        places = np.array(told["points_mm"], dtype=float) - centre
        shares = np.array(told["weight_fraction"], dtype=float)
        return Support(1e-3 * places, shares / shares.sum(), np.full(len(places), FOOT))
    outline = 1e-3 * outline
    return spread(Outline(outline).contains, float(np.abs(outline).max()), float(np.ptp(outline, axis=0).max()) / GRID)
