"""A round of message passing, forward and backward, at the paper's sizes: 7x7 nodes, 256 items, against PyTorch Geometric.

Time is that of one round, given the gradient of its result. Memory is what 12 rounds with autograd add to the resident memory
of a fresh process, which `python -m benchmarks.message_passing compiled` (or eager, pyg) prints in megabytes.
"""

import statistics
import subprocess
import sys
from collections.abc import Callable
from functools import partial

import torch
from torch_geometric.nn import MessagePassing as PygMessagePassing

import graphelements as ge
from graphelements.compilation import compiler_available
from graphelements.message_passing import Graph, MessagePassing

from .memory import peak_increase
from .timing import ratio, turns

ITEMS, ROUNDS, REPEATS = 256, 12, 101
Round = Callable[[torch.Tensor], torch.Tensor]


class PygRound(PygMessagePassing):
    """The same weights, edge by edge, as one writes it in PyTorch Geometric."""

    def __init__(self, ours: MessagePassing) -> None:
        super().__init__(aggr="add")
        self.edge_module, self.node_module = ours.edge_module, ours.node_module

    def forward(self, states: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        return self.node_module(torch.cat([states, self.propagate(edge_index, x=states)], -1))

    def message(self, x_i: torch.Tensor, x_j: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        return self.edge_module(torch.cat([x_j, x_i], -1))


def rounds(ours: MessagePassing, items: int) -> tuple[torch.Tensor, dict[str, Round]]:
    """Random states and the forms of a round with the weights of `ours`, on a union of 7x7 grids."""
    mesh = ge.union(ge.grid_mesh(ge.Box(), 7), items)
    edge_index = torch.stack([mesh.senders, mesh.receivers])
    degrees = torch.bincount(mesh.receivers, minlength=mesh.num_nodes).float()
    features = torch.zeros(len(mesh.senders), 0)
    plain = Graph(mesh.senders, mesh.receivers, features, degrees)
    over_tables = Graph(mesh.senders, mesh.receivers, features, degrees, mesh.tables)
    pyg = PygRound(ours)
    forms: dict[str, Round] = {"eager": lambda states: ours(states, plain), "pyg": lambda states: pyg(states, edge_index)}
    if compiler_available():
        forms["compiled"] = lambda states: ours(states, over_tables)
    return torch.randn(mesh.num_nodes, 32, requires_grad=True), forms


def measure() -> dict[str, object]:
    """Milliseconds and megabytes of the three forms, how many times faster ours are, and the share of the memory they take."""
    torch.manual_seed(0)
    ours = MessagePassing(32, 16, 48, 64)
    states, forms = rounds(ours, ITEMS)
    gradient, inputs = torch.randn_like(states), [states, *ours.parameters()]
    reference = torch.autograd.grad(forms["pyg"](states), inputs, gradient)
    for form in forms.values():
        for value, expected in zip(torch.autograd.grad(form(states), inputs, gradient), reference, strict=True):
            torch.testing.assert_close(value, expected, rtol=1e-3, atol=1e-3)
    times = turns({name: partial(_step, form, states, inputs, gradient) for name, form in forms.items()}, REPEATS)
    memory = {name: memory_in_fresh_process(name) for name in forms}
    own = [name for name in forms if name != "pyg"]
    return {
        "milliseconds": {name: round(statistics.median(values), 3) for name, values in times.items()},
        "megabytes": memory,
        **{f"{name}_speedup": ratio(times["pyg"], times[name]) for name in own},
        **{f"{name}_memory": round(memory[name] / memory["pyg"], 3) for name in own},
    }


def _step(form: Round, states: torch.Tensor, inputs: list[torch.Tensor], gradient: torch.Tensor) -> None:
    torch.autograd.grad(form(states), inputs, gradient)


def memory_in_fresh_process(form: str) -> float:
    command = [sys.executable, "-m", "benchmarks.message_passing", form]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()[-1])


def memory_increase(form: str) -> float:
    """The megabytes that `ROUNDS` rounds, forward and backward, add at their peak; all else happens before, on a small graph."""
    ours = MessagePassing(32, 16, 48, 64)

    def run(states: torch.Tensor, forms: dict[str, Round]) -> None:
        for _ in range(ROUNDS):
            states = forms[form](states)
        states.sum().backward()

    run(*rounds(ours, 2))
    states, forms = rounds(ours, ITEMS)
    return peak_increase(lambda: run(states, forms))[1]


if __name__ == "__main__":
    print(round(memory_increase(sys.argv[1]), 1))
