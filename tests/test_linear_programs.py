"""Predictions of linear networks in C++ are those in plain torch, for any sizes, boxes and grids."""

from __future__ import annotations

import copy
import pickle
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import torch
from cases import seeded

import graphelements as ge
from graphelements.building import build_network
from graphelements.compilation import compiler_available, library
from graphelements.data.houses import Houses
from graphelements.data.random_houses import HouseDistribution, draw_houses
from graphelements.functions import SFT, InputFunction, OutputFunction
from graphelements.linear_programs import LinearProgram
from graphelements.meshes import grid_mesh
from graphelements.network import GraphElementNetwork
from graphelements.network_config import DEFAULT, NetworkConfig
from graphelements.samples import FunctionSamples, Queries, SFTBatch
from graphelements.spaces import Box
from graphelements.unions import union

pytestmark = pytest.mark.skipif(not compiler_available(), reason="there is no C++ compiler")

LINEAR = replace(
    DEFAULT, samples_see="box", gated=True, linear=True, norm="none", representation="multilinear", num_heard=50, ear_layers=1
)
CONFIGS = {
    "default": LINEAR,
    "odd sizes": replace(LINEAR, latent_size=5, encoder_hidden=(7,), edge_hidden=3, decoder_hidden=(9,), ear_layers=2),
    "wide": replace(LINEAR, latent_size=33, encoder_hidden=(70,), edge_hidden=50, decoder_hidden=(17,), ear_layers=0),
    "no rounds": replace(LINEAR, rounds=0, decoder_layers=1),
    "nothing heard": replace(LINEAR, num_heard=0, ear_layers=0, rounds=3),
    "one function heard": replace(LINEAR, hears=("walls",), decoder_layers=3),
    "decoders without places": replace(LINEAR, nodes_see="spacing"),
    "finest": replace(LINEAR, reads="finest", rounds=1),
}
SPACES = {1: Box((-2.0,), (3.0,)), 2: Box((0.0, 10.0), (30.0, 30.0)), 3: Box((0.0, 0.0, 0.0), (1.0, 2.0, 1.0), unit=0.5)}
ITEMS = 4


def pieces(space: Box, channels: int, num: int, seed: int, level: float = 0.0) -> FunctionSamples:
    """The corners, middles and some inner points of `num` boxes for each item, of which some overlap; none for the last item."""
    generator = torch.Generator().manual_seed(seed)
    points, values, items = [], [], []
    lower, sides = torch.tensor(space.lower), torch.tensor(space.sides)
    places = torch.tensor(list(product((0.0, 0.5, 1.0), repeat=space.dim)))
    for item in range(ITEMS - 1):
        for _ in range(num):
            low, wide = torch.rand(2, space.dim, generator=generator) / 2
            inner = torch.rand(int(torch.randint(4, (), generator=generator)), space.dim, generator=generator)
            points.append(lower + sides * (low + wide * torch.cat([places, inner])))
            values.append((level + torch.randn(1, channels, generator=generator)).expand(len(points[-1]), -1))
            items += [item] * len(points[-1])
    return FunctionSamples(torch.cat(points), torch.cat(values), torch.tensor(items))


def case(config: NetworkConfig, dim: int = 2, channels: int = 1, shifts: bool = True) -> tuple[GraphElementNetwork, SFTBatch]:
    space = SPACES[dim]
    inputs = InputFunction("sources", 2, scales=True), InputFunction("walls", channels, scales=True, shifts=shifts)
    network = build_network(SFT(space, inputs, (OutputFunction("flow", channels, scales=True, shifts=shifts),)), config, seed=3)
    samples = {"sources": pieces(space, 2, 3, seed=1), "walls": pieces(space, channels, 2, seed=2, level=5.0)}
    asked = torch.tensor([0] * 150 + [1] * 3 + [3] * 200)  # item 2 is not asked
    queries = Queries(space.sample(len(asked), seeded(4)), items=asked)
    batch = SFTBatch(samples, {"flow": queries}, {"flow": 7 * torch.randn(len(asked), channels, generator=seeded(5))}, ITEMS)
    network.fit_normalisation([batch])
    return network, batch


