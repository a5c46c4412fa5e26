"""The baselines with what ours has and they can have: cells or boxes, frames, augmentation, Muon, varied batches."""

from __future__ import annotations

from dataclasses import replace

from ..network_config import ATTENTION, NEURAL_PROCESS, SampleSees
from ..training import TrainingConfig
from .task import BatchConfig, RunConfig, Symmetry


def tuned_rivals(
    symmetries: tuple[Symmetry, ...],
    np_training: tuple[int, int],
    attention_training: tuple[int, int],
    samples_see: SampleSees = "cell",
) -> dict[str, RunConfig]:
    """The presets `np-tuned` and `attention` of a task; of each the steps, and after how many it is validated."""
    batches = BatchConfig(items=48, scenarios=1, queries=48, resolutions=(1,), symmetries=symmetries)
    process = replace(NEURAL_PROCESS, samples_see=samples_see, relative=True)
    attention = replace(ATTENTION, latent_size=64, hidden_size=128, samples_see=samples_see, relative=True)
    rivals = {"np-tuned": (process, np_training, 4e-3), "attention": (attention, attention_training, 6e-3)}
    return {
        name: RunConfig(
            network,
            batches=batches,
            training=TrainingConfig(steps=steps, learning_rate=rate, optimizer="muon", validate_every=every),
        )
        for name, (network, (steps, every), rate) in rivals.items()
    }
