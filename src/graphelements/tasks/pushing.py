"""Pushing (paper section 4.2): 64 pixels of a picture from above and the push -> how the object moves."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ..data.push_files import joined, keys_to_simulate, load_pushes, save_pushes, simulated
from ..data.pushes import MOTION_SCALE, PUSHING, TABLE, Pushes
from ..errors import choose
from ..functions import SFT
from ..meshes import Mesh, MeshConfig, build_grid
from ..network_config import ATTENTION, NEURAL_PROCESS, PAPER, NetworkConfig
from ..samples import SFTBatch
from ..training import TrainingConfig
from .grouped_task import GroupedTask
from .push_symmetries import SYMMETRIES, transformed
from .task import BatchConfig, RunConfig, Symmetry

USUAL = ("pixels", "push")
SIZES = (1, 2, 3, 4)

NETWORK = NetworkConfig(
    latent_size=64,
    message_size=32,
    edge_hidden=64,
    node_hidden=128,
    encoder_hidden=(64,),
    decoder_hidden=(128,),
    decoder_layers=3,
    encoder_sees="offset",
    nodes_see="place",
    edges_see="offset",
    representation="multilinear",
    rounds=4,
    residual=True,
    norm="layer",
)
"""Ours: local coordinates, a few rounds and a deeper decoder of the sum over nodes."""

BATCHES = BatchConfig(items=64, scenarios=4, queries=1, resolutions=SIZES, symmetries=("rotation",))
PLAIN = replace(BATCHES, items=64, scenarios=4, symmetries=())
FREE = replace(BATCHES, resolutions=(1,))  # networks that run on no mesh
TUNED = TrainingConfig(steps=6000, learning_rate=4e-3, optimizer="muon", validate_every=1000)
PROCESS = replace(NEURAL_PROCESS, latent_size=192, encoder_hidden=(192, 192), decoder_hidden=(192,), decoder_layers=4)
ATTENDING = replace(ATTENTION, latent_size=64, hidden_size=128, num_octaves=4)

PRESETS = {
    "default": RunConfig(NETWORK, MeshConfig(), BATCHES, TUNED),
    "paper": RunConfig(
        replace(PAPER, representation="multilinear"), MeshConfig(), PLAIN, TrainingConfig(steps=6000, validate_every=1000)
    ),
    "np": RunConfig(
        NEURAL_PROCESS,
        batches=replace(PLAIN, resolutions=(1,)),
        training=TrainingConfig(steps=6000, learning_rate=1e-3, validate_every=1000),
    ),
    "np-tuned": RunConfig(PROCESS, batches=FREE, training=TUNED),
    "attention": RunConfig(ATTENDING, batches=FREE, training=TUNED),
    "no-picture": RunConfig(NETWORK, MeshConfig(), replace(BATCHES, inputs=("push",)), TUNED),
    "examples": RunConfig(ATTENDING, batches=replace(FREE, inputs=("examples", "push")), training=TUNED),
}


class PushingTask(GroupedTask[Pushes]):
    """The task; its groups are objects, its items pushes."""

    name = "pushing"
    sft = PUSHING
    presets = PRESETS
    symmetries = SYMMETRIES
    resolutions = SIZES

    def generate(self, path: Path, num: int, seed: int, source: Path | None = None) -> Iterator[int]:
        keys, held_out = keys_to_simulate(source, num, seed)
        done = []
        for each in simulated(keys, seed):
            done.append(each)
            yield len(done)
        save_pushes(
            path,
            joined(keys, held_out, done),
            {"task": self.name, "seed": seed, "objects": "random" if source is None else source.name},
        )

    def load(self, path: Path, subset: str = "all") -> Pushes:
        pushes = load_pushes(path)
        return self.subset(pushes, subset, self.held_out(pushes), path)

    def held_out(self, data: Pushes) -> list[int]:
        return [number for number, held in zip(data.numbers, data.held_out, strict=True) if held]

    def sft_of(self, config: RunConfig) -> SFT:
        names = config.batches.inputs or USUAL
        for name in names:
            choose("an input of pushing", name, [f.name for f in PUSHING.inputs])
        return replace(PUSHING, inputs=tuple(f for f in PUSHING.inputs if f.name in names))

    def given(self, data: Pushes, sft: SFT) -> Pushes:
        return data.giving([f.name for f in sft.inputs])

    def describe(self, data: Pushes) -> dict[str, Any]:
        moved = np.hypot(*data.motions[:, :2].T) > 1e-3
        spread, counts = data.motions.std(0), np.bincount(data.objects)
        return {
            "houses": len(data),
            "numbers": f"{min(data.numbers)} to {max(data.numbers)}",
            "scenarios": data.num_items,
            "kind": "real" if data.exact is None else "simulated",
            "pushes an object": f"{counts.min()} to {counts.max()}",
            "motions": f"deviations {1e3 * spread[0]:.1f} mm, {1e3 * spread[1]:.1f} mm, {spread[2]:.3f} rad",
            "moved by 1 mm": f"{moved.mean():.3f} of the pushes",
        }

    def mesh(self, config: MeshConfig, resolution: int) -> Mesh:
        return build_grid(config, TABLE, resolution)

    def judged(self, data: Pushes) -> dict[str, Pushes]:
        """By motions without noise where they are known, and by measured ones besides."""
        return {"": data} if data.exact is None else {"": replace(data, without_noise=True), "-measured": data}

    def references(self, data: Pushes) -> Iterator[tuple[str, np.ndarray]]:
        """An object that stays where it is; and the error of the measured motions themselves."""
        truth = data.motions if data.exact is None else data.exact
        answers = {"still": np.zeros_like(truth)} | ({} if data.exact is None else {"noise": data.motions})
        for name, answer in answers.items():
            squares = np.square((answer - truth) / MOTION_SCALE).mean(1)
            yield name, np.array([float(squares[members].mean()) for members in data.members.values()])

    def transformed(self, batch: SFTBatch, symmetries: tuple[Symmetry, ...], rng: np.random.Generator) -> SFTBatch:
        return transformed(batch, symmetries, rng)


TASK = PushingTask()
