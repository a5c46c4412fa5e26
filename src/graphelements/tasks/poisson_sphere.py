"""The Poisson problem on the sphere (paper section 4.1 and A.3): the Laplacian at scattered points -> the solution anywhere."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from ..data.harmonics import harmonics, inverse_laplacian, least_squares
from ..data.sampled_fields import SampledFields
from ..data.sphere_fields import POISSON_SPHERE, UNIT_SPHERE, poisson_fields
from ..meshes import Mesh, MeshConfig
from ..network_config import DEFAULT, NEURAL_PROCESS, PAPER
from ..sphere_meshes import build_sphere
from ..training import TrainingConfig
from .rivals import tuned_rivals
from .sampled_task import SampledTask
from .sphere_symmetries import SYMMETRIES, transformed
from .task import BatchConfig, RunConfig

DEGREE = 3  # the solutions are sums of harmonics of degrees 1 and 3

OURS = RunConfig(
    # linear problems, and samples that have to be weighed against each other
    replace(DEFAULT, gated=True, passes=2, fitted=True),
    MeshConfig(nested=True, nesting_ratio=1.5),
    BatchConfig(
        items=48,
        scenarios=1,
        queries=48,
        meshes=8,
        random_meshes=0.5,
        nesting_ratios=(2.0, 1.5, 1.25),  # deep nests, or the yet deeper ones of finer meshes are strange to the network
        symmetries=SYMMETRIES,
    ),
    TrainingConfig(steps=3000, learning_rate=8e-3, optimizer="muon", validate_every=1500),
)

PRESETS = {
    "default": OURS,
    "paper": RunConfig(PAPER, MeshConfig(edges="radius", radius=1.0), training=TrainingConfig(steps=4000)),
    "np": RunConfig(
        NEURAL_PROCESS, batches=BatchConfig(resolutions=(1,)), training=TrainingConfig(steps=4500, learning_rate=1e-3)
    ),
    **tuned_rivals(SYMMETRIES, np_training=(16000, 4000), attention_training=(8000, 4000)),  # for about as long as ours
}


def mesh_of(config: MeshConfig, resolution: int) -> Mesh:
    """The regular mesh of the unit sphere of a resolution."""
    return build_sphere(config, UNIT_SPHERE, resolution)


def references(data: SampledFields) -> Iterator[tuple[str, np.ndarray]]:
    """Least squares in harmonics up to degree 3, which knows the equation and the form of its solutions; and the mean."""
    targets, answers = data.items.targets["solution"][:, 0].double().numpy(), []
    for points, values, asked in data.each():
        factors = least_squares(points, values, DEGREE)
        answers.append(harmonics(asked, DEGREE) @ (factors * inverse_laplacian(DEGREE)))
    yield "harmonics", np.concatenate(answers)
    yield "mean", np.full(len(targets), targets.mean())


TASK = SampledTask("poisson-sphere", POISSON_SPHERE, PRESETS, poisson_fields, mesh_of, references, SYMMETRIES, transformed)
