"""Predictions of linear networks on a grid as one piece of C++, from samples to answers: for many predictions, fast.

Items are independent of each other, and in a linear network what edges and readers multiply by depends on the mesh alone. So one
pass over an item's few boxes, its nodes and its queries is all there is to do, and nothing of it leaves the cache
(`native/linear.cpp`).
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import torch
from jaxtyping import Float
from torch import Tensor, nn

from .cell_representations import Multilinear
from .compilation import library
from .hearing import Ear
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


class LinearProgram:
    """A linear network in the form that C++ takes; what depends on weights is made anew when weights have changed."""

    def __init__(self, network: GraphElementNetwork) -> None:
        self.network = network
        self.tensors: list[Tensor] = []
        self.made_from: list[tuple[int, int]] = []
        self.plan, self.weights = _numbers([]), torch.zeros(0)
        self.meshes: WeakKeyDictionary[MeshUnion, _Grid] = WeakKeyDictionary()

    def __reduce__(self) -> tuple[type[LinearProgram], tuple[GraphElementNetwork]]:
        return LinearProgram, (self.network,)  # a copy finds its own weights

    @staticmethod
    def serves(network: GraphElementNetwork) -> bool:
        """Whether a network can be a program: linear, with boxes and frames, multilinear r, one pass, and one output that is
        a field."""
        config, sft = network.config, network.sft
        return (
            config.linear
            and config.samples_see == "box"
            and config.relative
            and isinstance(network.representation, Multilinear)
            and (config.encoder_sees, config.decoder_sees) == ("offset", "offset")
            and config.num_octaves == 0
            and config.passes == 1
            and not config.fitted
            and isinstance(config.rounds, int)
            and sft.space.dim <= MOST_DIMENSIONS
            and len(sft.outputs) == 1
            and not sft.outputs[0].integrated
            and sft.outputs[0].conditions == 0
        )

    def answers(self, batch: SFTBatch, mesh: MeshUnion) -> dict[str, Float[Tensor, "_queries _channels"]] | None:
        """What `predict` gives for a batch that was validated, or None where the program does not do it: not on one grid in
        single precision on a processor, items not in order, a sample alone with its value, or more than queries hear in full."""
        (output,) = self.network.sft.outputs
        queries = batch.queries.get(output.name)
        gridded = len(mesh.parts) == 1 and mesh.parts[0].axes is not None and mesh.coarser is None
        if queries is None or queries.points is None or not gridded or not self._follow_weights():
            return None
        if mesh not in self.meshes:
            self.meshes[mesh] = _Grid.of(self.network, mesh)
        answers = queries.points.new_empty(len(queries), output.channels)
        nothing = FunctionSamples(queries.points[:0], answers[:0])
        given = [batch.inputs.get(f.name, nothing) for f in self.network.sft.inputs]
        samples = [each.contiguous() for s in given for each in (s.points, s.values, s.items)]
        asked = [queries.points.contiguous(), queries.items.contiguous()]
        counts = [len(s.points) for s in given]
        possible = library("linear").linear_answers(
            self.plan,
            ctypes.c_void_p(self.weights.data_ptr()),
            self.meshes[mesh].numbers,
            _numbers([n for i, count in enumerate(counts) for n in (count, *_addresses(samples[3 * i : 3 * i + 3]))]),
            _numbers([len(queries), asked[0].data_ptr(), 0, asked[1].data_ptr()]),
            ctypes.c_int64(batch.num_items),
            torch.get_num_threads(),
            ctypes.c_void_p(answers.data_ptr()),
        )
        return {output.name: answers} if possible else None

    def _follow_weights(self) -> bool:
        """Whether weights are in single precision on a processor; what is made from them is, if they have changed."""
        self.tensors = self.tensors or [*self.network.parameters(), *self.network.buffers()]
        if self.tensors[0].device.type != "cpu" or self.tensors[0].dtype != torch.float32:
            return False
        made_from = [(tensor.data_ptr(), tensor._version) for tensor in self.tensors]
        if made_from != self.made_from:
            self.plan, self.weights = _numbers(_plan(self.network)), _aligned(_weights(self.network))
            self.meshes.clear()
            self.made_from = made_from
        return True


class _Grid:
    """What a program needs to know of a mesh; `kept` has the tensors that `numbers` point to."""

    def __init__(self, numbers: ctypes.Array, kept: list[Tensor]) -> None:
        self.numbers, self.kept = numbers, kept

    @staticmethod
    @torch.no_grad()
    def of(network: GraphElementNetwork, mesh: MeshUnion) -> _Grid:
        (part,), reader, passing = mesh.parts, network.reader, network.message_passing
        assert part.axes is not None
        assert isinstance(reader, GatedPerceptron)
        num, edges = part.num_nodes, len(part.senders)  # those of the first item; all others are the same
        spacing, log_spacing = mesh.spacing[:num], mesh.log_spacing[:num]
        base = reader.first.bias + log_spacing[:, None] * reader.first.weight[:, -1]
        incoming, gates = EdgesOfNodes.of(part.receivers, part.senders, num), part.positions.new_zeros(0)
        if isinstance(passing, LinearMessagePassing):
            gates = passing.local(network.graph(mesh).features[:edges]).relu()
            gates = (gates / mesh.degrees[part.receivers].clamp(min=1)[:, None])[incoming.numbers]
        shape = torch.tensor([len(axis) for axis in part.axes])
        nearness = 1 / (mesh.space.unit_length * spacing)
        kept = [shape, torch.cat(part.axes), part.positions, nearness, log_spacing, base, *incoming[:2], gates]
        kept = [rows.contiguous() for rows in kept]
        return _Grid(_numbers([num, *_addresses(kept)]), kept)


def _plan(network: GraphElementNetwork) -> list[int]:
    """The whole numbers of a program, in the order of its constructor in C++."""
    config, sft, (decoder,) = network.config, network.sft, network.decoders.values()
    (output,), rounds = sft.outputs, network.config.rounds
    assert isinstance(decoder, LinearDecoder)
    assert isinstance(rounds, int)
    sizes = [sft.space.dim, len(sft.inputs), config.latent_size, config.encoder_hidden[0], config.edge_hidden, rounds]
    sizes += [decoder.first.out_features, len(decoder.layers), config.ear_layers, output.channels, output.shifts, output.scales]
    sizes += [config.num_heard, any(f.scales for f in sft.inputs)]
    return sizes + [number for f in sft.inputs for number in (f.channels, f.shifts, f.scales, f.name in network.ears)]


def _weights(network: GraphElementNetwork) -> Iterator[Tensor]:
    """Its matrices, inputs x outputs if nothing else is said, and rows, in the same order."""
    sft, (decoder,), reader = network.sft, network.decoders.values(), network.reader
    dim, latent, like = sft.space.dim, network.config.latent_size, next(network.parameters())
    assert isinstance(decoder, LinearDecoder)
    assert isinstance(reader, GatedPerceptron)
    yield like.new_tensor([sft.space.unit_length, THINNEST, ON_SIDE, SMALLEST])
    yield -sft.space.coordinates(like.new_zeros(dim)) * sft.space.unit_length  # the middle of the space
    for f in sft.inputs:
        encoder, scale = network.encoders[f.name], network.cell_scales[f.name]
        assert isinstance(encoder, GatedPerceptron)
        yield from (network.input_scales[f.name].scale, scale.mean, scale.scale)
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
    passing = network.message_passing
    if isinstance(passing, LinearMessagePassing):
        yield from (passing.gate.weight.T, passing.last.weight.T)
    else:  # no rounds
        yield from (like.new_zeros(latent * network.config.edge_hidden),) * 2
    of_latent, of_heard = decoder.first.weight.T.tensor_split([latent])
    yield from (reader.gate.weight.T, reader.first.weight.T[:dim], torch.cat([reader.last.weight.T @ of_latent, of_heard]))
    last, last_of_layer = decoder.last.weight, decoder.last.weight.new_zeros(0)  # outputs x inputs
    for layer in decoder.layers:
        assert isinstance(layer, GatedPerceptron)
        yield from (layer.first.weight.T, layer.first.bias, layer.gate.weight.T, layer.last.weight.T)
        last_of_layer = last @ layer.last.weight
    output = network.output_scales[sft.outputs[0].name]
    yield from (last, last_of_layer, output.scale, output.mean)


@torch.no_grad()
def _aligned(parts: Iterator[Tensor]) -> Float[Tensor, " numbers"]:
    """Tensors one after the other, each beginning at a multiple of 16 numbers."""
    return torch.cat([nn.functional.pad(part.detach().flatten(), (0, -part.numel() % 16)) for part in parts])


def _addresses(tensors: list[Tensor]) -> list[int]:
    return [tensor.data_ptr() for tensor in tensors]


def _numbers(given: list[int]) -> ctypes.Array:
    return (ctypes.c_int64 * len(given))(*given)
