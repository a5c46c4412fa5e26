"""Augmentation by the symmetries of fields on the sphere that depend linearly on other fields, whatever the direction."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from ..samples import SFTBatch
from .task import Symmetry

SYMMETRIES: tuple[Symmetry, ...] = ("rotation", "sign")


def random_rotations(num: int, rng: np.random.Generator) -> Float[Tensor, "num 3 3"]:
    """Rotations, and rotations with a reflection, uniformly distributed."""
    axes, triangles = np.linalg.qr(rng.normal(size=(num, 3, 3)))
    return torch.as_tensor(axes * np.sign(np.einsum("nii->ni", triangles))[:, None], dtype=torch.float32)


def transformed(batch: SFTBatch, symmetries: Collection[Symmetry], rng: np.random.Generator) -> SFTBatch:
    """Every item with a rotation and a sign of its own, its samples, queries and targets alike."""
    rotations = random_rotations(batch.num_items, rng)
    signs = torch.as_tensor(rng.choice([-1.0, 1.0], batch.num_items), dtype=torch.float32)
    if "rotation" not in symmetries:
        rotations = torch.eye(3).expand_as(rotations)
    if "sign" not in symmetries:
        signs = torch.ones_like(signs)

    def turned(points: Float[Tensor, "n 3"], items: Tensor) -> Float[Tensor, "n 3"]:
        return torch.einsum("nij,nj->ni", rotations[items], points)

    inputs = {
        name: replace(each, points=turned(each.points, each.items), values=each.values * signs[each.items, None])
        for name, each in batch.inputs.items()
    }
    queries = {
        name: replace(each, points=None if each.points is None else turned(each.points, each.items))
        for name, each in batch.queries.items()
    }
    targets = {name: each * signs[batch.queries[name].items, None] for name, each in batch.targets.items()}
    return SFTBatch(inputs, queries, targets, batch.num_items)
