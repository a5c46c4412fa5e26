"""The figures of the Poisson experiments, drawn from a summary."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from .curve_figures import FAINT, STYLES, Label, curve_of, draw_line, finish, label_ends, lines_of, new_figure
from .poisson_experiments import SIZES
from .summaries import OPTIMISED, Summary, labelled

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ELEMENTS = "#000000"
ELEMENTS_LABEL = "finite elements"
VARIANTS = ("default-incautious", "default-to-16x16")  # up to 7x7 they hide behind `default`


def draw_errors(summary: Summary) -> Figure:
    """The paper's first result: error against resolution, methods without a mesh as level lines."""
    lines = [line for line in summary["lines"] if curve_of(line) not in VARIANTS]
    figure, (axes,) = new_figure(1, (8.0, 4.6), summary | {"lines": lines})
    labels = [draw_line(axes, line, SIZES) for line in lines]
    mean = summary["references"]["mean temperature"]["0"]["mean"]
    for curve, errors in summary["optimised"].items():
        colour, marker = STYLES[curve]
        values = [errors[str(size)]["mean"] for size in SIZES]
        axes.plot(SIZES, values, color=colour, marker=marker, markersize=4, linewidth=1.2, linestyle=(0, (1, 1)))
        once = " (one seed)" if all(len(error["of_seed"]) == 1 for error in errors.values()) else ""
        labels.append((values[-1], f"{labelled(summary, curve)}{OPTIMISED}{once}", colour))
    labels += [_draw_elements(axes, summary, SIZES), (mean, "mean temperature", FAINT)]
    axes.axhline(mean, color=FAINT, linewidth=0.8)
    finish(axes, SIZES, "mean squared error")
    label_ends(axes, labels)
    return figure


def draw_larger_meshes(summary: Summary) -> Figure | None:
    """Error and time of ours and of finite elements, far beyond the resolutions of training; errors also against those at 7x7."""
    lines, variants = lines_of(summary, "default", "near", "nodes"), lines_of(summary, *VARIANTS)
    if not lines:
        return None
    line, last = lines[0], SIZES[-1]
    sizes = [int(key) for key in line["errors"]]
    figure, panels = new_figure(3, (16.0, 4.6), summary | {"lines": [*lines, *variants]})
    names = "mean squared error", f"error, times that at {last}x{last}", "milliseconds a scenario"
    for axes, name in zip(panels, names, strict=True):
        axes.set_xscale("log")
        relative, quantity = axes is panels[1], "seconds_per_scenario" if axes is panels[2] else "mean"
        shown = [size for size in sizes if size >= last] if relative else sizes
        drawn = [_against(each, last) for each in (*lines, *variants)] if relative else lines
        labels = [draw_line(axes, each, shown, quantity) for each in drawn]
        if not relative:
            labels.append(_draw_elements(axes, summary, sizes, quantity))
        finish(axes, shown, name)
        if relative:
            axes.set_yscale("linear")
        label_ends(axes, labels)
    panels[0].axvspan(min(line["trained_on"]), max(line["trained_on"]), color="#000000", alpha=0.06, linewidth=0)
    place = panels[0].get_xaxis_transform()
    note = {"textcoords": "offset points", "ha": "left", "color": FAINT, "fontsize": 9}
    panels[0].annotate(f"sizes in training\nof {line['preset']}", (min(line["trained_on"]), 0.15), (6, 0), place, **note)
    return figure


def draw_ablation(summary: Summary) -> Figure:
    """The paper's appendix: training on one mesh or on all, two representations, a deeper neural process."""
    figure, (first, second, third) = new_figure(3, (13.0, 4.4), summary, sharey=True)
    models = lines_of(summary, "paper-grid", "only", "up-to-5x5")
    sizes = sorted({int(key) for line in models for key in line["errors"]} | set(SIZES))
    labels = [(first, draw_line(first, line, sizes)) for line in models]
    for line in lines_of(summary, "only"):  # a seed that never learned is seen as such
        for size, error in line["errors"].items():
            first.scatter(
                [int(size)] * len(error["of_seed"]), error["of_seed"], s=12, color=STYLES["only"][0], alpha=0.5, linewidths=0
            )
    finish(first, sizes, "mean squared error", "One model or many")
    for line in lines_of(summary, "paper-grid", "paper"):
        value, name, colour = draw_line(second, line, SIZES)
        labels.append((second, (value, "grid barycentric" if curve_of(line) == "paper-grid" else name, colour)))
    finish(second, SIZES, "", "Two representations")
    processes = lines_of(summary, "np", "np-deep")
    for place, line in enumerate(processes):
        (error,) = line["errors"].values()
        colour, marker = STYLES[curve_of(line)]
        third.scatter([place] * len(error["of_seed"]), error["of_seed"], color=colour, marker=marker, alpha=0.5, linewidths=0)
        third.errorbar(place + 0.15, error["mean"], error["std"] or 0, color=colour, marker="_", markersize=16, capsize=4)
    finish(third, [], "", "Depth of the neural process")
    third.set(xlim=(-0.6, 1.6), xlabel="seeds, mean and deviation")
    third.set_xticks(range(len(processes)), [line["label"].replace(", ", ",\n") for line in processes])
    for axes in (first, second):
        label_ends(axes, [label for beside, label in labels if beside is axes])
    return figure


FIGURES: dict[str, dict[str, Callable[[Summary], Figure | None]]] = {
    "poisson-square": {"errors.png": draw_errors, "larger_meshes.png": draw_larger_meshes},
    "poisson-ablation": {"ablation.png": draw_ablation},
    "default-ablation": {},
}


def _against(line: Summary, size: int) -> Summary:
    """A line whose errors are ratios to that at a size."""
    base = line["errors"][str(size)]["mean"]
    return line | {"errors": {key: error | {"mean": error["mean"] / base, "std": None} for key, error in line["errors"].items()}}


def _draw_elements(axes: Axes, summary: Summary, sizes: Sequence[int], quantity: str = "mean") -> Label:
    timed, errors = quantity != "mean", summary["references"][ELEMENTS_LABEL]
    drawn = [size for size in sizes if str(size) in errors and not (timed and size == 2)]  # 2x2: nothing to solve
    values = [(1e3 if timed else 1.0) * errors[str(size)][quantity] for size in drawn]
    axes.plot(drawn, values, color=ELEMENTS, linestyle=(0, (4, 2)), marker="x", markersize=5, linewidth=1.3)
    return values[-1], ELEMENTS_LABEL, ELEMENTS
