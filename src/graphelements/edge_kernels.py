"""The edge stage of message passing: one gather, an add, a relu and a sum per edge.

With m_e a network of one hidden layer, the messages that node j hears (paper section 3.2) sum to

    sum_i m_e(z_i, z_j) = W2 s_j + deg_j b2,    s_j = sum over edges e = (i, j) of relu(A z_i + B z_j + b1 + c_e),

so that every matrix is applied once per node, and only s_j is left to do per edge. Plain torch does it on any
device. The compiled form runs over tables of neighbours: each sum of the forward and of the backward pass is one
kernel that forms the terms on the fly, so that nothing of size edges x hidden is ever stored. Without atomic
additions, the same input gives the same bits.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.autograd.function import FunctionCtx, once_differentiable

from .errors import require


class Bucket(NamedTuple):
    """Nodes of similar degree and their edges, a column of `width` slots each; slots beyond the degree repeat an edge."""

    nodes: Int[Tensor, " rows"]
    degrees: Int[Tensor, " rows"]
    neighbours: Int[Tensor, "width rows"]
    edges: Int[Tensor, "width rows"]


@dataclass(frozen=True)
class EdgeTables:
    """Incoming and outgoing edges of every node, as neighbour tables bucketed by degree; nodes without edges are in none."""

    incoming: tuple[Bucket, ...]
    outgoing: tuple[Bucket, ...]
    num_nodes: int
    num_edges: int


def build_tables(senders: Int[Tensor, " edges"], receivers: Int[Tensor, " edges"], num_nodes: int) -> EdgeTables:
    """The tables of a graph, which may be directed and have loops, repeated edges and hubs; build them once per graph."""
    require(senders.shape == receivers.shape, f"every edge has a sender and a receiver; got {len(senders)} and {len(receivers)}")
    for ends in (senders, receivers):
        # Kernels trust the tables: an index beyond the nodes would read foreign memory.
        inside = len(ends) == 0 or bool((ends.min() >= 0) & (ends.max() < num_nodes))
        require(inside, f"edges join nodes 0 to {num_nodes - 1}; found others, build the edges from the same nodes")
    return EdgeTables(_buckets(receivers, senders, num_nodes), _buckets(senders, receivers, num_nodes), num_nodes, len(senders))


def _buckets(own: Int[Tensor, " edges"], other: Int[Tensor, " edges"], num_nodes: int) -> tuple[Bucket, ...]:
    """Edges (own, other) by their own node; widths 2, 3, 4, 6, 8, 12, ... leave at most a third of the slots empty from 3 on."""
    by_node = torch.argsort(own, stable=True)
    degrees = torch.bincount(own, minlength=num_nodes)
    ends = degrees.cumsum(0)
    widths = torch.tensor([0, *sorted(base << power for base in (2, 3) for power in range(40))], device=own.device)
    kinds = torch.bucketize(degrees, widths)
    by_kind = torch.argsort(kinds, stable=True)
    buckets = []
    for width, nodes in zip(widths.tolist(), by_kind.split(torch.bincount(kinds, minlength=len(widths)).tolist()), strict=True):
        if width > 0 and len(nodes) > 0:
            slots = (ends - degrees)[nodes] + torch.arange(width, device=own.device)[:, None]
            edges = by_node[torch.minimum(slots, ends[nodes] - 1)]
            buckets.append(Bucket(nodes, degrees[nodes], other[edges], edges))
    return tuple(buckets)


def sum_relu_messages(
    from_senders: Float[Tensor, "nodes hidden"],
    from_receivers: Float[Tensor, "nodes hidden"],
    edge_features: Float[Tensor, "edges features"],
    edge_weight: Float[Tensor, "features hidden"],
    senders: Int[Tensor, " edges"],
    receivers: Int[Tensor, " edges"],
    tables: EdgeTables | None = None,
) -> Float[Tensor, "nodes hidden"]:
    """s_j = sum over incoming edges e = (i, j) of relu(A z_i + B z_j + b1 + c_e), for every receiving node j.

    `from_senders` holds A z, `from_receivers` B z + b1, and c_e = `edge_features` `edge_weight`. With `tables` (of the
    same edges) the compiled kernels run, which the first call has to compile; without, plain torch.
    """
    if tables is not None:
        require(
            (tables.num_nodes, tables.num_edges) == (len(from_senders), len(edge_features)),
            f"tables must be built from the same graph, {len(from_senders)} nodes and {len(edge_features)} edges; "
            f"got tables of {tables.num_nodes} nodes and {tables.num_edges} edges",
        )
        return _SumReluMessages.apply(from_senders, from_receivers, edge_features, edge_weight, senders, receivers, tables)
    messages = torch.addmm(from_senders.index_select(0, senders), edge_features, edge_weight)
    messages = messages.add_(from_receivers.index_select(0, receivers)).relu_()
    return torch.zeros_like(from_receivers).index_add(0, receivers, messages)


class _SumReluMessages(torch.autograd.Function):
    """`sum_relu_messages` over tables; its backward recomputes which terms are positive."""

    @staticmethod
    def forward(ctx: FunctionCtx, *args) -> Float[Tensor, "nodes hidden"]:
        *tensors, ctx.tables = args
        tensors = [tensor.detach().contiguous() for tensor in tensors]
        ctx.save_for_backward(*tensors)
        from_senders, from_receivers, features, weight, _, _ = tensors
        sums = torch.zeros_like(from_receivers)
        for bucket in ctx.tables.incoming:
            _compiled(_store_sums)(sums, from_receivers, from_senders, features, weight, *bucket)
        return sums

    @staticmethod
    @once_differentiable
    def backward(ctx: FunctionCtx, gradient: Float[Tensor, "nodes hidden"]) -> tuple[Tensor | None, ...]:
        terms = from_senders, from_receivers, features, weight, senders, receivers = ctx.saved_tensors
        gradient = gradient.contiguous()
        # One kernel per gradient: asked for several at once, the compiler stores the terms of all edges.
        gradients: list[Tensor | None] = [
            torch.zeros_like(tensor) if needed else None for tensor, needed in zip(terms, ctx.needs_input_grad, strict=False)
        ]
        of_senders, of_receivers, of_features, of_weight, *_ = gradients
        if of_senders is not None:
            for bucket in ctx.tables.outgoing:
                rows = bucket.neighbours
                _compiled(_store_gradients)(of_senders, from_senders, from_receivers, features, weight, gradient, rows, *bucket)
        if of_receivers is not None:
            for bucket in ctx.tables.incoming:
                rows = bucket.nodes
                _compiled(_store_gradients)(of_receivers, from_receivers, from_senders, features, weight, gradient, rows, *bucket)
        if features.numel() > 0:
            if of_features is not None:
                of_features.copy_(_compiled(_feature_gradient)(*terms, gradient))
            if of_weight is not None:
                of_weight.copy_(_compiled(_weight_gradient)(*terms, gradient))
        return (*gradients, None)


# ---- Kernels. Shapes are symbols to the compiler, but for the number of features; slots come first, so that its
# vectors run along the hidden units. ----


def _before_relu(
    own: Float[Tensor, "*terms hidden"],
    other: Float[Tensor, "*terms hidden"],
    features: Float[Tensor, "*terms features"],
    weight: Float[Tensor, "features hidden"],
) -> Float[Tensor, "*terms hidden"]:
    """A z_i + B z_j + b1 + c_e. A product of matrices would not fuse, this loop does."""
    total = own + other
    for feature in range(weight.shape[0]):
        total = total + features[..., feature, None] * weight[feature]
    return total


def _filled(degrees: Int[Tensor, " rows"], width: int) -> Bool[Tensor, "width rows 1"]:
    return (torch.arange(width, device=degrees.device)[:, None] < degrees)[..., None]


def _store_sums(sums, own, other, features, weight, nodes, degrees, neighbours, edges) -> None:
    """Write s_j for the nodes of an incoming bucket."""
    total = _before_relu(own[nodes], other[neighbours], features[edges], weight)
    sums[nodes] = torch.where(_filled(degrees, len(neighbours)), total, 0.0).relu().sum(0).to(sums.dtype)


def _store_gradients(sums, own, other, features, weight, gradient, rows, nodes, degrees, neighbours, edges) -> None:
    """Write, for the nodes of a bucket, the sum of the receivers' gradients over the edges whose term is positive."""
    total = _before_relu(own[nodes], other[neighbours], features[edges], weight)
    total = torch.where(_filled(degrees, len(neighbours)), total, 0.0)
    sums[nodes] = torch.where(total > 0, gradient[rows], 0.0).sum(0).to(sums.dtype)


