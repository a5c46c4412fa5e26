"""A scenario of a new house, 256 queries, alone and in batches of 32: two networks on many meshes against classical solvers.

A network gets the 64 samples of a scenario, a solver the heaters; to make samples of heaters is timed as well, and ratios are
given without and with it. The meshes' graphs, sparse factors, inverses and eigenvalues are made before the clock starts, for the
square is the same in all houses; "from scratch" is the one that makes them. A batch has 32 scenarios of 32 different houses.
Errors are against the truth on 250 x 250 nodes.
"""

from __future__ import annotations

import copy
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import graphelements as ge
from graphelements.compilation import compiler_available
from graphelements.data.houses import UNIT_SQUARE, House, Houses
from graphelements.data.poisson import TRUTH_RESOLUTION, solved
from graphelements.data.random_houses import HouseDistribution, draw_houses
from graphelements.meshes import build_grid

from .classical import dense_inverse, factorised, finite_elements, sine_series, sine_transform
from .timing import medians

BATCH, NUM_HOUSES, SINGLES = 32, 128, 8
RESOLUTIONS = (2, 3, 4, 5, 6, 7, 10, 16, 32)
ENCODING, SCRATCH, CACHED = "samples of heaters", "P1 from scratch", "P1 by sparse factors"
NETWORKS = {"network": "poisson-square", "small network": "poisson-square-small"}
COMPILED, WHOLE = ", compiled", ", compiled as a whole"
CLASSICAL: dict[str, tuple[Callable, tuple[int, ...]]] = {
    "P1 by dense inverse": (dense_inverse, (3, 4, 5, 6, 7, 9, 12, 17, 25, 33)),
    CACHED: (factorised, (17, 33, 65, 129, TRUTH_RESOLUTION)),
    "P1 by sine transform": (sine_transform, (9, 17, 33, 65, 129, 257)),
}
SERIES, WAVES = "sine series", (2, 3, 4, 6, 8, 12, 16, 24, 32)
Method = tuple[str, int]  # name and size
Answer = Callable[[Sequence[House]], np.ndarray]


def measure(checkpoint: str | None = None, repeats: int = 7) -> dict[str, Any]:
    """The error and the milliseconds a scenario of every method and size, the ratios and what they say."""
    chosen = NETWORKS if checkpoint is None else {"network": checkpoint}
    checkpoints = {name: ge.load_checkpoint(source) for name, source in chosen.items()}
    drawn = draw_houses(NUM_HOUSES, np.random.default_rng(0), HouseDistribution(num_scenarios=1))
    houses = drawn.houses
    groups = [houses[i : i + BATCH] for i in range(0, NUM_HOUSES, BATCH)]
    singles = [houses[i : i + 1] for i in range(SINGLES)]
    encoded = {id(some): _samples(some) for some in (*groups, *singles)}
    methods: dict[Method, Answer] = {}
    for name, of_name in checkpoints.items():
        methods |= _network_methods(name, of_name, encoded)
    compile_seconds = {}
    for name in (name for name, size in methods if size == 7 and name not in chosen):
        started = time.perf_counter()
        for some in (*groups, *singles):
            methods[name, 7](some)
        compile_seconds[name] = round(time.perf_counter() - started, 1)
    for name, (prepare, sizes) in CLASSICAL.items():
        for size in sizes:
            methods[name, size] = partial(finite_elements, resolution=size, solve=prepare(size))
    for waves in WAVES:
        methods[SERIES, waves] = partial(sine_series, waves=waves)
    truth = np.stack([np.asarray(house.temperatures)[0] for house in solved(drawn).houses])
    errors = {key: float(np.mean((np.concatenate([answer(g) for g in groups]) - truth) ** 2)) for key, answer in methods.items()}
    timed = methods | {(ENCODING, 0): _samples}
    single = _times(timed | {(SCRATCH, 0): _from_scratch}, singles, repeats)
    batch = _times(timed, groups, repeats)
    points = [
        {"method": name, "size": size, "mse": errors[name, size], "single_ms": single[name, size], "batch_ms": batch[name, size]}
        for name, size in methods
    ]
    for point in points:
        if point["method"] == CACHED and point["size"] == TRUTH_RESOLUTION:
            point["mse"] = 0.0  # it is the truth
    results = {
        "networks": chosen,
        "from_scratch_ms": single[SCRATCH, 0],
        "encoding_ms": {"single": single[ENCODING, 0], "batch": batch[ENCODING, 0]},
        "compile_seconds": compile_seconds | {"linear.cpp, once on a machine": _build_seconds("linear")},
        "points": points,
    }
    return results | {
        "speedup_at_7x7": {name: _speedups(results, name) for name in chosen},
        "sentences": {name: _sentence(results, name) for name in chosen},
    }


