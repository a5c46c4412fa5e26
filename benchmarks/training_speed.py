"""Learning the houses from scratch: the `default` preset against the design of the authors' released code, in the same time.

Both see the same generated houses and are judged on the same others. The clock stops while they are judged; drawing batches
counts, compiling the kernels does not and is reported.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter
from torch import Tensor, nn

import graphelements as ge
from graphelements.data.houses import Houses
from graphelements.data.poisson import solved
from graphelements.data.random_houses import draw_houses
from graphelements.perceptron import Perceptron

NUM_TRAINED, NUM_VALIDATED, JUDGEMENTS = 200, 20, 24
RESOLUTIONS, JUDGED, WARM_UP = (2, 3, 4, 5, 6, 7), 7, 100
NAVY, RED = "#1b3a5c", "#c8442e"
Curve = list[tuple[float, float]]  # seconds, error


class ReleasedDesign(nn.Module):
    """The released code's network, written anew in plain torch: one GCN layer for all rounds, soft nearest neighbour, positions.

    softmax(-s dist^2) with a learned s writes and reads; encoder and decoder see the point's position, the GCN layer the node's;
    each of 2k - 1 rounds adds to the states and applies LayerNorm. Sizes are the released ones. The graph is a small dense
    matrix here, where the released code has an edge list.
    """

    def __init__(self, latent_size: int = 32) -> None:
        super().__init__()
        self.encoder = Perceptron((5, latent_size, latent_size, latent_size))
        self.decoder = Perceptron((latent_size + 2, latent_size, latent_size, 1))
        self.layer = nn.Linear(latent_size + 2, latent_size)
        self.norm = nn.LayerNorm(latent_size)
        self.log_sharpness = nn.Parameter(torch.zeros(()))

    def forward(self, batch: ge.SFTBatch, mesh: ge.Mesh) -> Tensor:
        """Temperatures at the queries; items have equally many samples and queries, as the scenarios of one house have."""
        points, values, queries = dense_batch(batch)
        nodes, adjacency = mesh.positions, normalised_adjacency(mesh)
        states = self.weights(points, nodes).mT @ self.encoder(torch.cat([points, values], -1))  # items, nodes, latent
        places = nodes.expand(len(states), *nodes.shape)
        for _ in range(2 * math.isqrt(mesh.num_nodes) - 1):
            mixed = adjacency @ nn.functional.linear(torch.cat([places, states], -1), self.layer.weight)
            states = self.norm(states + mixed + self.layer.bias)
        latents = self.weights(queries, nodes) @ states
        return self.decoder(torch.cat([latents, queries], -1)).flatten(0, 1)

    def weights(self, points: Tensor, nodes: Tensor) -> Tensor:
        """r of every point: softmax over the nodes of -s |x - x_l|^2."""
        squared = nodes.square().sum(-1) - 2 * points @ nodes.T  # |x|^2 is the same for all nodes
        return (-self.log_sharpness.exp() * squared).softmax(-1)


def dense_batch(batch: ge.SFTBatch) -> tuple[Tensor, Tensor, Tensor]:
    """Points, values in the authors' three channels, and query points, each (items, rows, channels)."""
    heaters, border = batch.inputs["heaters"], batch.inputs["border"]
    of_heaters = torch.cat([torch.zeros_like(heaters.values), heaters.values / 768, torch.ones_like(heaters.values)], -1)
    of_border = nn.functional.pad(border.values, (0, 2))
    queries = batch.queries["temperature"].points
    assert queries is not None
    points, values = (
        torch.cat([rows.unflatten(0, (batch.num_items, -1)) for rows in pair], 1)
        for pair in ((heaters.points, border.points), (of_heaters, of_border))
    )
    return points, values, queries.unflatten(0, (batch.num_items, -1))


@cache
def normalised_adjacency(mesh: ge.Mesh) -> Tensor:
    """D^-1/2 (A + I) D^-1/2 of a mesh, dense; D counts the loops too (Kipf and Welling 2017)."""
    adjacency = torch.eye(mesh.num_nodes)
    adjacency[mesh.receivers, mesh.senders] = 1.0
    scale = adjacency.sum(1).rsqrt()
    return scale[:, None] * adjacency * scale


