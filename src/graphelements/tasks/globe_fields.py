"""Fields on a sphere by latitude and longitude: measurements and places from files, answers to files and pictures."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float

from ..errors import require
from ..files import read_columns, replaced
from ..meshes import Mesh
from ..samples import FunctionSamples, Queries, SFTBatch
from ..sft_network import SFTNetwork
from ..spaces import Sphere
from .globes import Globe

PLACE = ("latitude", "longitude")


def on_sphere(degrees: Float[np.ndarray, "n 2"], radius: float = 1.0) -> Float[np.ndarray, "n 3"]:
    """Latitudes and longitudes in degrees as points of a sphere, the north pole up."""
    latitude, longitude = np.radians(np.asarray(degrees, dtype=float)).T
    around = np.cos(latitude)
    return radius * np.stack([around * np.cos(longitude), around * np.sin(longitude), np.sin(latitude)], -1)


def globe_grid(num: int) -> Float[np.ndarray, "points 2"]:
    """num x 2 num latitudes and longitudes in degrees, in the middle of cells, longitude varying fastest."""
    latitudes = 90 * (1 - (2 * np.arange(num) + 1) / num)
    longitudes = 180 * ((2 * np.arange(2 * num) + 1) / (2 * num) - 1)
    return np.stack([each.ravel() for each in np.meshgrid(latitudes, longitudes, indexing="ij")], -1)


def read_places(path: Path, *columns: str) -> Float[np.ndarray, "rows columns"]:
    """Latitude and longitude in degrees, and other columns, of a CSV file."""
    rows = read_columns(path, (*PLACE, *columns))
    bad = ~np.isfinite(rows).all(1) | (np.abs(rows[:, 0]) > 90) | (np.abs(rows[:, 1]) > 360)
    require(
        not bad.any(),
        f"{path}: latitudes are -90 to 90, longitudes -360 to 360, numbers finite; row {int(bad.argmax()) + 2} is not",
    )
    return rows


def predict_globe(
    network: SFTNetwork, measured: Float[np.ndarray, "samples 3"], mesh: Mesh, places: Float[np.ndarray, "points 2"]
) -> Float[np.ndarray, " points"]:
    """The output at places from rows of latitude, longitude and value of the input; of networks with one function each."""
    space = network.sft.space
    assert isinstance(space, Sphere)
    ((given, asked),) = ((f.name, g.name) for f in network.sft.inputs for g in network.sft.outputs)

    def points(degrees: np.ndarray) -> torch.Tensor:
        return space.project(torch.as_tensor(on_sphere(degrees, space.radius), dtype=torch.float32))

    samples = FunctionSamples(points(measured[:, :2]), torch.as_tensor(measured[:, 2:], dtype=torch.float32))
    batch = SFTBatch({given: samples}, {asked: Queries(points(places))})
    return network.predict(batch, mesh)[asked][:, 0].numpy()


def write_globe(
    path: Path, name: str, places: Float[np.ndarray, "points 2"], values: np.ndarray, measured: np.ndarray, mesh: Mesh
) -> None:
    """Places and values as CSV or NPZ, or the picture of a `globe_grid` of them, from two sides, with mesh and measurements."""
    with replaced(path) as temporary:
        if path.suffix == ".csv":
            with temporary.open("w", newline="") as file:
                csv.writer(file).writerows([(*PLACE, name), *np.column_stack([places, values]).tolist()])
        elif path.suffix == ".npz":
            np.savez(temporary, places=places, values=values)
        else:
            from matplotlib.figure import Figure
            from scipy.interpolate import NearestNDInterpolator

            figure = Figure(figsize=(10, 4.8), layout="constrained")
            field = NearestNDInterpolator(on_sphere(places), values)
            largest = float(np.abs(values).max()) or 1.0
            axes = list(figure.subplots(1, 2))
            for beside, longitude in zip(axes, (0.0, 180.0), strict=True):
                globe = Globe(beside, (20.0, longitude))
                drawn = globe.draw_field(field, 400, cmap="RdBu_r", vmin=-largest, vmax=largest)
                globe.draw_mesh(mesh, color="#333333")
                globe.draw_points(on_sphere(measured[:, :2]), s=9, color="#000000", marker="x", linewidths=0.7)
                beside.set_title(f"seen from 20° north, {longitude:.0f}° east", fontsize=10)
                figure.colorbar(drawn, ax=beside, shrink=0.8, label=name)
            figure.savefig(temporary, dpi=130)


def draw_adapted_globes(path: Path, scenario: SFTBatch, meshes: Mapping[str, Mesh]) -> None:
    """What is true at the queries of one item, as coloured points on every mesh, side by side, with their titles."""
    from matplotlib.figure import Figure

    ((name, truth),) = scenario.targets.items()
    points, values = scenario.queries[name].points, truth[:, 0].numpy()
    assert points is not None
    figure, largest = Figure(figsize=(5 * len(meshes), 4.8), layout="constrained"), float(np.abs(values).max()) or 1.0
    for beside, (title, mesh) in zip(figure.subplots(1, len(meshes), squeeze=False)[0], meshes.items(), strict=True):
        globe = Globe(beside, radius=float(mesh.positions[0].norm()))
        globe.draw_mesh(mesh, color="#333333")
        drawn = globe.draw_points(
            points.numpy(), c=values, s=40, cmap="RdBu_r", vmin=-largest, vmax=largest, edgecolors="#777777"
        )
        beside.set_title(title, fontsize=10)
        figure.colorbar(drawn, ax=beside, shrink=0.8, label=name)
    with replaced(path) as temporary:
        figure.savefig(temporary, dpi=130)
