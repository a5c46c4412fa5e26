"""Tasks whose items come in numbered groups that are held out as a whole: everything but data, meshes and references."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import TypeVar

import numpy as np
import torch

from ..checkpoints import Checkpoint
from ..data.pushes import Pushes
from ..data.sampled_fields import SampledFields
from ..errors import require
from ..meshes import Mesh
from ..moving_meshes import MovingMeshes
from ..samples import SFTBatch
from ..sft_network import SFTNetwork
from ..training import BatchOf, item_errors
from ..unions import MeshUnion, union
from .mesh_mixes import mesh_mix
from .task import RunConfig, Score, Symmetry, Task, method_of, parse_numbers, score, split_numbers

ITEMS_AT_ONCE = 256  # bounds the memory


Data = TypeVar("Data", SampledFields, Pushes)
"""Items in numbered groups: the scenarios of houses, the pushes of objects."""


class GroupedTask(Task[Data]):
    """A task in its parts, on items in groups. Abstract.

    `references`: the error of other methods in every group, by name; `transformed` augments a batch by symmetries.
    """

    @abstractmethod
    def references(self, data: Data) -> Iterator[tuple[str, np.ndarray]]: ...

    @abstractmethod
    def transformed(self, batch: SFTBatch, symmetries: tuple[Symmetry, ...], rng: np.random.Generator) -> SFTBatch: ...

    def subset(self, data: Data, wanted: str, held_out: Collection[int], source: object) -> Data:
        """All groups, those of a split, or those of numbers such as 0-9,12."""
        if wanted == "all":
            return data
        chosen = parse_numbers(wanted) if wanted not in ("train", "test") else []
        if not chosen:
            chosen = [number for number in data.numbers if (number in held_out) == (wanted == "test")]
            require(len(chosen) > 0, f"{source} has nothing of the {wanted} split; use --houses all or numbers")
        return data.selected(chosen)

    def split(self, data: Data, fraction: float, seed: int) -> tuple[Data, Data | None]:
        kept, held_out = split_numbers(data.numbers, fraction, seed)
        return (data.selected(kept), data.selected(held_out)) if held_out else (data, None)

    def batch_of(self, data: Data, config: RunConfig, seed: int, moving: MovingMeshes | None = None) -> BatchOf:
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
            return (self.transformed(drawn, sizes.symmetries, rng) if sizes.symmetries else drawn), meshes

        return batch

    def all_of(self, data: Data) -> list[SFTBatch]:
        return [data.batch(piece) for piece in torch.arange(data.num_items).split(ITEMS_AT_ONCE)]

    def validator(self, data: Data, config: RunConfig) -> Callable[[SFTNetwork], Mapping[str, float]]:
        meshes = {str(k): self.mesh(config.mesh, k) for k in config.batches.resolutions}
        return lambda network: {name: float(group_errors(network, mesh, data)[0].mean()) for name, mesh in meshes.items()}

    def evaluate(
        self,
        checkpoint: Checkpoint,
        data: Data,
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
        for name, judged in self.judged(self.given(data, network.sft)).items():
            for resolution, each in meshes.items():
                progress(f"{method} on {each.num_nodes} nodes{name}")
                scores.append(score(method + name, resolution, each.num_nodes, *group_errors(network, each, judged)))
        for name, errors in self.references(data):
            progress(name)
            scores.append(score(name, 0, 0, errors, 0.0))
        return scores

    def judged(self, data: Data) -> dict[str, Data]:
        """The data whose targets networks are judged by; by others besides, with a name that is put behind the method's."""
        return {"": data}


def group_errors(network: SFTNetwork, mesh: Mesh, data: SampledFields | Pushes) -> tuple[np.ndarray, float]:
    """The mean squared error of every group, the mean over its items and output functions, and the seconds an item takes."""
    pieces = torch.arange(data.num_items).split(ITEMS_AT_ONCE)
    batches = [(data.batch(piece), union(mesh, len(piece))) for piece in pieces]
    item_errors(network, *batches[0])  # warm up caches before the clock starts
    started = time.perf_counter()
    found = [torch.stack(list(item_errors(network, *batch).values())).mean(0) for batch in batches]
    seconds = (time.perf_counter() - started) / data.num_items
    errors = torch.cat(found).double().numpy()
    return np.array([float(errors[members].mean()) for members in data.members.values()]), seconds
