import numpy as np
import torch

import graphelements as ge


def read(path):  # rows of day, x [km], y [km], value; as many as there are, anywhere
    rows = torch.tensor(np.genfromtxt(path, delimiter=",", skip_header=1), dtype=torch.float32)
    rows = rows[rows.isfinite().all(1)]  # without failed instruments
    return ge.FunctionSamples(points=rows[:, 1:3], values=rows[:, 3:], items=rows[:, 0].long())


rain, soil, level = read("rain.csv"), read("soil.csv"), read("groundwater.csv")  # mm, %, m
valley = ge.Box((0.0, 0.0), (30.0, 20.0))  # km
sft = ge.SFT(valley, (ge.InputFunction("rain"), ge.InputFunction("soil")), (ge.OutputFunction("groundwater"),))
wells, today = ge.Queries(level.points, items=level.items), int(rain.items.max())
data = ge.SFTBatch({"rain": rain, "soil": soil}, {"groundwater": wells}, {"groundwater": level.values}, num_items=today + 1)
past, network, mesh = data.selected(range(today)), ge.build_network(sft), ge.grid_mesh(valley, (7, 5))
network.fit_normalisation([past])


def batch_of(step):  # eight past days
    return past.selected(np.random.default_rng(step).permutation(today)[:8].tolist()), mesh


for report in ge.fit(network, batch_of, ge.TrainingConfig(steps=150, learning_rate=5e-3, compile="off")):
    print(f"\rstep {report.step}, loss {report.loss:.3f}", end="")
places = torch.cartesian_prod(torch.arange(31.0), torch.arange(21.0))  # every kilometre
answers = network.predict(ge.SFTBatch(data.selected([today]).inputs, {"groundwater": ge.Queries(places)}), mesh)["groundwater"]
np.savetxt("predictions.csv", torch.cat([places, answers], 1), "%.3f", ",", header="x_km,y_km,groundwater_m", comments="")
