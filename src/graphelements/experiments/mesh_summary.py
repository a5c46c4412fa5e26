"""The trials of `optimised_meshes` in one summary, a table and the paper's figures of optimised meshes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ..data.houses import UNIT_SQUARE, Houses
from ..data.poisson import p1_solution
from ..meshes import mesh_at
from ..tasks.house_fields import draw_field, draw_mesh, grid_points
from .optimised_meshes import INPUT_SIZES, SIZES, STABLE_SIZES, TEST_HOUSE

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Summary = dict[str, Any]
Trials = Mapping[str, list[dict[str, Any]]]
"""The trials of every house."""

STARTS = {"even": "even", "optimised": "optimised", "inputs": "from the inputs", "grown": "grown"}
COLOURS = {"even": "#000000", "optimised": "#0072B2", "inputs": "#E69F00", "grown": "#009E73"}


def summarised(results: Mapping[str, dict[str, Any]]) -> Summary:
    """What the trials of models say: means over the houses, and the mean and the deviation over models that differ in their
    seed, such as nodes-0 and nodes-1."""
    kinds: dict[str, dict[str, dict[str, Any]]] = {}
    for name, found in results.items():
        kinds.setdefault(re.sub(r"-\d+$", "", name), {})[name] = found
    return {"work": next(iter(results.values()))["work"], "kinds": {kind: _of_kind(models) for kind, models in kinds.items()}}


def _of_kind(results: Mapping[str, dict[str, Any]]) -> Summary:
    of_model = {name: _of_model(found["houses"]) for name, found in results.items()}
    facts = {key: [told[key] for told in of_model.values()] for key in next(iter(of_model.values()))}
    return {
        "models": {name: {"houses": len(found["houses"]), "threads": found["threads"]} for name, found in results.items()},
        "facts": {key: _over_models(values) for key, values in facts.items()},
    }


def _over_models(values: list[float]) -> dict[str, Any]:
    spread = float(np.std(values, ddof=1)) if len(values) > 1 else None
    return {"mean": float(np.mean(values)), "std": spread, "of_model": values}


def _of_model(houses: Trials) -> dict[str, float]:
    """Every number of a model by a name of its own; errors are on scenarios that adapted nothing."""
    facts: dict[str, Any] = {}
    for size in SIZES:
        before, after, seconds = _values(houses, "even", size, "before", "after", "seconds")
        facts |= {
            f"even {size}x{size}": before.mean(),
            f"optimised {size}x{size}": after.mean(),
            f"median reduction {size}x{size}": np.median(1 - after / before),
            f"not worse {size}x{size}": np.mean(after <= before),
            f"worst ratio {size}x{size}": (after / before).max(),
            f"seconds {size}x{size}": seconds.mean(),
        }
    for size in INPUT_SIZES:
        (found,), (even,) = _values(houses, "inputs", size, "after"), _values(houses, "even", size, "before")
        facts |= {f"inputs {size}x{size}": found.mean(), f"median ratio of inputs {size}x{size}": np.median(found / even)}
    (five,), (seven,) = _values(houses, "even", 5, "after"), _values(houses, "even", 7, "before")
    grown, nodes, seconds = _values(houses, "grown", 3, "after", "nodes", "seconds")
    facts |= {
        "25 optimised beat 49 even": np.mean(five < seven),
        "grown": grown.mean(),
        "median nodes of grown": np.median(nodes),
        "grown reach 49 even": np.mean(grown <= seven),
        "median ratio of grown to 49 even": np.median(grown / seven),
        "seconds of grown": seconds.mean(),
    }
    for size in STABLE_SIZES:
        errors = [[t["after"] for t in trials if _scattered(t, size)] for trials in houses.values()]
        errors = np.array([found for found in errors if len(found) > 1])
        if len(errors):
            facts[f"deviation over mean {size}x{size}"] = np.mean(errors.std(1, ddof=1) / errors.mean(1))
            times = [t["seconds"] for trials in houses.values() for t in trials if _scattered(t, size)]
            facts[f"seconds of scattered {size}x{size}"] = np.mean(times)
    everything = [trial for trials in houses.values() for trial in trials]
    facts |= {"meshes": len(everything), "invalid meshes": sum(not trial["valid"] for trial in everything)}
    return {name: float(value) for name, value in facts.items()}


def _scattered(trial: dict[str, Any], size: int) -> bool:
    return trial["start"].startswith("scattered") and trial["resolution"] == size


def _values(houses: Trials, start: str, size: int, *names: str) -> list[np.ndarray]:
    chosen = [t for trials in houses.values() for t in trials if (t["start"], t["resolution"]) == (start, size)]
    return [np.array([trial[name] for trial in chosen]) for name in names]


def optimised_errors(results: list[dict[str, Any]], contents: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """By size: the error of optimised meshes on test houses of these contents, on scenarios that adapted nothing; over models as
    above.

    Models that have not been through all of them, or through others, do not count.
    """
    errors: dict[str, list[float]] = {}
    for found in results:
        houses = {name: trials for name, trials in found["houses"].items() if name.startswith(TEST_HOUSE)}
        same = all(found["contents"].get(name) == content for name, content in contents.items())
        for size in SIZES if same and set(houses) == set(contents) else ():
            (after,) = _values(houses, "even", size, "after")
            errors.setdefault(str(size), []).append(float(after.mean()))
    over_models = {size: _over_models(of_size) for size, of_size in errors.items()}
    return {
        size: {"mean": found["mean"], "std": found["std"], "of_seed": found["of_model"]} for size, found in over_models.items()
    }


def table_of(summary: Summary) -> str:
    """The summary as Markdown, a part for every kind of models."""
    return "\n".join(["# optimised-meshes\n", *(_part(kind, told) for kind, told in summary["kinds"].items())])


def _part(kind: str, told: Summary) -> str:
    facts, models = told["facts"], told["models"]

    def said(name: str, form: str = ".4f") -> str:
        if name not in facts:
            return ""
        spread = facts[name]["std"]
        return f"{facts[name]['mean']:{form}}" + ("" if spread is None else f" ± {spread:{form}}")

    houses = ", ".join(sorted({str(told["houses"]) for told in models.values()}))
    threads = ", ".join(sorted({str(told["threads"]) for told in models.values()}))
    rows = [
        ("even", *(said(f"even {k}x{k}") for k in SIZES)),
        ("optimised", *(said(f"optimised {k}x{k}") for k in SIZES)),
        ("median reduction", *(said(f"median reduction {k}x{k}", ".0%") for k in SIZES)),
        ("houses not worse", *(said(f"not worse {k}x{k}", ".0%") for k in SIZES)),
        ("worst house, after / before", *(said(f"worst ratio {k}x{k}", ".2f") for k in SIZES)),
        ("seconds a house", *(said(f"seconds {k}x{k}", ".1f") for k in SIZES)),
        ("from the inputs, not moved", *(said(f"inputs {k}x{k}") for k in SIZES)),
        ("the same / even, median house", *(said(f"median ratio of inputs {k}x{k}", ".2f") for k in SIZES)),
    ]
    lines = [
        f"## {kind}",
        "",
        f"{houses} houses, models: {', '.join(models)}; {threads} threads",
        "",
        "| | " + " | ".join(f"{k}x{k}" for k in SIZES) + " |",
        "|---|" + "---|" * len(SIZES),
        *("| " + " | ".join(row) + " |" for row in rows),
        "",
        f"- 25 optimised nodes beat 49 even ones in {said('25 optimised beat 49 even', '.0%')} of the houses",
        f"- grown to the error of 49 even nodes: {said('median nodes of grown', '.1f')} nodes in the median house, error "
        f"{said('grown')}; on the judging scenarios {said('grown reach 49 even', '.0%')} reach it, the median house has "
        f"{said('median ratio of grown to 49 even', '.2f')} of it; {said('seconds of grown', '.1f')} s a house",
        "- standard deviation over three scattered starts / mean, optimised: "
        + ", ".join(f"{k}x{k} {said(f'deviation over mean {k}x{k}', '.2f')}" for k in STABLE_SIZES)
        + "; seconds a house: "
        + ", ".join(f"{k}x{k} {said(f'seconds of scattered {k}x{k}', '.1f')}" for k in STABLE_SIZES),
        f"- invalid meshes: {said('invalid meshes', '.0f')} of {said('meshes', '.0f')}",
    ]
    return "\n".join(lines) + "\n"


def draw_nodes_and_errors(summary: Summary) -> Figure:
    """Error against the number of nodes: even, optimised, placed from the inputs, grown."""
    from matplotlib.figure import Figure

    kinds = summary["kinds"]
    figure = Figure(figsize=(5.6 * len(kinds), 4.4), layout="constrained")
    panels = figure.subplots(1, len(kinds), squeeze=False, sharey=True)[0]
    for axes, (kind, told) in zip(panels, kinds.items(), strict=True):
        _draw_kind(axes, told["facts"])
        axes.set_title(kind)
    panels[0].set_ylabel("mean squared error on other scenarios")
    panels[-1].legend(frameon=False)
    return figure


def _draw_kind(axes: Axes, facts: Summary) -> None:
    for kind, sizes in (("even", SIZES), ("optimised", SIZES), ("inputs", INPUT_SIZES)):
        told = [facts[f"{kind} {size}x{size}"] for size in sizes]
        nodes, means = [size**2 for size in sizes], np.array([fact["mean"] for fact in told])
        spreads = np.array([fact["std"] or 0.0 for fact in told])
        axes.plot(nodes, means, marker="o", color=COLOURS[kind], label=STARTS[kind])
        axes.fill_between(nodes, np.maximum(means - spreads, 0.2 * means), means + spreads, color=COLOURS[kind], alpha=0.2)
    grown = [facts["median nodes of grown"]["mean"]], [facts["grown"]["mean"]]
    axes.plot(
        *grown, marker="*", markersize=13, linestyle="", color=COLOURS["grown"], label="grown to the error of 49 even nodes"
    )
    axes.set(xscale="log", yscale="log", xlabel="nodes")
    axes.set_xticks([size**2 for size in SIZES], [str(size**2) for size in SIZES])
    axes.xaxis.set_minor_locator(_no_ticks())
    axes.grid(alpha=0.3)


def draw_meshes(houses: Mapping[str, Houses], trials: Trials, num: int = 4) -> Figure:
    """Nodes over the temperature of some houses: an even 5x5 mesh before and after."""
    chosen = [name for name in trials if name in houses][:num]
    panels = []
    for name in chosen:
        (trial,) = [t for t in trials[name] if (t["start"], t["resolution"]) == ("even", 5)]
        panels.append((name, f"{name}: MSE {trial['before']:.4f} even,\n{trial['after']:.4f} optimised", trial))
    return _drawn(houses, [panels])


def draw_one_house(houses: Mapping[str, Houses], trials: Trials) -> Figure | None:
    """One house with all sizes, two scattered starts of each below each other."""
    name = next((name for name in trials if name in houses), None)
    if name is None:
        return None
    rows = []
    for seed in (0, 1):
        found = [
            next((t for t in trials[name] if (t["start"], t["resolution"]) == (f"scattered {seed}", k)), None) for k in SIZES
        ]
        rows.append([(name, f"{t['nodes']} nodes, MSE {t['after']:.4f}", t) for t in found if t is not None])
    return _drawn(houses, rows) if rows[0] else None


def _drawn(houses: Mapping[str, Houses], rows: list[list[tuple[str, str, dict[str, Any]]]]) -> Figure:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(3.2 * len(rows[0]), 3.4 * len(rows)), layout="constrained")
    for axes, (name, title, trial) in zip(
        figure.subplots(len(rows), len(rows[0]), squeeze=False).flat, chain(*rows), strict=True
    ):
        scenario = houses[name].houses[0].scenario(houses[name].num_scenarios - 1)
        draw_field(axes, p1_solution(scenario, grid_points(81)), scenario, title)
        draw_mesh(axes, mesh_at(UNIT_SQUARE, torch.tensor(trial["positions"])))
        axes.title.set_fontsize(9)
        axes.set(xlabel="", ylabel="", xticks=(), yticks=())
    return figure


def _no_ticks() -> Any:
    from matplotlib.ticker import NullLocator

    return NullLocator()
