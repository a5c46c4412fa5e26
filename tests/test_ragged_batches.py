"""Items of a batch do not know of each other: results and gradients are those of each item alone."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from cases import RAGGED_SFT, random_item, relabelled, seeded, with_positions

from graphelements.building import build_network
from graphelements.meshes import Mesh, grid_mesh, mesh_at, scattered_mesh
from graphelements.network_config import ATTENTION, DEFAULT, NEURAL_PROCESS, PAPER
from graphelements.samples import FunctionSamples, Queries, SFTBatch, collate
from graphelements.sft_network import SFTNetwork
from graphelements.unions import union

CONFIGS = {
    "paper": PAPER,
    "default": DEFAULT,
    "default_mean_area": replace(DEFAULT, rounds=3, aggregation="mean", integration="area"),
    "default_passes_gated": replace(DEFAULT, passes=2, gated=True),
    "default_passes_octaves": replace(DEFAULT, passes=2, num_octaves=2),
    "default_boxes": replace(DEFAULT, samples_see="box", gated=True, linear=True, norm="none", ear_layers=1),
    "default_fitted": replace(DEFAULT, passes=2, fitted=True),
    "neural_process": NEURAL_PROCESS,
    "neural_process_octaves": replace(NEURAL_PROCESS, num_octaves=3),
    "multilinear": replace(PAPER, representation="multilinear", encoder_sees="position", nodes_see="spacing"),
    "barycentric": replace(DEFAULT, representation="barycentric", rounds=2),
    "attention": replace(ATTENTION, latent_size=16, hidden_size=16, num_heads=2),
}
SPACE = RAGGED_SFT.space
pytestmark = pytest.mark.usefixtures("double")
every_config = pytest.mark.parametrize("name", CONFIGS)


def random_mesh(seed: int, grid: bool) -> Mesh:
    """A small mesh of any size: one node, pairs, duplicates, grids, scattered nodes."""
    kinds = [
        lambda: grid_mesh(SPACE, 1),
        lambda: grid_mesh(SPACE, (2, 3)),
        lambda: grid_mesh(SPACE, 4),
        lambda: scattered_mesh(SPACE, 2, seeded(seed)),
        lambda: scattered_mesh(SPACE, 11, seeded(seed)),
        lambda: mesh_at(SPACE, SPACE.from_cube(torch.rand(4, 2, generator=seeded(seed)))[[0, 1, 2, 3, 3]]),
    ]
    return kinds[seed % (3 if grid else len(kinds))]()


def gradients(network: SFTNetwork, batch: SFTBatch, meshes: list[Mesh]) -> tuple[dict, torch.Tensor, list, list]:
    """Outputs, loss, and the gradients with respect to all weights and to each mesh's positions."""
    moved = [with_positions(mesh, mesh.positions.clone().requires_grad_()) for mesh in meshes]
    outputs = network(batch, moved)
    loss = network.loss(outputs, batch)
    inputs = [*(p for p in network.parameters() if p.requires_grad), *(mesh.positions for mesh in moved)]
    found = torch.autograd.grad(loss, inputs, allow_unused=True)
    found = [torch.zeros_like(x) if g is None else g for x, g in zip(inputs, found, strict=True)]
    return outputs, loss, found[: -len(moved)], found[-len(moved) :]


