"""Augmentation of pushes: an object that is turned or mirrored with its push moves as before, turned or mirrored."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from ..data.pushes import PICTURES
from ..samples import Queries, SFTBatch
from .task import Symmetry

SYMMETRIES: tuple[Symmetry, ...] = ("square",)


def transformed(batch: SFTBatch, symmetries: Collection[Symmetry], rng: np.random.Generator) -> SFTBatch:
    """Every item with quarter turns of its own, half of them mirrored."""
    num = batch.num_items
    angles = np.pi / 2 * rng.integers(0, 4, num)
    signs = torch.as_tensor(rng.choice([-1.0, 1.0], num), dtype=torch.float32)
    cos, sin = (torch.as_tensor(wave(angles), dtype=torch.float32) for wave in (np.cos, np.sin))
    matrices = torch.stack([cos, -sin * signs, sin, cos * signs], -1).reshape(-1, 2, 2)

    def turned(vectors: Float[Tensor, "n 2"], items: Int[Tensor, " n"]) -> Float[Tensor, "n 2"]:
        return torch.einsum("nij,nj->ni", matrices[items], vectors)

    def values(name: str, rows: Float[Tensor, "n channels"], items: Int[Tensor, " n"]) -> Float[Tensor, "n channels"]:
        if name in PICTURES:
            return rows
        pieces = rows.split(2, -1)  # x, y and dx, dy of a push; dx, dy and dtheta of a motion; or an arm
        return torch.cat([turned(p, items) if p.shape[-1] == 2 else p * signs[items, None] for p in pieces], -1)

    inputs = {
        name: replace(each, points=turned(each.points, each.items), values=values(name, each.values, each.items))
        for name, each in batch.inputs.items()
    }
    queries = {
        name: Queries(
            None if each.points is None else turned(each.points, each.items),
            None if each.conditions is None else values(name, each.conditions, each.items),
            each.items,
        )
        for name, each in batch.queries.items()
    }
    targets = {name: values(name, each, batch.queries[name].items) for name, each in batch.targets.items()}
    return replace(batch, inputs=inputs, queries=queries, targets=targets)
