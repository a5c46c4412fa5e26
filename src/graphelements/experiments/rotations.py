"""Whether answers turn with the questions: predictions on a sphere under joint rotations of samples and queries."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from ..data.sampled_fields import SampledFields
from ..meshes import Mesh
from ..sft_network import SFTNetwork
from ..tasks.sphere_symmetries import transformed


@dataclass(frozen=True)
class RotationSpread:
    """Root mean squares over all queries: the deviation of predictions over rotations, and the error without any."""

    nodes: int
    spread: float
    error: float

    @property
    def ratio(self) -> float:
        return self.spread / self.error


def rotation_spread(
    network: SFTNetwork, mesh: Mesh, data: SampledFields, num_rotations: int = 20, num_items: int = 64, seed: int = 0
) -> RotationSpread:
    """Of the first items of as many groups as there are; every one is turned by rotations and reflections of its own."""
    firsts = torch.stack([members[0] for members in data.members.values()])[:num_items]
    batch, rng = data.batch(firsts), np.random.default_rng(seed)
    (name,) = batch.queries
    truth = batch.targets[name].double()
    error = (network.predict(batch, mesh)[name].double() - truth).square().mean().sqrt()
    answers = [network.predict(transformed(batch, ("rotation",), rng), mesh)[name].double() for _ in range(num_rotations)]
    spread = torch.stack(answers).var(0).mean().sqrt()
    return RotationSpread(mesh.num_nodes, float(spread), float(error))
