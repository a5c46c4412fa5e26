"""A round of message passing, forward and backward, at the paper's sizes: 7x7 nodes, 256 items, against PyTorch Geometric."""

import torch
from torch_geometric.nn import MessagePassing as PygMessagePassing

import graphelements as ge
from graphelements.edge_kernels import compiler_available
from graphelements.message_passing import Graph, MessagePassing

from .timing import medians

ITEMS = 256


class PygRound(PygMessagePassing):
    """The same weights, edge by edge, as one writes it in PyTorch Geometric."""

    def __init__(self, ours: MessagePassing) -> None:
        super().__init__(aggr="add")
        self.edge_module, self.node_module = ours.edge_module, ours.node_module

    def forward(self, states: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        return self.node_module(torch.cat([states, self.propagate(edge_index, x=states)], -1))

    def message(self, x_i: torch.Tensor, x_j: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        return self.edge_module(torch.cat([x_j, x_i], -1))


def measure() -> dict[str, object]:
    """Milliseconds of the three forms and how many times faster ours are."""
    mesh = ge.union(ge.grid_mesh(ge.Box(), 7), ITEMS)
    torch.manual_seed(0)
    ours = MessagePassing(32, 16, 48, 64)
    pyg = PygRound(ours)
    states = torch.randn(mesh.num_nodes, 32, requires_grad=True)
    edge_index = torch.stack([mesh.senders, mesh.receivers])
    degrees = torch.bincount(mesh.receivers, minlength=mesh.num_nodes).float()
    features = torch.zeros(len(mesh.senders), 0)
    eager = Graph(mesh.senders, mesh.receivers, features, degrees)
    graphs = {"eager": eager}
    if compiler_available():
        graphs["compiled"] = Graph(mesh.senders, mesh.receivers, features, degrees, mesh.tables)
    reference = pyg(states, edge_index)
    for graph in graphs.values():
        torch.testing.assert_close(ours(states, graph), reference, rtol=1e-4, atol=1e-5)
    times = medians(
        {name: lambda graph=graph: ours(states, graph).square().sum().backward() for name, graph in graphs.items()}
        | {"pyg": lambda: pyg(states, edge_index).square().sum().backward()}
    )
    return {"milliseconds": times, **{f"{name}_speedup": round(times["pyg"] / times[name], 2) for name in graphs}}
