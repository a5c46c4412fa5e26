"""A training step of 128 items on 7x7 nodes: one mesh shared by all against a mesh of its own for every item."""

from dataclasses import replace

import torch

import graphelements as ge
from graphelements.compilation import compiler_available
from graphelements.data.houses import POISSON_SQUARE

from .timing import medians

ITEMS, SAMPLES, QUERIES = 128, 64, 64


def measure() -> dict[str, object]:
    """Milliseconds and their ratio; building the union of the meshes is part of the step in both cases."""
    generator = torch.Generator().manual_seed(0)
    space = POISSON_SQUARE.space

    def points(num: int) -> torch.Tensor:
        return space.sample(ITEMS * num, generator)

    def items(num: int) -> torch.Tensor:
        return torch.arange(ITEMS).repeat_interleave(num)

    inputs = {
        name: ge.FunctionSamples(
            points(SAMPLES // 2), torch.randn(ITEMS * SAMPLES // 2, 1, generator=generator), items(SAMPLES // 2)
        )
        for name in ("heaters", "border")
    }
    queries = {"temperature": ge.Queries(points(QUERIES), items=items(QUERIES))}
    batch = ge.SFTBatch(inputs, queries, {"temperature": torch.randn(ITEMS * QUERIES, 1, generator=generator)}, ITEMS)
    shared = ge.grid_mesh(space, 7)
    own = [
        ge.mesh_at(space, space.project(shared.positions + 0.01 * torch.randn(49, 2, generator=generator))) for _ in range(ITEMS)
    ]
    for mesh in (shared, *own):
        assert mesh.diameter > 0  # known before the clock starts, as in training
    results: dict[str, object] = {}
    for name, config in (("PAPER", ge.PAPER), ("DEFAULT", ge.DEFAULT)):
        network = ge.build_network(POISSON_SQUARE, replace(config, rounds=12))
        network.compiled_kernels = compiler_available()

        def step(meshes: ge.Mesh | list[ge.Mesh], network: ge.GraphElementNetwork = network) -> None:
            network.zero_grad()
            network.loss(network(batch, meshes), batch).backward()

        times = medians({"shared": lambda step=step: step(shared), "own": lambda step=step: step(own)})
        results[name] = {"milliseconds": times, "own_over_shared": round(times["own"] / times["shared"], 3)}
    return results
