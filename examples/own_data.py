"""Bring your own data: from CSV files of scattered measurements to predictions, in original units throughout.

    python examples/own_data.py FOLDER

FOLDER has rain.csv [mm], soil.csv [%] and groundwater.csv [m above sea level] with a row day, x_km, y_km, value for each
measurement; if not, synthetic ones are made. The groundwater is learned from rain and soil; predictions.csv maps the last day.
"""

import sys
from pathlib import Path

import numpy as np
import torch
from measurements import write_measurements

import graphelements as ge

SFT = ge.SFT(ge.Box((0, 0), (30, 20)), (ge.InputFunction("rain"), ge.InputFunction("soil")), (ge.OutputFunction("groundwater"),))


def read(path: Path) -> ge.FunctionSamples:
    """Samples of one function; the day is the item. A failed gauge has an empty value: its row is left out."""
    rows = torch.tensor(np.genfromtxt(path, delimiter=",", skip_header=1), dtype=torch.float32)
    rows = rows[rows.isfinite().all(1)]
    return ge.FunctionSamples(points=rows[:, 1:3], values=rows[:, 3:], items=rows[:, 0].long())


def main(folder: Path, seed: int = 0, steps: int = 400) -> dict[str, float]:
    """Train and write predictions.csv; the root mean squared errors on held-out days, in metres."""
    if not (folder / "rain.csv").exists():
        write_measurements(folder, seed)
    rain, soil, level = (read(folder / f"{name}.csv") for name in ("rain", "soil", "groundwater"))
    wells = ge.Queries(level.points, items=level.items)
    num_days = int(level.items.max()) + 1
    data = ge.SFTBatch({"rain": rain, "soil": soil}, {"groundwater": wells}, {"groundwater": level.values}, num_days)
    SFT.validate(data)
    train, test = data.selected(range(num_days * 4 // 5)), data.selected(range(num_days * 4 // 5, num_days))

    network = ge.build_network(SFT, seed=seed)
    network.fit_normalisation([train])  # from here on the network takes and gives original units
    mesh = ge.grid_mesh(SFT.space, (7, 5))  # a node every 5 km

    def batch_of(step: int) -> tuple[ge.SFTBatch, ge.Mesh]:
        random = np.random.default_rng([seed, step])  # the same step always sees the same days
        return train.selected(random.choice(train.num_items, size=16, replace=False)), mesh

    for report in ge.fit(network, batch_of, ge.TrainingConfig(steps, compile="off")):
        if report.step % 100 == 0:
            print(f"step {report.step}: loss {report.loss:.3f}")

    error = ge.item_errors(network, test, mesh)["groundwater"].mean().sqrt().item()
    of_mean = (test.targets["groundwater"] - train.targets["groundwater"].mean()).square().mean().sqrt().item()
    print(f"error on {test.num_items} held-out days: {error:.3f} m; predicting the mean: {of_mean:.3f} m")

    places = torch.cartesian_prod(torch.arange(31.0), torch.arange(21.0))  # every kilometre
    last_day = ge.SFTBatch(test.selected([test.num_items - 1]).inputs, {"groundwater": ge.Queries(places)})
    table = torch.cat([places, network.predict(last_day, mesh)["groundwater"]], dim=1)
    np.savetxt(folder / "predictions.csv", table, "%.3f", delimiter=",", header="x_km,y_km,groundwater_m", comments="")
    return {"error": error, "mean": of_mean}


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "measurements"))
