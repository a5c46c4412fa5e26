"""Side-by-side timing: the candidates take turns, so that drifts of the machine hit all of them alike."""

import statistics
import time
from collections.abc import Callable


def medians(candidates: dict[str, Callable[[], object]], repeats: int = 15) -> dict[str, float]:
    """The median milliseconds of every candidate, after two warm-up calls each."""
    times: dict[str, list[float]] = {name: [] for name in candidates}
    for turn in range(repeats + 2):
        for name, run in candidates.items():
            started = time.perf_counter()
            run()
            if turn >= 2:
                times[name].append(1e3 * (time.perf_counter() - started))
    return {name: round(statistics.median(values), 3) for name, values in times.items()}
