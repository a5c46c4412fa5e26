"""Meshes whose nodes learn with the weights: they move, stay in the space and apart, and resume exactly."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from cases import seeded

from graphelements.building import build_network
from graphelements.data.houses import Houses
from graphelements.data.random_houses import HouseDistribution, draw_houses
from graphelements.errors import InputError
from graphelements.meshes import MeshConfig, scattered_mesh
from graphelements.moving_meshes import MovingMeshes, kept_apart, least_distance
from graphelements.network_config import ATTENTION, NEURAL_PROCESS, PAPER
from graphelements.spaces import Box
from graphelements.tasks.poisson_square import TASK
from graphelements.tasks.task import BatchConfig, RunConfig
from graphelements.training import TrainingConfig, fit

SPACE = Box((0.0, -1.0), (2.0, 1.0))
SMALL = replace(
    PAPER, latent_size=4, edge_hidden=4, node_hidden=4, message_size=4, encoder_hidden=(4,), representation="barycentric"
)


def test_nodes_that_would_meet_stay_where_they_were():
    for seed in range(20):
        before = scattered_mesh(SPACE, 30, seeded(seed)).positions
        least = float((torch.cdist(before, before) + 9 * torch.eye(30)).min())
        after = SPACE.project(before + 0.5 * torch.randn(30, 2, generator=seeded(seed + 100)))
        kept = kept_apart(before, after, least * 0.999)
        assert float((torch.cdist(kept, kept) + 9 * torch.eye(30)).min()) >= least * 0.998
        assert bool(((kept == before).all(1) | (kept == after).all(1)).all())
    assert torch.equal(kept_apart(before, before * 0.99, 0.0), before * 0.99)
    assert torch.equal(kept_apart(before, before * 1.01, 9.0), before * 1.01)  # nodes that begin close are not held


def test_only_meshes_that_were_asked_for_move_and_stay_in_the_space_and_apart():
    moving = MovingMeshes(SPACE, 3, (9, 16), num_starts=2, learning_rate=0.3, nesting_ratio=1.5)
    before = {name: table.clone() for name, table in moving.state_dict().items()}
    for _ in range(6):
        mesh = moving.mesh(1, 9, 1)
        assert moving.mesh(1, 9, 1) is mesh
        assert mesh.coarser is not None
        (mesh.positions - torch.tensor([3.0, 0.0])).square().sum().backward()
        moving.step()
    positions = moving.mesh(1, 9, 1).positions.detach()
    assert bool(SPACE.contains(positions).all())
    assert float((torch.cdist(positions, positions) + 9 * torch.eye(9)).min()) >= 0.999 * least_distance(mesh)
    asked = "nodes.9 nodes, 1, 1"
    assert float((positions - before[asked])[:, 0].mean()) > 0.3
    for name, nodes in moving.state_dict().items():
        assert torch.equal(nodes, before[name]) == (name != asked)


def houses() -> Houses:
    drawn = draw_houses(4, np.random.default_rng(0), HouseDistribution(num_scenarios=4, num_queries=9))
    return Houses(tuple(replace(house, temperatures=house.query_points.sum(-1)) for house in drawn.houses))


def trained(steps: int, folder: Path | None) -> dict[str, torch.Tensor]:
    """Weights and nodes after so many of 6 steps, going on where the folder is."""
    config = RunConfig(SMALL, batches=BatchConfig(4, 2, 9, (2, 3), moving_starts=2, moving_rate=0.01))
    data, network = houses(), build_network(TASK.sft, SMALL)
    moving = TASK.moving_meshes(data, config, 0)
    assert moving is not None
    batch_of = TASK.batch_of(data, config, 0, moving)
    batch_of(0)  # as a check before training does
    reports = fit(network, batch_of, TrainingConfig(steps=6, compile="off"), folder=folder, moving=moving)
    for report in reports:
        if report.step == steps:
            break
    reports.close()  # type: ignore[attr-defined]
    return {**network.state_dict(), **moving.state_dict()}


def test_weights_and_nodes_learn_together_and_resume_exactly(tmp_path: Path):
    first, whole = trained(1, None), trained(6, None)
    assert trained(3, tmp_path).keys() == whole.keys()
    resumed = trained(6, tmp_path)
    for name, tensor in whole.items():
        assert torch.equal(resumed[name], tensor), name
    assert sum(not torch.equal(whole[name], first[name]) for name in whole if "9 nodes" in name) >= 4


def test_what_does_not_go_together_is_refused():
    for config, message in (
        (RunConfig(SMALL, batches=BatchConfig(moving_starts=2, symmetries=("square",))), "do not turn with it"),
        (RunConfig(SMALL, batches=BatchConfig(moving_starts=2, random_meshes=0.5)), "and no others"),
        (RunConfig(SMALL, MeshConfig(edges="radius"), BatchConfig(moving_starts=2)), "have delaunay edges"),
        (RunConfig(NEURAL_PROCESS, batches=BatchConfig(moving_starts=2)), "pass messages"),
        (RunConfig(ATTENTION, batches=BatchConfig(moving_starts=2)), "pass messages"),
    ):
        with pytest.raises(InputError, match=message):
            TASK.moving_meshes(houses(), config, 0)
    with pytest.raises(InputError, match="instances and starts"):
        MovingMeshes(SPACE, 0, (4,))
    for wrong in ({"moving_starts": -1}, {"moving_rate": 0.0}):
        with pytest.raises(InputError, match=r"batches\.moving"):
            BatchConfig(**wrong)
    assert TASK.moving_meshes(houses(), RunConfig(SMALL), 0) is None
