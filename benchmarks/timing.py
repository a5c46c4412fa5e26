"""Side-by-side timing: the candidates take turns, so that drifts of the machine hit all of them alike."""

import statistics
import time
from collections.abc import Callable

Candidates = dict[str, Callable[[], object]]


def turns(candidates: Candidates, repeats: int) -> dict[str, list[float]]:
    """The milliseconds of every candidate in every turn, after two turns to warm up."""
    times: dict[str, list[float]] = {name: [] for name in candidates}
    for turn in range(repeats + 2):
        for name, run in candidates.items():
            started = time.perf_counter()
            run()
            if turn >= 2:
                times[name].append(1e3 * (time.perf_counter() - started))
    return times


def medians(candidates: Candidates, repeats: int = 15) -> dict[str, float]:
    """The median milliseconds of every candidate."""
    return {name: round(statistics.median(values), 3) for name, values in turns(candidates, repeats).items()}


def ratio(slower: list[float], faster: list[float]) -> dict[str, float | str]:
    """How many times less the second one takes, turn by turn: the median, and the quartiles around it."""
    low, middle, high = statistics.quantiles([a / b for a, b in zip(slower, faster, strict=True)], n=4)
    return {"median": round(middle, 2), "quartiles": f"{low:.2f} to {high:.2f}"}
