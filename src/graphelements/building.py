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
from .message_passing import LinearMessagePassing, MessagePassing
from .network import GraphElementNetwork
from .network_config import DEFAULT, AttentionConfig, NetworkConfig, Sees
from .perceptron import GatedPerceptron, LinearDecoder, Perceptron, ResidualPerceptron
from .representations import NearestNodes, Representation, SoftNearest
from .sft_network import SFTNetwork, linear_channels, place_channels, told_channels


@overload
def build_network(sft: SFT, config: NetworkConfig = DEFAULT, seed: int = 0) -> GraphElementNetwork: ...
@overload
def build_network(sft: SFT, config: AttentionConfig, seed: int = 0) -> AttentionNetwork: ...
def build_network(sft: SFT, config: NetworkConfig | AttentionConfig = DEFAULT, seed: int = 0) -> SFTNetwork:
    """A network for this SFT with freshly drawn weights; the class of the config says of which kind."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        require(
            config.samples_see != "box" or sft.space.intrinsic_dim == sft.space.dim,
            f"boxes of samples need a space that is a box; this space is {sft.space}, set network.samples_see=cell",
        )
        require(
            isinstance(config, AttentionConfig) or not (config.fitted and config.samples_see == "box"),
            "fields are fitted to values at places, not to boxes; set network.samples_see=cell, or network.fitted=false",
        )
        if isinstance(config, AttentionConfig):
            return build_attention(sft, config)
        if config.linear:
            _check_linear(sft, config)
        dim, latent = sft.space.dim, config.latent_size
        require(
            not config.fitted or sft.space.intrinsic_dim == 2,
            f"fields are fitted on a plane or a sphere; this space is {sft.space}, set network.fitted=false",
        )

        def seeing(num_values: int, sees: Sees, num_linear: int) -> Perceptron | GatedPerceptron:
            local = dim + 1 if sees == "offset" else 0
            if config.gated:
                return GatedPerceptron(num_values, local, config.encoder_hidden[0], latent, num_linear)
            return Perceptron((num_values + local, *config.encoder_hidden, latent))

        place = place_channels(dim, config.num_octaves) if config.samples_see_place else 0
        told = {f.name: (told_channels(f, config, dim), linear_channels(f, config)) for f in sft.inputs}
        encoders = {name: seeing(num + place, config.encoder_sees, linear) for name, (num, linear) in told.items()}
        num_seen = {"nothing": 0, "spacing": 1, "place": 1 + dim}[config.nodes_see]
        of_edge = dim + 2 if config.edges_see == "offset" else 0
        placement = nn.Linear(num_seen, latent) if num_seen and not config.linear else None
        message_passing: nn.Module | None = None
        if config.rounds != 0 and config.linear:
            message_passing = LinearMessagePassing(latent, config.edge_hidden, of_edge + num_seen)
        elif config.rounds != 0:
            message_passing = MessagePassing(
                latent,
                config.message_size,
                config.edge_hidden,
                config.node_hidden,
                of_edge,
                config.residual,
                config.norm,
                config.aggregation,
            )
        reader = seeing(latent, "offset", latent if config.linear else 0) if config.decoder_sees == "offset" else None
        share = nn.Linear(dim if config.linear else latent, 1) if config.reads == "all" else None
        ears = {}
        for name in _heard(config, sft):
            num, linear = told[name]
            ears[name] = Ear(num, dim, config.encoder_hidden[-1], linear, config.ear_layers)
        field_encoder: nn.Module | None = None
        if config.fitted:
            num, linear = num_fitted([f.channels for f in sft.inputs])
            field_encoder = nn.Linear(num, latent, bias=False)
            if config.linear:
                field_encoder = GatedPerceptron(num, 0, config.encoder_hidden[0], latent, linear)
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
    num_linear = config.latent_size
    num_inputs = num_linear + function.conditions
    if not function.integrated:
        num_heard = sum(config.encoder_hidden[-1] for _ in _heard(config, sft))
        num_known, num_values = num_fitted([f.channels for f in sft.inputs]) if config.fitted else (0, 0)
        num_linear += num_heard + num_values
        num_inputs += num_heard + num_known
        num_inputs += place_channels(sft.space.dim, config.num_octaves) if config.decoders_see_place else 0
    if config.decoder_layers > 0:
        (width,) = config.decoder_hidden
        if config.linear:
            return LinearDecoder(num_linear, num_inputs - num_linear, width, config.decoder_layers, function.channels)
        return ResidualPerceptron(num_inputs, width, config.decoder_layers, function.channels)
    return Perceptron((num_inputs, *config.decoder_hidden, function.channels))


def _check_linear(sft: SFT, config: NetworkConfig) -> None:
    functions = [*sft.inputs, *sft.outputs]
    kinds = ", ".join(f"{f.name} {'scales' if f.scales else 'does not'}" for f in functions)
    require(
        not config.relative or len({f.scales for f in functions}) == 1,
        f"in a linear network with frames all functions scale or none does; here {kinds}: set network.relative=false",
    )
    others = [f.name for f in sft.outputs if f.loss != "squared_error"]
    require(not others, f"linear networks need outputs with a squared error; got {', '.join(others)}, set network.linear=false")


def _heard(config: NetworkConfig, sft: SFT) -> list[str]:
    """The functions whose samples are heard."""
    if config.num_heard == 0:
        return []
    names = [f.name for f in sft.inputs]
    unknown = sorted(set(config.hears) - set(names))
    require(not unknown, f"network.hears: there is no input {', '.join(unknown)}; the inputs are {', '.join(names)}")
    return [name for name in names if not config.hears or name in config.hears]


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