def _passed(from_senders, from_receivers, features, weight, senders, receivers, gradient) -> Float[Tensor, "edges hidden"]:
    """The receiver's gradient where the edge's term is positive."""
    total = _before_relu(from_receivers[receivers], from_senders[senders], features, weight)
    return torch.where(total > 0, gradient[receivers], 0.0)


def _feature_gradient(from_senders, from_receivers, features, weight, senders, receivers, gradient) -> Tensor:
    passed = _passed(from_senders, from_receivers, features, weight, senders, receivers, gradient)
    return torch.stack([(passed * row).sum(1) for row in weight], dim=1)


def _weight_gradient(from_senders, from_receivers, features, weight, senders, receivers, gradient) -> Tensor:
    passed = _passed(from_senders, from_receivers, features, weight, senders, receivers, gradient)
    return torch.stack([(passed * column[:, None]).sum(0) for column in features.unbind(1)])


@functools.cache
def _compiled(kernel: Callable) -> Callable:
    inline = 1000  # reads or operations below which a term is formed where it is used instead of stored
    options = {
        "realize_reads_threshold": inline,
        "realize_opcount_threshold": inline,
        "realize_acc_reads_threshold": inline,
        "assert_indirect_indexing": False,
    }
    return torch.compile(kernel, dynamic=True, fullgraph=True, options=options)


@functools.cache
def compiler_available() -> bool:
    """Whether torch can compile for this machine: a C++ compiler, its headers and Python's; tried once per process."""
    try:
        torch.compile(lambda x: x.relu() + 1, fullgraph=True)(torch.zeros(2))
    except Exception:  # whatever is missing, the answer is no
        return False
    return True
