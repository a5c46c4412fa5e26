"""Draws docs/figures/house_distributions.png: the authors' houses beside random ones; prints how their truth differs from ours.

python docs/figures/make_house_distributions.py --real DIR --out PNG
"""

from __future__ import annotations

import argparse
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np

from graphelements.data.house_files import load_houses
from graphelements.data.houses import Houses
from graphelements.data.poisson import solved, visible_parts
from graphelements.data.random_houses import draw_houses

NUM_DRAWN = 1000
REAL, DRAWN = "#1b3a5c", "#e07a3f"
OVERLAP = "houses with an overlap (1) or without (0)"


def features(houses: Houses) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """What each panel shows, with its bins."""
    rectangles = np.concatenate([h.rectangles for h in houses.houses])
    others = np.concatenate([h.rectangles[:-1] for h in houses.houses])
    last = np.stack([h.rectangles[-1] for h in houses.houses])
    overlapping = [visible_parts(h.rectangles.tolist()) != [[tuple(r)] for r in h.rectangles.tolist()] for h in houses.houses]
    unit, sides = np.linspace(0, 1, 21), np.arange(0.035, 0.276, 0.02)
    return {
        "heaters in a house": (np.array([len(h.rectangles) for h in houses.houses]), np.arange(0.5, 5)),
        OVERLAP: (np.array(overlapping, dtype=int), np.arange(-0.5, 2)),
        "centre x, all but the last heater": ((others[:, 0] + others[:, 2]) / 2, unit),
        "centre x, last heater": ((last[:, 0] + last[:, 2]) / 2, unit),
        "centre y, all heaters": ((rectangles[:, 1] + rectangles[:, 3]) / 2, unit),
        "width": (rectangles[:, 2] - rectangles[:, 0], sides),
        "height": (rectangles[:, 3] - rectangles[:, 1], sides),
        "power C": (np.concatenate([h.powers.ravel() for h in houses.houses]), np.linspace(-384, 384, 25)),
        "exterior temperature T": (
            np.concatenate([h.exterior_temperatures for h in houses.houses]),
            np.linspace(-1.05, 1.05, 22),
        ),
        "query x": (np.concatenate([h.query_points[..., 0].ravel() for h in houses.houses]), np.linspace(-0.005, 1.005, 102)),
        "temperature at the queries": (np.concatenate([h.temperatures.ravel() for h in houses.houses]), np.linspace(-4, 4, 33)),
    }


def compare_truths(real: Houses) -> None:
    """Print the factor of least squares between phi - T in the files and in our solution, and what is left with it."""
    ours = solved(real)
    exterior = np.stack([house.exterior_temperatures for house in real.houses])[..., None]
    theirs = np.stack([np.asarray(house.temperatures) for house in real.houses]) - exterior
    solution = np.stack([np.asarray(house.temperatures) for house in ours.houses]) - exterior
    factor = (theirs * solution).sum() / np.square(solution).sum()
    before, after = (np.square(theirs - scale * solution).mean() for scale in (1.0, factor))
    print(f"phi - T of the authors is {factor:.3f} times ours (least squares over {len(real)} houses)")
    print(f"mean squared difference {before:.1e}, after scaling by the factor {after:.1e}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--real", type=Path, required=True, help="directory with the authors' houses")
    parser.add_argument("--out", type=Path, required=True, help="the PNG to write")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()

    real = load_houses(arguments.real)
    compare_truths(real)
    drawn = solved(draw_houses(NUM_DRAWN, np.random.default_rng(arguments.seed)))
    of_real, of_drawn = features(real), features(drawn)
    print(f"{of_real[OVERLAP][0].sum()} of {len(real)} houses have overlapping heaters")
    figure, axes = plt.subplots(3, 4, figsize=(14, 8.4), layout="constrained")
    for axis, (name, (values, bins)) in zip(axes.flat, of_real.items(), strict=False):
        axis.hist(of_drawn[name][0], bins, density=True, color=DRAWN, alpha=0.55)
        axis.hist(values, bins, density=True, histtype="step", color=REAL, linewidth=1.6)
        axis.set_title(name, fontsize=11)
        axis.set_yticks([])
        axis.spines[["top", "right", "left"]].set_visible(False)
        if len(bins) < 6:
            axis.set_xticks((bins[1:] + bins[:-1]) / 2)
    legend = axes.flat[-1]
    legend.axis("off")
    handles = [plt.Line2D([], [], color=REAL, linewidth=1.6), plt.Rectangle((0, 0), 1, 1, color=DRAWN, alpha=0.55)]
    legend.legend(
        handles, [f"{len(real)} houses of the authors", f"{len(drawn)} random houses"], loc="center", frameon=False, fontsize=12
    )
    figure.suptitle("How the authors' houses and random ones are distributed (shares of each value)", fontsize=14)
    figure.get_layout_engine().set(h_pad=0.12, w_pad=0.08)
    figure.savefig(arguments.out, dpi=100, metadata={"Software": None})


if __name__ == "__main__":
    main()