def train_released(houses: Houses, seconds: float, seed: int, judge: Judge) -> Iterator[int]:
    """One house with all of its scenarios and queries a step, on one of the meshes in turn, Adam at 3e-3; yields the step.

    The released code adds up the gradients of 8 houses before a step of Adam; here Adam steps after each.
    """
    torch.manual_seed(seed)
    network, rng = ReleasedDesign(), np.random.default_rng(seed)
    meshes = {k: ge.grid_mesh(ge.Box(), k, "none") for k in RESOLUTIONS}
    optimizer = torch.optim.Adam(network.parameters(), lr=3e-3)
    scenarios, step = np.arange(houses.num_scenarios), 0
    judge.predict = lambda batch: network(batch, meshes[JUDGED])
    while judge.seconds() < seconds:
        batch = houses.batch(np.full(len(scenarios), rng.integers(len(houses))), scenarios)
        optimizer.zero_grad()
        outputs = network(batch, meshes[int(rng.choice(RESOLUTIONS))])
        nn.functional.mse_loss(outputs, batch.targets["temperature"]).backward()
        optimizer.step()
        step += 1
        yield step


class Judge:
    """A clock that stops while it judges, and the curve of (seconds, error) on houses that are not trained on."""

    def __init__(self, houses: Houses, seconds: float) -> None:
        scenarios = np.arange(houses.num_scenarios)
        self.batches = [houses.batch(np.full(len(scenarios), house), scenarios) for house in range(len(houses))]
        self.predict = lambda batch: batch.targets["temperature"]
        self.curve: Curve = []
        # closer together at the beginning, where errors fall fast
        self.due = list(seconds * np.linspace(0.1, 1, JUDGEMENTS) ** 2)
        self.started, self.stopped = time.perf_counter(), 0.0

    def seconds(self) -> float:
        return time.perf_counter() - self.started - self.stopped

    def restart(self) -> None:
        self.started, self.stopped = time.perf_counter(), 0.0

    @torch.no_grad()
    def look(self, last: bool = False) -> None:
        """Judge if it is time to."""
        now, began = self.seconds(), time.perf_counter()
        behind = not self.curve or now - self.curve[-1][0] > 0.01
        if (last and behind) or (self.due and now >= self.due[0]):
            self.due = [due for due in self.due if due > now]
            errors = [float((self.predict(b) - b.targets["temperature"]).square().mean()) for b in self.batches]
            self.curve.append((round(now, 2), float(np.mean(errors))))
            self.stopped += time.perf_counter() - began


def measure(seconds: float = 240.0, seed: int = 0) -> dict[str, Any]:
    """Steps and scenarios a second, the curves, and when each reaches the lowest error of the released design."""
    houses = solved(draw_houses(NUM_TRAINED + NUM_VALIDATED, np.random.default_rng(seed)))
    trained, validated = houses.selected(range(NUM_TRAINED)), houses.selected(range(NUM_TRAINED, len(houses)))
    judge, steps = Judge(validated, seconds), 0
    judge.restart()
    for done in train_released(trained, seconds, seed, judge):
        steps = done
        judge.look()
    judge.look(last=True)
    released = _summary(judge, steps, len(trained.houses[0].powers))

    task = ge.get_task("poisson-square")
    preset = task.presets["default"]
    draw_batch, drawn = task.batch_of(trained, preset, seed), []

    def batch_of(step: int) -> tuple[ge.SFTBatch, Any]:
        batch, meshes = draw_batch(step)
        drawn.append(batch.num_items)  # steps on large meshes have fewer
        return batch, meshes

    compile_seconds, rate = _warmed_up(task, preset, batch_of)
    # the learning rate fades over the run, so its length in steps has to be known
    training = replace(preset.training, steps=max(1, round(0.98 * rate * seconds)))
    network, judge, steps = ge.build_network(task.sft, preset.network, seed), Judge(validated, seconds), 0
    network.fit_normalisation(task.all_of(trained))
    meshes = ge.union(task.mesh(preset.mesh, JUDGED), validated.num_scenarios)
    judge.predict = lambda batch: network.predict(batch, meshes)["temperature"]
    drawn.clear()
    judge.restart()
    for report in ge.fit(network, batch_of, training):
        steps = report.step
        judge.look()
        if judge.seconds() > 1.1 * seconds:
            break
    judge.look(last=True)
    ours = _summary(judge, steps, sum(drawn) / len(drawn))
    if abs(ours["curve"][-1][0] / seconds - 1) > 0.1:
        print(
            f"warning: default trained {ours['curve'][-1][0]} s instead of {seconds}; the speed of the machine changed, repeat it"
        )
    ours |= {"compile_seconds": compile_seconds, "weights": ge.num_weights(network)}
    released |= {"weights": ge.num_weights(ReleasedDesign())}
    return {"seconds": seconds, "default": ours, "released_design": released} | compared(ours["curve"], released["curve"])


