"""What every network of an SFT has: losses, scales, checks, and answers in original units."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from .errors import require
from .functions import SFT, InputFunction
from .losses import KINDS, mean_over_items
from .meshes import Mesh
from .network_config import LIKENESS, AnyNetworkConfig, NetworkConfig
from .normalisation import Normalisers
from .sample_boxes import sample_boxes
from .sample_cells import Cells, num_shapes, sample_cells
from .samples import FunctionSamples, SFTBatch
from .spaces import Space
from .unions import MeshUnion, union

Meshes = Mesh | Sequence[Mesh] | MeshUnion
SMALLEST = 1e-6  # in network units: an item whose values are all zero has this size


@dataclass(frozen=True, eq=False)
class Frame:
    """What an item's values are relative to: its level, in original units, and its size, in network units."""

    levels: Float[Tensor, "items channels"]
    sizes: Float[Tensor, "items 1"]


class SFTNetwork(nn.Module, ABC):
    """A learned SFT: what `fit` trains and a checkpoint holds. Abstract; networks are final."""

    finest: Float[Tensor, ""] | None

    def __init__(self, sft: SFT, config: AnyNetworkConfig) -> None:
        super().__init__()
        self.sft = sft
        self.config = config  # what `build_network` made it from, and makes it from again when a checkpoint is loaded
        self.losses = nn.ModuleDict({f.name: KINDS[f.loss]() for f in sft.outputs})
        self.input_scales = Normalisers({f.name: f.channels for f in sft.inputs})
        self.output_scales = Normalisers({f.name: f.channels for f in sft.outputs})
        self.cell_scales = Normalisers({f.name: sft.space.dim for f in sft.inputs if config.samples_see in LIKENESS})
        self.compiled_kernels = False  # for networks that have any
        cautious = isinstance(config, NetworkConfig) and config.cautious
        self.register_buffer("finest", torch.zeros(()) if cautious else None)  # 0: nothing was learned yet

    @abstractmethod
    def forward(self, batch: SFTBatch, meshes: Meshes) -> dict[str, Float[Tensor, "_queries _channels"]]:
        """What the decoders put out for every query, in network units; `predict` gives answers in original units."""

    @abstractmethod
    def predict(self, batch: SFTBatch, meshes: Meshes) -> dict[str, Float[Tensor, "_queries _channels"]]:
        """Answers in original units to any number of queries, in bounded memory and without gradients."""

    @torch.no_grad()
    def notice(self, meshes: Meshes) -> None:
        """Remember the finest spacing of all meshes that a cautious network learns on, graded ones included."""
        if self.finest is not None:
            here = self.meshes(meshes).mean_spacing.min().to(self.finest)
            self.finest.copy_(torch.where(self.finest > 0, torch.minimum(self.finest, here), here))

    def seen(self, batch: SFTBatch, space: Space | None = None) -> tuple[dict[str, FunctionSamples], Frame | None]:
        """The inputs as encoders see them: values in network units, and with "cell" what the samples stand for besides; with
        "box" samples of equal values are one.

        With `relative`, values are relative to the item's frame, and `restored` puts outputs back into it.
        """
        inputs, frame = self._in_frame(batch)
        if self.config.samples_see in LIKENESS:
            judged = self._judged(inputs, batch.num_items, space or self.sft.space)
            dim = self.sft.space.intrinsic_dim
            for name, (samples, cells) in judged.items():
                values, scale = samples.values, self.cell_scales[name]
                volumes = (dim * (cells.log_sizes - scale.mean).mean(-1, keepdim=True)).exp()
                values = torch.cat([values, values * volumes, scale.normalised(cells.log_sizes), cells.shapes], -1)
                inputs[name] = replace(samples, values=values)
        return inputs, frame

    def _in_frame(self, batch: SFTBatch) -> tuple[dict[str, FunctionSamples], Frame | None]:
        """The inputs in network units, relative to their frame where there is one."""
        frame, functions = self.frame(batch), self._given(batch)
        inputs = {f.name: replace(samples := batch.inputs[f.name], values=self._relative(f, samples, frame)) for f in functions}
        return inputs, frame

    def _judged(
        self, inputs: Mapping[str, FunctionSamples], num_items: int, space: Space
    ) -> dict[str, tuple[FunctionSamples, Cells]]:
        """Of samples whose values are in network units: what encoders take for samples, and their cells."""
        here = (num_items, space, self.compiled_kernels)
        if self.config.samples_see == "box":
            return {name: sample_boxes(samples, *here) for name, samples in inputs.items()}
        cells = sample_cells(list(inputs.values()), *here, LIKENESS[self.config.samples_see])
        return {name: (samples, found) for (name, samples), found in zip(inputs.items(), cells, strict=True)}

    def cell_sizes(self, name: str, samples: FunctionSamples) -> Float[Tensor, "samples dim"]:
        """Of a function's samples as `seen` gives them: the sizes of their cells, in units of the space; one without cells."""
        if self.config.samples_see not in LIKENESS:
            return torch.ones_like(samples.points)
        function, dim = next(f for f in self.sft.inputs if f.name == name), self.sft.space.dim
        first = 2 * function.channels
        if isinstance(self.config, NetworkConfig) and self.config.linear:  # what was read at a sample's place stands before it
            first += samples.values.shape[-1] - seen_channels(function, self.config, dim)
        return self.cell_scales[name].restored(samples.values[:, first : first + dim]).exp()

    def _given(self, batch: SFTBatch) -> list[InputFunction]:
        return [function for function in self.sft.inputs if function.name in batch.inputs]

    def frame(self, batch: SFTBatch) -> Frame | None:
        """The level of every item, the mean of the inputs that shift, and its size, by the mean squares of those that scale.

        Adding a constant to an item's values adds it to its level, multiplying them multiplies its size. None without `relative`.
        """
        if not self.config.relative:
            return None
        like, functions = next(self.parameters()), self._given(batch)
        shifting = [batch.inputs[f.name] for f in functions if f.shifts]
        channels = max((f.channels for f in functions if f.shifts), default=1)
        rows = [like.new_zeros(0, channels), *(s.values for s in shifting)]
        items = [torch.zeros(0, dtype=torch.long, device=like.device), *(s.items for s in shifting)]
        levels = item_means(torch.cat(rows), torch.cat(items), batch.num_items)
        frame = Frame(levels, like.new_ones(batch.num_items, 1))
        squares = like.new_zeros(batch.num_items, 1)
        for function in functions:
            if function.scales:
                samples = batch.inputs[function.name]
                values = self._relative(function, samples, frame)
                squares = squares + item_means(values.square().mean(-1, keepdim=True), samples.items, batch.num_items)
        if any(f.scales for f in self.sft.inputs):
            frame = replace(frame, sizes=squares.clamp(min=SMALLEST**2).sqrt())
        return frame

    def _relative(self, function: InputFunction, samples: FunctionSamples, frame: Frame | None) -> Tensor:
        """A function's values in network units, relative to the frame in what it declares."""
        scale = self.input_scales[function.name]
        if frame is None or not (function.scales or function.shifts):
            return scale.normalised(samples.values)
        values = samples.values - frame.levels.index_select(0, samples.items) if function.shifts else samples.values
        values = values / scale.scale
        return values / frame.sizes.index_select(0, samples.items) if function.scales else values

    def restored(
        self, name: str, outputs: Float[Tensor, "queries channels"], items: Int[Tensor, " queries"], frame: Frame | None
    ) -> Float[Tensor, "queries channels"]:
        """Decoder outputs in the network units of all items, out of the frame of each."""
        function = next(f for f in self.sft.outputs if f.name == name)
        if frame is None or not (function.scales or function.shifts):
            return outputs
        scale = self.output_scales[name]
        level = frame.levels.index_select(0, items) if function.shifts else torch.zeros_like(outputs)
        outputs = outputs * frame.sizes.index_select(0, items) if function.scales else outputs
        return outputs + scale.normalised(level)

    def loss(self, outputs: Mapping[str, Tensor], batch: SFTBatch) -> Float[Tensor, ""]:
        """The mean over items of the mean over outputs of the mean over queries, in network units."""
        losses = []
        for name, target in batch.targets.items():
            target = self.output_scales[name].normalised(target)
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
        centred = not (isinstance(self.config, NetworkConfig) and self.config.linear)
        for name in self.input_scales:
            self.input_scales[name].fit([b.inputs[name].values for b in batches if name in b.inputs], centred)
        for name in self.output_scales:
            if self.losses[name].normalised:
                self.output_scales[name].fit([b.targets[name] for b in batches if name in b.targets], centred)
        found: dict[str, list[Tensor]] = {name: [] for name in self.cell_scales}
        for batch in batches if found else ():
            inputs, _ = self._in_frame(batch)
            for name, (_, cells) in self._judged(inputs, batch.num_items, self.sft.space).items():
                found[name].append(cells.log_sizes)
        for name, log_sizes in found.items():
            self.cell_scales[name].fit(log_sizes)

    def validate(self, batch: SFTBatch, meshes: Meshes) -> None:
        """Check a batch against the SFT and its meshes, once, at the boundary."""
        mesh, dtype = self.meshes(meshes, batch.num_items), next(self.parameters()).dtype
        require(
            mesh.positions.dtype == dtype,
            f"meshes and the network need one precision; got {mesh.positions.dtype} and {dtype}, convert the network with .to",
        )
        self.sft.validate(batch, dtype, mesh.space)

    def meshes(self, meshes: Meshes, num_items: int | None = None) -> MeshUnion:
        """The union of the meshes of a batch, in a space of this SFT's kind and unit."""
        mesh = union(meshes, num_items)
        ours, theirs = self.sft.space, mesh.space
        require(
            type(ours) is type(theirs) and (ours.dim, ours.unit_length) == (theirs.dim, theirs.unit_length),
            f"meshes must lie in a space of the network's kind, dimension and unit, such as {ours}; got {theirs}",
        )
        return mesh


