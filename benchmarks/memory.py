"""Time and memory of one call: how far it pushes the peak of resident memory above what was there before."""

import ctypes
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path


def peak_increase(run: Callable[[], object]) -> tuple[float, float]:
    """Seconds of a call and the megabytes by which resident memory rose at most; meant for a process of its own."""
    before = _forget_peak()
    started = time.perf_counter()
    run()
    return time.perf_counter() - started, _peak() - before


def _forget_peak() -> float:
    """Megabytes that are resident now; Linux then counts the peak anew, elsewhere it is the highest so far."""
    if sys.platform == "linux":
        ctypes.CDLL(None).malloc_trim(0)  # else freed memory is used again and not counted
        Path("/proc/self/clear_refs").write_text("5")
    return _peak()


def _peak() -> float:
    if sys.platform == "linux":
        # not getrusage, which remembers the memory of the process that started this one
        return int(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0]) / 2**10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (2**20 if sys.platform == "darwin" else 2**10)
