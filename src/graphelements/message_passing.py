"""One round of message passing: edge module, sum, node module (paper section 2.1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from .compilation import rows_of
from .edge_kernels import CompiledRound, runs_in_cpp, sum_relu_messages
from .errors import require
from .perceptron import Perceptron
from .topology import EdgeTables


@dataclass(frozen=True)
class Graph:
    """What every round sees of the meshes: edges with their features, degrees, and tables where the compiled kernels are used."""

    senders: Int[Tensor, " edges"]
    receivers: Int[Tensor, " edges"]
    features: Float[Tensor, "edges features"]
    degrees: Float[Tensor, " nodes"]
    tables: EdgeTables | None = None


class MessagePassing(nn.Module):
    """h_j <- m_v(h_j, u_j) with u_j = sum over incoming edges of m_e(h_i, h_j, c_ij); m_e and m_v have one hidden ReLU layer.

    The paper's edges carry no features c_ij. Named options: `residual` adds h_j to the result, `norm` applies LayerNorm after
    that, `mean` divides u_j by the number of incoming edges.

    m_e is evaluated in its exact cheap form: its first layer once per node for senders and receivers, its last layer once per
    node after the sum, sum_i m_ij = W2 sum_i relu(A h_i + B h_j + C c_ij + b1) + deg_j b2.
    """

    def __init__(
        self,
        latent_size: int,
        message_size: int,
        edge_hidden: int,
        node_hidden: int,
        feature_size: int = 0,
        residual: bool = False,
        norm: Literal["none", "layer"] = "none",
        aggregation: Literal["sum", "mean"] = "sum",
    ) -> None:
        super().__init__()
        self.edge_module = Perceptron((2 * latent_size + feature_size, edge_hidden, message_size))
        self.node_module = Perceptron((latent_size + message_size, node_hidden, latent_size))
        self.norm = nn.LayerNorm(latent_size) if norm == "layer" else nn.Identity()
        self.residual = residual
        self.mean = aggregation == "mean"

    def forward(self, states: Float[Tensor, "nodes latent"], graph: Graph) -> Float[Tensor, "nodes latent"]:
        tables = graph.tables
        if tables is None or not runs_in_cpp(states, tables):
            updated = self.node_module(torch.cat([states, self.incoming(states, graph)], -1))
            return self.norm(states + updated if self.residual else updated)
        require(
            (tables.num_nodes, tables.num_edges) == (len(states), len(graph.features)),
            f"tables must be built from the same graph, {len(states)} nodes and {len(graph.features)} edges; "
            f"got tables of {tables.num_nodes} nodes and {tables.num_edges} edges",
        )
        require(len(graph.degrees) == len(states), f"every node has a degree; got {len(graph.degrees)} of {len(states)} nodes")
        layers = (self.edge_module.first, self.edge_module.last, self.node_module.first, self.node_module.last)
        weights = (weight for layer in layers for weight in (layer.weight, layer.bias))
        return self.norm(CompiledRound.apply(states, graph.features, *weights, *self.shares(graph), self.residual, tables))

    def incoming(self, states: Float[Tensor, "nodes latent"], graph: Graph) -> Float[Tensor, "nodes message"]:
        """u_j, the aggregated messages of every node, in plain torch."""
        first, last = self.edge_module.first, self.edge_module.last
        latent_size = states.shape[-1]
        of_sender, of_receiver, of_edge = first.weight.split([latent_size, latent_size, graph.features.shape[-1]], dim=1)
        sums = sum_relu_messages(
            states @ of_sender.T,
            torch.addmm(first.bias, states, of_receiver.T),
            graph.features,
            of_edge.T,
            graph.senders,
            graph.receivers,
        )
        of_sums, of_bias = self.shares(graph)
        return torch.addcmul((sums if of_sums is None else sums * of_sums) @ last.weight.T, of_bias, last.bias)

    def shares(self, graph: Graph) -> tuple[Float[Tensor, "nodes 1"] | None, Float[Tensor, "nodes 1"]]:
        """How much of W2 s_j and of b2 is in u_j: all and deg_j times in a sum, 1 / deg_j and once in a mean."""
        degrees = graph.degrees[:, None]
        return (1 / degrees.clamp(min=1), (degrees > 0).to(degrees)) if self.mean else (None, degrees)


class LinearMessagePassing(nn.Module):
    """h_j <- h_j + W2 of the mean over incoming edges of (G h_i) relu(C c_ij + b): linear in the states, by factors that depend
    on the features of edges alone."""

    def __init__(self, latent_size: int, hidden_size: int, feature_size: int) -> None:
        super().__init__()
        self.gate = nn.Linear(latent_size, hidden_size, bias=False)
        self.local = nn.Linear(feature_size, hidden_size)
        self.last = nn.Linear(hidden_size, latent_size, bias=False)

    def forward(self, states: Float[Tensor, "nodes latent"], graph: Graph) -> Float[Tensor, "nodes latent"]:
        terms = self.local(graph.features).relu() * rows_of(self.gate(states), graph.senders)
        sums = terms.new_zeros(len(states), terms.shape[-1]).index_add(0, graph.receivers, terms)
        return states + self.last(sums / graph.degrees.clamp(min=1)[:, None])
