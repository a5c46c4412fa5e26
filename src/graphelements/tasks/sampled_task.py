"""Tasks whose data are sampled fields in files of their own, every fifth group held out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..data.sampled_fields import SampledFields, load_fields, save_fields
from ..functions import SFT
from ..meshes import Mesh, MeshConfig
from ..samples import SFTBatch, collate
from .grouped_task import GroupedTask
from .task import RunConfig, Symmetry


class SampledTask(GroupedTask[SampledFields]):
    """A task in its parts. `make` yields group after group from their number and a seed; `answers`: what other methods answer to
    all queries of some data, by name."""

    def __init__(
        self,
        name: str,
        sft: SFT,
        presets: Mapping[str, RunConfig],
        make: Callable[[int, int], Iterator[SampledFields]],
        mesh_of: Callable[[MeshConfig, int], Mesh],
        answers: Callable[[SampledFields], Iterator[tuple[str, np.ndarray]]],
        symmetries: tuple[Symmetry, ...],
        transformed: Callable[[SFTBatch, tuple[Symmetry, ...], np.random.Generator], SFTBatch],
    ) -> None:
        self.name, self.sft, self.presets, self.symmetries = name, sft, presets, symmetries
        self._make, self._mesh_of, self._answers, self._transformed = make, mesh_of, answers, transformed

    def generate(self, path: Path, num: int, seed: int, source: Path | None = None) -> Iterator[int]:
        self.refuse(source)
        done = []
        for group in self._make(num, seed):
            done.append(group)
            yield len(done)
        fields = SampledFields(collate([group.items for group in done]), torch.cat([group.groups for group in done]))
        save_fields(path, fields, {"task": self.name, "seed": seed})

    def load(self, path: Path, subset: str = "all") -> SampledFields:
        fields = load_fields(path, self.sft)
        return self.subset(fields, subset, self.held_out(fields), path)

    def held_out(self, data: SampledFields) -> list[int]:
        return [number for number in data.numbers if number % 5 == 4]

    def describe(self, data: SampledFields) -> dict[str, Any]:
        rows = {f.name: torch.bincount(data.items.inputs[f.name].items, minlength=data.num_items) for f in self.sft.inputs}
        targets = {name: f"mean {t.mean():.4f}, variance {t.var():.4f}" for name, t in data.items.targets.items()}
        return {
            "houses": len(data),
            "numbers": f"{min(data.numbers)} to {max(data.numbers)}",
            "scenarios": data.num_items,
            **{f"samples of {name}": f"{int(counts.min())} to {int(counts.max())}" for name, counts in rows.items()},
            **targets,
        }

    def mesh(self, config: MeshConfig, resolution: int) -> Mesh:
        return self._mesh_of(config, resolution)

    def references(self, data: SampledFields) -> Iterator[tuple[str, np.ndarray]]:
        for name, answers in self._answers(data):
            yield name, _by_group(answers, data)

    def transformed(self, batch: SFTBatch, symmetries: tuple[Symmetry, ...], rng: np.random.Generator) -> SFTBatch:
        return self._transformed(batch, symmetries, rng)


def _by_group(answers: np.ndarray, data: SampledFields) -> np.ndarray:
    """The mean squared error of answers to all queries of the one output function, of every group."""
    ((name, targets),) = data.items.targets.items()
    items, num = data.items.queries[name].items, data.num_items
    squares = np.square(answers - targets[:, 0].double().numpy())
    means = np.bincount(items, squares, minlength=num) / np.bincount(items, minlength=num)
    return np.array([float(means[members].mean()) for members in data.members.values()])
