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
from typing import Any

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
        *numbered, ctx.residual, ctx.tables = rest
        ctx.save_for_backward(states, features, *numbered)
        result = torch.empty_like(states, memory_format=torch.contiguous_format)
        _call("forward", ctx.tables, [states, features, *numbered], [ctx.residual], [result])
        return result

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Float[Tensor, "nodes latent"]) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        given = ctx.saved_tensors
        states, features, *weights, _, _ = given
        sizes = [weight.numel() for weight in weights]
        by_weights, by_states = states.new_empty(sum(sizes)), torch.empty_like(states, memory_format=torch.contiguous_format)
        by_features = torch.zeros(features.shape, dtype=features.dtype) if ctx.needs_input_grad[1] else None
        options, made = [ctx.residual, ctx.needs_input_grad[2]], [by_states, by_features, by_weights, gradient.contiguous()]
        _call("backward", ctx.tables, given, options, made)
        found = (each.view(weight.shape) for each, weight in zip(by_weights.split(sizes), weights, strict=True))
        return by_states, by_features, *found, None, None, None, None


def _call(name: str, tables: EdgeTables, given: Sequence[Any], options: Sequence[bool], made: Sequence[Tensor | None]) -> None:
    """Run a function of `native/rounds.cpp` for the tensors that `CompiledRound` takes; `made` go before the states."""
    kept: list[Any] = [None if each is None else each.contiguous() for each in given]  # as long as addresses of them are in use
    states, features, *weights, of_sums, of_bias = kept
    first, _, last, _, update, _, output, _ = weights
    kinds = {each.dtype for each in kept if each is not None}
    require(
        len(kinds) == 1, f"a round needs one precision for states, features, degrees and weights; got {sorted(map(str, kinds))}"
    )
    latent, num_features = states.shape[1], features.shape[1]
    seen = [first.shape[1], last.shape[1], update.shape[1], output.shape[1], len(output)]
    fits = [2 * latent + num_features, len(first), latent + len(last), len(update), latent]
    require(
        seen == fits,
        f"states of {latent} and features of {num_features} numbers need layers with {fits[:-1]} inputs and {latent} outputs; "
        f"got {seen[:-1]} and {seen[-1]}",
    )
    sizes = latent, len(last), len(first), len(update), num_features
    edges = tables.groups, *tables.incoming, *tables.outgoing
    here = numbers(len(tables.groups) - 1, *sizes, *edges, features, of_sums, of_bias, *weights)
    function = getattr(library("rounds"), f"round_{PRECISIONS[states.dtype]}_{name}")
    pointers = [ctypes.c_void_p(None if each is None else each.data_ptr()) for each in (*made, states)]
    if function(here, torch.get_num_threads(), *map(int, options), *pointers) != 0:
        raise MemoryError("there is too little memory for a round of message passing")
