"""Writing samples to nodes and reading nodes at points, in the exact cheap form of message passing.

With e and rho networks of one hidden layer that see offsets, first layers are applied once per sample or node and last layers
once after the sum over touched nodes; what is left per point and touched node is an add, a relu and a weighted sum:

    read:   h(x) = sum over l of r_l(x) relu(a_l + C o_l(x)),    write:   h_l = sum over x of r_l(x) relu(a(x) + C o_l(x)),

with a = A z + b or A s + b, and o the offset in local coordinates. Plain torch does it anywhere. The compiled form fuses the
terms; its gradients are those of the a and of C, so where weights or offsets ask for gradients (positions are optimised, or a
sharpness is learned) plain torch is used.
"""

from __future__ import annotations

from typing import Any, no_type_check

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable

from .edge_kernels import compiled_run, with_features
from .representations import Coupling


def read_hidden(
    from_nodes: Float[Tensor, "nodes hidden"],
    coupling: Coupling,
    local: Float[Tensor, "points touched local"],
    weight: Float[Tensor, "local hidden"],
    compiled: bool,
) -> Float[Tensor, "points hidden"]:
    """h(x) = sum over touched nodes l of r_l(x) relu(a_l + C o_l(x))."""
    if _fusible(compiled, coupling, local):
        return _Read.apply(from_nodes, coupling.nodes, coupling.weights, local, weight)
    return coupling.blend((from_nodes[coupling.nodes] + local @ weight).relu())


def write_hidden(
    from_samples: Float[Tensor, "points hidden"],
    coupling: Coupling,
    local: Float[Tensor, "points touched local"],
    weight: Float[Tensor, "local hidden"],
    compiled: bool,
) -> Float[Tensor, "nodes hidden"]:
    """h_l = sum over points x of r_l(x) relu(a(x) + C o_l(x))."""
    if _fusible(compiled, coupling, local):
        return _Write.apply(from_samples, coupling.nodes, coupling.weights, local, weight, coupling.num_nodes)
    return coupling.scatter((from_samples[:, None] + local @ weight).relu())


def _fusible(compiled: bool, coupling: Coupling, local: Tensor) -> bool:
    return compiled and not coupling.weights.requires_grad and not local.requires_grad


class _Read(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *inputs) -> Float[Tensor, "points hidden"]:
        inputs = [tensor.detach() for tensor in inputs]  # the compiler wants leaves
        ctx.save_for_backward(*inputs)
        return compiled_run(_Kernels.read, *inputs)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Float[Tensor, "points hidden"]) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        from_nodes, nodes, _, local, _ = ctx.saved_tensors
        passed = compiled_run(_Kernels.passed_by_read, *ctx.saved_tensors, gradient.contiguous()).flatten(0, 1)
        of_nodes = torch.zeros_like(from_nodes).index_add_(0, nodes.flatten(), passed)
        return of_nodes, None, None, None, local.flatten(0, 1).T @ passed


class _Write(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *inputs) -> Float[Tensor, "nodes hidden"]:
        *tensors, num_nodes = inputs
        from_samples, nodes, weights, local, weight = (tensor.detach() for tensor in tensors)  # the compiler wants leaves
        ctx.save_for_backward(from_samples, nodes, weights, local, weight)
        terms = compiled_run(_Kernels.write, from_samples, weights, local, weight).flatten(0, 1)
        return terms.new_zeros(num_nodes, terms.shape[-1]).index_add_(0, nodes.flatten(), terms)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Float[Tensor, "nodes hidden"]) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        *_, local, _ = ctx.saved_tensors
        passed = compiled_run(_Kernels.passed_by_write, *ctx.saved_tensors, gradient.contiguous())
        return passed.sum(1), None, None, None, local.flatten(0, 1).T @ passed.flatten(0, 1), None


@no_type_check  # the compiler cannot see through the shape checks of the tests
class _Kernels:
    """What is compiled: one kernel each, that forms the terms on the fly."""

    @staticmethod
    def read(
        from_nodes: Float[Tensor, "nodes hidden"],
        nodes: Int[Tensor, "points touched"],
        weights: Float[Tensor, "points touched"],
        local: Float[Tensor, "points touched local"],
        weight: Float[Tensor, "local hidden"],
    ) -> Float[Tensor, "points hidden"]:
        return (with_features(from_nodes[nodes], local, weight).relu() * weights[..., None]).sum(1)

    @staticmethod
    def passed_by_read(from_nodes, nodes, weights, local, weight, gradient) -> Float[Tensor, "points touched hidden"]:
        terms = with_features(from_nodes[nodes], local, weight)
        return torch.where(terms > 0, gradient[:, None] * weights[..., None], 0.0)

    @staticmethod
    def write(from_samples, weights, local, weight) -> Float[Tensor, "points touched hidden"]:
        return with_features(from_samples[:, None], local, weight).relu() * weights[..., None]

    @staticmethod
    def passed_by_write(from_samples, nodes, weights, local, weight, gradient) -> Float[Tensor, "points touched hidden"]:
        terms = with_features(from_samples[:, None], local, weight)
        return torch.where(terms > 0, gradient[nodes] * weights[..., None], 0.0)
