"""Standardisation of every function's values: users give and get original units, the network sees numbers of order one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch
from jaxtyping import Float
from torch import Tensor, nn


class Normaliser(nn.Module):
    """(value - mean) / scale per channel, kept as buffers with the weights; the identity until it is fitted."""

    mean: Float[Tensor, " channels"]
    scale: Float[Tensor, " channels"]

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(channels))
        self.register_buffer("scale", torch.ones(channels))

    def fit(self, values: Iterable[Float[Tensor, "_ channels"]], centred: bool = True) -> None:
        """Take mean and standard deviation from training values; a channel that never varies keeps the scale 1. The mean stays 0
        if values are not to be `centred`."""
        rows = torch.cat([self.mean.new_zeros(0, len(self.mean)).double(), *(v.detach().double() for v in values)])
        if len(rows):
            deviation = rows.std(0, correction=0)
            if centred:
                self.mean.copy_(rows.mean(0))
            self.scale.copy_(torch.where(deviation > 1e-12 * rows.abs().amax(0), deviation, 1.0))

    def normalised(self, values: Float[Tensor, "n channels"]) -> Float[Tensor, "n channels"]:
        """Original units -> network units."""
        return (values - self.mean) / self.scale

    def restored(self, values: Float[Tensor, "n channels"]) -> Float[Tensor, "n channels"]:
        """Network units -> original units."""
        return values * self.scale + self.mean


class Normalisers(nn.ModuleDict):
    """One for each of several functions, by name."""

    def __init__(self, channels: Mapping[str, int]) -> None:
        super().__init__({name: Normaliser(num) for name, num in channels.items()})

    def __getitem__(self, key: str) -> Normaliser:
        found = super().__getitem__(key)
        assert isinstance(found, Normaliser)
        return found
