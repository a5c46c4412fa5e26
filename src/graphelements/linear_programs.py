"""Predictions of linear networks on a grid as one piece of C++, from samples to answers: for many predictions, fast.

Items are independent of each other, and in a linear network what edges and readers multiply by depends on the mesh alone. So one
pass over an item's few boxes, its nodes and its queries is all there is to do, and nothing of it leaves the cache
(`native/linear.cpp`).
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch._utils import _flatten_dense_tensors

from .cell_representations import Multilinear
from .compilation import library, numbers
from .errors import require
from .hearing import Ear
from .meshes import Mesh
from .message_passing import LinearMessagePassing
from .perceptron import GatedPerceptron, LinearDecoder
from .sample_boxes import ON_SIDE
from .sample_cells import THINNEST
from .samples import FunctionSamples, SFTBatch
from .sft_network import SMALLEST
from .topology import EdgesOfNodes
from .unions import MeshUnion

if TYPE_CHECKING:
    from .network import GraphElementNetwork

MOST_DIMENSIONS = 8


@dataclass(frozen=True, eq=False)
class _Grid:
    """What a program needs to know of a mesh; `kept` has the tensors that `numbers` point to."""

    numbers: ctypes.Array
    kept: list[Tensor]


@dataclass(frozen=True, eq=False)
class _Made:
    """What is made from the weights of a network, as they were, and the meshes that came with them."""

    made_from: Float[Tensor, " all"]
    plan: ctypes.Array
    weights: Float[Tensor, " numbers"]
    grids: WeakKeyDictionary[Mesh, _Grid] = field(default_factory=WeakKeyDictionary)


class LinearProgram:
    """A linear network in the form that C++ takes; made anew when weights have changed."""

    def __init__(self, network: GraphElementNetwork) -> None:
        self.network = network
        self.made: _Made | None = None
        self.modules: list[nn.Module] = []

    def __reduce__(self) -> tuple[type[LinearProgram], tuple[GraphElementNetwork]]:
        return LinearProgram, (self.network,)  # a copy finds its own weights

    @staticmethod
    def serves(network: GraphElementNetwork) -> bool:
        """Whether a network can be a program: linear, with boxes and frames, multilinear r, one pass, and one output that is
        a field; and of the parts that `build_network` gives it."""
        config, sft, passing = network.config, network.sft, network.message_passing
        gated = [*network.encoders.values(), network.reader]
        return (
            config.linear
            and config.samples_see == "box"
            and config.relative
            and (config.encoder_sees, config.decoder_sees) == ("offset", "offset")
            and config.num_octaves == 0
            and config.passes == 1
            and isinstance(config.rounds, int)
            and sft.space.dim <= MOST_DIMENSIONS
            and len(sft.outputs) == 1
            and not sft.outputs[0].integrated
            and sft.outputs[0].conditions == 0
            and isinstance(network.representation, Multilinear)
            and network.placement is network.field_encoder is None
            and all(isinstance(part, GatedPerceptron) for part in gated)
            and all(isinstance(part, Ear) for part in network.ears.values())
            and all(isinstance(part, LinearDecoder) for part in network.decoders.values())
            and (isinstance(passing, LinearMessagePassing) if config.rounds else passing is None)
        )

    @torch.no_grad()
    def answers(self, batch: SFTBatch, mesh: MeshUnion) -> dict[str, Float[Tensor, "_queries _channels"]] | None:
        """What `predict` gives for a batch that was validated, or None where the program does not do it: not on one grid in
        single precision on a processor, items not in order, a sample alone with its value, or more than queries hear in full."""
        (output,), made = self.network.sft.outputs, self._current()
        queries = batch.queries.get(output.name)
        part, *other_parts = mesh.parts
        if made is None or queries is None or queries.points is None or mesh.coarser is not None or other_parts:
            return None
        nothing = FunctionSamples(queries.points[:0], queries.points.new_zeros(0, 1))
        given = [batch.inputs.get(f.name, nothing) for f in self.network.sft.inputs]
        samples = [rows.contiguous() for s in given for rows in (s.points, s.values, s.items.long())]
        points, items = queries.points.contiguous(), queries.items.long().contiguous()
        fixed = part.axes is not None and not mesh.positions.requires_grad
        if not fixed or any(each.device.type != "cpu" for each in (*samples, points, mesh.positions)):
            return None
        grid = made.grids.get(part) or _grid(self.network, mesh)
        made.grids[part] = grid
        answers = points.new_empty(len(points), output.channels)
        counted = [each for i, s in enumerate(given) for each in (len(s.points), *samples[3 * i : 3 * i + 3])]
        state = library("linear").linear_answers(
            made.plan,
            ctypes.c_void_p(made.weights.data_ptr()),
            ctypes.c_int64(len(made.weights)),
            grid.numbers,
            numbers(*counted),
            numbers(len(points), points, None, items),
            ctypes.c_int64(batch.num_items),
            torch.get_num_threads(),
            ctypes.c_void_p(answers.data_ptr()),
        )
        require(state != -2, "a program needs a network as `build_network` gives it; this one has parts of other sizes")
        if state == -1:
            raise MemoryError("there is too little memory for these predictions")
        return {output.name: answers} if state == 1 else None

    def _current(self) -> _Made | None:
        """What is made from the weights as they are now; None if they are not in single precision on a processor."""
        if [self.network, *(part for m in self.modules for part in m._modules.values() if part is not None)] != self.modules:
            self.modules = _level_by_level(self.network)  # parts were replaced
        tensors = [t for m in self.modules for of in (m._parameters, m._buffers) for t in of.values() if t is not None]
        made_from, made = _flatten_dense_tensors(tensors), self.made
        if made_from.dtype != torch.float32 or made_from.device.type != "cpu":
            return None
        if made is None or not torch.equal(made.made_from, made_from):
            made = _Made(made_from, numbers(*_plan(self.network)), _aligned(_weights(self.network)))
            self.made = made
        return made


def _level_by_level(network: nn.Module) -> list[nn.Module]:
    """A network, its parts, their parts and so on: the parts of each one stand behind those of the one before."""
    found = [network]
    for module in found:
        found += [part for part in module._modules.values() if part is not None]
    return found


def _grid(network: GraphElementNetwork, mesh: MeshUnion) -> _Grid:
    """What C++ takes of the one mesh of a union."""
    (part,), reader, passing = mesh.parts, network.reader, network.message_passing
    assert part.axes is not None
    assert isinstance(reader, GatedPerceptron)
    num, edges, shape = part.num_nodes, len(part.senders), [len(axis) for axis in part.axes]  # all items have the same
    places = part.positions.view(*shape, len(shape))
    axes = [places[(0,) * d + (slice(None),) + (0,) * (len(shape) - d - 1) + (d,)] for d in range(len(shape))]
    spacing, log_spacing = mesh.spacing[:num], mesh.log_spacing[:num]
    base = reader.first.bias + log_spacing[:, None] * reader.first.weight[:, -1]
    incoming, gates = EdgesOfNodes.of(part.receivers, part.senders, num), part.positions.new_zeros(0)
    if isinstance(passing, LinearMessagePassing):
        gates = passing.local(network.graph(mesh).features[:edges]).relu()
        gates = (gates / mesh.degrees[part.receivers].clamp(min=1)[:, None])[incoming.numbers]
    nearness = 1 / (mesh.space.unit_length * spacing)
    kept = [torch.tensor(shape), torch.cat(axes), nearness, log_spacing, base, *incoming[:2], gates]
    kept = [rows.contiguous() for rows in kept]
    return _Grid(numbers(num, *kept), kept)


def _plan(network: GraphElementNetwork) -> list[int]:
    """The whole numbers of a program, in the order of its constructor in C++."""
    sft, (decoder,), reader, rounds = network.sft, network.decoders.values(), network.reader, network.config.rounds
    (output,), passing = sft.outputs, network.message_passing
    assert isinstance(decoder, LinearDecoder)
    assert isinstance(reader, GatedPerceptron)
    assert isinstance(rounds, int)
    edge_hidden = passing.gate.out_features if isinstance(passing, LinearMessagePassing) else 0
    plan = [sft.space.dim, len(sft.inputs), reader.last.out_features, reader.first.out_features, edge_hidden, rounds]
    plan += [decoder.first.out_features, len(decoder.layers), network.config.ear_layers]
    plan += [output.channels, output.shifts, output.scales, network.config.num_heard, any(f.scales for f in sft.inputs)]
    return plan + [number for f in sft.inputs for number in (f.channels, f.shifts, f.scales, f.name in network.ears)]


def _weights(network: GraphElementNetwork) -> Iterator[Tensor]:
    """Its matrices, inputs x outputs if nothing else is said, and rows, in the same order."""
    sft, (decoder,), reader, passing = network.sft, network.decoders.values(), network.reader, network.message_passing
    dim, like = sft.space.dim, next(network.parameters())
    assert isinstance(decoder, LinearDecoder)
    assert isinstance(reader, GatedPerceptron)
    yield like.new_tensor([sft.space.unit_length, THINNEST, ON_SIDE, SMALLEST])
    yield -sft.space.coordinates(like.new_zeros(dim)) * sft.space.unit_length  # the middle of the space
    for f in sft.inputs:
        encoder, values, cells = network.encoders[f.name], network.input_scales[f.name], network.cell_scales[f.name]
        assert isinstance(encoder, GatedPerceptron)
        yield from (values.mean, values.scale, cells.mean, cells.scale)
        yield from encoder.first.weight.T.split([2 * dim, dim + 1])
        yield from (encoder.first.bias, encoder.gate.weight.T, encoder.last.weight.T)
        if f.name in network.ears:
            ear = network.ears[f.name]
            assert isinstance(ear, Ear)
            yield from ear.base.weight.T.split([2 * dim, dim])
            yield from (ear.base.bias, ear.gate.weight.T, ear.local.weight.T)
            for layer in ear.layers:
                assert isinstance(layer, nn.Linear)
                yield from (layer.weight.T, layer.bias)
    if isinstance(passing, LinearMessagePassing):
        yield from (passing.gate.weight.T, passing.last.weight.T)
    of_latent, of_heard = decoder.first.weight.T.tensor_split([reader.last.out_features])
    yield from (reader.gate.weight.T, reader.first.weight.T[:dim], torch.cat([reader.last.weight.T @ of_latent, of_heard]))
    last, last_of_layer = decoder.last.weight, decoder.last.weight.new_zeros(0)  # outputs x inputs
    for layer in decoder.layers:
        assert isinstance(layer, GatedPerceptron)
        yield from (layer.first.weight.T, layer.first.bias, layer.gate.weight.T, layer.last.weight.T)
        last_of_layer = last @ layer.last.weight
    output = network.output_scales[sft.outputs[0].name]
    yield from (last, last_of_layer, output.scale, output.mean)


def _aligned(parts: Iterator[Tensor]) -> Float[Tensor, " numbers"]:
    """Tensors one after the other, each beginning at a multiple of 16 numbers."""
    return torch.cat([nn.functional.pad(part.detach().flatten(), (0, -part.numel() % 16)) for part in parts])
