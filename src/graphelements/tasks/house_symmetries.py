"""Augmentation by the symmetries of the Poisson problem on the square: a transformed solved scenario is a solved scenario."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from ..samples import FunctionSamples, Queries, SFTBatch
from .task import Symmetry

SCALE, SHIFT = 0.25, 0.5  # deviations of the logarithm of the scale, and of the shift in degrees


def transformed(batch: SFTBatch, symmetries: Collection[Symmetry], rng: np.random.Generator) -> SFTBatch:
    """Every scenario with its own random transformation: the square's 8, the sign, a scale and a shift of all temperatures.

    The problem is linear: with powers and temperatures times a, and temperatures plus a constant, it holds as before.
    """
    num = batch.num_items
    flips = torch.as_tensor(rng.integers(0, 2, (num, 3)).astype(bool) & ("square" in symmetries))
    signs = np.where("sign" in symmetries, rng.choice([-1.0, 1.0], num), 1.0)
    scales = signs * np.exp(SCALE * rng.normal(size=num) * ("scale" in symmetries))
    factors = torch.as_tensor(scales, dtype=torch.float32)[:, None]
    shifts = torch.as_tensor(SHIFT * rng.normal(size=num) * ("shift" in symmetries), dtype=torch.float32)[:, None]

    def moved(points: Float[Tensor, "n 2"], items: Int[Tensor, " n"]) -> Float[Tensor, "n 2"]:
        across, swapped = flips[items].split([2, 1], -1)
        points = torch.where(across, 1 - points, points)
        return torch.where(swapped, points.flip(-1), points)

    heaters, border, queries = batch.inputs["heaters"], batch.inputs["border"], batch.queries["temperature"]
    assert queries.points is not None
    powers = heaters.values * factors[heaters.items]
    exterior = torch.addcmul(shifts[border.items], border.values, factors[border.items])
    temperatures = torch.addcmul(shifts[queries.items], batch.targets["temperature"], factors[queries.items])
    return SFTBatch(
        {
            "heaters": FunctionSamples(moved(heaters.points, heaters.items), powers, heaters.items),
            "border": FunctionSamples(moved(border.points, border.items), exterior, border.items),
        },
        {"temperature": Queries(moved(queries.points, queries.items), items=queries.items)},
        {"temperature": temperatures},
        num,
    )