def assert_same(network: GraphElementNetwork, batch: SFTBatch, mesh, in_cpp: bool = True) -> None:
    """The network predicts the same compiled as a whole, in C++ or else in plain torch."""
    plain = copy.deepcopy(network)
    plain.program = None
    network.compile_stages()
    assert network.program is not None
    meshes = union(mesh, batch.num_items)
    assert (network.program.answers(batch, meshes) is not None) == in_cpp
    expected, found = plain.predict(batch, meshes)["flow"], network.predict(batch, meshes)["flow"]
    assert found.shape == expected.shape
    assert expected.numel() == 0 or (found - expected).abs().max() < 2e-5 * max(expected.abs().max(), 1)


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
@pytest.mark.parametrize("dim", SPACES)
def test_answers_are_those_of_plain_torch(config, dim):
    network, batch = case(config, dim)
    assert_same(network, batch, grid_mesh(network.sft.space, 4))


@pytest.mark.parametrize("shape", [(1, 1), (1, 5), (2, 2), (3, 9), (32, 32)])
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_they_are_on_grids_of_any_size_and_with_any_number_of_threads(shape, threads):
    network, batch = case(LINEAR)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        assert_same(network, batch, grid_mesh(network.sft.space, shape))
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize(("channels", "shifts"), [(1, False), (3, False), (3, True)])
def test_they_are_with_several_channels_and_whatever_functions_declare(channels, shifts):
    network, batch = case(LINEAR, channels=channels, shifts=shifts)
    assert_same(network, batch, grid_mesh(network.sft.space, 5))


def test_functions_without_samples_and_batches_without_queries_are_answered():
    network, batch = case(LINEAR)
    mesh = grid_mesh(network.sft.space, 5)
    for name in batch.inputs:
        assert_same(network, replace(batch, inputs={name: batch.inputs[name]}), mesh)
    assert_same(network, replace(batch, inputs={}), mesh)
    assert_same(network, replace(batch, queries={"flow": Queries(torch.zeros(0, 2))}, targets={}), mesh)


def test_pieces_of_one_value_are_told_apart():
    network, batch = case(LINEAR)
    walls = batch.inputs["walls"]
    same = replace(batch, inputs={**batch.inputs, "walls": replace(walls, values=torch.full_like(walls.values, 2.0))})
    assert_same(network, same, grid_mesh(network.sft.space, 5))
    far = walls.points.clone()
    far[walls.items == 0] = torch.cat([far[walls.items == 0][:10] / 100, 10 + far[walls.items == 0][10:] / 100])
    apart = replace(same, inputs={**same.inputs, "walls": replace(same.inputs["walls"], points=far.clamp(min=10.0))})
    assert_same(network, apart, grid_mesh(network.sft.space, 5))


def test_the_shipped_small_model_answers_for_houses_as_in_plain_torch():
    houses = Houses(draw_houses(60, np.random.default_rng(5), HouseDistribution(num_scenarios=2)).houses)
    batch = houses.batch(np.arange(60).repeat(2), np.tile([0, 1], 60))
    network, mesh = ge.load("poisson-square-small"), union(grid_mesh(ge.Box(), 7), 120)
    plain = network.predict(batch, mesh)["temperature"]
    assert isinstance(network, GraphElementNetwork)
    network.compile_stages()
    assert network.program is not None
    for _ in range(2):
        answers = network.program.answers(batch, mesh)
        assert answers is not None
        assert (answers["temperature"] - plain).abs().max() < 1e-5
    assert plain.abs().max() > 1


