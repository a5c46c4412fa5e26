"""Pushing (paper section 4.2): 64 pixels of a picture from above and the push -> how the object moves."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ..data.push_files import joined, keys_to_simulate, load_pushes, save_pushes, simulated
from ..data.pushes import MOTION_SCALE, PICTURE, PUSHING, Pushes, sft_given
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
OCTAVES = 4  # for all but the paper's networks: edges and weights of objects are finer than pixels are apart

NETWORK = NetworkConfig(
    latent_size=128,
    message_size=64,
    edge_hidden=96,
    node_hidden=192,
    encoder_hidden=(192,),
    decoder_hidden=(192,),
    decoder_layers=4,
    gated=True,
    num_octaves=OCTAVES,
    encoder_sees="offset",
    decoder_sees="offset",
    nodes_see="place",
    edges_see="offset",
    representation="multilinear",
    rounds=3,
    residual=True,
    norm="layer",
    integration="area",
)
"""Ours: local coordinates, a few rounds; the states are read where the push goes."""

BATCHES = BatchConfig(items=64, scenarios=1, queries=32, resolutions=SIZES[-1:], symmetries=("square",), inputs=("pixels",))
PLAIN = BatchConfig(items=64, scenarios=4, queries=1, resolutions=SIZES)
FREE = replace(BATCHES, resolutions=(1,))  # networks that run on no mesh
PROCESS = replace(
    NEURAL_PROCESS, latent_size=192, encoder_hidden=(192, 192), decoder_hidden=(192,), decoder_layers=4, num_octaves=OCTAVES
)
ATTENDING = replace(ATTENTION, latent_size=96, hidden_size=192, num_octaves=OCTAVES)
REMEMBERING = replace(ATTENDING, latent_size=64, hidden_size=128)  # of examples, which are fewer and say more


def _tuned(steps: int, rate: float) -> TrainingConfig:
    """About as long as the others, 13 minutes on a thread; rates are those of `pushing-tuning`. `examples` needs less."""
    return TrainingConfig(steps=steps, learning_rate=rate, optimizer="muon", validate_every=steps // 4)


PRESETS = {
    "default": RunConfig(NETWORK, MeshConfig(), BATCHES, _tuned(3600, 1e-2)),
    "mixed": RunConfig(NETWORK, MeshConfig(), replace(BATCHES, resolutions=SIZES, meshes=len(SIZES)), _tuned(3600, 1e-2)),
    "summed": RunConfig(
        replace(NETWORK, decoder_sees="value"), MeshConfig(), replace(BATCHES, integrated=True), _tuned(3600, 1e-2)
    ),
    "paper": RunConfig(
        replace(PAPER, representation="multilinear"), MeshConfig(), PLAIN, TrainingConfig(steps=4000, validate_every=1000)
    ),
    "np": RunConfig(
        NEURAL_PROCESS,
        batches=replace(PLAIN, resolutions=(1,)),
        training=TrainingConfig(steps=3000, learning_rate=1e-3, validate_every=1000),
    ),
    "np-tuned": RunConfig(PROCESS, batches=FREE, training=_tuned(5600, 8e-3)),
    "attention": RunConfig(ATTENDING, batches=FREE, training=_tuned(6000, 1.2e-2)),
    "no-picture": RunConfig(NETWORK, MeshConfig(), replace(BATCHES, inputs=("blank",)), _tuned(3600, 1e-2)),
    "examples": RunConfig(REMEMBERING, batches=replace(FREE, inputs=("examples",)), training=_tuned(3200, 6e-3)),
}
"""The paper's, `paper` and `np`, are told the push beside the picture and sum over the nodes; of the others the query tells the
push, and ours is read where it goes. `default` learns on one mesh, 4 x 4; `mixed` is the same on all four sizes; `summed` is
`default` with an integral over the nodes, as in the paper, instead."""


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
        return sft_given(config.batches.inputs or USUAL, config.batches.integrated)

    def given(self, data: Pushes, sft: SFT) -> Pushes:
        return data.giving(sft)

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
        return build_grid(config, PICTURE, resolution)

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
