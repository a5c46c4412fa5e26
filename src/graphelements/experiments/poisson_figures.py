"""The figures of the Poisson experiments, drawn from a summary."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .poisson_experiments import SIZES
from .poisson_summary import OPTIMISED_LABEL, Summary, counted, title_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's colours, which colour-blind readers can tell apart; the marker says the same once more
STYLES = {
    "default": ("#0072B2", "o"),
    "paper-grid": ("#E69F00", "s"),
    "paper": ("#CC79A7", "^"),
    "np": ("#009E73", "v"),
    "np-tuned": ("#56B4E9", "v"),
    "attention": ("#D55E00", "D"),
    "only": ("#0072B2", "o"),
    "up-to-5x5": ("#009E73", "D"),
    "np-deep": ("#D55E00", "D"),
}
ELEMENTS, FAINT = "#000000", "#777777"
ELEMENTS_LABEL, MEAN_LABEL = "finite elements", "mean temperature"


def draw_errors(summary: Summary) -> Figure:
    """The paper's first result: error against resolution, methods without a mesh as level lines."""
    figure, (axes,) = _figure(1, (7.2, 4.6), summary)
    labels = [_draw_line(axes, line, SIZES) for line in summary["lines"]]
    if summary["optimised"]:
        colour, marker = STYLES["default"]
        values = [summary["optimised"][str(size)]["mean"] for size in SIZES]
        axes.plot(SIZES, values, color=colour, marker=marker, markersize=4, linewidth=1.2, linestyle=(0, (1, 1)))
        labels.append((values[-1], OPTIMISED_LABEL, colour))
    labels += [_draw_elements(axes, summary, SIZES), (summary["mean"], MEAN_LABEL, FAINT)]
    axes.axhline(summary["mean"], color=FAINT, linewidth=0.8)
    _finish(axes, SIZES, "mean squared error")
    _label_ends(axes, labels)
    return figure


def draw_larger_meshes(summary: Summary) -> Figure | None:
    """Error and time of `default` and of finite elements, far beyond the resolutions of training."""
    lines = _lines(summary, "default")
    if not lines:
        return None
    (line,) = lines
    sizes = [int(key) for key in line["errors"]]
    figure, (left, right) = _figure(2, (11.0, 4.4), summary | {"lines": lines})
    for axes, quantity, name in (
        (left, "mean", "mean squared error"),
        (right, "seconds_per_scenario", "milliseconds a scenario"),
    ):
        axes.axvspan(min(line["trained_on"]), max(line["trained_on"]), color="#000000", alpha=0.06, linewidth=0)
        axes.set_xscale("log")
        labels = [_draw_line(axes, line, sizes, quantity), _draw_elements(axes, summary, sizes, quantity)]
        _finish(axes, sizes, name)
        _label_ends(axes, labels)
    place = left.get_xaxis_transform()
    left.annotate("sizes in training", (min(line["trained_on"]), 0.02), (4, 0), place, "offset points", color=FAINT, fontsize=9)
    return figure


def draw_ablation(summary: Summary) -> Figure:
    """The paper's appendix: training on one mesh or on all, two representations, a deeper neural process."""
    figure, (first, second, third) = _figure(3, (13.0, 4.4), summary, sharey=True)
    models = _lines(summary, "paper-grid", "only", "up-to-5x5")
    sizes = sorted({int(key) for line in models for key in line["errors"]} | set(SIZES))
    labels = [(first, _draw_line(first, line, sizes)) for line in models]
    _finish(first, sizes, "mean squared error", "One model or many")
    for line in _lines(summary, "paper-grid", "paper"):
        value, name, colour = _draw_line(second, line, SIZES)
        labels.append((second, (value, "grid barycentric" if _curve(line) == "paper-grid" else name, colour)))
    _finish(second, SIZES, "", "Two representations")
    processes = _lines(summary, "np", "np-deep")
    for place, line in enumerate(processes):
        (error,) = line["errors"].values()
        colour, marker = STYLES[_curve(line)]
        third.scatter([place] * len(error["of_seed"]), error["of_seed"], color=colour, marker=marker, alpha=0.5, linewidths=0)
        third.errorbar(place + 0.15, error["mean"], error["std"] or 0, color=colour, marker="_", markersize=16, capsize=4)
    _finish(third, [], "", "Depth of the neural process")
    third.set(xlim=(-0.6, 1.6), xlabel="seeds, mean and deviation")
    third.set_xticks(range(len(processes)), [line["label"].replace(", ", ",\n") for line in processes])
    for axes in (first, second):
        _label_ends(axes, [label for beside, label in labels if beside is axes])
    return figure