def compared(ours: Curve, released: Curve) -> dict[str, Any]:
    """When each has the lowest error of the released design for the first time; its last error would be a matter of luck."""
    best = min(error for _, error in released)
    theirs = next(at for at, error in released if error <= best)
    reached = next((at for at, error in ours if error <= best), None)
    return {
        "ends_at": {"default": ours[-1][1], "released_design": released[-1][1]},
        "lowest_of_released_design": best,
        "reached_after_seconds": {"default": reached, "released_design": theirs},
        "times_faster_to_that_error": None if reached is None else round(theirs / reached, 1),
    }


def _warmed_up(task: Any, preset: Any, batch_of: Any) -> tuple[float, float]:
    """The seconds by which the first steps, with their compilation, exceed as many after them; steps a second of these."""
    network, started, times = ge.build_network(task.sft, preset.network), time.perf_counter(), [0.0]
    for _ in ge.fit(network, batch_of, replace(preset.training, steps=2 * WARM_UP)):
        times.append(time.perf_counter() - started)
    warm = times[-1] - times[WARM_UP]
    return round(times[WARM_UP] - warm, 1), WARM_UP / warm


def _summary(judge: Judge, steps: int, scenarios: float) -> dict[str, Any]:
    rate = steps / judge.curve[-1][0]
    return {"steps": steps, "steps_a_second": round(rate, 2), "scenarios_a_second": round(rate * scenarios), "curve": judge.curve}


def draw(results: list[dict[str, Any]]) -> Figure:
    """Validation error against seconds of training."""
    last = results[-1]
    figure = Figure(figsize=(8, 5), layout="constrained")
    axis = figure.subplots()
    for name, label, colour in (("released_design", "design of the released code", NAVY), ("default", "`default` preset", RED)):
        run = last[name]
        speed = f"{run['steps_a_second']:.1f} steps, {run['scenarios_a_second']:,} scenarios a second"
        axis.plot(*zip(*run["curve"], strict=True), "o-", color=colour, markersize=4, label=f"{label}: {speed}")
    reached, best = last["reached_after_seconds"], last["lowest_of_released_design"]
    axis.axhline(best, color="0.5", linestyle=":", linewidth=1)
    for name, colour in (("released_design", NAVY), ("default", RED)):
        if reached[name] is not None:
            place = {"xytext": (0, -14), "textcoords": "offset points", "ha": "center", "color": colour}
            axis.annotate(f"{reached[name]:.0f} s", (reached[name], best), **place)
    axis.set(yscale="log", xlabel="seconds of training", ylabel="mean squared error, new houses, 7x7 nodes")
    axis.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.yaxis.set_major_formatter("{x:g}")
    axis.yaxis.set_minor_formatter(NullFormatter())
    axis.legend(frameon=False, loc="upper right")
    axis.set_title(f"Learning the houses from scratch on {last['threads']} core{'s' * (last['threads'] > 1)}")
    axis.grid(True, which="major", color="0.9")
    axis.spines[["top", "right"]].set_visible(False)
    return figure