def test_what_the_program_does_not_do_is_done_in_plain_torch():
    network, batch = case(LINEAR)
    space, walls = network.sft.space, batch.inputs["walls"]
    grid = grid_mesh(space, 5)
    alone = walls.values.clone()
    alone[3] = 9.0
    assert_same(network, replace(batch, inputs={"walls": replace(walls, values=alone)}), grid, in_cpp=False)
    turned = batch.inputs | {"walls": walls.mapped(lambda rows: rows.flip(0))}
    assert_same(network, replace(batch, inputs=turned), grid, in_cpp=False)
    queries = {"flow": batch.queries["flow"].mapped(lambda rows: rows.flip(0))}
    assert_same(network, replace(batch, queries=queries), grid, in_cpp=False)
    assert_same(network, batch, grid.nested(), in_cpp=False)
    meshes = [grid_mesh(space, 2 + item) for item in range(ITEMS)]
    assert_same(network, batch, meshes, in_cpp=False)
    assert_same(*case(replace(LINEAR, num_heard=2)), grid, in_cpp=False)
    many = FunctionSamples(space.sample(300, seeded(1)), torch.ones(300, 2))
    assert_same(network, replace(batch, inputs={"sources": many}), grid, in_cpp=False)


def test_other_precisions_are_plain_torch():
    network, batch = case(LINEAR)
    doubled = SFTBatch(
        {name: FunctionSamples(s.points.double(), s.values.double(), s.items) for name, s in batch.inputs.items()},
        {"flow": replace(batch.queries["flow"], points=batch.queries["flow"].points.double())},
        num_items=ITEMS,
    )
    mesh = grid_mesh(network.sft.space, 4)
    mesh = replace(mesh, positions=mesh.positions.double(), axes=tuple(axis.double() for axis in mesh.axes))
    assert_same(network.double(), doubled, mesh, in_cpp=False)


def test_items_of_any_whole_numbers_are_taken():
    network, batch = case(LINEAR)
    for kind in (torch.int32, torch.int16):
        inputs = {name: replace(each, items=each.items.to(kind)) for name, each in batch.inputs.items()}
        queries = {"flow": Queries(batch.queries["flow"].points, items=batch.queries["flow"].items.to(kind))}
        changed = replace(batch, inputs=inputs, queries=queries)
        network.compile_stages()
        meshes = union(grid_mesh(network.sft.space, 5), ITEMS)
        assert network.program is not None
        assert torch.equal(network.predict(changed, meshes)["flow"], network.program.answers(batch, meshes)["flow"])


def test_values_that_overflow_are_left_to_plain_torch():
    network, batch = case(LINEAR)
    walls = replace(batch.inputs["walls"], values=torch.full_like(batch.inputs["walls"].values, 1e15))
    network.input_scales["walls"].scale.fill_(1e-25)
    network.compile_stages()
    answers = network.predict(replace(batch, inputs={"walls": walls}), grid_mesh(network.sft.space, 4))["flow"]
    assert answers[:150].isnan().all()


@pytest.mark.parametrize("declared", [{}, {"scales": True}])
def test_means_count_as_in_plain_torch(declared):
    inputs = InputFunction("sources", 2, **declared), InputFunction("walls", 1, **declared)
    network = build_network(SFT(SPACES[2], inputs, (OutputFunction("flow", 1, **declared),)), LINEAR, seed=3)
    batch = case(LINEAR)[1]
    for scales in (*network.input_scales.values(), *network.output_scales.values()):
        scales.mean.fill_(2.0)
        scales.scale.fill_(0.7)
    assert_same(network, batch, grid_mesh(SPACES[2], 4))


def test_weights_are_followed_however_they_change():
    network, batch = case(LINEAR)
    mesh = union(grid_mesh(network.sft.space, 4), ITEMS)
    assert_same(network, batch, mesh)
    network.decoders["flow"].last.weight.data.mul_(2)
    assert_same(network, batch, mesh)
    network.load_state_dict({name: 1.1 * value for name, value in network.state_dict().items()}, assign=True)
    assert_same(network, batch, mesh)
    network.reader = case(LINEAR)[0].reader
    assert_same(network, batch, mesh)
    network.double().float().output_scales["flow"].scale.mul_(3)
    assert_same(network, batch, mesh)


