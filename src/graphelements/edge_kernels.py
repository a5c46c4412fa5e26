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
from torch.nn.functional import embedding

from .topology import Bucket, EdgeTables


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


class Terms(NamedTuple):
    """What is added on an edge before the relu: A z_i and B z_j, side by side in `nodes`, b1, and c_e = features weight.

    A last row pads `nodes`, the neighbour in empty slots: minus infinity, so that its relu is 0.
    """

    nodes: Float[Tensor, "padded both"]
    bias: Float[Tensor, " hidden"]
    features: Float[Tensor, "edges features"]
    weight: Float[Tensor, "features hidden"]


def sum_over_tables(terms: Terms, tables: EdgeTables) -> Float[Tensor, "nodes hidden"]:
    """s_j for every node j."""
    return _by_bucket(_Kernels.sums, tables, terms)


def node_gradient(gradient: Float[Tensor, "padded hidden"], terms: Terms, tables: EdgeTables) -> Float[Tensor, "nodes both"]:
    """The gradient of `terms.nodes` from that of s; the last row of `gradient` is not used."""
    return _by_bucket(_Kernels.node_gradient, tables, terms, gradient)


def feature_gradient(
    gradient: Float[Tensor, "padded hidden"], terms: Terms, tables: EdgeTables
) -> Float[Tensor, "edges features"]:
    """The gradient of the edge features from that of s."""
    if terms.features.numel() == 0:
        return torch.zeros_like(terms.features)
    return _run(_Kernels.feature_gradient, terms, gradient, tables.senders, tables.receivers)


def weight_gradient(
    gradient: Float[Tensor, "padded hidden"], terms: Terms, tables: EdgeTables
) -> Float[Tensor, "features hidden"]:
    """The gradient of the edge weight from that of s."""
    if terms.features.numel() == 0:
        return torch.zeros_like(terms.weight)
    return _run(_Kernels.weight_gradient, terms, gradient, tables.senders, tables.receivers)


@no_type_check  # the compiler cannot see through the shape checks of the tests
class _Kernels:
    """What is compiled. Slots come before rows, so that the compiler's vectors run along the hidden units.

    `embedding` gathers rows without the check for negative numbers that indexing makes.
    """

    @staticmethod
    def sums(terms: Terms, bucket: Bucket, own: Float[Tensor, "rows both"]) -> Float[Tensor, "rows hidden"]:
        """s_j of the nodes of a bucket; `own` are their rows of `terms.nodes`."""
        from_senders, to_senders = terms.nodes.chunk(2, 1)[0], own.chunk(2, 1)[1]
        heard = embedding(bucket.senders, from_senders) + (to_senders + terms.bias)
        return with_features(heard, embedding(bucket.incoming, terms.features), terms.weight).relu().sum(0)

    @staticmethod
    def node_gradient(
        terms: Terms,
        gradient: Float[Tensor, "padded hidden"],
        bucket: Bucket,
        own: Float[Tensor, "rows both"],
        own_gradient: Float[Tensor, "rows hidden"],
    ) -> Float[Tensor, "rows both"]:
        """The gradient of A z and B z of the nodes of a bucket. Forming the terms anew is as fast as keeping what is needed."""
        (from_senders, from_receivers), (to_receivers, to_senders) = terms.nodes.chunk(2, 1), own.chunk(2, 1)
        sent = embedding(bucket.receivers, from_receivers) + (to_receivers + terms.bias)
        heard = embedding(bucket.senders, from_senders) + (to_senders + terms.bias)
        sent = with_features(sent, embedding(bucket.outgoing, terms.features), terms.weight)
        heard = with_features(heard, embedding(bucket.incoming, terms.features), terms.weight)
        of_senders = torch.where(sent > 0, embedding(bucket.receivers, gradient), 0.0).sum(0)
        of_receivers = torch.where(heard > 0, own_gradient, 0.0).sum(0)
        return torch.cat([of_senders, of_receivers], 1)

    @staticmethod
    def feature_gradient(
        terms: Terms, gradient: Float[Tensor, "padded hidden"], senders: Int[Tensor, " edges"], receivers: Int[Tensor, " edges"]
    ) -> Float[Tensor, "edges features"]:
        passed = _Kernels.passed(terms, gradient, senders, receivers)
        return torch.stack([(passed * row).sum(1) for row in terms.weight.unbind(0)], 1)

    @staticmethod
    def weight_gradient(
        terms: Terms, gradient: Float[Tensor, "padded hidden"], senders: Int[Tensor, " edges"], receivers: Int[Tensor, " edges"]
    ) -> Float[Tensor, "features hidden"]:
        passed = _Kernels.passed(terms, gradient, senders, receivers)
        return torch.stack([(passed * column[:, None]).sum(0) for column in terms.features.unbind(1)])

    @staticmethod
    def passed(
        terms: Terms, gradient: Float[Tensor, "padded hidden"], senders: Int[Tensor, " edges"], receivers: Int[Tensor, " edges"]
    ) -> Float[Tensor, "edges hidden"]:
        """The gradient that passes through the relu of every edge."""
        from_senders, from_receivers = terms.nodes.chunk(2, 1)
        total = embedding(senders, from_senders) + (embedding(receivers, from_receivers) + terms.bias)
        total = with_features(total, terms.features, terms.weight)
        return torch.where(total > 0, embedding(receivers, gradient), 0.0)


