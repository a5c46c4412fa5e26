"""How time and memory of one prediction grow with nodes, queries and samples.

The network is that of the configuration `DEFAULT`, untrained, on nested grids, with samples of any number and value; the largest
point is also measured with the shipped `poisson-square` and the 64 samples of a scenario. Every point has a process of its own.
The call includes everything but building the mesh: the union, the representation's search trees, message passing, reading.
Queries are read in pieces, so that memory stays bounded.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure

import graphelements as ge
from graphelements.data.houses import NUM_SAMPLES, POISSON_SQUARE, UNIT_SQUARE, encode
from graphelements.data.random_houses import draw_houses
from graphelements.meshes import build_grid

from .memory import peak_increase

SIDES = (10, 32, 100, 178, 316)
MOST = SIDES[-1]
# what grows: (nodes a side, queries, samples) of every point
POINTS = {
    "nodes": [(side, 10_000, 64) for side in SIDES],
    "queries": [(MOST, queries, 64) for queries in (1_000, 10_000, 100_000, 300_000, 1_000_000)],
    "samples": [(MOST, 10_000, samples) for samples in (64, 1_000, 10_000, 100_000)],
}
SHIPPED = "poisson-square"
BARS = {"seconds": 60.0, "megabytes": 2_000.0}


def measure() -> dict[str, Any]:
    """Seconds and megabytes of every point, and the slopes of their logarithms."""
    results: dict[str, Any] = {}
    for growing, points in POINTS.items():
        rows = [_in_own_process(*point) for point in points]
        counts = [row[growing] for row in rows]
        results[growing] = {
            "points": rows,
            "slopes": {kind: _slope(counts, [row[kind] for row in rows]) for kind in BARS},
        }
    largest = {"DEFAULT": results["queries"]["points"][-1], SHIPPED: _in_own_process(*POINTS["queries"][-1], SHIPPED)}
    bars = {
        kind: {"reached": {name: point[kind] for name, point in largest.items()}, "at_most": bar} for kind, bar in BARS.items()
    }
    return results | {"shipped": largest[SHIPPED], "bars": bars}


def _slope(counts: list[int], values: list[float]) -> float:
    """The exponent p of value ~ count^p, fitted to the largest counts: small ones measure what a call costs in any case."""
    kept = np.array(counts) >= max(counts) / 32
    x, y = np.log(np.array(counts)[kept]), np.log(np.maximum(values, 1e-3)[kept])
    return round(float(np.polyfit(x, y, 1)[0]), 2)


def _in_own_process(side: int, queries: int, samples: int, model: str = "") -> dict[str, Any]:
    words = map(str, (model, torch.get_num_threads(), side, queries, samples))
    ended = subprocess.run([sys.executable, "-m", __name__, *words], capture_output=True, text=True, check=True)
    return json.loads(ended.stdout)


def predict_once(side: int, queries: int, samples: int, model: str = "") -> dict[str, Any]:
    """One prediction on a fresh mesh, after one on a tiny mesh that loads libraries; of a shipped model, or of `DEFAULT`."""
    generator = torch.Generator().manual_seed(0)
    checkpoint = ge.load_checkpoint(model) if model else None
    network = checkpoint.network if checkpoint else ge.build_network(POISSON_SQUARE).eval()
    config, space = checkpoint.mesh if checkpoint else ge.MeshConfig(nested=True), UNIT_SQUARE

    def batch(num_queries: int, num_samples: int) -> ge.SFTBatch:
        half = num_samples // 2
        inputs = {
            name: ge.FunctionSamples(space.sample(half, generator), torch.randn(half, 1, generator=generator))
            for name in ("heaters", "border")
        }
        if model:
            assert num_samples == NUM_SAMPLES  # those of a scenario
            inputs = encode(draw_houses(1, np.random.default_rng(0)).houses[0].scenario(0))
        return ge.SFTBatch(inputs, {"temperature": ge.Queries(space.sample(num_queries, generator))})

    for small in (7, 12):  # below and above the size from which on a tree is searched
        network.predict(batch(64, NUM_SAMPLES), build_grid(config, space, small))
    asked, mesh = batch(queries, samples), build_grid(config, space, side)
    seconds, megabytes = peak_increase(lambda: network.predict(asked, mesh))
    sizes = {"nodes": side**2, "queries": queries, "samples": samples}
    return sizes | {"seconds": round(seconds, 4), "megabytes": round(megabytes, 1)}


def draw(results: list[dict[str, Any]]) -> Figure:
    """Seconds and megabytes against each of the three counts, one line per number of threads."""
    figure = Figure(figsize=(12, 6.4), layout="constrained")
    axes = figure.subplots(2, 3, sharex="col", sharey="row")
    shades = ("#e07a3f", "#1b3a5c", "#3f9c77", "#8a6bb1")
    for column, (growing, points) in enumerate(POINTS.items()):
        side, queries, samples = points[-1]
        fixed = {"nodes": f"{side**2:,} nodes", "queries": f"{queries:,} queries", "samples": f"{samples:,} samples"}
        for row, kind in enumerate(BARS):
            axis = axes[row, column]
            for result, shade in zip(results, shades, strict=False):
                rows, threads = result[growing]["points"], result["threads"]
                slope = result[growing]["slopes"][kind]
                label = f"{threads} thread{'s' * (threads > 1)}: slope {slope:.2f}"
                axis.plot([r[growing] for r in rows], [r[kind] for r in rows], "o-", color=shade, markersize=5, label=label)
            axis.axhline(BARS[kind], color="0.5", linestyle=":", linewidth=1)
            axis.set(xscale="log", yscale="log")
            axis.grid(True, which="major", color="0.9")
            axis.spines[["top", "right"]].set_visible(False)
            axis.legend(frameon=False, fontsize=9, loc="upper left", bbox_to_anchor=(0, 0.93))
        axes[0, column].set_title(
            f"{growing} grow; {', '.join(text for name, text in fixed.items() if name != growing)}", fontsize=10
        )
        axes[1, column].set_xlabel(growing)
    for axis, kind, unit in zip(axes[:, 0], BARS, ("s", "MB"), strict=True):
        axis.set_ylabel(f"{kind} of a prediction")
        axis.annotate(
            f"bar: {BARS[kind]:,.0f} {unit}",
            (0.02, BARS[kind]),
            (0, 3),
            xycoords=("axes fraction", "data"),
            textcoords="offset points",
            fontsize=8,
            color="0.35",
        )
    figure.suptitle("Growth of one prediction: the configuration `DEFAULT` on nested grids; slopes are those of the last points")
    return figure


if __name__ == "__main__":
    name, *numbers = sys.argv[1:]
    threads, of_nodes, of_queries, of_samples = map(int, numbers)
    torch.set_num_threads(threads)
    print(json.dumps(predict_once(of_nodes, of_queries, of_samples, name)))
