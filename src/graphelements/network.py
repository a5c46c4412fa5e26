"""The graph element network: encode -> scatter -> propagate -> gather or integrate -> decode (paper section 3.3)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

from .errors import require
from .functions import SFT, FunctionSamples, OutputFunction, Queries, SFTBatch
from .losses import KINDS, mean_over_items
from .meshes import Mesh
from .message_passing import Graph, MessagePassing
from .network_config import DEFAULT, NetworkConfig
from .normalisation import Normaliser
from .perceptron import Perceptron
from .representations import Barycentric, Coupling, Multilinear, NearestNodes, Representation, SoftNearest
from .unions import MeshUnion, union

Meshes = Mesh | Sequence[Mesh] | MeshUnion


class GraphElementNetwork(nn.Module):
    """Learned encoders, message passing and decoders of one SFT; runs on any mesh, which it is given in the call."""

    def __init__(
        self,
        sft: SFT,
        config: NetworkConfig,
        representation: Representation,
        encoders: nn.ModuleDict,
        placement: nn.Module | None,
        message_passing: MessagePassing | None,
        reader: nn.Module | None,
        decoders: nn.ModuleDict,
    ) -> None:
        super().__init__()
        self.sft, self.config = sft, config
        self.representation = representation
        self.encoders = encoders
        self.placement = placement
        self.message_passing = message_passing
        self.reader = reader
        self.decoders = decoders
        self.losses = nn.ModuleDict({f.name: KINDS[f.loss]() for f in sft.outputs})
        self.input_scales = nn.ModuleDict({f.name: Normaliser(f.channels) for f in sft.inputs})
        self.output_scales = nn.ModuleDict({f.name: Normaliser(f.channels) for f in sft.outputs})
        self.compiled_kernels = False

    def forward(self, batch: SFTBatch, meshes: Meshes) -> dict[str, Float[Tensor, "_queries _channels"]]:
        """What the decoders put out for every query, in network units; `predict` gives answers in original units."""
        mesh = self.meshes(meshes, batch.num_items)
        states = self.write(batch.inputs, mesh)
        states = self.propagate(states, mesh)
        return self.read(states, batch.queries, mesh)

    def write(self, inputs: Mapping[str, FunctionSamples], meshes: Meshes) -> Float[Tensor, "nodes latent"]:
        """z0: samples into node states. Additive: writing two sets of samples is the sum of writing each."""
        mesh = self.meshes(meshes)
        states = mesh.positions.new_zeros(mesh.num_nodes, self.config.latent_size)
        for name, samples in inputs.items():
            coupling = self.representation(samples.points, samples.items, mesh)
            states = states + coupling.scatter(self.encode(name, samples, coupling, mesh))
        return states

    def read(
        self, states: Float[Tensor, "nodes latent"], queries: Mapping[str, Queries], meshes: Meshes
    ) -> dict[str, Float[Tensor, "_queries _channels"]]:
        """Decoder outputs at any number of queries, in network units; `answer` restores original ones."""
        mesh = self.meshes(meshes)
        outputs = {}
        for name, query in queries.items():
            latents = self.integrate(states, query, mesh) if query.points is None else self.gather(states, query, mesh)
            outputs[name] = self.decode(name, latents, query, mesh)
        return outputs

    def encode(
        self, name: str, samples: FunctionSamples, coupling: Coupling, mesh: MeshUnion
    ) -> Float[Tensor, "samples *touched latent"]:
        """e_i(s): one code per sample, or with offsets e_i(s, x - x_l) one per sample and touched node."""
        values = self.input_scales[name].normalised(samples.values)  # type: ignore[operator]
        if self.config.encoder_sees == "offset":
            local = self.local_coordinates(coupling, mesh)
            values = torch.cat([values[:, None].expand(*local.shape[:2], values.shape[-1]), local], -1)
        elif self.config.encoder_sees == "position":
            values = torch.cat([values, mesh.space.coordinates(samples.points)], -1)
        return self.encoders[name](values)

    def propagate(self, states: Float[Tensor, "nodes latent"], meshes: Meshes) -> Float[Tensor, "nodes latent"]:
        """zT: what a node sees of itself added, then T rounds of message passing."""
        mesh = self.meshes(meshes)
        rounds = self.rounds(mesh)
        if self.placement is not None:
            states = states + self.placement(self.node_features(mesh))
        if self.message_passing is None or max(rounds) == 0:
            return states
        graph = self.graph(mesh)
        of_node = None if min(rounds) == max(rounds) else torch.tensor(rounds, device=states.device)[mesh.items]
        for number in range(max(rounds)):
            updated = self.message_passing(states, graph)
            states = updated if of_node is None else torch.where((of_node > number)[:, None], updated, states)
        return states

    def gather(self, states: Float[Tensor, "nodes latent"], queries: Queries, mesh: MeshUnion) -> Float[Tensor, "queries latent"]:
        """z(x) = sum over l of r_l(x) z_l; with offsets, of r_l(x) rho(z_l, x - x_l)."""
        assert queries.points is not None
        coupling = self.representation(queries.points, queries.items, mesh)
        if self.reader is None:
            return coupling.gather(states)
        return coupling.blend(self.reader(torch.cat([states[coupling.nodes], self.local_coordinates(coupling, mesh)], -1)))

    def integrate(
        self, states: Float[Tensor, "nodes latent"], queries: Queries, mesh: MeshUnion
    ) -> Float[Tensor, "queries latent"]:
        """The sum over all nodes of an item (paper section 4.2), or their mean by area so that it does not grow with the mesh."""
        if self.config.integration == "area":
            totals = mesh.areas.new_zeros(mesh.num_items).index_add(0, mesh.items, mesh.areas)
            states = states * (mesh.areas / totals.clamp(min=1e-12)[mesh.items])[:, None]
        return states.new_zeros(mesh.num_items, states.shape[-1]).index_add(0, mesh.items, states)[queries.items]

    def decode(
        self, name: str, latents: Float[Tensor, "queries latent"], queries: Queries, mesh: MeshUnion
    ) -> Float[Tensor, "queries channels"]:
        """d_j(z(x), c)."""
        parts = [latents]
        if self.config.decoder_sees == "position" and queries.points is not None:
            parts.append(mesh.space.coordinates(queries.points))
        if queries.conditions is not None:
            parts.append(queries.conditions)
        return self.decoders[name](torch.cat(parts, -1))

    def loss(self, outputs: Mapping[str, Tensor], batch: SFTBatch) -> Float[Tensor, ""]:
        """The mean over items of the mean over outputs of the mean over queries, in network units."""
        losses = []
        for name, target in batch.targets.items():
            target = self.output_scales[name].normalised(target)  # type: ignore[operator]
            losses.append((self.losses[name](outputs[name], target), batch.queries[name].items))
        require(len(losses) > 0, "a loss needs targets; this batch has none")
        return mean_over_items(losses, batch.num_items)

    @torch.no_grad()
    def predict(self, batch: SFTBatch, meshes: Meshes, chunk: int = 2**18) -> dict[str, Float[Tensor, "_queries _channels"]]:
        """Answers in original units; queries are read in pieces that touch `chunk` nodes in all, so that memory stays bounded."""
        self.validate(batch, meshes)
        mesh = self.meshes(meshes, batch.num_items)
        size = max(1, chunk // self.representation.touched(mesh))
        states = self.propagate(self.write(batch.inputs, mesh), mesh)
        answers = {}
        for name, queries in batch.queries.items():
            pieces = [self.answer(name, self.read(states, {name: piece}, mesh)[name]) for piece in queries.split(size)]
            answers[name] = torch.cat(pieces)
        return answers

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

    def rounds(self, mesh: MeshUnion) -> list[int]:
        """T of every item."""
        fixed = self.config.rounds
        return mesh.per_item([part.diameter for part in mesh.parts]) if fixed == "diameter" else [fixed] * mesh.num_items

    def graph(self, mesh: MeshUnion) -> Graph:
        """Edges with what messages see of them: the offset in units of the receiver's spacing, its length, and the level."""
        senders, receivers = mesh.senders, mesh.receivers
        features = mesh.positions.new_zeros(len(senders), 0)
        if self.config.edges_see == "offset":
            space = mesh.space
            offsets = space.offset(mesh.positions[senders], mesh.positions[receivers]) / space.unit_length
            offsets = offsets / mesh.spacing[receivers][:, None]
            lengths = space.distance(mesh.positions[senders], mesh.positions[receivers]) / space.unit_length
            features = torch.cat([offsets, torch.stack([lengths / mesh.spacing[receivers], mesh.levels.to(offsets)], -1)], -1)
        degrees = mesh.positions.new_zeros(mesh.num_nodes).index_add(
            0, receivers, torch.ones_like(mesh.positions[:, 0])[receivers]
        )
        return Graph(senders, receivers, features, degrees, mesh.tables if self.compiled_kernels else None)

    def node_features(self, mesh: MeshUnion) -> Float[Tensor, "nodes features"]:
        """What a node sees of itself: the logarithm of its spacing, and with "place" its coordinates."""
        features = [mesh.spacing.log()[:, None]]
        if self.config.nodes_see == "place":
            features.append(mesh.space.coordinates(mesh.positions))
        return torch.cat(features, -1)

    @staticmethod
    def local_coordinates(coupling: Coupling, mesh: MeshUnion) -> Float[Tensor, "points touched local"]:
        """x - x_l in units of the node's spacing, and the logarithm of the spacing."""
        spacing = mesh.spacing[coupling.nodes][..., None]
        return torch.cat([coupling.offsets / (mesh.space.unit_length * spacing), spacing.log()], -1)


def build_network(sft: SFT, config: NetworkConfig = DEFAULT, seed: int = 0) -> GraphElementNetwork:
    """A network for this SFT with freshly drawn weights."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        dim, latent = sft.space.dim, config.latent_size
        extra = {"value": 0, "position": dim, "offset": dim + 1}
        encoders = {
            f.name: Perceptron((f.channels + extra[config.encoder_sees], *config.encoder_hidden, latent)) for f in sft.inputs
        }
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
        reader = Perceptron((latent + dim + 1, *config.encoder_hidden, latent)) if config.decoder_sees == "offset" else None
        decoders = {
            f.name: Perceptron((_decoder_inputs(config, sft, f), *config.decoder_hidden, f.channels)) for f in sft.outputs
        }
        return GraphElementNetwork(
            sft,
            config,
            _build_representation(config),
            nn.ModuleDict(encoders),
            placement,
            message_passing,
            reader,
            nn.ModuleDict(decoders),
        )


def _decoder_inputs(config: NetworkConfig, sft: SFT, function: OutputFunction) -> int:
    sees_place = config.decoder_sees == "position" and not function.integrated
    return config.latent_size + (sft.space.dim if sees_place else 0) + function.conditions


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
