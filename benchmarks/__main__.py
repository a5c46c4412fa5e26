"""Run all benchmarks or the named ones, print their ratios, record them in benchmarks/results/ and draw them in docs/figures/."""

import argparse
import json
import os
import platform
import time
from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path

import torch

from graphelements.checkpoints import load_checkpoint
from graphelements.errors import InputError

RESULTS = Path(__file__).parent / "results"
FIGURES = Path(__file__).parent.parent / "docs" / "figures"
NAMES = ("mesh_batches", "message_passing", "solvers", "growth", "training_speed")
QUIET = 0.5  # the load up to which nothing else is running
DRAWN = {"solvers": "bench_solvers", "growth": "bench_growth", "training_speed": "bench_training"}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"{', '.join(NAMES)}; all if none is given")
    parser.add_argument("--checkpoint", help="the network of `solvers`: a model's name or file [the shipped ones]")
    parser.add_argument("--seconds", type=float, default=240.0, help="how long each network of `training_speed` learns")
    arguments = parser.parse_args()
    for name in arguments.names:
        if name not in NAMES:
            parser.error(f"benchmarks are {', '.join(NAMES)}; got {name}")
    if arguments.checkpoint:
        try:
            load_checkpoint(arguments.checkpoint)
        except InputError as error:
            parser.error(str(error))
    settings = {"solvers": {"checkpoint": arguments.checkpoint}, "training_speed": {"seconds": arguments.seconds}}
    for name in arguments.names or NAMES:
        cores = os.cpu_count() or 1
        threads = {cores} if name == "training_speed" else {1, cores}
        module = import_module(f".{name}", __package__)
        record(name, partial(module.measure, **settings.get(name, {})), sorted(threads))
        if name in DRAWN:
            results = json.loads((RESULTS / f"{name}.json").read_text())["results"]
            module.draw(results).savefig(FIGURES / f"{DRAWN[name]}.png", dpi=100, metadata={"Software": None})


def record(name: str, measure: Callable[[], dict[str, object]], threads: list[int]) -> None:
    """Measure with every number of threads, print what came out but for the single points, and save all of it."""
    load = _quiet_load()
    if load > QUIET:
        print(f"warning: the load is {load:.1f}; something else is running, ratios will be off")
    results = []
    for number in threads:
        torch.set_num_threads(number)
        results.append({"threads": number} | measure())
        print(name, json.dumps(_without_lists(results[-1])), flush=True)
    machine = {
        "cores": os.cpu_count(),
        "machine": platform.machine(),
        "vectors": torch.backends.cpu.get_cpu_capability(),
        "torch": torch.__version__,
        "load_before": load,
    }
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{name}.json").write_text(json.dumps({"machine": machine, "results": results}, indent=1) + "\n")


def _quiet_load() -> float:
    """The load of the last minute, once what ran before no longer counts in it, or after two minutes."""
    waited = 0
    while os.getloadavg()[0] > QUIET and waited < 120:
        time.sleep(5)
        waited += 5
    return os.getloadavg()[0]


def _without_lists(value: object) -> object:
    if isinstance(value, dict):
        return {key: _without_lists(of_key) for key, of_key in value.items() if not isinstance(of_key, list)}
    return value


if __name__ == "__main__":
    main()
