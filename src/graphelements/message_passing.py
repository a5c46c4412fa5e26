"""One round of message passing: edge module, sum, node module (paper section 2.1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from .edge_kernels import sum_relu_messages
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
        updated = self.node_module(torch.cat([states, self.incoming(states, graph)], -1))
        return self.norm(states + updated if self.residual else updated)

    def incoming(self, states: Float[Tensor, "nodes latent"], graph: Graph) -> Float[Tensor, "nodes message"]:
        """u_j, the aggregated messages of every node."""
        first, last = self.edge_module.first, self.edge_module.last
        latent_size = states.shape[-1]
        of_sender, of_receiver, of_edge = first.weight.split([latent_size, latent_size, graph.features.shape[-1]], dim=1)
        hidden = sum_relu_messages(
            states @ of_sender.T,
            torch.addmm(first.bias, states, of_receiver.T),
            graph.features,
            of_edge.T,
            graph.senders,
            graph.receivers,
            graph.tables,
        )
        degrees = graph.degrees[:, None]
        if self.mean:
            return torch.addcmul((hidden / degrees.clamp(min=1)) @ last.weight.T, (degrees > 0).to(hidden), last.bias)
        return torch.addcmul(hidden @ last.weight.T, degrees, last.bias)
