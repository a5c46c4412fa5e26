"""Synthetic measurements for `own_data.py` and the documentation: rain, soil moisture and groundwater of a valley.

    python examples/measurements.py FOLDER

Nothing here was measured. The wetter the soil, the more of the rain reaches the groundwater, which spreads over a few
kilometres and drains into the river on the eastern border. Every day people measure somewhere else, some instruments
fail (an empty value), and on some days nobody probes the soil.
"""

import csv
import sys
from pathlib import Path

import numpy as np
from scipy.ndimage import gaussian_filter, map_coordinates

STEP = 0.5  # km between the cells on which the fields are computed
SPECIFIC_YIELD = 0.05  # share of the ground's volume that water can fill: 1 mm of recharge lifts the groundwater by 20 mm


def fields(random: np.random.Generator) -> dict[str, np.ndarray]:
    """One day's rain [mm], soil moisture [%] and groundwater level [m above sea level] on the cells."""
    x, y = np.meshgrid(np.arange(0, 30 + STEP, STEP), np.arange(0, 20 + STEP, STEP), indexing="ij")
    rain = np.zeros_like(x)
    for _ in range(random.integers(1, 4)):
        centre, width = random.uniform((0, 0), (30, 20)), random.uniform(4, 8)
        rain += random.uniform(10, 40) * np.exp(-((x - centre[0]) ** 2 + (y - centre[1]) ** 2) / (2 * width**2))
    direction, phase = random.uniform(0, 2 * np.pi, size=2)
    waves = np.sin((x * np.cos(direction) + y * np.sin(direction)) / 6 + phase)
    soil = random.uniform(35, 55) + 20 * waves
    recharge = gaussian_filter(rain * soil / 100, sigma=2 / STEP, mode="nearest")
    to_river = 30 - x
    level = 212 + 0.01 * to_river + recharge / 1000 / SPECIFIC_YIELD * (1 - np.exp(-to_river / 6))
    return {"rain_mm": rain, "soil_percent": soil, "groundwater_m": level}


def write_measurements(folder: Path, seed: int = 0, num_days: int = 200) -> None:
    """Write rain.csv, soil.csv and groundwater.csv with a row (day, x_km, y_km, value) a measurement."""
    random = np.random.default_rng(seed)
    most = {"rain_mm": 60, "soil_percent": 40, "groundwater_m": 40}
    rows: dict[str, list] = {name: [["day", "x_km", "y_km", name]] for name in most}
    for day in range(num_days):
        for name, field in fields(random).items():
            number = random.integers(most[name] // 2, most[name] + 1)
            if name == "soil_percent" and random.random() < 0.05:
                number = 0
            places = random.uniform((0, 0), (30, 20), size=(number, 2))
            for place, value in zip(places, map_coordinates(field, places.T / STEP, order=1), strict=True):
                failed = random.random() < 0.05
                rows[name].append([day, f"{place[0]:.2f}", f"{place[1]:.2f}", "" if failed else f"{value:.3f}"])
    folder.mkdir(parents=True, exist_ok=True)
    for name in most:
        with (folder / f"{name.split('_')[0]}.csv").open("w", newline="") as file:
            csv.writer(file).writerows(rows[name])


if __name__ == "__main__":
    write_measurements(Path(sys.argv[1] if len(sys.argv) > 1 else "measurements"))