@no_type_check  # the compiler cannot see through the shape checks of the tests
def with_features(
    total: Float[Tensor, "*edges hidden"],
    features: Float[Tensor, "*edges features"],
    weight: Float[Tensor, "features hidden"],
) -> Float[Tensor, "*edges hidden"]:
    """`total` + features weight, as a loop over the few features: a matrix product would not fuse with the rest."""
    for column, row in zip(features.unbind(-1), weight.unbind(0), strict=True):
        total = total + column[..., None] * row
    return total


@no_type_check  # the compiler cannot see through the shape checks of the tests
def rows_of(table: Float[Tensor, "rows channels"], numbers: Int[Tensor, "*n"]) -> Float[Tensor, "*n channels"]:
    """Rows of a table by their numbers, copied row by row, where indexing goes number by number."""
    if torch.compiler.is_compiling():
        return embedding(numbers, table)
    return table.index_select(0, numbers.flatten()).unflatten(0, numbers.shape)


def _by_bucket(kernel: Callable, tables: EdgeTables, terms: Terms, *by_node: Tensor) -> Tensor:
    """The results of a kernel for all nodes, from those for the nodes of each bucket."""
    if len(tables.buckets) == 1:  # of all nodes in order
        return _run(kernel, terms, *by_node, tables.buckets[0], *(rows[:-1] for rows in (terms.nodes, *by_node)))
    parts = [
        _run(kernel, terms, *by_node, bucket, *(rows[bucket.nodes] for rows in (terms.nodes, *by_node)))
        for bucket in tables.buckets
    ]
    result = parts[0].new_empty(tables.num_nodes, parts[0].shape[1])
    for bucket, part in zip(tables.buckets, parts, strict=True):
        result[bucket.nodes] = part
    return result


def _run(kernel: Callable, terms: Terms, *args: Tensor | Bucket) -> Tensor:
    for rows in (terms.nodes, *args):
        if isinstance(rows, Tensor) and rows.dim() == 2:
            torch._dynamo.mark_static(rows, 1)  # known hidden sizes make plain loops
    return compiled_run(kernel, terms, *args)


def compiled_run(kernel: Callable, *args) -> Any:
    """Run a kernel, compiled at its first call."""
    return _compiled(kernel)(*args)


def run(kernel: Callable, *args, compiled: bool) -> Any:
    """Run a kernel that is plain torch, compiled or as it is; compiled, it may store its terms."""
    return _compiled(kernel, stores=True)(*args) if compiled else kernel(*args)


UNCHECKED: dict[str, Any] = {"assert_indirect_indexing": False}
"""Options of the compiler where rows are known to exist: `build_tables` and `SFT.validate` have checked."""


@functools.cache
def _compiled(kernel: Callable, stores: bool = False) -> Callable:
    inline = 1000  # operations up to which the compiler repeats a term where it is used instead of storing it
    fused = {f"realize_{kind}_threshold": inline for kind in ("reads", "opcount", "acc_reads")}
    options = UNCHECKED if stores else UNCHECKED | fused
    # Every hidden size, number of features and size of 1 is compiled for itself, and torch gives up beyond its limit. The limit
    # is the process's: one for these kernels alone is set and reset in every call, which takes as long as the call itself.
    torch._dynamo.config.recompile_limit = max(torch._dynamo.config.recompile_limit, 64)
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
