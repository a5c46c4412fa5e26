"""Muon (Jordan et al. 2024): steps along orthogonalised momenta of weight matrices."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable

import torch
from jaxtyping import Float
from torch import Tensor

QUINTIC = (3.4445, -4.7750, 2.0315)
"""Coefficients of the iteration's polynomial: steep at zero, and singular values end near one rather than at it."""

ITERATIONS = 5
RMS = 0.2  # the size of an update's entries, as Adam's are
NEGLIGIBLE = 1e-9  # of the norm of a matrix; below the rounding of single precision


class Muon(torch.optim.Optimizer):
    """Nesterov's momentum, orthogonalised, with entries of the size of Adam's steps; decay is apart from the gradient.

    Unlike `torch.optim.Muon` it keeps the precision of the weights, for bfloat16 is slow on most processors, and it takes the
    matrices of one shape together.
    """

    def __init__(self, matrices: Iterable[Tensor], lr: float = 1e-3, momentum: float = 0.95, weight_decay: float = 0.0) -> None:
        super().__init__(matrices, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            alike = defaultdict(list)
            for matrix in group["params"]:
                if matrix.grad is not None:
                    alike[matrix.shape].append(matrix)
            for shape, matrices in alike.items():
                updates = orthogonalised(torch.stack([self._momentum(matrix, group["momentum"]) for matrix in matrices]))
                for matrix, update in zip(matrices, updates.unbind(), strict=True):
                    matrix.mul_(1 - group["lr"] * group["weight_decay"])
                    matrix.sub_(update, alpha=group["lr"] * RMS * math.sqrt(max(shape)))

    def _momentum(self, matrix: Tensor, momentum: float) -> Tensor:
        state = self.state[matrix]
        if "momentum_buffer" not in state:
            state["momentum_buffer"] = torch.zeros_like(matrix)
        assert matrix.grad is not None
        return matrix.grad.lerp(state["momentum_buffer"].lerp_(matrix.grad, 1 - momentum), momentum)


def orthogonalised(matrices: Float[Tensor, "many rows columns"]) -> Float[Tensor, "many rows columns"]:
    """U V^T of U S V^T, nearly: singular values end between 0.68 and 1.21, unless they are less than 0.003 of the norm."""
    wide = matrices if matrices.shape[1] <= matrices.shape[2] else matrices.mT
    found = wide / wide.norm(dim=(1, 2), keepdim=True).clamp(min=1e-7)
    found = found.masked_fill(found.abs() < NEGLIGIBLE, 0.0)  # else products of momenta that fade are denormal, and slow
    a, b, c = QUINTIC
    for _ in range(ITERATIONS):
        gram = found @ found.mT
        found = torch.baddbmm(found, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), found, beta=a)
    return found if wide is matrices else found.mT