FIGURES: dict[str, dict[str, Callable[[Summary], Figure | None]]] = {
    "poisson-square": {"errors.png": draw_errors, "larger_meshes.png": draw_larger_meshes},
    "poisson-ablation": {"ablation.png": draw_ablation},
    "default-ablation": {},
}

Label = tuple[float, str, str]
"""Where a line ends, its name and its colour."""


def _draw_line(axes: Axes, line: Summary, sizes: Sequence[int], quantity: str = "mean") -> Label:
    """A curve with its band of one standard deviation over seeds; a level line for a method without a mesh."""
    colour, marker = STYLES[_curve(line)]
    scale = 1e3 if quantity == "seconds_per_scenario" else 1.0
    free = next((error for key, error in line["errors"].items() if not key.isdigit()), None)
    drawn = [size for size in sizes if free or str(size) in line["errors"]]
    errors = [free or line["errors"][str(size)] for size in drawn]
    values = scale * np.array([error[quantity] for error in errors])
    spreads = np.array([(error["std"] or 0.0) if quantity == "mean" else 0.0 for error in errors])
    # a logarithmic axis has no zero
    axes.fill_between(drawn, np.maximum(values - spreads, 0.2 * values), values + spreads, color=colour, alpha=0.2, linewidth=0)
    axes.plot(drawn, values, color=colour, marker="" if free else marker, markersize=5, linewidth=1.8)
    return float(values[-1]), line["label"], colour


def _draw_elements(axes: Axes, summary: Summary, sizes: Sequence[int], quantity: str = "mean") -> Label:
    timed = quantity != "mean"
    drawn = [size for size in sizes if str(size) in summary["fem"] and not (timed and size == 2)]  # 2x2: nothing to solve
    values = [(1e3 if timed else 1.0) * summary["fem"][str(size)][quantity] for size in drawn]
    axes.plot(drawn, values, color=ELEMENTS, linestyle=(0, (4, 2)), marker="x", markersize=5, linewidth=1.3)
    return values[-1], ELEMENTS_LABEL, ELEMENTS


def _label_ends(axes: Axes, labels: Sequence[Label]) -> None:
    """The names of lines at their right ends, moved apart where they would overlap."""
    low, high = np.log(axes.get_ylim())
    labels = sorted(labels)
    places, gap = np.log([value for value, *_ in labels]), 0.05 * (high - low)
    for _ in range(200):
        overlaps = np.maximum(gap - np.diff(places), 0) / 2
        places += np.append(0, overlaps) - np.append(overlaps, 0)
    for place, (_, name, colour) in zip(np.exp(places).tolist(), labels, strict=True):
        beside = axes.get_yaxis_transform()
        axes.annotate(name, (1.0, place), (6, 0), beside, "offset points", color=colour, va="center", fontsize=10)


def _finish(axes: Axes, sizes: Sequence[int], name: str, title: str = "") -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter, NullLocator

    axes.set_yscale("log")
    logarithmic = axes.get_xscale() == "log"  # there is less room for names there
    axes.set(xlabel="nodes along a side" if logarithmic else "nodes", ylabel=name, title=title)
    low, high = axes.get_ylim()
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if high < 3000 * low else (1,)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.yaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xticks(sizes, [str(size) if logarithmic else f"{size}x{size}" for size in sizes])
    axes.margins(x=0.03)
    axes.grid(axis="y", linewidth=0.5, alpha=0.35)
    axes.spines[["top", "right"]].set_visible(False)


def _lines(summary: Summary, *curves: str) -> list[Summary]:
    """The lines of these curves, as far as they were run."""
    return [line for curve in curves for line in summary["lines"] if _curve(line) == curve]


def _curve(line: Summary) -> str:
    """The curve of a line; all models for one mesh are "only"."""
    name: str = line["cells"][0]["curve"]
    return "only" if name.startswith("only-") else name


def _figure(columns: int, size: tuple[float, float], summary: Summary, **options: Any) -> tuple[Figure, list[Axes]]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, layout="constrained")
    seeds = counted(len(error["of_seed"]) for line in summary["lines"] for error in line["errors"].values())
    told = "one seed" if seeds == "1" else f"mean of {seeds} seeds and band of one standard deviation"
    figure.suptitle(f"{title_of(summary)}\n{told}", fontsize=10)
    return figure, list(figure.subplots(1, columns, squeeze=False, **options)[0])
