"""Paired comparisons of saved evaluations."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..errors import InputError, require

LEARNED = ("gen", "np")
DRAWS = 10_000


@dataclass(frozen=True)
class Comparison:
    """Mean errors of two methods at one resolution, their deviations over seeds, the paired difference and its interval."""

    resolution: int
    ours: float
    ours_spread: float
    theirs: float
    theirs_spread: float
    difference: float
    low: float
    high: float


def compared(ours: Sequence[Path], theirs: Sequence[Path]) -> list[Comparison]:
    """The learned methods of two sets of evaluations (one file per seed), at every resolution of the first."""
    first, second = _errors(ours), _errors(theirs)
    rows = []
    for resolution, errors in first.items():
        others = second.get(resolution, next(iter(second.values())) if len(second) == 1 else None)
        if others is None:
            continue
        require(
            errors.shape[1] == others.shape[1],
            "only evaluations on the same houses can be compared; evaluate both on the same data",
        )
        differences = errors.mean(0) - others.mean(0)
        low, high = interval(differences)
        spreads = [float(e.mean(1).std(ddof=1)) if len(e) > 1 else float("nan") for e in (errors, others)]
        rows.append(
            Comparison(
                resolution,
                float(errors.mean()),
                spreads[0],
                float(others.mean()),
                spreads[1],
                float(differences.mean()),
                low,
                high,
            )
        )
    require(len(rows) > 0, "the evaluations have no resolution in common; evaluate both at the same ones")
    return rows


def interval(differences: np.ndarray, seed: int = 0) -> tuple[float, float]:
    """The 95 % bootstrap interval of the mean of paired differences, drawn over items."""
    rng = np.random.default_rng(seed)
    means = rng.choice(differences, (DRAWS, len(differences))).mean(1)
    return float(np.quantile(means, 0.025)), float(np.quantile(means, 0.975))


def _errors(paths: Sequence[Path]) -> dict[int, np.ndarray]:
    """Resolution -> errors (seeds, houses) of the learned method in these files."""
    found: dict[int, list[list[float]]] = {}
    houses = set()
    for path in paths:
        try:
            saved = json.loads(path.read_text())
            houses.add((saved["data"], saved["houses"]))
            for score in saved["results"]:
                if score["method"] in LEARNED:
                    found.setdefault(int(score["resolution"]), []).append([float(error) for error in score["mse_of_item"]])
        except (OSError, ValueError, KeyError, TypeError):
            raise InputError(f"{path} is not an evaluation saved by `graphelements evaluate`; run it again") from None
    require(len(found) > 0, f"{paths[0]} has no learned method; evaluate a checkpoint")
    require(len(houses) == 1, f"evaluations of one method must be on the same houses; got {len(houses)} different sets")
    require(
        len({(len(seeds), *map(len, seeds)) for seeds in found.values()}) == 1,
        "evaluations of one method must have the same resolutions",
    )
    return {resolution: np.array(seeds) for resolution, seeds in sorted(found.items())}
