"""Run every benchmark, print ratios and record them in benchmarks/results/."""

import json
import os
import platform
from pathlib import Path

import torch

from . import mesh_batches, message_passing

RESULTS = Path(__file__).parent / "results"


def main() -> None:
    RESULTS.mkdir(exist_ok=True)
    machine = {"cores": os.cpu_count(), "machine": platform.machine(), "torch": torch.__version__}
    load = os.getloadavg()[0]
    if load > 0.5:
        print(f"warning: the load is {load:.1f}; something else is running, ratios will be off")
    for benchmark in (mesh_batches, message_passing):
        name = benchmark.__name__.rpartition(".")[2]
        results = []
        for threads in sorted({1, os.cpu_count() or 1}):
            torch.set_num_threads(threads)
            results.append({"threads": threads} | benchmark.measure())
            print(name, json.dumps(results[-1]))
        recorded = {"machine": machine | {"load_before": load}, "results": results}
        (RESULTS / f"{name}.json").write_text(json.dumps(recorded, indent=1) + "\n")


if __name__ == "__main__":
    main()