def test_networks_of_other_parts_are_no_programs():
    network, batch = case(LINEAR)
    network.message_passing = torch.nn.Identity()
    assert not LinearProgram.serves(network)
    network, batch = case(LINEAR)
    network.compile_stages()
    network.encoders["walls"] = case(CONFIGS["odd sizes"])[0].encoders["walls"]
    with pytest.raises(ge.InputError, match="this one has parts of other sizes"):
        network.predict(batch, grid_mesh(network.sft.space, 4))


def test_networks_made_in_inference_mode_predict():
    with torch.inference_mode():
        network, batch = case(LINEAR)
        assert_same(network, batch, grid_mesh(network.sft.space, 4))


def test_threads_may_predict_while_weights_change():
    network, batch = case(LINEAR)
    network.compile_stages()
    mesh = union(grid_mesh(network.sft.space, 4), ITEMS)
    weight = network.decoders["flow"].last.weight
    with ThreadPoolExecutor(3) as pool:
        found = [pool.submit(network.predict, batch, mesh) for _ in range(200)]
        for _ in range(100):
            weight.data.mul_(-1)
        assert all(each.result()["flow"].isfinite().all() for each in found)


def test_moved_lines_of_a_grid_are_followed():
    network, batch = case(LINEAR)
    mesh = grid_mesh(network.sft.space, (4, 4))
    places = mesh.positions.view(4, 4, 2).clone()
    places[1, :, 0] += 1.5
    assert_same(
        network, batch, replace(mesh, positions=places.view(16, 2), axes=(places[:, 0, 0].clone(), places[0, :, 1].clone()))
    )
    learned = replace(mesh, positions=mesh.positions.clone().requires_grad_())
    assert_same(network, batch, learned, in_cpp=False)


def test_changed_weights_are_followed_and_copies_follow_their_own():
    network, batch = case(LINEAR)
    mesh = union(grid_mesh(network.sft.space, 4), ITEMS)
    network.compile_stages()
    before = network.predict(batch, mesh)["flow"]
    twin = copy.deepcopy(network)
    with torch.no_grad():
        network.decoders["flow"].last.weight.mul_(2)
        network.message_passing.local.bias.add_(1)
    assert_same(network, batch, mesh)
    assert torch.equal(twin.predict(batch, mesh)["flow"], before)
    program = pickle.loads(pickle.dumps(network)).program
    assert torch.equal(program.answers(batch, mesh)["flow"], network.predict(batch, mesh)["flow"])
    assert not torch.allclose(network.predict(batch, mesh)["flow"], before, atol=1e-2)


@pytest.mark.parametrize(
    "change",
    [
        {"representation": "nearest_nodes"},
        {"samples_see": "cell"},
        {"passes": 2},
        {"num_octaves": 2},
        {"rounds": "diameter"},
        {"relative": False},
    ],
)
def test_other_networks_are_no_programs(change):
    network, _ = case(LINEAR)
    assert LinearProgram.serves(network)
    assert not LinearProgram.serves(case(replace(LINEAR, **change))[0])
    assert not LinearProgram.serves(build_network(network.sft, DEFAULT))


def test_bad_batches_are_refused_before_anything_is_read():
    network, batch = case(LINEAR)
    network.compile_stages()
    walls = replace(batch.inputs["walls"], items=batch.inputs["walls"].items + 2)
    with pytest.raises(ge.InputError, match="items of 'walls' must be 0 to 3"):
        network.predict(replace(batch, inputs={"walls": walls}), grid_mesh(network.sft.space, 4))


def test_a_missing_compiler_shows_when_stages_are_compiled(monkeypatch, tmp_path):
    monkeypatch.setenv("CXX", "false")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    library.cache_clear()
    network, _ = case(LINEAR)
    with pytest.raises(RuntimeError, match="set CXX"):
        network.compile_stages()
    library.cache_clear()
