"""The loss of each output function: the distance in its space O_j (paper section 3.2)."""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from jaxtyping import Float
from torch import Tensor, nn

Channels = Float[Tensor, "queries channels"]
Errors = Float[Tensor, " queries"]


class Loss(nn.Module, ABC):
    """The distance in O_j, for training on what a decoder puts out and for scoring answers. May have weights of its own."""

    normalised: bool
    """Whether targets are numbers on a scale, to be standardised."""

    @abstractmethod
    def forward(self, outputs: Channels, targets: Channels) -> Errors:
        """The loss of each query, both in network units."""

    @abstractmethod
    def answer(self, outputs: Channels) -> Channels:
        """The prediction: a point of O_j."""

    @abstractmethod
    def error(self, answers: Channels, targets: Channels) -> Errors:
        """How far each answer is from its target, both in original units."""


class SquaredError(Loss):
    """O_j = R^n: the squared difference, averaged over channels."""

    normalised = True

    def forward(self, outputs: Channels, targets: Channels) -> Errors:
        return (outputs - targets).square().mean(-1)

    def answer(self, outputs: Channels) -> Channels:
        return outputs

    def error(self, answers: Channels, targets: Channels) -> Errors:
        return self(answers, targets)


class CrossEntropy(Loss):
    """O_j = the probability simplex: targets are probabilities (one-hot for a class), the decoder puts out logits."""

    normalised = False

    def forward(self, outputs: Channels, targets: Channels) -> Errors:
        return -(targets * outputs.log_softmax(-1)).sum(-1)

    def answer(self, outputs: Channels) -> Channels:
        return outputs.softmax(-1)

    def error(self, answers: Channels, targets: Channels) -> Errors:
        return -(targets * answers.clamp(min=1e-12).log()).sum(-1)


KINDS: dict[str, type[Loss]] = {"squared_error": SquaredError, "cross_entropy": CrossEntropy}
"""The class of every name in `functions.LOSSES`."""


def mean_over_items(losses: list[tuple[Float[Tensor, " _queries"], Tensor]], num_items: int) -> Float[Tensor, ""]:
    """The mean over items of the mean over outputs of the mean over queries; `losses` has (loss, item) per output."""
    total, outputs = losses[0][0].new_zeros(num_items), losses[0][0].new_zeros(num_items)
    for loss, items in losses:
        count = torch.zeros_like(total).index_add(0, items, torch.ones_like(loss))
        total = total + torch.zeros_like(total).index_add(0, items, loss) / count.clamp(min=1)
        outputs = outputs + (count > 0)
    asked = outputs > 0
    return (total / outputs.clamp(min=1)).sum() / asked.sum().clamp(min=1)
