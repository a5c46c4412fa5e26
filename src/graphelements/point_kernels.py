"""Writing samples to nodes and reading nodes at points, in the exact cheap form of message passing.

With e and rho networks of one hidden layer that see offsets, first layers are applied once per sample or node and last layers
once after the sum over touched nodes; what is left per point and touched node is an add, a relu and a weighted sum:

    read:   h(x) = sum over l of r_l(x) relu(a_l + C o_l(x)),    write:   h_l = sum over x of r_l(x) relu(a(x) + C o_l(x)),

with a = A z + b or A s + b, and o the offset in local coordinates; where e and rho are gated, each term is multiplied by g(z) or
g(s). Plain torch does it anywhere. The compiled form fuses the terms; its gradients are those of a, g and C, so where weights or
offsets ask for gradients (positions are optimised, or a sharpness is learned) plain torch is used. Where e or rho have more
layers, they are applied to every point and touched node.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, no_type_check

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable

from .compilation import compiled_run, rows_of
from .perceptron import GatedPerceptron, Perceptron, gate_of, has_cheap_form
from .representations import Coupling

FEW_TOUCHED = 8  # times as many points as touched nodes: then nodes are read one after the other, and terms stay in the cache


def scatter_codes(
    encoder: Perceptron | GatedPerceptron,
    values: Float[Tensor, "points values"],
    coupling: Coupling,
    local: Float[Tensor, "points touched local"],
    compiled: bool,
) -> Float[Tensor, "nodes latent"]:
    """The sum over points x of r_l(x) e(s, o_l(x)), for every node l."""
    if not has_cheap_form(encoder):
        return coupling.scatter(encoder(torch.cat([values[:, None].expand(*local.shape[:2], values.shape[-1]), local], -1)))
    base, gate, of_local = _once(encoder, values, local.shape[-1])
    hidden = write_hidden(base, gate, coupling, local, of_local, compiled)
    if encoder.last.bias is None:
        return encoder.last(hidden)
    masses = coupling.scatter(values.new_ones(len(values), 1))
    return torch.addmm(masses * encoder.last.bias, hidden, encoder.last.weight.T)


def gather_codes(
    reader: Perceptron | GatedPerceptron,
    states: Float[Tensor, "nodes latent"],
    coupling: Coupling,
    local: Float[Tensor, "points touched local"],
    compiled: bool,
) -> Float[Tensor, "points latent"]:
    """The sum over touched nodes l of r_l(x) rho(z_l, o_l(x)), for every point x."""
    if not has_cheap_form(reader):
        return coupling.blend(reader(torch.cat([rows_of(states, coupling.nodes), local], -1)))
    base, gate, of_local = _once(reader, states, local.shape[-1])
    return reader.last(read_hidden(base, gate, coupling, local, of_local, compiled))  # the weights of a point sum to one


def _once(
    net: Perceptron | GatedPerceptron, rows: Float[Tensor, "rows values"], num_local: int
) -> tuple[Float[Tensor, "rows hidden"], Float[Tensor, "rows hidden"] | None, Float[Tensor, "local hidden"]]:
    """What is found once per row: a and g; and C."""
    seen = rows[:, net.num_linear :] if isinstance(net, GatedPerceptron) else rows
    of_row, of_local = net.first.weight.split([seen.shape[-1], num_local], dim=1)
    return torch.addmm(net.first.bias, seen, of_row.T), gate_of(net, rows), of_local.T


def read_hidden(
    base: Float[Tensor, "nodes hidden"],
    gate: Float[Tensor, "nodes hidden"] | None,
    coupling: Coupling,
    local: Float[Tensor, "points touched local"],
    weight: Float[Tensor, "local hidden"],
    compiled: bool,
) -> Float[Tensor, "points hidden"]:
    """h(x) = sum over touched nodes l of r_l(x) g_l relu(a_l + C o_l(x)), from a as `base` and g as `gate`, if there is one."""
    gated = (base,) if gate is None else (base, gate)
    if _fusible(compiled, coupling, local):
        return (_Read if gate is None else GatedRead).apply(*gated, coupling.nodes, coupling.weights, local, weight)
    if torch.compiler.is_compiling():  # as part of something larger, where products would not fuse
        kernel: Callable[..., Tensor] = _Kernels.read if gate is None else _Kernels.read_gated
        return kernel(*gated, coupling.nodes, coupling.weights, local, weight)
    if torch.is_grad_enabled() or len(local) < FEW_TOUCHED * local.shape[1]:
        terms = (rows_of(base, coupling.nodes) + local @ weight).relu()
        return coupling.blend(terms if gate is None else terms * rows_of(gate, coupling.nodes))
    hidden = torch.zeros_like(base[:1]).expand(len(local), base.shape[1])
    for nodes, shares, rows in zip(coupling.nodes.unbind(1), coupling.weights.unbind(1), local.unbind(1), strict=True):
        terms = rows_of(base, nodes).addmm_(rows, weight).relu_()
        hidden = torch.addcmul(hidden, terms if gate is None else terms.mul_(rows_of(gate, nodes)), shares[:, None])
    return hidden


def write_hidden(
    base: Float[Tensor, "points hidden"],
    gate: Float[Tensor, "points hidden"] | None,
    coupling: Coupling,
    local: Float[Tensor, "points touched local"],
    weight: Float[Tensor, "local hidden"],
    compiled: bool,
) -> Float[Tensor, "nodes hidden"]:
    """h_l = sum over points x of r_l(x) g(x) relu(a(x) + C o_l(x)), from a as `base` and g as `gate`, if there is one."""
    if _fusible(compiled, coupling, local):
        gated = (base,) if gate is None else (base, gate)
        kind = _Write if gate is None else _GatedWrite
        return kind.apply(*gated, coupling.nodes, coupling.weights, local, weight, coupling.num_nodes)
    terms = (base[:, None] + local @ weight).relu()
    return coupling.scatter(terms if gate is None else terms * gate[:, None])


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


class GatedRead(torch.autograd.Function):
    """sum over l of r_l g_l relu(a_l + C o_l), for any table of which rows l a point hears, and how much of each."""

    @staticmethod
    def forward(ctx: Any, *inputs) -> Float[Tensor, "points hidden"]:
        inputs = [tensor.detach() for tensor in inputs]  # the compiler wants leaves
        ctx.save_for_backward(*inputs)
        return compiled_run(_Kernels.read_gated, *inputs)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Float[Tensor, "points hidden"]) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        base, _, rows, _, local, _ = ctx.saved_tensors
        by_base, by_gate = (
            compiled_run(kernel, *ctx.saved_tensors, gradient.contiguous()).flatten(0, 1)
            for kernel in (_Kernels.base_by_read, _Kernels.gate_by_read)
        )
        of_rows = (torch.zeros_like(base).index_add_(0, rows.flatten(), terms) for terms in (by_base, by_gate))
        return *of_rows, None, None, None, local.flatten(0, 1).T @ by_base


class _GatedWrite(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *inputs) -> Float[Tensor, "nodes hidden"]:
        *tensors, num_nodes = inputs
        base, gate, nodes, weights, local, weight = (tensor.detach() for tensor in tensors)  # the compiler wants leaves
        ctx.save_for_backward(base, gate, nodes, weights, local, weight)
        terms = compiled_run(_Kernels.write_gated, base, gate, weights, local, weight).flatten(0, 1)
        return terms.new_zeros(num_nodes, terms.shape[-1]).index_add_(0, nodes.flatten(), terms)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Float[Tensor, "nodes hidden"]) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        *_, local, _ = ctx.saved_tensors
        gradient = gradient.contiguous()
        by_base = compiled_run(_Kernels.base_by_write, *ctx.saved_tensors, gradient)
        by_gate = compiled_run(_Kernels.gate_by_write, *ctx.saved_tensors, gradient)
        return by_base.sum(1), by_gate, None, None, None, local.flatten(0, 1).T @ by_base.flatten(0, 1), None


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

    @staticmethod
    def read_gated(base, gate, rows, weights, local, weight) -> Float[Tensor, "points hidden"]:
        terms = with_features(base[rows], local, weight).relu() * gate[rows]
        return (terms * weights[..., None]).sum(1)

    @staticmethod
    def base_by_read(base, gate, rows, weights, local, weight, gradient) -> Float[Tensor, "points touched hidden"]:
        passed = gradient[:, None] * weights[..., None] * gate[rows]
        return torch.where(with_features(base[rows], local, weight) > 0, passed, 0.0)

    @staticmethod
    def gate_by_read(base, gate, rows, weights, local, weight, gradient) -> Float[Tensor, "points touched hidden"]:
        return with_features(base[rows], local, weight).relu() * (gradient[:, None] * weights[..., None])

    @staticmethod
    def write_gated(base, gate, weights, local, weight) -> Float[Tensor, "points touched hidden"]:
        return with_features(base[:, None], local, weight).relu() * weights[..., None] * gate[:, None]

    @staticmethod
    def base_by_write(base, gate, nodes, weights, local, weight, gradient) -> Float[Tensor, "points touched hidden"]:
        passed = gradient[nodes] * weights[..., None] * gate[:, None]
        return torch.where(with_features(base[:, None], local, weight) > 0, passed, 0.0)

    @staticmethod
    def gate_by_write(base, gate, nodes, weights, local, weight, gradient) -> Float[Tensor, "points hidden"]:
        terms = with_features(base[:, None], local, weight).relu()
        return (terms * gradient[nodes] * weights[..., None]).sum(1)


@no_type_check  # the compiler cannot see through the shape checks of the tests
def with_features(
    total: Float[Tensor, "*pairs hidden"],
    features: Float[Tensor, "*pairs features"],
    weight: Float[Tensor, "features hidden"],
) -> Float[Tensor, "*pairs hidden"]:
    """`total` + features weight, as a loop over the few features: a matrix product would not fuse with the rest."""
    for column, row in zip(features.unbind(-1), weight.unbind(0), strict=True):
        total = total + column[..., None] * row
    return total