def _network_methods(name: str, checkpoint: ge.Checkpoint, encoded: dict[int, ge.SFTBatch]) -> dict[Method, Answer]:
    """A checkpoint's network as it is on all meshes; with a compiler, also kernel by kernel, and compiled as a whole: on all
    meshes where that is C++, else at 7x7, because every size would be compiled for itself."""
    network, whole = checkpoint.network, copy.deepcopy(checkpoint.network)
    if compiler_available() and isinstance(whole, ge.GraphElementNetwork):
        whole.compile_stages()
    methods: dict[Method, Answer] = {}
    for resolution in RESOLUTIONS:
        mesh = build_grid(checkpoint.mesh, UNIT_SQUARE, resolution)
        unions = {num: ge.union(mesh, num) for num in (1, BATCH)}
        methods[name, resolution] = _predict(network, unions, encoded, False)
        if compiler_available():
            methods[name + COMPILED, resolution] = _predict(network, unions, encoded, True)
        if isinstance(whole, ge.GraphElementNetwork) and (whole.program or (whole.compiled_as_whole and resolution == 7)):
            methods[name + WHOLE, resolution] = _predict(whole, unions, encoded, True)
    return methods


def _build_seconds(name: str) -> float | None:
    """How long C++ of the package takes to compile, in a process and a cache of its own."""
    if not compiler_available():
        return None
    script = (
        f"import time; from graphelements.compilation import library; t = time.time(); library({name!r}); print(time.time() - t)"
    )
    with tempfile.TemporaryDirectory() as cache:
        command, environment = [sys.executable, "-c", script], os.environ | {"XDG_CACHE_HOME": cache}
        return round(float(subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout), 1)


def _samples(houses: Sequence[House]) -> ge.SFTBatch:
    return Houses(tuple(houses)).batch(np.arange(len(houses)), np.zeros(len(houses), int))


def _predict(network: ge.SFTNetwork, unions: dict[int, ge.MeshUnion], encoded: dict, compiled: bool) -> Answer:
    def answer(houses: Sequence[House]) -> np.ndarray:
        network.compiled_kernels = compiled
        temperatures = network.predict(encoded[id(houses)], unions[len(houses)])["temperature"]
        return temperatures.numpy().reshape(len(houses), -1)

    return answer


def _from_scratch(houses: Sequence[House]) -> np.ndarray:
    return finite_elements(houses, TRUTH_RESOLUTION, factorised(TRUTH_RESOLUTION))


def _times(
    methods: Mapping[Method, Callable[[Sequence[House]], object]], groups: Sequence[Sequence[House]], repeats: int
) -> dict[Method, float]:
    """Median milliseconds a scenario of steady work: in every turn a method goes through all groups."""

    def steadily(answer: Callable[[Sequence[House]], object]) -> Callable[[], object]:
        return lambda: [answer(some) for some in groups]

    names = {f"{name} {size}": (name, size) for name, size in methods}
    times = medians({text: steadily(methods[key]) for text, key in names.items()}, repeats)
    return {key: times[text] / sum(map(len, groups)) for text, key in names.items()}


def _best(results: dict[str, Any], network: str, size: int) -> dict[str, Any]:
    """A network's point at a resolution, eager or compiled, whichever is faster in batches."""
    return min((p for p in _of(results, network) if p["size"] == size), key=lambda p: p["batch_ms"])


def _of(results: dict[str, Any], method: str) -> list[dict[str, Any]]:
    return [point for point in results["points"] if point["method"].startswith(method)]


def _speedups(results: dict[str, Any], network: str) -> dict[str, dict[str, float]]:
    """How many times less a network takes than 250 x 250 nodes: given the samples, and given the heaters as solvers are."""
    ours, cached = _best(results, network, 7), _of(results, CACHED)[-1]
    found = {}
    for kind in ("batch", "single"):
        solve = ours[f"{kind}_ms"]
        for rival, theirs in (("from_scratch", results["from_scratch_ms"]), ("cached", cached[f"{kind}_ms"])):
            encoded = solve + results["encoding_ms"][kind]
            found[f"{kind}_against_{rival}"] = {
                "given_samples": round(theirs / solve, 1),
                "given_heaters": round(theirs / encoded, 1),
            }
    return found