def seen_channels(function: InputFunction, config: AnyNetworkConfig, dim: int) -> int:
    """How many numbers of a sample an encoder sees: its channels, and with cells those times the volume and the cell itself."""
    if config.samples_see == "value":
        return function.channels
    return 2 * function.channels + dim + num_shapes(dim, config.samples_see == "box")


def linear_channels(function: InputFunction, config: NetworkConfig) -> int:
    """How many of these are linear in the values: the values, those times volumes, and what is read at a sample's place."""
    if not config.linear:
        return 0
    return function.channels * (1 if config.samples_see == "value" else 2) + (config.latent_size if config.passes > 1 else 0)


def told_channels(function: InputFunction, config: NetworkConfig, dim: int) -> int:
    """How many numbers of a sample are told to an encoder: what is seen, and with several passes what is read at its place."""
    return seen_channels(function, config, dim) + (config.latent_size if config.passes > 1 else 0)


def place_features(points: Float[Tensor, "n dim"], space: Space, num_octaves: int) -> Float[Tensor, "n features"]:
    """What encoders and decoders that see places see of them: coordinates, and the sines and cosines of each.

    The first have a period of two units of length, each next octave has half the period.
    """
    coordinates = space.coordinates(points)
    angles = [math.pi * 2**octave * coordinates for octave in range(num_octaves)]
    return torch.cat([coordinates, *(wave(a) for a in angles for wave in (torch.sin, torch.cos))], -1)


def place_channels(dim: int, num_octaves: int) -> int:
    """How many numbers `place_features` gives."""
    return dim * (1 + 2 * num_octaves)


def item_means(
    rows: Float[Tensor, "rows channels"], items: Int[Tensor, " rows"], num_items: int
) -> Float[Tensor, "items channels"]:
    """The mean row of every item; zeros for an item without rows."""
    counted = torch.cat([rows, rows.new_ones(len(rows), 1)], -1)
    totals = rows.new_zeros(num_items, counted.shape[-1]).index_add(0, items, counted)
    return totals[:, :-1] / totals[:, -1:].clamp(min=1)
