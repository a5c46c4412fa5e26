"""The feed-forward blocks behind e_i, rho, d_j, m_e and m_v."""

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

    def forward(self, input: Float[Tensor, "*n inputs"]) -> Float[Tensor, "*n outputs"]:  # noqa: A002 (nn.Sequential's name)
        return super().forward(input)


class GatedPerceptron(nn.Module):
    """W2 (g(v) relu(A [v, o] + b1)) + b2: one hidden layer, multiplied by a linear function g of the first inputs v.

    What depends on v linearly, with factors that depend on o (a value at some offset, say), a network without g has to piece
    together. With `num_linear` above 0 the outputs are linear in the first so many of the values: W2 (G v relu(A o + b1)), where
    the other values count among o.
    """

    def __init__(self, num_values: int, num_others: int, hidden_size: int, num_outputs: int, num_linear: int = 0) -> None:
        super().__init__()
        self.num_linear = num_linear
        self.first = nn.Linear(num_values + num_others - num_linear, hidden_size)
        self.gate = nn.Linear(num_linear or num_values, hidden_size, bias=num_linear == 0)
        self.last = nn.Linear(hidden_size, num_outputs, bias=num_linear == 0)

    def forward(self, inputs: Float[Tensor, "*n inputs"]) -> Float[Tensor, "*n outputs"]:
        return self.gated(inputs[..., : self.gate.in_features], inputs[..., self.num_linear :])

    def gated(self, gating: Float[Tensor, "*n gating"], others: Float[Tensor, "*n others"]) -> Float[Tensor, "*n outputs"]:
        """The same from what g sees and what the hidden layer sees."""
        return self.last(self.first(others).relu() * self.gate(gating))


class ResidualPerceptron(nn.Sequential):
    """A linear layer to `width`, `num_layers` layers x + perceptron(norm(x)), a norm, and a perceptron to the outputs."""

    def __init__(self, num_inputs: int, width: int, num_layers: int, num_outputs: int) -> None:
        layers = (_ResidualLayer(width) for _ in range(num_layers))
        super().__init__(nn.Linear(num_inputs, width), *layers, nn.LayerNorm(width), Perceptron((width, width, num_outputs)))


class LinearDecoder(nn.Module):
    """The same, linear in its first inputs: layers x + W2 (W1 x relu(A c + b)), whose factors depend on the others, c.

    Without others it is one linear map.
    """

    def __init__(self, num_linear: int, num_others: int, width: int, num_layers: int, num_outputs: int) -> None:
        super().__init__()
        self.first = nn.Linear(num_linear, width, bias=False)
        self.layers = nn.ModuleList(
            GatedPerceptron(width, num_others, 2 * width, width, num_linear=width) for _ in range(num_layers if num_others else 0)
        )
        self.last = nn.Linear(width, num_outputs, bias=False)

    def forward(self, inputs: Float[Tensor, "*n inputs"]) -> Float[Tensor, "*n outputs"]:
        rows, others = self.first(inputs[..., : self.first.in_features]), inputs[..., self.first.in_features :]
        for layer in self.layers:
            assert isinstance(layer, GatedPerceptron)
            rows = rows + layer.gated(rows, others)
        return self.last(rows)


class _ResidualLayer(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.perceptron = nn.LayerNorm(width), Perceptron((width, 2 * width, width))

    def forward(self, rows: Float[Tensor, "*n width"]) -> Float[Tensor, "*n width"]:
        return rows + self.perceptron(self.norm(rows))


def has_cheap_form(net: Perceptron | GatedPerceptron) -> bool:
    """Whether the first layer is followed by one ReLU and the last layer: what the cheap forms of reading and writing need."""
    return isinstance(net, GatedPerceptron) or len(net) == 3


def gate_of(net: Perceptron | GatedPerceptron, values: Float[Tensor, "n values"]) -> Float[Tensor, "n hidden"] | None:
    """What multiplies the hidden layer, if anything does."""
    return net.gate(values[..., : net.gate.in_features]) if isinstance(net, GatedPerceptron) else None
