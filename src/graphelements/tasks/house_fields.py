"""Temperature fields of houses: points to ask at, files and pictures of what was answered."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from ..data.houses import Scenario
from ..data.poisson import p1_solution
from ..errors import require
from ..files import read_columns, replaced
from ..meshes import Mesh

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def grid_points(num: int) -> Float[np.ndarray, "points 2"]:
    """num x num points over the unit square, borders included, x varying fastest."""
    line = np.linspace(0, 1, num)
    x, y = np.meshgrid(line, line)
    return np.stack([x.ravel(), y.ravel()], -1)


def read_points(path: Path) -> Float[np.ndarray, "points 2"]:
    """The columns x and y of a CSV file."""
    points = read_columns(path, ("x", "y"))
    bad = ~((points >= 0) & (points <= 1)).all(1)
    require(
        not bad.any(), f"{path}: points must lie in the unit square; row {int(bad.argmax()) + 2 if bad.any() else 0} does not"
    )
    return points


def write_field(path: Path, points: np.ndarray, temperatures: np.ndarray, scenario: Scenario, mesh: Mesh) -> None:
    """Points and temperatures as CSV or NPZ, or the picture of a grid of them."""
    with replaced(path) as temporary:
        if path.suffix == ".csv":
            with temporary.open("w", newline="") as file:
                csv.writer(file).writerows([("x", "y", "temperature"), *np.column_stack([points, temperatures]).tolist()])
        elif path.suffix == ".npz":
            np.savez(temporary, points=points, temperatures=temperatures)
        else:
            figure, axes = _figure(1)
            drawn = draw_field(axes[0], temperatures, scenario)
            draw_mesh(axes[0], mesh)
            figure.colorbar(drawn, ax=axes[0], label="temperature")
            figure.savefig(temporary, dpi=130)


def draw_comparison(path: Path, scenario: Scenario, truth: np.ndarray, prediction: np.ndarray, mesh: Mesh) -> None:
    """Truth, prediction with the mesh, and error on one grid of points, side by side."""
    figure, axes = _figure(3)
    error = prediction - truth
    bounds, bound = (float(truth.min()), float(truth.max())), float(np.abs(error).max())
    drawn = [
        draw_field(axes[0], truth, scenario, "truth (250 x 250 finite elements)", bounds),
        draw_field(axes[1], prediction, scenario, f"prediction ({mesh.num_nodes} nodes)", bounds),
        draw_field(axes[2], error, scenario, f"error, MSE {np.mean(error**2):.2g}", (-bound, bound), "RdBu_r"),
    ]
    draw_mesh(axes[1], mesh)
    for image, beside in zip(drawn, axes, strict=True):
        figure.colorbar(image, ax=beside, shrink=0.8)
    with replaced(path) as temporary:
        figure.savefig(temporary, dpi=110)


def draw_adaptation(path: Path, scenario: Scenario, meshes: Mapping[str, Mesh]) -> None:
    """The true temperature of a scenario under every mesh, side by side, with their titles."""
    figure, axes = _figure(len(meshes))
    truth = p1_solution(scenario, grid_points(101))
    for beside, (title, mesh) in zip(axes, meshes.items(), strict=True):
        figure.colorbar(draw_field(beside, truth, scenario, title), ax=beside, shrink=0.8, label="temperature")
        draw_mesh(beside, mesh)
    with replaced(path) as temporary:
        figure.savefig(temporary, dpi=130)


def draw_field(
    axes: Axes,
    values: np.ndarray,
    scenario: Scenario,
    title: str = "",
    bounds: tuple[float, float] | None = None,
    cmap: str = "inferno",
) -> Any:
    """A field on a square grid of points, with the outlines of the heaters."""
    from matplotlib.patches import Rectangle

    side = round(len(values) ** 0.5)
    drawn = axes.imshow(values.reshape(side, side), origin="lower", extent=(0, 1, 0, 1), cmap=cmap)
    drawn.set_clim(*bounds or (values.min(), values.max()))
    for heater in scenario.heaters:
        size = heater.x1 - heater.x0, heater.y1 - heater.y0
        axes.add_patch(Rectangle((heater.x0, heater.y0), *size, fill=False, edgecolor="tab:cyan", linewidth=1.2))
    axes.set(title=title, xlabel="x", ylabel="y", xticks=(0, 0.5, 1), yticks=(0, 0.5, 1))
    return drawn


def draw_mesh(axes: Axes, mesh: Mesh) -> None:
    """Nodes and edges, each edge once."""
    from matplotlib.collections import LineCollection

    positions = mesh.positions.detach().cpu().numpy()
    once = (mesh.senders < mesh.receivers).cpu()
    ends = np.stack([positions[mesh.senders.cpu()[once]], positions[mesh.receivers.cpu()[once]]], 1)
    axes.add_collection(LineCollection(list(ends), colors="white", linewidths=0.6, alpha=0.7))
    axes.scatter(*positions.T, s=10, color="white", edgecolors="black", linewidths=0.4, zorder=3, clip_on=False)


def _figure(columns: int) -> tuple[Any, list[Axes]]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.6 * columns, 4.2), layout="constrained")
    return figure, list(figure.subplots(1, columns, squeeze=False)[0])
