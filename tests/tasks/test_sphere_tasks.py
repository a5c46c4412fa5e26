"""The tasks on the sphere: splits, symmetries, meshes, references, and the whole way from data to scores."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from graphelements.building import build_network
from graphelements.checkpoints import Checkpoint
from graphelements.configs import with_settings
from graphelements.data.sampled_fields import SampledFields
from graphelements.errors import InputError
from graphelements.experiments.rotations import rotation_spread
from graphelements.meshes import MeshConfig
from graphelements.sphere_meshes import icosahedral_mesh, sphere_mesh
from graphelements.tasks import get_task
from graphelements.tasks.grouped_task import group_errors
from graphelements.tasks.poisson_sphere import mesh_of, references
from graphelements.tasks.sphere_symmetries import transformed

NAMES = ("poisson-sphere", "scattered-sphere")
TINY = ("batches.items=3", "batches.queries=8", "training.steps=2", "training.compile=off")


@pytest.fixture(scope="module", params=NAMES)
def data(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    path = tmp_path_factory.mktemp("sphere") / "fields.npz"
    assert list(get_task(request.param).generate(path, 6, seed=3)) == [1, 2, 3, 4, 5, 6]
    return request.param, path


def test_every_fifth_house_is_held_out(data):
    name, path = data
    task = get_task(name)
    assert task.load(path, "test").numbers == (4,)
    assert task.load(path, "train").numbers == (0, 1, 2, 3, 5)
    assert task.load(path, "1-2,5").numbers == (1, 2, 5)
    with pytest.raises(InputError, match="nothing of the test split"):
        task.load(_only(task, path, [0, 1]), "test")


def _only(task, path: Path, numbers: list[int]) -> Path:
    from graphelements.data.sampled_fields import save_fields

    save_fields(path.with_name("few.npz"), task.load(path).selected(numbers))
    return path.with_name("few.npz")


KINDS = {"default": "gen", "paper": "gen", "np": "np", "np-tuned": "np", "attention": "attention"}


@pytest.mark.parametrize("number", range(3))
def test_every_preset_learns_from_its_batches_and_is_scored(data, number):
    for preset in list(get_task(data[0]).presets)[number::3]:
        check_preset(*data, preset)


def check_preset(name: str, path: Path, preset: str) -> None:
    task = get_task(name)
    config = with_settings(task.presets[preset], TINY)
    fields = task.load(path)
    network = build_network(task.sft, config.network)
    network.fit_normalisation(task.all_of(fields))
    batch, meshes = task.batch_of(fields, config, 0)(0)
    task.sft.validate(batch)
    network.loss(network(batch, meshes), batch).backward()
    assert any(p.grad is not None and p.grad.abs().max() > 0 for p in network.parameters())
    again, _ = task.batch_of(fields, config, 0)(0)
    assert torch.equal(again.targets[task.sft.outputs[0].name], batch.targets[task.sft.outputs[0].name])
    few = fields.selected([4])
    scores = task.evaluate(Checkpoint(network.eval(), config.mesh, name, {}), few, (1, 2))
    kinds = [score.method for score in scores]
    assert kinds[0] == KINDS[preset]
    assert {"harmonics", "mean"} <= set(kinds)
    assert all(np.isfinite(score.mse_mean) and len(score.mse_of_item) == 1 for score in scores)


def test_harmonics_solve_what_is_turned_as_well(tmp_path: Path):
    """A rotated, reflected or negated house is a house: least squares, which knows the equation, solves it, too."""
    task = get_task("poisson-sphere")
    list(task.generate(tmp_path / "f.npz", 1, seed=0))
    fields = task.load(tmp_path / "f.npz").selected([0])
    turned = transformed(fields.items, task.symmetries, np.random.default_rng(0))
    assert not torch.allclose(turned.targets["solution"], fields.items.targets["solution"])
    answers = dict(references(SampledFields(turned, fields.groups)))
    assert answers["harmonics"] == pytest.approx(turned.targets["solution"][:, 0].numpy(), abs=1e-5)
    assert np.std(answers["mean"]) == 0


def test_symmetries_of_other_tasks_are_refused(data):
    name, path = data
    task = get_task(name)
    config = with_settings(task.presets["default"], ["batches.symmetries=square,sign"])
    with pytest.raises(InputError, match=f"batches.symmetries of {name} are rotation, sign; got square besides"):
        task.batch_of(task.load(path), config, 0)


@pytest.mark.parametrize("order, nodes", [(2, 2), (3, 6), (4, 14), (5, 26), (6, 42), (7, 62)])
def test_resolutions_are_the_papers_orders(order, nodes):
    mesh = mesh_of(MeshConfig(edges="radius", radius=1.0), order)
    assert mesh.num_nodes == nodes
    assert torch.equal(mesh.senders, sphere_mesh(mesh.space, order).senders)
    triangulated = mesh_of(MeshConfig(nested=True), order)
    assert triangulated.num_nodes == nodes
    assert (triangulated.coarser is not None) == (nodes > 4)


def test_resolutions_of_an_icosahedron_are_pieces_of_its_edges():
    for pieces, level in ((1, 0), (2, 1), (4, 2)):
        mesh = mesh_of(MeshConfig(layout="icosahedron"), pieces)
        assert torch.equal(mesh.positions, icosahedral_mesh(mesh.space, level).positions)
    assert mesh_of(MeshConfig(), 1).num_nodes == 1
    with pytest.raises(InputError, match="number of pieces of its edges"):
        mesh_of(MeshConfig(layout="icosahedron"), 3)
    with pytest.raises(InputError, match=r"got mesh\.edges=grid and mesh\.layout=grid"):
        mesh_of(MeshConfig(edges="grid"), 4)
    with pytest.raises(InputError, match="layout=grid; got icosahedron"):
        get_task("poisson-square").mesh(MeshConfig(layout="icosahedron"), 4)


def test_the_error_of_a_group_is_that_of_its_items(data):
    name, path = data
    task = get_task(name)
    fields = task.load(path).selected([1, 3])
    network = build_network(task.sft, replace(task.presets["default"].network, latent_size=8))
    network.fit_normalisation(task.all_of(fields))
    mesh = mesh_of(MeshConfig(), 4)
    errors, _ = group_errors(network, mesh, fields)
    output = task.sft.outputs[0].name
    for number, error in zip((1, 3), errors, strict=True):
        alone = fields.selected([number]).items
        predicted = network.predict(alone, mesh)[output]
        expected = float((predicted - alone.targets[output]).square().mean())  # all items have equally many queries
        assert error == pytest.approx(expected, rel=1e-4)


def test_rotations_spread_what_depends_on_the_mesh_and_nothing_else(tmp_path: Path):
    """On one node that knows no place, only what is read directly could depend on directions; on a coarse mesh it does."""
    task = get_task("poisson-sphere")
    list(task.generate(tmp_path / "f.npz", 3, seed=0))
    fields = task.load(tmp_path / "f.npz")
    network = build_network(task.sft, task.presets["default"].network)
    network.fit_normalisation(task.all_of(fields))
    coarse = rotation_spread(network, mesh_of(MeshConfig(), 3), fields, 4)
    assert coarse.spread > 0
    assert coarse.ratio == coarse.spread / coarse.error
    # a network of values alone, read from one node without a place, turns with its questions exactly
    blind = build_network(task.sft, replace(get_task("poisson-sphere").presets["paper"].network, rounds=0))
    blind.fit_normalisation(task.all_of(fields))
    assert rotation_spread(blind, mesh_of(MeshConfig(), 1), fields, 4).spread < 1e-5
