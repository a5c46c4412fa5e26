"""The models in the package: found by name, of this version's making, and as good as their card says."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from real_data import needs_real_houses, real_houses

import graphelements as ge
from graphelements.checkpoints import SHIPPED
from graphelements.data.houses import Heater, Scenario, encode
from graphelements.data.poisson import p1_solution, p1_temperatures, solved
from graphelements.data.push_files import joined, simulate
from graphelements.data.random_houses import HouseDistribution, draw_houses
from graphelements.tasks import get_task
from graphelements.tasks.grouped_task import group_errors
from graphelements.tasks.poisson_square import house_errors, mesh_for

NAMES = sorted(path.stem for path in SHIPPED.glob("*.safetensors"))
HOUSE_MODELS = {"poisson-square": 0.0006, "poisson-square-near": 0.0035, "poisson-square-small": 0.0015}  # errors at 7x7


def test_every_shipped_model_is_that_of_a_task_and_was_trained_to_the_end():
    assert NAMES
    for name in NAMES:
        checkpoint = ge.load_checkpoint(name)
        assert checkpoint.task is not None
        task = get_task(checkpoint.task)
        preset = task.presets[name.removeprefix(checkpoint.task).removeprefix("-") or "default"]
        assert (checkpoint.network.config, checkpoint.mesh) == (preset.network, preset.mesh)
        assert task.sft_of(preset) == checkpoint.network.sft
        assert checkpoint.training["steps_done"] == checkpoint.training["training"]["steps"]
        assert (SHIPPED / f"{name}.safetensors").stat().st_size < 4 * 2**20


@pytest.mark.parametrize("name", HOUSE_MODELS)
def test_the_models_of_houses_beat_finite_elements_of_the_same_nodes_on_new_houses(name: str):
    houses = solved(draw_houses(12, np.random.default_rng(99), HouseDistribution(num_scenarios=4)))
    checkpoint = ge.load_checkpoint(name)
    for resolution in (3, 5, 7):
        ours = house_errors(checkpoint.network, mesh_for(checkpoint, resolution), houses)[0].mean()
        fem = np.mean([np.mean((p1_temperatures(h, resolution) - h.temperatures) ** 2) for h in houses.houses])
        assert ours < fem


@pytest.mark.parametrize("gap", [0, 0.02, 0.05, 0.1, 0.2])
@pytest.mark.parametrize(("name", "most"), [("poisson-square", 0.0005), ("poisson-square-small", 0.003)])
def test_heaters_of_equal_power_side_by_side_are_two_heaters(name: str, most: float, gap: float):
    checkpoint = ge.load_checkpoint(name)
    house = Scenario((Heater(0.2, 0.3, 0.35, 0.5, 300.0), Heater(0.35 + gap, 0.3, 0.5 + gap, 0.5, 300.0)), 0.3)
    points = torch.rand(200, 2, generator=torch.Generator().manual_seed(0))
    batch = ge.SFTBatch(encode(house), {"temperature": ge.Queries(points)}, {}, 1)
    found = checkpoint.network.predict(batch, mesh_for(checkpoint, 7))["temperature"][:, 0].numpy()
    assert np.mean((found - p1_solution(house, points.numpy())) ** 2) < most


@needs_real_houses
@pytest.mark.long
@pytest.mark.parametrize("name", HOUSE_MODELS)
def test_the_models_of_houses_on_all_of_the_authors_houses(name: str):
    checkpoint = ge.load_checkpoint(name)
    errors = house_errors(checkpoint.network, mesh_for(checkpoint, 7), real_houses())[0]
    assert errors.mean() < HOUSE_MODELS[name]


def test_the_model_of_the_sphere_solves_new_houses_on_both_kinds_of_meshes(tmp_path: Path):
    task, checkpoint = get_task("poisson-sphere"), ge.load_checkpoint("poisson-sphere")
    list(task.generate(tmp_path / "new.npz", 2, seed=99))
    fields = task.load(tmp_path / "new.npz")
    variance = float(fields.items.targets["solution"].var())
    for layout, resolution in (("grid", 5), ("grid", 7), ("icosahedron", 2)):
        mesh = task.mesh(replace(checkpoint.mesh, layout=layout), resolution)
        assert group_errors(checkpoint.network, mesh, fields)[0].mean() < 0.03 * variance


def test_the_model_of_pushes_knows_how_unseen_objects_move_and_not_from_the_push_alone():
    task, checkpoint = get_task("pushing"), ge.load_checkpoint("pushing")
    keys = ["1a1a2B2B", "1a1a4a3c", "1a3a3a2C", "2c4a4a4a"]
    pushes = joined(keys, [True] * 4, [simulate(key, (99, number), 50) for number, key in enumerate(keys)])
    given = replace(task.given(pushes, checkpoint.network.sft), without_noise=True)
    mesh = task.mesh(checkpoint.mesh, 4)
    ours = group_errors(checkpoint.network, mesh, given)[0].mean()
    mistaken = group_errors(checkpoint.network, mesh, replace(given, keys=tuple(keys[::-1])))[0].mean()  # pictures of others
    assert ours < 0.08
    assert mistaken > 2 * ours
