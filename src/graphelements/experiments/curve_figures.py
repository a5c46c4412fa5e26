"""What the figures of experiments are made of: lines with bands, named at their ends."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .summaries import Summary, counted, title_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's colours, Tol's teal, indigo and wine, which colour-blind readers can tell apart; markers say the same
STYLES = {
    "default": ("#0072B2", "o"),
    "default-incautious": ("#56B4E9", "x"),
    "default-to-16x16": ("#D55E00", "d"),
    "paper-grid": ("#E69F00", "s"),
    "paper": ("#CC79A7", "^"),
    "near": ("#332288", "p"),
    "nodes": ("#44AA99", "P"),
    "small": ("#882255", "h"),
    "np": ("#009E73", "v"),
    "np-tuned": ("#56B4E9", "v"),
    "attention": ("#D55E00", "D"),
    "mixed": ("#56B4E9", "s"),
    "summed": ("#009E73", "s"),
    "no-picture": ("#000000", "x"),
    "examples": ("#E69F00", "P"),
    "only": ("#0072B2", "o"),
    "up-to-5x5": ("#009E73", "D"),
    "np-deep": ("#D55E00", "D"),
}
FAINT = "#777777"

Label = tuple[float, str, str]
"""Where a line ends, its name and its colour."""


def draw_line(axes: Axes, line: Summary, sizes: Sequence[int], quantity: str = "mean") -> Label:
    """A curve with its band of one standard deviation over seeds; a level line for a method without a mesh."""
    colour, marker = STYLES[curve_of(line)]
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


def label_ends(axes: Axes, labels: Sequence[Label]) -> None:
    """The names of lines at their right ends, moved apart where they would overlap."""
    onto, back = (np.log, np.exp) if axes.get_yscale() == "log" else (np.array, np.array)  # as places are spread on the axis
    low, high = onto(axes.get_ylim())
    labels = sorted(labels)
    places, gap = onto([value for value, *_ in labels]), 0.05 * (high - low)
    for _ in range(200):
        overlaps = np.maximum(gap - np.diff(places), 0) / 2
        places += np.append(0, overlaps) - np.append(overlaps, 0)
    for place, (_, name, colour) in zip(back(places).tolist(), labels, strict=True):
        beside = axes.get_yaxis_transform()
        axes.annotate(name, (1.0, place), (6, 0), beside, "offset points", color=colour, va="center", fontsize=10)


def finish(axes: Axes, sizes: Sequence[int], name: str, title: str = "", names: Sequence[str] | None = None) -> None:
    """Axes, ticks and names; `names` of the sizes if they are no square grids."""
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
    axes.set_xticks(sizes, names or [str(size) if logarithmic else f"{size}x{size}" for size in sizes])
    if logarithmic:
        axes.tick_params(axis="x", labelsize=8)
    axes.margins(x=0.03)
    axes.grid(axis="y", linewidth=0.5, alpha=0.35)
    axes.spines[["top", "right"]].set_visible(False)


def lines_of(summary: Summary, *curves: str) -> list[Summary]:
    """The lines of these curves, as far as they were run."""
    return [line for curve in curves for line in summary["lines"] if curve_of(line) == curve]


def curve_of(line: Summary) -> str:
    """The curve of a line; all models for one mesh are "only"."""
    name: str = line["cells"][0]["curve"]
    return "only" if name.startswith("only-") else name


def new_figure(columns: int, size: tuple[float, float], summary: Summary, **options: Any) -> tuple[Figure, list[Axes]]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, layout="constrained")
    seeds = counted(len(error["of_seed"]) for line in summary["lines"] for error in line["errors"].values())
    told = "one seed" if seeds == "1" else f"mean of {seeds} seeds and band of one standard deviation"
    figure.suptitle(f"{title_of(summary)}\n{told}", fontsize=10)
    return figure, list(figure.subplots(1, columns, squeeze=False, **options)[0])