def close(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a.shape == b.shape and torch.allclose(a, b, rtol=1e-9, atol=1e-9)


def by_place(gradient: torch.Tensor, mesh: Mesh) -> torch.Tensor:
    """Gradients summed over nodes that coincide: which of them is nearer is a toss."""
    places, number = torch.unique(mesh.positions, dim=0, return_inverse=True)
    return torch.zeros_like(places).index_add(0, number, gradient)


@pytest.fixture(scope="module")
def networks() -> dict[str, SFTNetwork]:
    return {name: build_network(RAGGED_SFT, config, seed=1).double() for name, config in CONFIGS.items()}


@every_config
@pytest.mark.parametrize("seeds", [(0,), (1, 2), (3, 5, 4), (6, 11, 7, 12), (16, 16, 9, 10, 8), (21, 33, 45, 57, 69)], ids=str)
def test_an_item_in_a_batch_is_an_item_alone(networks, name, seeds):
    network = networks[name]
    items = [random_item(RAGGED_SFT, seeded(seed)) for seed in seeds]
    meshes = [random_mesh(seed, grid=name == "multilinear") for seed in seeds]
    outputs, loss, of_weights, of_positions = gradients(network, collate(items), meshes)
    asked = [sum(len(queries) for queries in item.queries.values()) > 0 for item in items]
    total, sums = torch.zeros(()), [torch.zeros_like(g) for g in of_weights]
    for number, (item, mesh) in enumerate(zip(items, meshes, strict=True)):
        alone, item_loss, weights, positions = gradients(network, item, [mesh])
        for output, queries in collate(items).queries.items():
            assert close(outputs[output][queries.items == number], alone[output])
        assert close(by_place(of_positions[number], mesh) * max(sum(asked), 1), by_place(positions[0], mesh))
        total, sums = total + item_loss, [s + g for s, g in zip(sums, weights, strict=True)]
    assert close(loss * max(sum(asked), 1), total)
    assert all(close(g * max(sum(asked), 1), s) for g, s in zip(of_weights, sums, strict=True))
    assert all(g.isfinite().all() for g in (*of_weights, *of_positions))


@every_config
def test_a_shared_mesh_gives_what_its_copies_give(networks, name):
    batch = collate([random_item(RAGGED_SFT, seeded(seed)) for seed in range(4)])
    mesh = grid_mesh(SPACE, 3)
    shared, copies = networks[name](batch, mesh), networks[name](batch, [grid_mesh(SPACE, 3) for _ in range(4)])
    for output in shared:
        assert close(shared[output], copies[output])


@every_config
def test_reordering_samples_and_functions_changes_nothing(networks, name):
    batch = collate([random_item(RAGGED_SFT, seeded(seed), most=9) for seed in range(3)])
    mesh = grid_mesh(SPACE, 3)
    turned = {}
    for function in reversed(list(batch.inputs)):
        samples = batch.inputs[function]
        order = torch.randperm(len(samples.points), generator=seeded(5))
        turned[function] = FunctionSamples(samples.points[order], samples.values[order], samples.items[order])
    before, after = networks[name](batch, mesh), networks[name](replace(batch, inputs=turned), mesh)
    assert all(close(after[output], before[output]) for output in before)


@pytest.mark.parametrize("name", ["paper", "default", "barycentric"])
def test_relabelling_nodes_changes_nothing(networks, name):
    item, mesh = random_item(RAGGED_SFT, seeded(3), most=9), scattered_mesh(SPACE, 20, seeded(0))
    turned = relabelled(mesh, torch.randperm(20, generator=seeded(1)))
    before, after = networks[name](item, mesh), networks[name](item, turned)
    assert all(close(after[output], before[output]) for output in before)


@every_config
def test_reordering_queries_reorders_predictions(networks, name):
    points, order = SPACE.sample(20, seeded(0)), torch.randperm(20, generator=seeded(1))
    item, mesh = random_item(RAGGED_SFT, seeded(3), most=9), grid_mesh(SPACE, 3)
    before, after = (networks[name](SFTBatch(item.inputs, {"flow": Queries(p)}), mesh)["flow"] for p in (points, points[order]))
    assert close(after, before[order])


def test_every_item_takes_as_many_rounds_as_its_own_mesh_is_wide(networks):
    meshes = union([grid_mesh(SPACE, k) for k in (3, 1, 5, 2)])
    assert networks["paper"].rounds(meshes) == [4, 0, 8, 2]
    assert networks["default_mean_area"].rounds(meshes) == [3, 3, 3, 3]


def test_a_batch_without_samples_or_queries_runs(networks):
    empty = SFTBatch({}, {"flow": Queries(torch.zeros(0, 2))}, {"flow": torch.zeros(0, 2)}, num_items=2)
    for network in networks.values():
        outputs = network(empty, grid_mesh(SPACE, 2))
        assert outputs["flow"].shape == (0, 2)
        assert network.loss(outputs, empty) == 0
