"""Tasks whose data are sampled fields: everything but the SFT, the data, the meshes, the symmetries and the references."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..checkpoints import Checkpoint
from ..data.sampled_fields import SampledFields, load_fields, save_fields
from ..errors import require
from ..functions import SFT
from ..meshes import Mesh, MeshConfig
from ..moving_meshes import MovingMeshes
from ..samples import SFTBatch, collate
from ..sft_network import SFTNetwork
from ..training import BatchOf, item_errors
from ..unions import MeshUnion, union
from .mesh_mixes import mesh_mix
from .task import RunConfig, Score, Symmetry, Task, method_of, parse_numbers, score, split_numbers

ITEMS_AT_ONCE = 256  # bounds the memory


class SampledTask(Task[SampledFields]):
    """A task in its parts. `make` yields group after group from their number and a seed; of the groups in a file, every fifth
    is held out.

    `references`: what other methods answer to all queries of some data, by name; `transformed` augments a batch by symmetries.
    """

    def __init__(
        self,
        name: str,
        sft: SFT,
        presets: Mapping[str, RunConfig],
        make: Callable[[int, int], Iterator[SampledFields]],
        mesh_of: Callable[[MeshConfig, int], Mesh],
        references: Callable[[SampledFields], Iterator[tuple[str, np.ndarray]]],
        symmetries: tuple[Symmetry, ...],
        transformed: Callable[[SFTBatch, tuple[Symmetry, ...], np.random.Generator], SFTBatch],
    ) -> None:
        self.name, self.sft, self.presets, self.symmetries = name, sft, presets, symmetries
        self._make, self._mesh_of, self._references, self._transformed = make, mesh_of, references, transformed

    def generate(self, path: Path, num: int, seed: int) -> Iterator[int]:
        done = []
        for group in self._make(num, seed):
            done.append(group)
            yield len(done)
        fields = SampledFields(collate([group.items for group in done]), torch.cat([group.groups for group in done]))
        save_fields(path, fields, {"task": self.name, "seed": seed})

    def load(self, path: Path, subset: str = "all") -> SampledFields:
        fields = load_fields(path, self.sft)
        if subset == "all":
            return fields
        chosen = parse_numbers(subset) if subset not in ("train", "test") else []
        if not chosen:
            chosen = [number for number in fields.numbers if self.held_out(number) == (subset == "test")]
            require(len(chosen) > 0, f"{path} has nothing of the {subset} split; use --houses all or numbers")
        return fields.selected(chosen)

    def held_out(self, number: int) -> bool:
        return number % 5 == 4

    def describe(self, data: SampledFields) -> dict[str, Any]:
        rows = {f.name: torch.bincount(data.items.inputs[f.name].items, minlength=data.items.num_items) for f in self.sft.inputs}
        targets = {name: f"mean {t.mean():.4f}, variance {t.var():.4f}" for name, t in data.items.targets.items()}
        return {
            "houses": len(data),
            "numbers": f"{min(data.numbers)} to {max(data.numbers)}",
            "scenarios": data.items.num_items,
            **{f"samples of {name}": f"{int(counts.min())} to {int(counts.max())}" for name, counts in rows.items()},
            **targets,
        }

    def split(self, data: SampledFields, fraction: float, seed: int) -> tuple[SampledFields, SampledFields | None]:
        kept, held_out = split_numbers(data.numbers, fraction, seed)
        return (data.selected(kept), data.selected(held_out)) if held_out else (data, None)

    def batch_of(self, data: SampledFields, config: RunConfig, seed: int, moving: MovingMeshes | None = None) -> BatchOf:
        sizes, members = self.checked(config).batches, list(data.members.values())
        num_groups = min(sizes.items, len(members))
        num_scenarios = min(sizes.scenarios, *map(len, members))
        draw_meshes = mesh_mix(lambda k: self.mesh(config.mesh, k), config, num_groups * num_scenarios, seed)

        def batch(step: int) -> tuple[SFTBatch, MeshUnion]:
            rng = np.random.default_rng((seed, step))
            meshes = draw_meshes(rng)
            groups = rng.permutation(len(members))[:num_groups]
            chosen = torch.cat([members[group][rng.permutation(len(members[group]))[:num_scenarios]] for group in groups])
            chosen = chosen[torch.as_tensor(rng.permutation(len(chosen))[: meshes.num_items])]
            drawn = data.batch(chosen, sizes.queries, int(rng.integers(2**31)))
            return (self._transformed(drawn, sizes.symmetries, rng) if sizes.symmetries else drawn), meshes

        return batch

    def all_of(self, data: SampledFields) -> list[SFTBatch]:
        pieces = torch.arange(data.items.num_items).split(ITEMS_AT_ONCE)
        return [data.batch(piece) for piece in pieces]

    def validator(self, data: SampledFields, config: RunConfig) -> Callable[[SFTNetwork], Mapping[str, float]]:
        meshes = {str(k): self.mesh(config.mesh, k) for k in config.batches.resolutions}
        return lambda network: {name: float(group_errors(network, mesh, data)[0].mean()) for name, mesh in meshes.items()}

    def mesh(self, config: MeshConfig, resolution: int) -> Mesh:
        return self._mesh_of(config, resolution)

    def evaluate(
        self,
        checkpoint: Checkpoint,
        data: SampledFields,
        resolutions: tuple[int, ...],
        progress: Callable[[str], None] = lambda _: None,
        mesh: Mesh | None = None,
    ) -> list[Score]:
        network, method = checkpoint.network, method_of(checkpoint.network)
        meshes = {k: self.mesh(checkpoint.mesh, k) for k in (resolutions if method == "gen" else (1,))}
        if mesh is not None:
            require(method == "gen", f"a network of the kind {method} runs on no mesh; leave the mesh out")
            meshes = {0: mesh} | meshes
        scores = []
        for resolution, each in meshes.items():
            progress(f"{method} on {each.num_nodes} nodes")
            scores.append(score(method, resolution, each.num_nodes, *group_errors(network, each, data)))
        for name, answers in self._references(data):
            progress(name)
            scores.append(score(name, 0, 0, _by_group(answers, data), 0.0))
        return scores


def group_errors(network: SFTNetwork, mesh: Mesh, data: SampledFields) -> tuple[np.ndarray, float]:
    """The mean squared error of every group, the mean over its items and output functions, and the seconds an item takes."""
    pieces = torch.arange(data.items.num_items).split(ITEMS_AT_ONCE)
    batches = [(data.batch(piece), union(mesh, len(piece))) for piece in pieces]
    item_errors(network, *batches[0])  # warm up caches before the clock starts
    started = time.perf_counter()
    found = [torch.stack(list(item_errors(network, *batch).values())).mean(0) for batch in batches]
    seconds = (time.perf_counter() - started) / data.items.num_items
    errors = torch.cat(found).double()
    return np.array([float(errors[members].mean()) for members in data.members.values()]), seconds


def _by_group(answers: np.ndarray, data: SampledFields) -> np.ndarray:
    """The mean squared error of answers to all queries of the one output function, of every group."""
    ((name, targets),) = data.items.targets.items()
    items, num = data.items.queries[name].items, data.items.num_items
    squares = np.square(answers - targets[:, 0].double().numpy())
    means = np.bincount(items, squares, minlength=num) / np.bincount(items, minlength=num)
    return np.array([float(means[members].mean()) for members in data.members.values()])
