"""Paired comparisons of saved evaluations."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from ..errors import InputError, require
from ..files import read_json

LEARNED = ("gen", "np", "attention")
DRAWS = 10_000


@dataclass(frozen=True)
class Comparison:
    """Mean errors of two methods at one resolution, their deviations over seeds, the paired difference and ratio, intervals,
    and the share of items in which ours errs less."""

    resolution: int | str
    ours: float
    ours_spread: float
    theirs: float
    theirs_spread: float
    difference: float
    low: float
    high: float
    ratio: float
    ratio_low: float
    ratio_high: float
    less: float


def compared(ours: Sequence[Path], theirs: Sequence[Path], reference: str | None = None) -> list[Comparison]:
    """The learned methods of two sets of evaluations (one file per seed), at every resolution of the first.

    With a `reference`, such as "fem", theirs is that reference in their files.
    """
    (first, houses), (second, others_houses) = _errors(ours), _errors(theirs, reference)
    require(houses == others_houses, "only evaluations on the same houses can be compared; evaluate both on the same data")
    single = next((errors for key, errors in second.items() if isinstance(key, str)), None)
    rows = []
    for resolution, errors in first.items():
        others = second.get(resolution, single)
        if others is None:
            continue
        rows.append(paired(resolution, errors, others))
    require(len(rows) > 0, "the evaluations have no resolution in common; evaluate both at the same ones")
    return rows


def compared_with(known: Sequence[float], theirs: Sequence[Path]) -> list[Comparison]:
    """Errors that are known of the same items in the same order, against the learned methods of evaluations."""
    found, _ = _errors(theirs)
    num = next(iter(found.values())).shape[1]
    require(num == len(known), f"{theirs[0]} has errors of {num} items; got {len(known)} to compare, of other data")
    return [paired(resolution, np.array([known]), errors) for resolution, errors in found.items()]


def compared_with_own(paths: Sequence[Path], resolution: int) -> list[Comparison]:
    """The errors of a learned method on finer meshes than that of a resolution, against its own there."""
    found, _ = _errors(paths)
    finer = [key for key in found if isinstance(key, int) and key > resolution and resolution in found]
    return [paired(key, found[key], found[resolution]) for key in finer]


def paired(
    resolution: int | str, ours: Float[np.ndarray, "seeds items"], theirs: Float[np.ndarray, "others items"]
) -> Comparison:
    """The comparison of errors on the same items, with 95 % bootstrap intervals over these."""
    first, second = ours.mean(0), theirs.mean(0)
    means, other_means = _drawn(first), _drawn(second)
    endless = (math.inf, math.inf, math.inf)  # in units of no error
    ratios = (float(first.mean() / second.mean()), *_middle(means / other_means)) if other_means.min() > 0 else endless
    spreads = [float(errors.mean(1).std(ddof=1)) if len(errors) > 1 else float("nan") for errors in (ours, theirs)]
    return Comparison(
        resolution,
        float(first.mean()),
        spreads[0],
        float(second.mean()),
        spreads[1],
        float(first.mean() - second.mean()),
        *_middle(means - other_means),
        *ratios,
        float((first < second).mean()),
    )


def interval(values: Float[np.ndarray, " items"]) -> tuple[float, float]:
    """The 95 % bootstrap interval of a mean, drawn over items."""
    return _middle(_drawn(values))


def _drawn(values: Float[np.ndarray, " items"]) -> Float[np.ndarray, " draws"]:
    """Means over items drawn again and again, the same for all values of so many items."""
    return values[np.random.default_rng(0).integers(len(values), size=(DRAWS, len(values)))].mean(1)


def _middle(means: Float[np.ndarray, " draws"]) -> tuple[float, float]:
    return float(np.quantile(means, 0.025)), float(np.quantile(means, 0.975))


def learned(score: Mapping[str, Any]) -> int | str | None:
    """What a score of a learned method is known by: its resolution, or "mesh" for one of the user's own, or its method.

    None for a reference; the method where that knows no mesh.
    """
    if score["method"] not in LEARNED:
        return None
    return (int(score["resolution"]) or "mesh") if score["method"] == "gen" else str(score["method"])


def _errors(paths: Sequence[Path], reference: str | None = None) -> tuple[dict[int | str, np.ndarray], dict]:
    """Resolution (or "np") -> errors (seeds, houses) of a method in these files; and what they were scored on."""
    found: dict[int | str, list[list[float]]] = {}
    houses = []
    for path in paths:
        saved = read_json(path, "an evaluation saved by `graphelements evaluate`")
        try:
            houses.append(dict(saved["contents"]))
            for score in saved["results"]:
                key = learned(score) if reference is None else None
                if score["method"] == reference:
                    key = int(score["resolution"]) or reference
                if key is not None:
                    found.setdefault(key, []).append([float(error) for error in score["mse_of_item"]])
        except (KeyError, TypeError, ValueError):
            raise InputError(f"{path} is not an evaluation saved by `graphelements evaluate`; run it again") from None
    require(len(found) > 0, f"{paths[0]} has no {reference or 'learned method'}; evaluate a checkpoint")
    require(all(h == houses[0] for h in houses), "evaluations of one method must be on the same houses; evaluate them again")
    require(
        len({(len(seeds), *map(len, seeds)) for seeds in found.values()}) == 1,
        "evaluations of one method must have the same resolutions",
    )
    return {key: np.array(seeds) for key, seeds in found.items()}, houses[0]
