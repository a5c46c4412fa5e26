"""The loss of each output function: the distance in its space O_j (paper section 3.2)."""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from jaxtyping import Float
from torch import Tensor, nn

from .functions import LOSSES


class Loss(nn.Module, ABC):
    """Turns what a decoder puts out into a distance to the target, and into an answer. May have weights of its own."""

    normalised: bool
    """Whether targets are numbers on a scale, to be standardised."""

    @abstractmethod
    def forward(
        self, outputs: Float[Tensor, "queries channels"], targets: Float[Tensor, "queries channels"]
    ) -> Float[Tensor, " queries"]:
        """The loss of each query."""

    @abstractmethod
    def answer(self, outputs: Float[Tensor, "queries channels"]) -> Float[Tensor, "queries channels"]:
        """The prediction: a point of O_j."""


class SquaredError(Loss):
    """O_j = R^n: the squared difference, averaged over channels."""

    normalised = True

    def forward(
        self, outputs: Float[Tensor, "queries channels"], targets: Float[Tensor, "queries channels"]
    ) -> Float[Tensor, " queries"]:
        return (outputs - targets).square().mean(-1)

    def answer(self, outputs: Float[Tensor, "queries channels"]) -> Float[Tensor, "queries channels"]:
        return outputs


class CrossEntropy(Loss):
    """O_j = the probability simplex: targets are probabilities (one-hot for a class), the decoder puts out logits."""

    normalised = False

    def forward(
        self, outputs: Float[Tensor, "queries channels"], targets: Float[Tensor, "queries channels"]
    ) -> Float[Tensor, " queries"]:
        return -(targets * outputs.log_softmax(-1)).sum(-1)

    def answer(self, outputs: Float[Tensor, "queries channels"]) -> Float[Tensor, "queries channels"]:
        return outputs.softmax(-1)


def build_loss(name: str) -> Loss:
    """The loss of a name in the specification."""
    return dict(zip(LOSSES, (SquaredError, CrossEntropy), strict=True))[name]()


def mean_over_items(losses: list[tuple[Float[Tensor, " queries"], Tensor]], num_items: int) -> Float[Tensor, ""]:
    """The mean over items of the mean over outputs of the mean over queries; `losses` has (loss, item) per output."""
    total, outputs = losses[0][0].new_zeros(num_items), losses[0][0].new_zeros(num_items)
    for loss, items in losses:
        count = torch.zeros_like(total).index_add(0, items, torch.ones_like(loss))
        total = total + torch.zeros_like(total).index_add(0, items, loss) / count.clamp(min=1)
        outputs = outputs + (count > 0)
    asked = outputs > 0
    return (total / outputs.clamp(min=1)).sum() / asked.sum().clamp(min=1)
