"""A small problem for meshes that adapt: bumps of several heights at one place."""

from __future__ import annotations

from dataclasses import replace

import torch
from cases import seeded

from graphelements.building import build_network
from graphelements.functions import SFT, InputFunction, OutputFunction
from graphelements.meshes import Mesh
from graphelements.network import GraphElementNetwork
from graphelements.network_config import DEFAULT
from graphelements.samples import FunctionSamples, Queries, SFTBatch
from graphelements.spaces import Box

HEAT = SFT(Box((0.0, -1.0), (2.0, 1.0)), (InputFunction("heat"),), (OutputFunction("warmth"),))
SMALL = replace(DEFAULT, latent_size=8, edge_hidden=8, node_hidden=8, message_size=4, encoder_hidden=(8,), rounds=1)


def scenarios(num: int = 5) -> SFTBatch:
    """Bumps of several heights at one place."""
    g, items = seeded(0), torch.arange(num).repeat_interleave(20)
    points, places = HEAT.space.sample(num * 20, g), HEAT.space.sample(num * 20, g)

    def warmth(x: torch.Tensor) -> torch.Tensor:
        return (1.0 + items[:, None]) * (-4 * (x - torch.tensor([1.5, 0.5])).square().sum(-1, keepdim=True)).exp()

    samples = {"heat": FunctionSamples(points, warmth(points), items)}
    return SFTBatch(samples, {"warmth": Queries(places, None, items)}, {"warmth": warmth(places)}, num)


def network() -> GraphElementNetwork:
    return build_network(HEAT, SMALL, seed=1).eval()


def closest(mesh: Mesh) -> float:
    return float((torch.cdist(mesh.positions, mesh.positions) + 9 * torch.eye(mesh.num_nodes)).min())


def assert_valid(mesh: Mesh, least: float) -> None:
    assert bool(HEAT.space.contains(mesh.positions).all())
    assert closest(mesh) >= least
    assert mesh.cells is not None
    a, b, c = mesh.positions[mesh.cells].double().unbind(1)
    u, v = b - a, c - a
    assert bool(((u[:, 0] * v[:, 1] - u[:, 1] * v[:, 0]).abs() > 0).all())
