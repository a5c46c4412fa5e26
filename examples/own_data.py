"""Bring your own data: from CSV files of scattered measurements to predictions, in original units throughout.

    python examples/own_data.py FOLDER

FOLDER has rain.csv [mm], soil.csv [%] and groundwater.csv [m] with a row day, x_km, y_km, value a measurement; without
them, synthetic ones are made. Learns groundwater from rain and soil; predictions.csv is the map of the last day.
"""

import sys
from pathlib import Path

import numpy as np
import torch
from measurements import write_measurements

import graphelements as ge

VALLEY = ge.Box((0.0, 0.0), (30.0, 20.0))  # km
SFT = ge.SFT(VALLEY, (ge.InputFunction("rain"), ge.InputFunction("soil")), (ge.OutputFunction("groundwater"),))


def read(path: Path) -> ge.FunctionSamples:
    """Samples of one function; an item is a day. A failed instrument left its value empty: those rows are dropped."""
    rows = torch.tensor(np.genfromtxt(path, delimiter=",", skip_header=1), dtype=torch.float32)
    rows = rows[rows.isfinite().all(1)]
    return ge.FunctionSamples(points=rows[:, 1:3], values=rows[:, 3:], items=rows[:, 0].long())


def main(folder: Path, seed: int = 0, steps: int = 250) -> dict[str, float]:
    """Train and write predictions.csv; the root mean squared errors on held-out days, in metres."""
    if not (folder / "rain.csv").exists():
        write_measurements(folder, seed)
    rain, soil, level = (read(folder / f"{name}.csv") for name in ("rain", "soil", "groundwater"))
    wells, num_days = ge.Queries(level.points, items=level.items), int(level.items.max()) + 1
    data = ge.SFTBatch({"rain": rain, "soil": soil}, {"groundwater": wells}, {"groundwater": level.values}, num_days)
    SFT.validate(data)
    train, test = data.selected(range(num_days * 4 // 5)), data.selected(range(num_days * 4 // 5, num_days))
    network, mesh = ge.build_network(SFT, seed=seed), ge.grid_mesh(VALLEY, (7, 5)).nested()  # a node every 5 km
    network.fit_normalisation([train])  # millimetres and metres become numbers of order one, inside the network only

    def batch_of(step: int) -> tuple[ge.SFTBatch, ge.Mesh]:
        days = np.random.default_rng([seed, step]).choice(train.num_items, size=8, replace=False)
        return train.selected(days.tolist()), mesh

    for report in ge.fit(network, batch_of, ge.TrainingConfig(steps, learning_rate=5e-3, compile="off")):
        if report.step % 50 == 0:
            print(f"step {report.step}: loss {report.loss:.3f}")
    answers = {"network": network.predict(test, mesh)["groundwater"], "mean": train.targets["groundwater"].mean()}
    errors = {name: (answer - test.targets["groundwater"]).square().mean().sqrt().item() for name, answer in answers.items()}
    print("error on held-out days:", ", ".join(f"{name} {error:.3f} m" for name, error in errors.items()))
    places = torch.cartesian_prod(torch.arange(31.0), torch.arange(21.0))  # every kilometre
    last_day = ge.SFTBatch(test.selected([test.num_items - 1]).inputs, {"groundwater": ge.Queries(places)})
    table = torch.cat([places, network.predict(last_day, mesh)["groundwater"]], dim=1)
    np.savetxt(folder / "predictions.csv", table, "%.3f", ",", header="x_km,y_km,groundwater_m", comments="")
    return errors


if __name__ == "__main__":
    torch.set_num_threads(1)  # so small a network is faster on one
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "measurements"))
