"""Networks from their configs, with freshly drawn weights."""

from __future__ import annotations

from typing import overload

import torch
from torch import nn

from .attention import AttentionNetwork, build_attention
from .cell_representations import Barycentric, Multilinear
from .errors import require
from .fitting import num_fitted
from .functions import SFT, OutputFunction
from .hearing import Ear, Ears
from .message_passing import MessagePassing
from .network import GraphElementNetwork
from .network_config import DEFAULT, AttentionConfig, NetworkConfig, Sees
from .perceptron import GatedPerceptron, Perceptron, ResidualPerceptron
from .representations import NearestNodes, Representation, SoftNearest
from .sft_network import SFTNetwork, place_channels, told_channels


@overload
def build_network(sft: SFT, config: NetworkConfig = DEFAULT, seed: int = 0) -> GraphElementNetwork: ...
@overload
def build_network(sft: SFT, config: AttentionConfig, seed: int = 0) -> AttentionNetwork: ...
def build_network(sft: SFT, config: NetworkConfig | AttentionConfig = DEFAULT, seed: int = 0) -> SFTNetwork:
    """A network for this SFT with freshly drawn weights; the class of the config says of which kind."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        if isinstance(config, AttentionConfig):
            return build_attention(sft, config)
        dim, latent = sft.space.dim, config.latent_size
        require(
            not config.fitted or sft.space.intrinsic_dim == 2,
            f"fields are fitted on a plane or a sphere; this space is {sft.space}, set network.fitted=false",
        )

        def seeing(num_values: int, sees: Sees) -> Perceptron | GatedPerceptron:
            local = dim + 1 if sees == "offset" else 0
            if config.gated:
                return GatedPerceptron(num_values, local, config.encoder_hidden[0], latent)
            return Perceptron((num_values + local, *config.encoder_hidden, latent))

        place = place_channels(dim, config.num_octaves) if config.samples_see_place else 0
        encoders = {f.name: seeing(told_channels(f, config, dim) + place, config.encoder_sees) for f in sft.inputs}
        placement = {"nothing": None, "spacing": nn.Linear(1, latent), "place": nn.Linear(1 + dim, latent)}[config.nodes_see]
        message_passing = None
        if config.rounds != 0:
            message_passing = MessagePassing(
                latent,
                config.message_size,
                config.edge_hidden,
                config.node_hidden,
                dim + 2 if config.edges_see == "offset" else 0,
                config.residual,
                config.norm,
                config.aggregation,
            )
        reader = seeing(latent, "offset") if config.decoder_sees == "offset" else None
        share = nn.Linear(latent, 1) if config.reads == "all" else None
        ears = {}
        if config.num_heard > 0:
            ears = {f.name: Ear(told_channels(f, config, dim), dim, config.encoder_hidden[-1]) for f in sft.inputs}
        field_encoder = nn.Linear(_fitted_channels(config, sft), latent, bias=False) if config.fitted else None
        decoders = {f.name: _build_decoder(config, sft, f) for f in sft.outputs}
        return GraphElementNetwork(
            sft,
            config,
            _build_representation(config),
            nn.ModuleDict(encoders),
            placement,
            message_passing,
            reader,
            share,
            Ears(ears),
            field_encoder,
            nn.ModuleDict(decoders),
        )


def _build_decoder(config: NetworkConfig, sft: SFT, function: OutputFunction) -> nn.Module:
    num_inputs = config.latent_size + function.conditions
    if not function.integrated:
        num_inputs += place_channels(sft.space.dim, config.num_octaves) if config.decoders_see_place else 0
        num_inputs += len(sft.inputs) * config.encoder_hidden[-1] if config.num_heard > 0 else 0
        num_inputs += _fitted_channels(config, sft)
    if config.decoder_layers > 0:
        (width,) = config.decoder_hidden
        return ResidualPerceptron(num_inputs, width, config.decoder_layers, function.channels)
    return Perceptron((num_inputs, *config.decoder_hidden, function.channels))


def _fitted_channels(config: NetworkConfig, sft: SFT) -> int:
    return sum(num_fitted(f.channels) for f in sft.inputs) if config.fitted else 0


def _build_representation(config: NetworkConfig) -> Representation:
    match config.representation:
        case "soft_nearest":
            return SoftNearest(config.sharpness, config.learn_sharpness)
        case "nearest_nodes":
            return NearestNodes(config.num_touched, config.sharpness, config.learn_sharpness)
        case "multilinear":
            return Multilinear()
        case "barycentric":
            return Barycentric()


def num_weights(network: nn.Module) -> int:
    """How many numbers are learned."""
    return sum(p.numel() for p in network.parameters() if p.requires_grad)