def _named(point: dict[str, Any]) -> str:
    return f"{point['method']} of {point['size']}x{point['size']} {'waves' if point['method'] == SERIES else 'nodes'}"


def _sentence(results: dict[str, Any], network: str) -> str:
    """Which classical solver is as accurate as a network at 7x7, and how much faster or slower."""
    ours = _best(results, network, 7)
    as_good = [p for p in results["points"] if not p["method"].startswith(tuple(NETWORKS)) and p["mse"] <= ours["mse"]]
    said = []
    for kind, where in (("batch_ms", "in batches of 32"), ("single_ms", "one at a time")):
        rival = min(as_good, key=lambda p: p[kind])
        ratio = ours[kind] / rival[kind]
        verb = f"{ratio:.1f} times faster than" if ratio > 1 else f"{1 / ratio:.1f} times slower than"
        said.append(
            f"{where} the {_named(rival)} is {verb} the {network} "
            f"({rival[kind]:.3f} against {ours[kind]:.3f} ms a scenario), "
            f"with an error of {rival['mse']:.2g} against {ours['mse']:.2g}"
        )
    faster = all(ours[kind] > min(p[kind] for p in as_good) for kind in ("batch_ms", "single_ms"))
    advice = "Where the equation is known, use the classical solver." if faster else "Where the equation is known, compare first."
    return f"On 7x7 nodes: {'; '.join(said)}. {advice}"


COLOURS = {
    "network": "#c8442e",
    "small network": "#e0992f",
    "P1 by dense inverse": "#1b3a5c",
    CACHED: "#4f86b8",
    "P1 by sine transform": "#3f9c77",
    SERIES: "#8a6bb1",
}


def draw(results: list[dict[str, Any]]) -> Figure:
    """Error against time a scenario, alone and in batches; from the run with the most threads."""
    last = results[-1]
    figure = Figure(figsize=(13, 6.2), layout="constrained")
    alone, together = figure.subplots(1, 2, sharey=True, sharex=True)
    for axis, kind, title in ((alone, "single_ms", "one at a time"), (together, "batch_ms", "in batches of 32")):
        for method, colour in COLOURS.items():
            if points := [p for p in _of(last, method) if p["mse"] > 0]:
                _draw_curve(axis, points, kind, method, colour)
        kept = _of(last, CACHED)[-1][kind]
        for value, text in ((last["from_scratch_ms"], "250 x 250 nodes from scratch"), (kept, "250 x 250 nodes, factors kept")):
            axis.axvline(value, color="0.45", linestyle=":", linewidth=1.2)
            axis.text(value, 0.02, text, transform=axis.get_xaxis_transform(), rotation=90, ha="right", va="bottom", color="0.35")
        axis.set(xscale="log", yscale="log", title=title, xlabel="milliseconds a scenario")
        axis.grid(True, which="major", color="0.9")
        axis.spines[["top", "right"]].set_visible(False)
    alone.set_ylabel("mean squared error against 250 x 250 nodes")
    alone.legend(frameon=False, loc="lower left")
    threads = f"{last['threads']} thread{'s' * (last['threads'] > 1)}"
    figure.suptitle(f"A scenario of a new house, 256 queries, {threads}; labels: nodes or waves a side")
    return figure


def _draw_curve(axis: Axes, points: list[dict[str, Any]], kind: str, method: str, colour: str) -> None:
    """The points of a method by size; where there is more than one way to run a size, the faster. A way for one size alone stands
    apart."""
    sizes, ours = sorted({p["size"] for p in points}), method in NETWORKS
    ways = {way: [p for p in points if p["method"] == way] for way in dict.fromkeys(p["method"] for p in points)}
    alone = [of_way[0] for of_way in ways.values() if len(of_way) == 1 < len(sizes)]
    rest = [p for p in points if p not in alone]
    best = [min((p for p in rest if p["size"] == size), key=lambda p: p[kind]) for size in sizes]
    x, y = [p[kind] for p in best], [p["mse"] for p in best]
    axis.plot(x, y, "o-", color=colour, label=method, linewidth=2.4 if ours else 1.4, markersize=7 if ours else 4.5)
    for p in alone:
        label = f"{p['method'].replace(', compiled', '')}, {p['size']}x{p['size']}"
        axis.plot(p[kind], p["mse"], "*", color=colour, markersize=13, label=label)
    for p in best:
        if not ours or p["size"] in (sizes[0], 7, sizes[-1]):  # errors of networks hardly depend on it
            axis.annotate(str(p["size"]), (p[kind], p["mse"]), (4, 4), textcoords="offset points", fontsize=8, color=colour)
