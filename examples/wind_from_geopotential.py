"""Geopotential at scattered stations -> wind anywhere on the globe, learned outside Asia and asked for inside it.

    python examples/wind_from_geopotential.py eraint_uvz.nc [wind.png]

The file is ERA-Interim's u, v and z (NetCDF-3: six fields, two months at three pressures); it is not part of this package. Six
fields are a demonstration of the sphere on real data, not a result: all of them are in training, elsewhere on the globe.
"""

import sys
from pathlib import Path

import numpy as np
import torch
from scipy.interpolate import RegularGridInterpolator
from scipy.io import netcdf_file

import graphelements as ge

STATIONS, QUERIES, STEPS = 150, 96, 500
HELD_OUT = (60.0, 140.0)  # degrees east: no wind between these meridians is ever a target of training

EARTH = ge.Sphere(6371.0)  # km
# twice the slope of the geopotential is twice the wind, and its level means nothing
WIND = ge.SFT(EARTH, (ge.InputFunction("geopotential", scales=True, shifts=True),), (ge.OutputFunction("wind", 2, scales=True),))


def read_fields(path: Path) -> list[dict[str, RegularGridInterpolator]]:
    """Of every month and pressure: geopotential height [m], and wind to the east and north [m/s], by latitude and longitude."""
    with netcdf_file(path, "r", mmap=False) as file:
        names = {"z": 9.81, "u": 1.0, "v": 1.0}
        values = {
            name: (file.variables[name][:] * file.variables[name].scale_factor + file.variables[name].add_offset) / unit
            for name, unit in names.items()
        }
        axes = file.variables["latitude"][::-1].astype(float), np.append(file.variables["longitude"][:], 180.0)
    fields = []
    for month, level in np.ndindex(values["z"].shape[:2]):
        maps = {name: np.concatenate([rows := each[month, level, ::-1], rows[:, :1]], 1) for name, each in values.items()}
        fields.append({name: RegularGridInterpolator(axes, rows) for name, rows in maps.items()})
    return fields


def on_globe(places: np.ndarray) -> torch.Tensor:
    """Latitude and longitude in degrees -> points."""
    latitude, longitude = np.radians(places).T
    around = np.cos(latitude)
    points = np.stack([around * np.cos(longitude), around * np.sin(longitude), np.sin(latitude)], -1)
    return EARTH.project(torch.as_tensor(EARTH.radius * points, dtype=torch.float32))


def random_places(rng: np.random.Generator, num: int, inside: bool | None = None) -> np.ndarray:
    """Evenly over the globe, or inside or outside the meridians of `HELD_OUT`."""
    places = np.stack([np.degrees(np.arcsin(rng.uniform(-1, 1, 20 * num))), rng.uniform(-180, 180, 20 * num)], -1)
    within = (places[:, 1] > HELD_OUT[0]) & (places[:, 1] < HELD_OUT[1])
    return places[slice(None) if inside is None else within == inside][:num]


def batch_of(fields: list[dict], rng: np.random.Generator, chosen: list[int], inside: bool) -> ge.SFTBatch:
    """New stations and queries of the chosen fields."""
    items = []
    for field in (fields[number] for number in chosen):
        stations, asked = random_places(rng, STATIONS), random_places(rng, QUERIES, inside)
        heights = torch.as_tensor(field["z"](stations), dtype=torch.float32)[:, None]
        winds = torch.as_tensor(np.stack([field["u"](asked), field["v"](asked)], -1), dtype=torch.float32)
        samples, queries = ge.FunctionSamples(on_globe(stations), heights), ge.Queries(on_globe(asked))
        items.append(ge.SFTBatch({"geopotential": samples}, {"wind": queries}, {"wind": winds}))
    return ge.collate(items)


def main(path: Path, picture: Path | None = None, steps: int = STEPS) -> dict[str, float]:
    """Errors inside the held-out region [m/s, root mean square]: of the network, and of the mean wind of training."""
    fields, mesh = read_fields(path), ge.icosahedral_mesh(EARTH, 2)
    network = ge.build_network(WIND, ge.DEFAULT)
    network.fit_normalisation([batch_of(fields, np.random.default_rng(0), [*range(6)] * 4, inside=False)])

    def batch(step: int):
        rng = np.random.default_rng((1, step))
        return batch_of(fields, rng, rng.integers(0, 6, 12).tolist(), inside=False), ge.union(mesh, 12)

    config = ge.TrainingConfig(steps=steps, learning_rate=5e-3, optimizer="muon")
    for report in ge.fit(network, batch, config):
        if report.step % 50 == 0:
            print(f"step {report.step} of {steps}: loss {report.loss:.4f}", flush=True)
    test = batch_of(fields, np.random.default_rng(2), [*range(6)] * 4, inside=True)
    truth, predicted = test.targets["wind"], network.predict(test, mesh)["wind"]
    errors = {"network": float((predicted - truth).square().mean().sqrt())}
    errors["mean wind of training"] = float((network.output_scales["wind"].mean - truth).square().mean().sqrt())
    if picture is not None:
        draw(picture, network, mesh, fields[3])
    return errors


def draw(picture: Path, network: ge.GraphElementNetwork, mesh: ge.Mesh, field: dict) -> None:
    """True and predicted speed of one field over Asia."""
    from matplotlib.figure import Figure

    stations = random_places(np.random.default_rng(3), STATIONS)
    heights = torch.as_tensor(field["z"](stations), dtype=torch.float32)[:, None]
    samples = {"geopotential": ge.FunctionSamples(on_globe(stations), heights)}

    def true_speed(points: np.ndarray) -> np.ndarray:
        x, y, z = points.T / EARTH.radius
        places = np.degrees(np.stack([np.arcsin(np.clip(z, -1, 1)), np.arctan2(y, x)], -1))
        return np.hypot(field["u"](places), field["v"](places))

    def predicted_speed(points: np.ndarray) -> np.ndarray:
        asked = ge.Queries(EARTH.project(torch.as_tensor(points, dtype=torch.float32)))
        return network.predict(ge.SFTBatch(samples, {"wind": asked}), mesh)["wind"].norm(dim=-1).numpy()

    figure = Figure(figsize=(10, 4.8), layout="constrained")
    titles = {"ERA-Interim, July, 200 hPa": true_speed, f"predicted from {STATIONS} stations": predicted_speed}
    for axes, (title, speed) in zip(figure.subplots(1, 2), titles.items(), strict=True):
        globe = ge.Globe(axes, (25.0, 100.0), EARTH.radius)
        drawn = globe.draw_field(speed, 300, cmap="viridis", vmin=0, vmax=40)
        globe.draw_points(on_globe(stations).numpy(), s=8, color="white")
        axes.set_title(title, fontsize=10)
        figure.colorbar(drawn, ax=axes, shrink=0.7, label="wind [m/s]")
    figure.savefig(picture, dpi=120)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit("give the path of ERA-Interim's u, v and z, a NetCDF-3 file such as eraint_uvz.nc")
    drawn_to = Path(sys.argv[2] if len(sys.argv) > 2 else "wind.png")
    for name, error in main(Path(sys.argv[1]), drawn_to).items():
        print(f"{name}: {error:.2f} m/s")
    print(f"wrote {drawn_to}")
