"""Meshes with coarser ones behind them: how they are made, and what the network does on them."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
import torch
from cases import MESHES, RAGGED_SFT, SPACES, random_item, seeded

from graphelements import training
from graphelements.building import build_network
from graphelements.checkpoints import load, save
from graphelements.errors import InputError
from graphelements.meshes import Mesh, MeshConfig, build_grid, grid_mesh, scattered_mesh
from graphelements.network import GraphElementNetwork
from graphelements.network_config import DEFAULT, PAPER
from graphelements.samples import FunctionSamples, Queries, collate
from graphelements.spaces import Box
from graphelements.training import TrainingConfig, fit
from graphelements.unions import union

SPACE = RAGGED_SFT.space
PLAIN = replace(DEFAULT, samples_see="value", num_heard=0, decoder_layers=0)  # all that is known is in nodes


@pytest.mark.parametrize(
    ("resolution", "sizes"), [(2, [2]), (3, [3, 2]), (5, [5, 3, 2]), (7, [7, 4, 2]), (16, [16, 8, 4, 2]), (32, [32, 16, 8, 4, 2])]
)
def test_behind_a_grid_are_grids_of_half_the_resolution_down_to_its_corners(resolution, sizes):
    meshes = grid_mesh(Box(), resolution).nested().nest
    assert [m.num_nodes for m in meshes] == [k**2 for k in sizes]
    for k, mesh in zip(sizes, meshes, strict=True):
        assert torch.equal(mesh.positions, grid_mesh(Box(), k).positions)
    assert {tuple(p) for p in meshes[-1].positions.tolist()} == {(0.0, 0.0), (0.0, 1.0), (1.0, 0.0), (1.0, 1.0)}


@pytest.mark.parametrize("space", SPACES)
@pytest.mark.parametrize("mesh", MESHES)
@pytest.mark.parametrize("ratio", [2.0, 1.3, 1.05])
def test_every_mesh_gets_coarser_grids_down_to_a_few_nodes(space, mesh, ratio):
    meshes = MESHES[mesh](SPACES[space]).nested(ratio).nest
    assert meshes[-1].num_nodes < 2 * 2 ** SPACES[space].dim
    for fine, coarse in itertools.pairwise(meshes):
        assert coarse.num_nodes < fine.num_nodes
        assert coarse.axes is not None
        assert [(float(axis[0]), float(axis[-1])) for axis in coarse.axes if len(axis) > 1] == [
            (low, high)
            for low, high, axis in zip(SPACES[space].lower, SPACES[space].upper, coarse.axes, strict=True)
            if len(axis) > 1
        ]


def test_a_smaller_ratio_makes_a_deeper_nest():
    sizes = {ratio: [m.num_nodes for m in grid_mesh(Box(), 9).nested(ratio).nest] for ratio in (2.0, 1.5)}
    assert sizes == {2.0: [81, 25, 9, 4], 1.5: [81, 36, 16, 9, 4]}
    with pytest.raises(InputError, match="above 1"):
        grid_mesh(Box(), 9).nested(1.0)


def test_behind_scattered_nodes_are_grids_as_behind_a_grid_of_as_many_nodes():
    for box in (Box(), Box((0.0, 0.0), (3.0, 1.0))):
        grid = grid_mesh(box, [round(5 * side) for side in box.sides]).nested()
        scattered = scattered_mesh(box, grid.num_nodes, seeded(0)).nested()
        assert [m.num_nodes for m in scattered.nest] == [m.num_nodes for m in grid.nest]
        for ours, theirs in zip(scattered.nest[1:], grid.nest[1:], strict=True):
            assert torch.equal(ours.positions, theirs.positions)


def test_moving_and_copying_keep_the_coarser_meshes():
    mesh = scattered_mesh(Box(), 30, seeded(0)).nested()
    moved = mesh.moved(mesh.positions * 0.9)
    assert [m.num_nodes for m in moved.nest] == [30, 9, 4]
    assert moved.coarser is mesh.coarser
    assert mesh.to("meta").nest[-1].positions.is_meta
    assert mesh_without(mesh).moved(mesh.positions * 0.9).coarser is None


def mesh_without(mesh: Mesh) -> Mesh:
    return replace(mesh, coarser=None)


def test_a_config_says_whether_meshes_are_nested():
    assert build_grid(MeshConfig(), Box(), 7).coarser is None
    for ratio, sizes in ((2.0, [49, 16, 4]), (1.5, [49, 25, 16, 9, 4])):
        nest = build_grid(MeshConfig(nested=True, nesting_ratio=ratio), Box(), 7).nest
        assert [mesh.num_nodes for mesh in nest] == sizes
    with pytest.raises(InputError, match="nesting_ratio must be above 1"):
        MeshConfig(nesting_ratio=1.0)


@pytest.mark.parametrize("representation", ["nearest_nodes", "soft_nearest", "barycentric", "multilinear"])
@pytest.mark.parametrize("config", [DEFAULT, replace(PAPER, rounds=2)], ids=["default", "paper"])
def test_batching_meshes_of_different_depth_changes_nothing(config, representation):
    network = build_network(RAGGED_SFT, replace(config, representation=representation), seed=2)
    meshes = [grid_mesh(SPACE, 2).nested(), grid_mesh(SPACE, 9).nested(), grid_mesh(SPACE, 4), grid_mesh(SPACE, 1).nested()]
    if representation != "multilinear":
        meshes.append(scattered_mesh(SPACE, 30, seeded(1)).nested())
    items = [random_item(RAGGED_SFT, seeded(n), most=12) for n in range(len(meshes))]
    together = network.predict(collate(items), meshes)
    alone = [network.predict(item, mesh) for item, mesh in zip(items, meshes, strict=True)]
    for name, answers in together.items():
        torch.testing.assert_close(answers, torch.cat([a[name] for a in alone]), rtol=1e-4, atol=1e-5)


def test_settling_starts_from_what_the_coarser_mesh_knows():
    network = build_network(RAGGED_SFT, replace(PLAIN, rounds=0), seed=2)
    fine = grid_mesh(SPACE, 9).nested()
    assert fine.coarser is not None
    inputs = {"heat": FunctionSamples(SPACE.sample(5, seeded(0)), torch.randn(5, 2, generator=seeded(1)))}
    coarse = network.settle(inputs, fine.coarser)[-1]
    queries = Queries(fine.positions, items=torch.zeros(81, dtype=torch.long))
    known = network.gather(coarse, queries, union(fine.coarser, 1))
    expected = network.propagate(network.write(inputs, fine) + known, fine)
    *_, before, found = network.settle(inputs, fine)
    torch.testing.assert_close(before, coarse)
    torch.testing.assert_close(found, expected)
    alone = mesh_without(fine)
    (found,) = network.settle(inputs, alone)
    torch.testing.assert_close(found, network.propagate(network.write(inputs, alone), alone))


def test_a_fine_mesh_contains_the_coarse_computation_with_fields_too():
    network = build_network(RAGGED_SFT, replace(PLAIN, fitted=True), seed=2)
    fine = grid_mesh(SPACE, 9).nested()
    assert fine.coarser is not None
    inputs = {"heat": FunctionSamples(SPACE.sample(5, seeded(0)), torch.randn(5, 2, generator=seeded(1)))}
    *_, before, found = network.settle(inputs, fine)
    torch.testing.assert_close(before, network.settle(inputs, fine.coarser)[-1])
    assert network.field_encoder is not None
    with torch.no_grad():
        network.field_encoder.weight.zero_()
    *_, without, last = network.settle(inputs, fine)
    assert not torch.allclose(before, without)
    assert not torch.allclose(found, last)


def test_queries_read_a_mean_of_what_all_meshes_say():
    network = build_network(RAGGED_SFT, PLAIN, seed=2)
    finest_only = build_network(RAGGED_SFT, replace(PLAIN, reads="finest"), seed=2)
    fine = grid_mesh(SPACE, 9).nested()
    inputs = {"heat": FunctionSamples(SPACE.sample(5, seeded(0)), torch.randn(5, 2, generator=seeded(1)))}
    queries = {"warmth": Queries(SPACE.sample(50, seeded(3)), torch.randn(50, 2, generator=seeded(4)))}
    states, meshes = network.settle(inputs, fine), fine.nest[::-1]
    said = [network.recall(z, queries, union(mesh))["warmth"] for z, mesh in zip(states, meshes, strict=True)]
    read = network.recall(states, queries, union(fine))["warmth"]
    assert bool((read <= torch.stack(said).amax(0) + 1e-6).all())
    assert bool((read >= torch.stack(said).amin(0) - 1e-6).all())
    assert not torch.allclose(read, said[-1])
    assert network.share is not None
    with torch.no_grad():
        network.share.bias.fill_(-100.0)  # nothing is left to coarser meshes
    torch.testing.assert_close(network.recall(states, queries, union(fine))["warmth"], said[-1])
    own = finest_only.settle(inputs, fine)
    torch.testing.assert_close(*(finest_only.read(some, queries, fine)["warmth"] for some in (own, own[-1])))


def test_a_few_rounds_on_nested_meshes_reach_across_a_large_one():
    network = build_network(RAGGED_SFT, replace(PLAIN, rounds=2), seed=2)
    corner = {"heat": FunctionSamples(torch.tensor([[0.0, -1.0]]), torch.ones(1, 2))}
    for mesh, reaches in ((grid_mesh(SPACE, 17).nested(), True), (grid_mesh(SPACE, 17), False)):
        nothing = {"heat": FunctionSamples(torch.zeros(0, 2), torch.zeros(0, 2))}
        change = (network.settle(corner, mesh)[-1] - network.settle(nothing, mesh)[-1]).abs().amax(-1)
        assert bool(change[-1] > 0) is reaches


def test_coarser_grids_have_the_numbers_of_the_finer_one():
    mesh = grid_mesh(Box(), 5)
    assert mesh.axes is not None
    double = replace(mesh, positions=mesh.positions.double(), axes=tuple(axis.double() for axis in mesh.axes))
    assert {m.positions.dtype for m in double.nested().nest} == {torch.float64}


CAUTIOUS = replace(
    PLAIN, cautious=True, gated=True, linear=True, norm="none", decoder_layers=1, relative=False, decoder_hidden=(8,)
)


def _learned(mesh):
    """A cautious network that has been trained on one mesh, as far as its caution goes."""
    network = build_network(RAGGED_SFT, CAUTIOUS)
    network.notice(mesh)
    return network.eval()


@pytest.mark.parametrize("training", [True, False])
def test_a_cautious_network_learns_as_any_other_does(training):
    batch = collate([random_item(RAGGED_SFT, seeded(seed)) for seed in (1, 4)])
    meshes, found = [grid_mesh(SPACE, k).nested() for k in (4, 9)], []
    for cautious in (True, False):
        network = build_network(RAGGED_SFT, replace(CAUTIOUS, cautious=cautious)).train(
            training
        )  # if not: it knows of no mesh yet
        positions = [mesh.positions.clone().requires_grad_() for mesh in meshes]
        moved = [mesh.moved(places) for mesh, places in zip(meshes, positions, strict=True)]
        for order in (moved, list(reversed(moved))) if training else (moved,):
            if training:
                network.notice(order)
            outputs = network(batch, order)
        found.append([*outputs.values(), *torch.autograd.grad(sum(rows.square().sum() for rows in outputs.values()), positions)])
    assert all(torch.equal(*both) for both in zip(*found, strict=True))
    assert all(rows.isfinite().all() for rows in found[0])


def test_fit_notices_the_finest_mesh_of_all_items():
    batch = collate([random_item(RAGGED_SFT, seeded(seed)) for seed in (1, 4)])
    meshes = [grid_mesh(SPACE, k).nested() for k in (9, 4)]
    network = build_network(RAGGED_SFT, CAUTIOUS)
    network.fit_normalisation([batch])
    for _ in fit(network, lambda step: (batch, meshes[step]), TrainingConfig(steps=2, compile="off")):
        assert float(network.finest) == pytest.approx(float(union(meshes[0], 1).mean_spacing))


def test_fit_notices_the_meshes_of_items_that_another_process_has(monkeypatch):
    batch = collate([random_item(RAGGED_SFT, seeded(seed)) for seed in (1, 4)])
    meshes = [grid_mesh(SPACE, k).nested() for k in (9, 4)]
    network = build_network(RAGGED_SFT, CAUTIOUS)
    network.fit_normalisation([batch])
    monkeypatch.setattr(training, "share", lambda whole, of_items, *_: (whole.selected([1]), of_items[1]))  # as the second of two
    assert len(list(fit(network, lambda _: (batch, meshes), TrainingConfig(steps=1, compile="off")))) == 1
    assert float(network.finest) == pytest.approx(float(union(meshes[0], 1).mean_spacing))


def test_a_mesh_finer_than_any_in_training_has_the_less_say_the_finer_it_is():
    batch, known = random_item(RAGGED_SFT, seeded(1)), grid_mesh(SPACE, 5).nested()
    network = _learned(known)
    assert all(len(samples.points) > 0 for samples in batch.inputs.values())
    assert len(batch.queries["flow"]) > 0
    for resolution in (3, 5, 9, 17, 33):
        mesh = replace(grid_mesh(SPACE, resolution), coarser=known)
        share = min(1.0, float(union(mesh, 1).mean_spacing / network.finest))
        before, network.finest = network.finest, None  # the same weights without caution
        bold, coarse = network.predict(batch, mesh), network.predict(batch, known)
        network.finest = before
        answered = network.predict(batch, mesh)
        for name in ("warmth", "flow"):  # fields; decoders are linear in what is read
            torch.testing.assert_close(answered[name], coarse[name] + share * (bold[name] - coarse[name]), rtol=1e-4, atol=1e-5)
        changed = answered["flow"] - bold["flow"]
        assert (float(changed.abs().max()) > 1e-3 * float(bold["flow"].abs().max())) == (resolution > 5)


def test_how_fine_the_meshes_of_training_were_is_kept_with_the_weights(tmp_path):
    network = _learned(grid_mesh(SPACE, 4).nested())
    save(network, tmp_path / "model.safetensors")
    loaded = load(tmp_path / "model.safetensors")
    assert isinstance(loaded, GraphElementNetwork)
    assert network.finest is not None
    assert torch.equal(loaded.finest, network.finest)
    assert float(network.finest) > 0


def test_caution_needs_coarser_meshes_to_leave_things_to():
    with pytest.raises(InputError, match=r"set network.reads=all, or network.cautious=false"):
        replace(DEFAULT, reads="finest", cautious=True)
