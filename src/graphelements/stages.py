"""The stages of a graph element network on one mesh: encode and scatter, propagate, gather or integrate, hear, decode."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import pad

from .errors import require
from .fitting import Fields
from .functions import SFT
from .hearing import Ears
from .message_passing import Graph
from .neighbours import ByItem
from .network_config import NetworkConfig
from .perceptron import GatedPerceptron, Perceptron
from .point_kernels import gather_codes, scatter_codes
from .representations import Coupling, Representation
from .samples import FunctionSamples, Queries
from .sft_network import Meshes, SFTNetwork, place_features, seen_channels, told_channels
from .spaces import Space
from .unions import MeshUnion

Couplings = Mapping[str, Coupling]
"""Which nodes the samples of every function touch."""


class Stages(SFTNetwork):
    """Learned encoders, message passing and decoders of one SFT, and what each does on a mesh. Abstract; networks are final."""

    def __init__(
        self,
        sft: SFT,
        config: NetworkConfig,
        representation: Representation,
        encoders: nn.ModuleDict,
        placement: nn.Module | None,
        message_passing: nn.Module | None,
        reader: Perceptron | GatedPerceptron | None,
        share: nn.Linear | None,
        ears: Ears,
        field_encoder: nn.Module | None,
        decoders: nn.ModuleDict,
    ) -> None:
        super().__init__(sft, config)
        self.config: NetworkConfig = config
        self.representation = representation
        self.encoders = encoders
        self.placement = placement
        self.message_passing = message_passing
        self.reader = reader
        self.share = share
        self.ears = ears
        self.field_encoder = field_encoder
        self.decoders = decoders

    def couple(self, inputs: Mapping[str, FunctionSamples], mesh: MeshUnion) -> Couplings:
        """Which nodes of a mesh the samples of every function touch."""
        found = self.representation.couple(list(inputs.values()), mesh, self.kernels) if inputs else []
        return dict(zip(inputs, found, strict=True))

    def told(self, name: str, samples: FunctionSamples, space: Space) -> Float[Tensor, "samples values"]:
        """What encoders take of samples as `seen` or as `informed` gives them: those told nothing are told zeros; and places."""
        function = next(f for f in self.sft.inputs if f.name == name)
        seen, most = (
            seen_channels(function, self.config, self.sft.space.dim),
            told_channels(function, self.config, self.sft.space.dim),
        )
        given = samples.values.shape[-1]
        require(
            given in (seen, most),
            f"nodes take the numbers that encoders see, {seen} for a sample of {name!r}; "
            f"got {given}, prepare the samples with network.seen",
        )
        values = pad(samples.values, (most - given, 0) if self.config.linear else (0, most - given))
        if not self.config.samples_see_place:
            return values
        return torch.cat([values, place_features(samples.points, space, self.config.num_octaves)], -1)

    def write(
        self, inputs: Mapping[str, FunctionSamples], meshes: Meshes, couplings: Couplings | None = None
    ) -> Float[Tensor, "nodes latent"]:
        """z0: samples as `seen` gives them into node states. Additive: writing two sets of them is the sum of writing each."""
        mesh = self.meshes(meshes)
        states = mesh.positions.new_zeros(mesh.num_nodes, self.config.latent_size)
        couplings = self.couple(inputs, mesh) if couplings is None else couplings
        for name, samples in inputs.items():
            coupling, values, encoder = couplings[name], self.told(name, samples, mesh.space), self.encoders[name]
            if self.config.encoder_sees == "offset":
                assert isinstance(encoder, Perceptron | GatedPerceptron)
                states = states + scatter_codes(encoder, values, coupling, coupling.local_coordinates(mesh), self.kernels)
            else:
                states = states + coupling.scatter(encoder(values))
        return states

    def propagate(self, states: Float[Tensor, "nodes latent"], meshes: Meshes) -> Float[Tensor, "nodes latent"]:
        """zT: what a node sees of itself added, then T rounds of message passing."""
        mesh = self.meshes(meshes)
        rounds = self.rounds(mesh)
        if self.placement is not None:
            states = states + self.placement(mesh.node_features(self.config.nodes_see == "place"))
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
        return self.blend(states, self.representation(queries.points, queries.items, mesh, self.kernels), mesh)

    def blend(self, states: Float[Tensor, "nodes latent"], coupling: Coupling, mesh: MeshUnion) -> Float[Tensor, "points latent"]:
        """What the points of a coupling gather."""
        if self.reader is None:
            return coupling.gather(states)
        return gather_codes(self.reader, states, coupling, coupling.local_coordinates(mesh), self.kernels)

    def integrate(
        self, states: Float[Tensor, "nodes latent"], queries: Queries, mesh: MeshUnion
    ) -> Float[Tensor, "queries latent"]:
        """The sum over all nodes of an item (paper section 4.2), or their mean by area so that it does not grow with the mesh."""
        if self.config.integration == "area":
            totals = mesh.areas.new_zeros(mesh.num_items).index_add(0, mesh.items, mesh.areas)
            states = states * (mesh.areas / totals.clamp(min=1e-12)[mesh.items])[:, None]
        return states.new_zeros(mesh.num_items, states.shape[-1]).index_add(0, mesh.items, states)[queries.items]

    def by_item(self, inputs: Mapping[str, FunctionSamples], num_items: int) -> dict[str, ByItem]:
        """Which samples every item has, of each function that queries hear."""
        return {name: ByItem.of(inputs[name].items, num_items, self.config.num_heard) for name in self.ears if name in inputs}

    def hear(
        self,
        inputs: Mapping[str, FunctionSamples] | None,
        queries: Mapping[str, Queries],
        mesh: MeshUnion,
        by_item: Mapping[str, ByItem] | None = None,
    ) -> dict[str, Float[Tensor, "_queries _heard"]]:
        """What queries at points hear of the samples near them, of one function after another; nothing without `num_heard`."""
        if self.config.num_heard == 0 or all(query.points is None for query in queries.values()):
            return {}
        require(inputs is not None, "queries of this network hear samples: give `read` the inputs as `absorb` gives them")
        assert inputs is not None
        by_item = self.by_item(inputs, mesh.num_items) if by_item is None else by_item
        here = (inputs, self.cell_sizes, by_item, self.config.num_heard, mesh.space, self.kernels)
        if not torch.compiler.is_compiling():
            queries = {name: query.counted(mesh.num_items) for name, query in queries.items()}
        return {name: self.ears(query, *here) for name, query in queries.items() if query.points is not None}

    def decode(
        self,
        name: str,
        latents: Float[Tensor, "queries latent"],
        queries: Queries,
        mesh: MeshUnion,
        heard: Float[Tensor, "queries heard"] | None = None,
        fields: Fields | None = None,
    ) -> Float[Tensor, "queries channels"]:
        """d_j(z(x), what is heard, c)."""
        linear, rest = True, False
        parts = [(linear, latents)]
        if queries.points is not None and self.config.decoders_see_place:
            parts.append((rest, place_features(queries.points, mesh.space, self.config.num_octaves)))
        if heard is not None:
            parts.append((linear, heard))
        if queries.points is not None and self.config.fitted:
            require(fields is not None, "decoders of this network see fitted fields: give `read` what `find` gives")
            assert fields is not None
            values, variances = fields.at(queries.points, queries.items).tensor_split([fields.num_values], -1)
            parts += [(linear, values), (rest, variances)]
        if queries.conditions is not None:
            parts.append((rest, queries.conditions))
        if self.config.linear:  # what is linear in the samples' values comes first
            parts.sort(key=lambda part: part[0] is rest)
        return self.decoders[name](torch.cat([part for _, part in parts], -1))

    @property
    def kernels(self) -> bool:
        """Whether stages use compiled kernels; one that is itself being compiled does not, the compiler sees more without."""
        return self.compiled_kernels and not torch.compiler.is_compiling()

    def rounds(self, mesh: MeshUnion) -> list[int]:
        """T of every item."""
        fixed = self.config.rounds
        return mesh.per_item([part.diameter for part in mesh.parts]) if fixed == "diameter" else [fixed] * mesh.num_items

    def graph(self, mesh: MeshUnion) -> Graph:
        """Edges with what messages see of them: the offset in units of the receiver's spacing, its length, and the level; in a
        linear network, whose states cannot say it, also what the receiver sees of itself."""
        features = mesh.edge_features if self.config.edges_see == "offset" else mesh.positions.new_zeros(len(mesh.senders), 0)
        if self.config.linear and self.config.nodes_see != "nothing":
            features = torch.cat([features, mesh.node_features(self.config.nodes_see == "place")[mesh.receivers]], -1)
        tables = mesh.tables if self.kernels and not self.config.linear else None
        return Graph(mesh.senders, mesh.receivers, features, mesh.degrees, tables)
