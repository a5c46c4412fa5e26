"""What every network of an SFT has: losses, scales, checks, and answers in original units."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from jaxtyping import Float
from torch import Tensor, nn

from .errors import require
from .functions import SFT, SFTBatch
from .losses import KINDS, mean_over_items
from .meshes import Mesh
from .normalisation import Normaliser
from .unions import MeshUnion, union

Meshes = Mesh | Sequence[Mesh] | MeshUnion


class SFTNetwork(nn.Module, ABC):
    """A learned SFT: what `fit` trains and a checkpoint holds. Abstract; networks are final."""

    config: Any
    """What `build_network` made it from, and makes it from again when a checkpoint is loaded."""

    def __init__(self, sft: SFT) -> None:
        super().__init__()
        self.sft = sft
        self.losses = nn.ModuleDict({f.name: KINDS[f.loss]() for f in sft.outputs})
        self.input_scales = nn.ModuleDict({f.name: Normaliser(f.channels) for f in sft.inputs})
        self.output_scales = nn.ModuleDict({f.name: Normaliser(f.channels) for f in sft.outputs})
        self.compiled_kernels = False  # for networks that have any

    @abstractmethod
    def forward(self, batch: SFTBatch, meshes: Meshes) -> dict[str, Float[Tensor, "_queries _channels"]]:
        """What the decoders put out for every query, in network units; `predict` gives answers in original units."""

    @abstractmethod
    def predict(self, batch: SFTBatch, meshes: Meshes) -> dict[str, Float[Tensor, "_queries _channels"]]:
        """Answers in original units to any number of queries, in bounded memory and without gradients."""

    def loss(self, outputs: Mapping[str, Tensor], batch: SFTBatch) -> Float[Tensor, ""]:
        """The mean over items of the mean over outputs of the mean over queries, in network units."""
        losses = []
        for name, target in batch.targets.items():
            target = self.output_scales[name].normalised(target)  # type: ignore[operator]
            losses.append((self.losses[name](outputs[name], target), batch.queries[name].items))
        require(len(losses) > 0, "a loss needs targets; this batch has none")
        return mean_over_items(losses, batch.num_items)

    def answer(self, name: str, outputs: Float[Tensor, "queries channels"]) -> Float[Tensor, "queries channels"]:
        """Decoder outputs as predictions in original units."""
        return self.output_scales[name].restored(self.losses[name].answer(outputs))  # type: ignore[operator]

    def fit_normalisation(self, batches: Iterable[SFTBatch]) -> None:
        """Fit the scale of every function on training data."""
        batches = list(batches)
        for batch in batches:
            self.sft.validate(batch, next(self.parameters()).dtype)
        for name, scale in self.input_scales.items():
            scale.fit([b.inputs[name].values for b in batches if name in b.inputs])  # type: ignore[operator]
        for name, scale in self.output_scales.items():
            if self.losses[name].normalised:
                scale.fit([b.targets[name] for b in batches if name in b.targets])  # type: ignore[operator]

    def validate(self, batch: SFTBatch, meshes: Meshes) -> None:
        """Check a batch against the SFT and its meshes, once, at the boundary."""
        self.sft.validate(batch, next(self.parameters()).dtype, self.meshes(meshes, batch.num_items).space)

    def meshes(self, meshes: Meshes, num_items: int | None = None) -> MeshUnion:
        """The union of the meshes of a batch, in a space of this SFT's kind and unit."""
        mesh = union(meshes, num_items)
        ours, theirs = self.sft.space, mesh.space
        require(
            type(ours) is type(theirs) and (ours.dim, ours.unit_length) == (theirs.dim, theirs.unit_length),
            f"meshes must lie in a space of the network's kind, dimension and unit, such as {ours}; got {theirs}",
        )
        return mesh
