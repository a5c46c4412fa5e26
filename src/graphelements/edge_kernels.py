"""A round of message passing but for its norm: in plain torch, and in C++ with its gradients.

With m_e a network of one hidden layer, the messages that node j hears (paper section 2.1) sum to

    sum_i m_e(z_i, z_j) = W2 s_j + deg_j b2,    s_j = sum over edges e = (i, j) of relu(A z_i + B z_j + b1 + c_e),

so that every matrix is applied once per node, and only s_j is left to do per edge. Plain torch does it on any device. The C++
form (`native/rounds.cpp`) goes through the nodes in blocks that stay in the cache, node after node over its edges, forward and
backward; nothing of size edges x hidden is ever stored. Without atomic additions, the same input and number of threads give the
same bits.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable

from .compilation import library, numbers
from .errors import require
from .topology import EdgeTables

PRECISIONS = {torch.float32: "float32", torch.float64: "float64"}


def sum_relu_messages(
    from_senders: Float[Tensor, "nodes hidden"],
    from_receivers: Float[Tensor, "nodes hidden"],
    edge_features: Float[Tensor, "edges features"],
    edge_weight: Float[Tensor, "features hidden"],
    senders: Int[Tensor, " edges"],
    receivers: Int[Tensor, " edges"],
) -> Float[Tensor, "nodes hidden"]:
    """s_j for every node j, in plain torch: `from_senders` holds A z, `from_receivers` B z + b1, and c_e = features weight."""
    messages = torch.addmm(from_senders.index_select(0, senders), edge_features, edge_weight)
    messages = messages.add_(from_receivers.index_select(0, receivers)).relu_()
    return torch.zeros_like(from_receivers).index_add(0, receivers, messages)


def runs_in_cpp(states: Float[Tensor, "nodes latent"], tables: EdgeTables) -> bool:
    """Whether the C++ form is for these states: on a processor, in single or double precision, with edges in tables."""
    return tables.num_edges > 0 and states.device.type == "cpu" and states.dtype in PRECISIONS


class CompiledRound(torch.autograd.Function):
    """h_j <- m_v(h_j, p_j W2 s_j + q_j b2), plus h_j if `residual`, in C++.

    Takes states, edge features, the weights and biases of both layers of m_e and of m_v, p (or None for ones), q, `residual`
    and the tables of the graph. For the backward pass it keeps nothing of its own: computing it anew in the cache is as fast.
    """

    @staticmethod
    def forward(ctx: Any, states, features, *rest) -> Float[Tensor, "nodes latent"]:
        *weights, of_sums, of_bias, residual, tables = rest
        states, features = states.detach().contiguous(), features.detach().contiguous()
        ctx.here, ctx.residual = _Round.of(states, features, weights, of_sums, of_bias, tables), residual
        ctx.save_for_backward(states, features, *weights, of_sums, of_bias)  # for torch's check that nobody changes them
        result = torch.empty_like(states)
        ctx.here.call("forward", [ctx.here.by_input], [residual], [result, states])
        return result

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Float[Tensor, "nodes latent"]) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        (states, *_), here = ctx.saved_tensors, ctx.here
        latent, message, edge, node = here.latent, here.message, here.edge_hidden, here.node_hidden
        shapes = (2, edge, latent), (edge,), (here.features.shape[1], edge), (message, edge), (message,)
        shapes = *shapes, (node, latent + message), (node,), (latent, node), (latent,)
        sizes = [torch.Size(shape).numel() for shape in shapes]
        by_weights, by_states = states.new_zeros(sum(sizes)), torch.empty_like(states)
        by_features = torch.zeros_like(here.features) if ctx.needs_input_grad[1] else None
        rows = [by_states, by_features, by_weights, gradient.contiguous(), states]
        here.call("backward", [here.by_input, here.by_output], [ctx.residual, ctx.needs_input_grad[2]], rows)
        found = [each.view(shape) for each, shape in zip(by_weights.split(sizes), shapes, strict=True)]
        by_nodes, by_first_bias, by_edge, *by_others = found
        by_first = torch.cat([*by_nodes.unbind(), by_edge.T], 1)
        return by_states, by_features, by_first, by_first_bias, *by_others, None, None, None, None


class _Round(NamedTuple):
    """What C++ is told of a round: sizes, edges, weights as it takes them; `kept` has the tensors that pointers go to."""

    latent: int
    message: int
    edge_hidden: int
    node_hidden: int
    features: Tensor
    precision: str
    round: ctypes.Array
    by_input: ctypes.Array
    by_output: ctypes.Array
    kept: tuple[object, ...]

    @staticmethod
    def of(
        states: Tensor, features: Tensor, weights: Sequence[Tensor], of_sums: Tensor | None, of_bias: Tensor, tables: EdgeTables
    ) -> _Round:
        first, first_bias, last, last_bias, update, update_bias, output, output_bias = (w.detach().contiguous() for w in weights)
        latent, num_features = states.shape[1], features.shape[1]
        of_bias, of_sums = of_bias.contiguous(), None if of_sums is None else of_sums.contiguous()
        kinds = {each.dtype for each in (states, features, of_bias, *weights)}
        require(
            len(kinds) == 1,
            f"a round needs one precision for states, features, degrees and weights; got {sorted(map(str, kinds))}",
        )
        of_sender, of_receiver, of_edge = first.split([latent, latent, num_features], dim=1)
        of_nodes, of_edge = torch.cat([of_sender, of_receiver]), of_edge.T.contiguous()
        nodes_bias = torch.cat([torch.zeros_like(first_bias), first_bias])
        biases = nodes_bias, last_bias, update_bias, output_bias
        by_output = of_nodes, last, update, output
        by_input = tuple(weight.T.contiguous() for weight in by_output)
        sizes = latent, len(last), len(first), len(update)
        edges = tables.groups, *tables.incoming, *tables.outgoing
        return _Round(
            *sizes,
            features=features,
            precision=PRECISIONS[states.dtype],
            round=numbers(len(tables.groups) - 1, *sizes, num_features, *edges, features, of_edge, of_sums, of_bias),
            by_input=numbers(*(each for both in zip(by_input, biases, strict=True) for each in both)),
            by_output=numbers(*(each for both in zip(by_output, biases, strict=True) for each in both)),
            kept=(tables, of_edge, of_sums, of_bias, biases, by_input, by_output),
        )

    def call(self, name: str, weights: Sequence[ctypes.Array], options: Sequence[bool], rows: Sequence[Tensor | None]) -> None:
        """Run a function of `native/rounds.cpp`; `rows` are those it makes and those it is given."""
        function = getattr(library("rounds"), f"round_{self.precision}_{name}")
        pointers = [ctypes.c_void_p(None if each is None else each.data_ptr()) for each in rows]
        if function(self.round, *weights, torch.get_num_threads(), *map(int, options), *pointers) != 0:
            raise MemoryError("there is too little memory for a round of message passing")
