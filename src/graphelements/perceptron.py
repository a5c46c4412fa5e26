"""The one feed-forward block behind e_i, rho, d_j, m_e and m_v."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from jaxtyping import Float
from torch import Tensor, nn

from .errors import require


class Perceptron(nn.Sequential):
    """Linear layers of the given sizes with ReLU between them: `sizes` = (input, hidden..., output)."""

    def __init__(self, sizes: Sequence[int]) -> None:
        require(
            len(sizes) >= 2 and min(sizes) > 0,
            f"a perceptron needs an input and an output size, all positive; got {tuple(sizes)}",
        )
        layers: list[nn.Module] = []
        for fan_in, fan_out in pairwise(sizes):
            layers += [nn.Linear(fan_in, fan_out), nn.ReLU()]
        super().__init__(*layers[:-1])

    @property
    def first(self) -> nn.Linear:
        """The layer that sees the inputs."""
        return self[0]  # type: ignore[return-value]

    @property
    def last(self) -> nn.Linear:
        """The layer that gives the outputs."""
        return self[-1]  # type: ignore[return-value]

    @property
    def has_one_hidden_layer(self) -> bool:
        """Whether the first layer is followed by one ReLU and the last layer: what the cheap forms need."""
        return len(self) == 3

    def forward(self, input: Float[Tensor, "*n inputs"]) -> Float[Tensor, "*n outputs"]:  # noqa: A002 (nn.Sequential's name)
        return super().forward(input)
