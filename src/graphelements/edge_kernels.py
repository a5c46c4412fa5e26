"""The edge stage of message passing: one gather, an add, a relu and a sum per edge.

With m_e a network of one hidden layer, the messages that node j hears (paper section 2.1) sum to

    sum_i m_e(z_i, z_j) = W2 s_j + deg_j b2,    s_j = sum over edges e = (i, j) of relu(A z_i + B z_j + b1 + c_e),

so that every matrix is applied once per node, and only s_j is left to do per edge. Plain torch does it on any
device. The compiled form runs over tables of neighbours: each sum of the forward and of the backward pass is one
kernel that forms the terms on the fly, so that nothing of size edges x hidden is ever stored. Without atomic
additions, the same input gives the same bits.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple, no_type_check

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable

from .errors import require
from .topology import Bucket, EdgeTables


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
        return _SumReluMessages.apply(from_senders, from_receivers, edge_features, edge_weight, tables)
    messages = torch.addmm(from_senders.index_select(0, senders), edge_features, edge_weight)
    messages = messages.add_(from_receivers.index_select(0, receivers)).relu_()
    return torch.zeros_like(from_receivers).index_add(0, receivers, messages)


class Terms(NamedTuple):
    """What is added on an edge before the relu: A z_i, B z_j + b1, and c_e = features weight."""

    from_senders: Float[Tensor, "nodes hidden"]
    from_receivers: Float[Tensor, "nodes hidden"]
    features: Float[Tensor, "edges features"]
    weight: Float[Tensor, "features hidden"]


class _SumReluMessages(torch.autograd.Function):
    """`sum_relu_messages` over tables; its backward forms the terms anew instead of keeping them."""

    @staticmethod
    def forward(ctx: Any, *inputs) -> Float[Tensor, "nodes hidden"]:
        *tensors, tables = inputs
        terms = Terms(*(tensor.detach().contiguous() for tensor in tensors))
        sums, positive = torch.zeros_like(terms.from_receivers), torch.zeros_like(terms.from_receivers)
        for bucket in tables.incoming:
            compiled_run(_Kernels.store_sums, sums, positive, terms, bucket)
        ctx.save_for_backward(*terms, positive)
        ctx.tables = tables
        return sums

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Float[Tensor, "nodes hidden"]) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        *tensors, positive = ctx.saved_tensors
        terms, tables, gradient = Terms(*tensors), ctx.tables, gradient.contiguous()
        # One kernel per gradient: asked for several at once, the compiler stores the terms of all edges.
        of_senders = of_receivers = of_features = of_weight = None
        if ctx.needs_input_grad[0]:
            of_senders = torch.zeros_like(terms.from_senders)
            for bucket in tables.outgoing:
                compiled_run(_Kernels.store_sender_gradient, of_senders, gradient, terms, bucket)
        if ctx.needs_input_grad[1]:
            of_receivers = gradient * positive
        on_edges = gradient, terms, tables.senders, tables.receivers
        if ctx.needs_input_grad[2]:
            of_features = (
                compiled_run(_Kernels.feature_gradient, *on_edges) if terms.features.numel() else torch.zeros_like(terms.features)
            )
        if ctx.needs_input_grad[3]:
            of_weight = (
                compiled_run(_Kernels.weight_gradient, *on_edges) if terms.features.numel() else torch.zeros_like(terms.weight)
            )
        return of_senders, of_receivers, of_features, of_weight, None


@no_type_check  # the compiler cannot see through the shape checks of the tests
class _Kernels:
    """What is compiled. Slots come before rows, so that the compiler's vectors run along the hidden units."""

    @staticmethod
    def store_sums(
        sums: Float[Tensor, "nodes hidden"], positive: Float[Tensor, "nodes hidden"], terms: Terms, bucket: Bucket
    ) -> None:
        """Write s_j for an incoming bucket, and how many of its summands are positive: d s_j / d (B z_j)."""
        slots = _Kernels.slots(terms.from_senders[bucket.neighbours], terms.from_receivers[bucket.nodes], terms, bucket)
        sums[bucket.nodes] = slots.relu().sum(0).to(sums.dtype)
        positive[bucket.nodes] = (slots > 0).to(positive.dtype).sum(0)

    @staticmethod
    def store_sender_gradient(
        sums: Float[Tensor, "nodes hidden"], gradient: Float[Tensor, "nodes hidden"], terms: Terms, bucket: Bucket
    ) -> None:
        """Write the gradient of A z_i for an outgoing bucket."""
        slots = _Kernels.slots(terms.from_senders[bucket.nodes], terms.from_receivers[bucket.neighbours], terms, bucket)
        sums[bucket.nodes] = torch.where(slots > 0, gradient[bucket.neighbours], 0.0).sum(0).to(sums.dtype)

    @staticmethod
    def feature_gradient(
        gradient: Float[Tensor, "nodes hidden"], terms: Terms, senders: Int[Tensor, " edges"], receivers: Int[Tensor, " edges"]
    ) -> Float[Tensor, "edges features"]:
        """The gradient of the edge features."""
        passed = _Kernels.passed(gradient, terms, senders, receivers)
        return torch.stack([(passed * row).sum(1) for row in terms.weight.unbind(0)], 1).to(terms.features.dtype)

    @staticmethod
    def weight_gradient(
        gradient: Float[Tensor, "nodes hidden"], terms: Terms, senders: Int[Tensor, " edges"], receivers: Int[Tensor, " edges"]
    ) -> Float[Tensor, "features hidden"]:
        """The gradient of the edge weight."""
        passed = _Kernels.passed(gradient, terms, senders, receivers)
        return torch.stack([(passed * column[:, None]).sum(0) for column in terms.features.unbind(1)]).to(terms.weight.dtype)

    @staticmethod
    def slots(
        senders: Float[Tensor, "#width rows hidden"], receivers: Float[Tensor, "#width rows hidden"], terms: Terms, bucket: Bucket
    ) -> Float[Tensor, "width rows hidden"]:
        """A z_i + B z_j + b1 + c_e in the slots of a bucket, 0 in empty ones."""
        filled = torch.arange(len(bucket.edges), device=bucket.edges.device)[:, None] < bucket.degrees
        total = _Kernels.with_features(senders + receivers, terms.features[bucket.edges], terms.weight)
        return torch.where(filled[..., None], total, 0.0)

    @staticmethod
    def passed(
        gradient: Float[Tensor, "nodes hidden"], terms: Terms, senders: Int[Tensor, " edges"], receivers: Int[Tensor, " edges"]
    ) -> Float[Tensor, "edges hidden"]:
        """The gradient that passes through the relu of every edge."""
        total = terms.from_senders[senders] + terms.from_receivers[receivers]
        return torch.where(_Kernels.with_features(total, terms.features, terms.weight) > 0, gradient[receivers], 0.0)

    @staticmethod
    def with_features(
        total: Float[Tensor, "*edges hidden"],
        features: Float[Tensor, "*edges features"],
        weight: Float[Tensor, "features hidden"],
    ) -> Float[Tensor, "*edges hidden"]:
        """`total` + c_e, as a loop: a matrix product would not fuse with the rest."""
        for column, row in zip(features.unbind(-1), weight.unbind(0), strict=True):
            total = total + column[..., None] * row
        return total


def compiled_run(kernel: Callable, *args) -> Any:
    """Run a kernel, compiled at its first call."""
    # Every number of features and every size of 1 is compiled for itself, and torch gives up beyond its limit.
    with torch._dynamo.config.patch(recompile_limit=64):
        return _compiled(kernel)(*args)


@functools.cache
def _compiled(kernel: Callable) -> Callable:
    inline = 1000  # operations up to which the compiler repeats a term where it is used instead of storing it
    options = {
        "realize_reads_threshold": inline,
        "realize_opcount_threshold": inline,
        "realize_acc_reads_threshold": inline,
        "assert_indirect_indexing": False,  # `build_tables` has checked
    }
    return torch.compile(kernel, dynamic=True, fullgraph=True, options=options)


@functools.cache
def compiler_available() -> bool:
    """Whether torch can compile for this machine: a C++ compiler, its headers and Python's; tried once per process."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch's own, about itself
            torch.compile(lambda x: x.relu() + 1, fullgraph=True)(torch.zeros(2))
    except Exception:  # whatever is missing, the answer is no
        return False
    return True
