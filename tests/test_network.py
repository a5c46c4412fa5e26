"""The paper's sentences about GENs, the stages, the loss, units, and devices."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import pytest
import torch
from cases import RAGGED_SFT, largest_jump, random_item, seeded
from torch import Tensor

from graphelements.building import build_network, num_weights
from graphelements.compilation import compiler_available
from graphelements.errors import InputError
from graphelements.functions import SFT, InputFunction, OutputFunction
from graphelements.meshes import grid_mesh, scattered_mesh
from graphelements.network_config import DEFAULT, NEURAL_PROCESS, PAPER, NetworkConfig
from graphelements.samples import FunctionSamples, Queries, SFTBatch, collate
from graphelements.sft_network import place_features
from graphelements.spaces import Box
from graphelements.training import item_errors
from graphelements.unions import union

HEAT = SFT(Box((0.0, 0.0), (2.0, 1.0)), (InputFunction("heat", 2),), (OutputFunction("warmth", 1),))
CONFIGS = {"paper": PAPER, "default": DEFAULT, "neural_process": NEURAL_PROCESS}
every_config = pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)


def heat_batch(num_samples: int = 10, num_queries: int = 15, seed: int = 0) -> SFTBatch:
    g = seeded(seed)
    samples = FunctionSamples(HEAT.space.sample(num_samples, g), torch.randn(num_samples, 2, generator=g))
    queries = Queries(HEAT.space.sample(num_queries, g))
    return SFTBatch({"heat": samples}, {"warmth": queries}, {"warmth": torch.randn(num_queries, 1, generator=g)})


def test_a_neural_process_is_a_gen_with_one_node_and_no_rounds():
    network, batch = build_network(HEAT, NEURAL_PROCESS), heat_batch()

    def place(points: torch.Tensor) -> torch.Tensor:
        return (points - torch.tensor([1.0, 0.5])) / 2

    samples, points = batch.inputs["heat"], batch.queries["warmth"].points
    code = network.encoders["heat"](torch.cat([samples.values, place(samples.points)], -1)).sum(0)
    expected = network.decoders["warmth"](torch.cat([code.expand(len(points), -1), place(points)], -1))
    assert (network(batch, grid_mesh(HEAT.space, 1))["warmth"] - expected).abs().max() < 1e-5


def test_a_gen_has_fewer_weights_than_the_baseline_at_every_mesh_size():
    for sft in (HEAT, RAGGED_SFT):
        baseline = num_weights(build_network(sft, NEURAL_PROCESS))
        for config, share in ((PAPER, 0.5), (DEFAULT, 1.0)):
            network = build_network(sft, config)
            assert num_weights(network) < share * baseline
            for k in (1, 2, 7):
                assert network(random_item(sft, seeded(0)), grid_mesh(sft.space, k)).keys() == {f.name for f in sft.outputs}
            assert num_weights(network) < share * baseline


def test_the_papers_sizes_are_those_of_its_appendix():
    network = build_network(HEAT, PAPER)
    encoder, decoder = (2 * 48 + 48) + (48 * 32 + 32), (32 * 32 + 32) + (32 + 1)
    edge, node = (64 * 48 + 48) + (48 * 16 + 16), (48 * 64 + 64) + (64 * 32 + 32)
    assert num_weights(network) == encoder + decoder + edge + node


@pytest.mark.usefixtures("double")
def test_as_many_rounds_as_the_diameter_make_local_information_global():
    """Paper section 3.3: a sample at one corner changes every node after T = 2(k - 1) rounds, and not the far corner before."""
    mesh = grid_mesh(HEAT.space, 4)
    corner = torch.tensor([[2.0, 0.0]])  # the far corner of the one that no diagonal helps
    far = 3  # the node at (0, 1)
    for rounds, everywhere in (("diameter", True), (6, True), (5, False), (0, False)):
        config = NetworkConfig(representation="multilinear", rounds=rounds, aggregation="sum")
        network, one = build_network(HEAT, config), union(mesh, 1)
        states = []
        for value in (0.0, 100.0):
            written = network.write({"heat": FunctionSamples(corner, torch.full((1, 2), value))}, one)
            states.append(network.propagate(written, one))
        changed = (states[0] - states[1]).abs().amax(-1) > 0
        assert bool(changed.all()) == everywhere
        assert bool(changed[far]) == everywhere


@every_config
def test_writing_is_additive(config):
    network, mesh = build_network(HEAT, config), union(scattered_mesh(HEAT.space, 12, seeded(0)), 1)
    first, second = heat_batch(seed=1).inputs["heat"], heat_batch(7, seed=2).inputs["heat"]
    both = FunctionSamples(torch.cat([first.points, second.points]), torch.cat([first.values, second.values]))
    seen = network.seen(SFTBatch({"heat": both}, {}))[0]["heat"]
    parts = [
        seen.mapped(lambda rows, part=part: rows[part]) for part in (slice(len(first.points)), slice(len(first.points), None))
    ]
    apart = network.write({"heat": parts[0]}, mesh) + network.write({"heat": parts[1]}, mesh)
    assert (network.write({"heat": seen}, mesh) - apart).abs().max() < 1e-4
    assert network.write({}, mesh).abs().max() == 0


@every_config
def test_reading_later_and_in_pieces_is_what_forward_gives(config):
    network, batch, mesh = build_network(HEAT, config), heat_batch(), union(grid_mesh(HEAT.space, 3), 1)
    states = network.propagate(network.write(network.seen(batch)[0], mesh), mesh)
    expected = network(batch, mesh)["warmth"]
    for _ in range(2):
        parts = batch.queries["warmth"].split(4)
        pieces = [network.read(states, {"warmth": piece}, mesh, network.seen(batch)[0])["warmth"] for piece in parts]
        assert (torch.cat(pieces) - expected).abs().max() < 1e-5
    assert (network.predict(batch, mesh, chunk=4)["warmth"] - expected).abs().max() < 1e-5


def test_reading_is_gathering_or_integrating_and_then_decoding():
    network, mesh = build_network(RAGGED_SFT, PAPER), union(grid_mesh(RAGGED_SFT.space, 3), 1)
    states = torch.randn(9, 32, generator=seeded(0))
    points, conditions = RAGGED_SFT.space.sample(5, seeded(1)), torch.randn(5, 2, generator=seeded(2))
    found = network.read(states, {"total": Queries(), "warmth": Queries(points, conditions)}, mesh)
    assert torch.allclose(found["total"], network.decoders["total"](states.sum(0, keepdim=True)), atol=1e-5)
    weights = (-(points[:, None] - mesh.positions).norm(dim=-1) / 2).softmax(-1)
    expected = network.decoders["warmth"](torch.cat([weights @ states, conditions], -1))
    assert torch.allclose(found["warmth"], expected, atol=1e-5)


@pytest.mark.parametrize("representation", ["soft_nearest", "nearest_nodes", "multilinear", "barycentric"])
@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_the_unit_of_length_and_the_origin_do_not_matter(config, representation):
    there = SFT(Box((-30.0, 100.0), (-10.0, 110.0)), HEAT.inputs, HEAT.outputs)  # ten times as large, elsewhere
    here, config = heat_batch(), replace(config, representation=representation)
    samples, points = here.inputs["heat"], here.queries["warmth"].points
    shift = torch.tensor([-30.0, 100.0])
    moved = SFTBatch(
        {"heat": FunctionSamples(10 * samples.points + shift, samples.values)}, {"warmth": Queries(10 * points + shift)}
    )
    answers = [build_network(s, config).predict(b, grid_mesh(s.space, 4)) for s, b in ((HEAT, here), (there, moved))]
    assert (answers[0]["warmth"] - answers[1]["warmth"]).abs().max() < 1e-3


@pytest.mark.parametrize("sft", [HEAT, RAGGED_SFT])
def test_integrating_is_the_sum_over_nodes(sft):
    queries, meshes = Queries(items=torch.tensor([1, 0, 1])), union([grid_mesh(sft.space, 3), grid_mesh(sft.space, 1)])
    states = torch.randn(10, 32, generator=seeded(0))
    found = build_network(sft, PAPER).integrate(states, queries, meshes)
    assert (found - torch.stack([states[9], states[:9].sum(0), states[9]])).abs().max() < 1e-5


def test_integrating_by_area_does_not_grow_with_the_mesh():
    network = build_network(HEAT, replace(PAPER, integration="area"))
    for k in (1, 4, 9):
        states = torch.ones(k * k, 32)
        assert (network.integrate(states, Queries(), union(grid_mesh(HEAT.space, k), 1)) - 1).abs().max() < 1e-5


def test_the_loss_is_the_mean_over_items_of_outputs_of_queries():
    sft = SFT(Box(), (InputFunction("a"),), (OutputFunction("b", 2), OutputFunction("c", 1)))
    queries = {
        "b": Queries(torch.rand(3, 2), None, torch.tensor([0, 2, 2])),
        "c": Queries(torch.rand(3, 2), None, torch.tensor([0, 0, 2])),
    }
    zero = {"b": torch.zeros(3, 2), "c": torch.zeros(3, 1)}
    targets = {"b": torch.tensor([[1.0, 3.0], [2.0, 0.0], [0.0, 4.0]]), "c": torch.tensor([[1.0], [2.0], [3.0]])}
    batch = SFTBatch({}, queries, targets, num_items=3)
    item_0 = ((1 + 9) / 2 + (1 + 4) / 2) / 2
    item_2 = ((4 / 2 + 16 / 2) / 2 + 9) / 2
    network = build_network(sft)
    assert network.loss(zero, batch).item() == pytest.approx((item_0 + item_2) / 2)  # item 1 is not asked for anything
    with pytest.raises(InputError, match="needs targets"):
        network.loss(zero, replace(batch, targets={}))


def test_the_loss_on_a_simplex_is_the_cross_entropy_of_normalised_answers():
    sft = SFT(Box(), (InputFunction("a"),), (OutputFunction("kind", 3, loss="cross_entropy"),))
    network, queries = build_network(sft), Queries(torch.rand(4, 2, generator=seeded(0)))
    targets = torch.eye(3)[[0, 2, 1, 0]]
    batch = SFTBatch({"a": FunctionSamples(torch.rand(2, 2), torch.rand(2, 1))}, {"kind": queries}, {"kind": targets})
    network.fit_normalisation([batch])
    answers = network.predict(batch, grid_mesh(Box(), 2))["kind"]
    assert (answers.sum(-1) - 1).abs().max() < 1e-5
    loss = network.loss(network(batch, grid_mesh(Box(), 2)), batch)
    assert loss.item() == pytest.approx(-(targets * answers.log()).sum(-1).mean().item(), rel=1e-4)
    assert item_errors(network, batch, grid_mesh(Box(), 2))["kind"].item() == pytest.approx(loss.item(), rel=1e-4)


@pytest.mark.parametrize(("scale", "shift"), [(1000.0, 0.0), (1e-3, 5.0), (-20.0, 300.0)])
def test_users_give_and_get_original_units(scale, shift):
    batch, mesh = heat_batch(30, 40), grid_mesh(HEAT.space, 3)
    other = SFTBatch(
        {"heat": replace(batch.inputs["heat"], values=scale * batch.inputs["heat"].values + shift)},
        batch.queries,
        {"warmth": scale * batch.targets["warmth"] + shift},
    )
    here, there = (build_network(HEAT, DEFAULT) for _ in range(2))
    here.fit_normalisation([batch])
    there.fit_normalisation([other])
    sign = 1 if scale > 0 else -1  # a negative scale turns the standardised values around
    if sign < 0:
        here.input_scales["heat"].scale.neg_()
        here.output_scales["warmth"].scale.neg_()
    expected = scale * here.predict(batch, mesh)["warmth"] + shift
    assert (there.predict(other, mesh)["warmth"] - expected).abs().max() < 1e-3 * abs(scale)
    losses = [network.loss(network(b, mesh), b).item() for network, b in ((here, batch), (there, other))]
    assert losses[0] == pytest.approx(losses[1], rel=1e-3)


def test_normalised_training_values_have_mean_zero_and_variance_one_and_come_back():
    network, batch = build_network(HEAT, PAPER), heat_batch(200, 100)
    batch = replace(
        batch, inputs={"heat": FunctionSamples(batch.inputs["heat"].points, torch.tensor([[7.0, 3.0]]) + torch.zeros(200, 2))}
    )
    network.fit_normalisation([batch, heat_batch(50, 70, seed=1)])
    rows = torch.cat([batch.targets["warmth"], heat_batch(50, 70, seed=1).targets["warmth"]])
    seen = network.output_scales["warmth"].normalised(rows)
    assert seen.mean().abs() < 1e-5
    assert seen.std(correction=0).item() == pytest.approx(1, abs=1e-4)
    assert torch.allclose(network.output_scales["warmth"].restored(seen), rows, atol=1e-5)
    network.fit_normalisation([batch])
    assert torch.equal(network.input_scales["heat"].scale, torch.ones(2))  # never varies
    assert torch.equal(network.input_scales["heat"].normalised(batch.inputs["heat"].values), torch.zeros(200, 2))


@pytest.mark.parametrize("config", [PAPER, DEFAULT], ids=["paper", "default"])
@pytest.mark.usefixtures("double")
def test_predictions_do_not_jump(config):
    network, batch = build_network(HEAT, config), heat_batch()
    mesh = union(scattered_mesh(HEAT.space, 25, seeded(0)), 1)
    with torch.no_grad():
        inputs, _ = network.seen(batch)
        states = network.propagate(network.write(inputs, mesh), mesh)

        def read(points: Tensor) -> Tensor:
            return network.read(states, {"warmth": Queries(points)}, mesh, inputs)["warmth"][:, 0]

        spread, jump = read(HEAT.space.sample(300, seeded(1))).std(), largest_jump(read, HEAT.space, 2)
    assert jump < 1e-3 * spread


def test_writing_samples_that_were_not_prepared_is_refused():
    network, batch, mesh = build_network(HEAT, DEFAULT), heat_batch(), grid_mesh(HEAT.space, 2)
    with pytest.raises(InputError, match=r"network\.seen"):
        network.write(batch.inputs, mesh)


def test_networks_are_the_same_for_the_same_seed_and_leave_the_global_generator_alone():
    before = torch.get_rng_state()
    first, again, other = build_network(HEAT, seed=3), build_network(HEAT, seed=3), build_network(HEAT, seed=4)
    assert torch.equal(torch.get_rng_state(), before)
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), again.parameters(), strict=True))
    assert any(not torch.equal(a, b) for a, b in zip(first.parameters(), other.parameters(), strict=True))


def test_positions_that_learn_keep_their_gradients_on_a_union_that_was_used_before():
    network, batch = build_network(HEAT, DEFAULT), heat_batch()
    mesh = scattered_mesh(HEAT.space, 20, seeded(0))
    found = []
    for predicts_before in (False, True):
        positions = mesh.positions.clone().requires_grad_()
        shared = union(mesh.moved(positions).nested(), 1)
        if predicts_before:
            network.predict(batch, shared)
        found += torch.autograd.grad(network(batch, shared)["warmth"].sum(), positions)
    torch.testing.assert_close(*found)


def test_couplings_of_one_network_are_not_those_of_another():
    batch, shared = heat_batch(), union(grid_mesh(HEAT.space, 5).nested(), 1)
    fixed, learning = build_network(HEAT, DEFAULT), build_network(HEAT, replace(DEFAULT, learn_sharpness=True))
    expected = fixed.predict(batch, union(grid_mesh(HEAT.space, 5).nested(), 1))["warmth"]
    with torch.no_grad():
        learning.representation.log_sharpness.add_(1.0)
    for _ in range(2):
        learning.loss(learning(batch, shared), batch).backward()
        torch.testing.assert_close(fixed.predict(batch, shared)["warmth"], expected)


def test_predicting_checks_the_batch_and_keeps_no_gradients():
    network, batch, mesh = build_network(HEAT, DEFAULT), heat_batch(), grid_mesh(HEAT.space, 2)
    assert not network.predict(batch, mesh)["warmth"].requires_grad
    outside = SFTBatch(batch.inputs, {"warmth": Queries(torch.tensor([[5.0, 0.0]]))})
    with pytest.raises(InputError, match="must lie in the space"):
        network.predict(outside, mesh)


# without what asks how many samples an item has, which this device does not know
UNCOUNTED = replace(DEFAULT, samples_see="value", num_heard=0)
META = {
    "paper": PAPER,
    "default": UNCOUNTED,
    "neural_process": NEURAL_PROCESS,
    "multilinear": replace(UNCOUNTED, representation="multilinear", integration="area"),
}


@pytest.mark.parametrize("config", META.values(), ids=META)
def test_everything_runs_on_the_device_of_its_inputs(config):
    """The meta device refuses to mix with tensors of the CPU, as a GPU would."""
    batch, mesh = collate([random_item(RAGGED_SFT, seeded(seed)) for seed in range(3)]), grid_mesh(RAGGED_SFT.space, 3)
    assert mesh.diameter == 4
    network = build_network(RAGGED_SFT, config).to("meta")
    there = batch.to("meta")
    outputs = network(there, mesh.to("meta"))
    loss = network.loss(outputs, there)
    loss.backward()
    assert loss.is_meta
    assert {name: output.shape for name, output in outputs.items()} == {name: t.shape for name, t in batch.targets.items()}
    learned = [p for p in network.parameters() if p.requires_grad]
    assert all(p.grad is not None and p.grad.is_meta for p in learned)


WHOLE = """
from dataclasses import replace
import torch
import graphelements as ge

sft = ge.SFT(ge.Box(), (ge.InputFunction("heat", 1),), (ge.OutputFunction("warmth", 1),))
network = ge.build_network(sft, CONFIG)
mesh = ge.union(ge.grid_mesh(sft.space, 3)NESTED, 3)  # made once: what is made of a new one would split the graph
queries = {"warmth": ge.Queries(torch.rand(6, 2), items=torch.tensor([0, 0, 1, 1, 2, 2]))}
batches = []
for num in (5, 6, 4):  # samples of item 0; item 1 has none
    items = torch.tensor([2] * (num - 2) + [0] * num)
    samples = ge.FunctionSamples(torch.rand(len(items), 2), torch.randn(len(items), 1), items)
    batches.append(ge.SFTBatch({"heat": samples}, queries, num_items=3))
expected = [network.predict(batch, mesh)["warmth"] for batch in batches]
uneven = replace(batches[0], queries={"warmth": ge.Queries(torch.rand(7, 2), items=torch.tensor([0, 2, 1, 1, 0, 2, 2]))})
answers_to_uneven = network.predict(uneven, mesh)["warmth"]
network.compile_stages()
network.compile_stages()  # once is enough
for batch, answers in zip(batches, expected, strict=True):
    torch.testing.assert_close(network.predict(batch, mesh)["warmth"], answers, rtol=1e-4, atol=1e-5)
breaks = len(torch._dynamo.utils.counters["graph_break"])
torch.testing.assert_close(network.predict(uneven, mesh)["warmth"], answers_to_uneven, rtol=1e-4, atol=1e-5)
print(breaks)
"""
"""In a process of its own: the compiler cannot see through the shape checks of the tests."""

SEARCHED = 'ge.NetworkConfig(rounds=1, reads="all", representation="nearest_nodes", num_heard=3, passes={})'
ALL_HEARD = (
    'replace(ge.DEFAULT, num_heard=8, samples_see="box", gated=True, linear=True, norm="none", representation="nearest_nodes", '
    "ear_layers={})"
)


@pytest.mark.long
@pytest.mark.skipif(not compiler_available(), reason="no C++ compiler to compile with")
@pytest.mark.parametrize(
    ("config", "nested"),
    [(SEARCHED.format(1), ".nested()"), (SEARCHED.format(2), ""), (ALL_HEARD.format(0), ""), (ALL_HEARD.format(1), "")],
)
def test_stages_compiled_as_a_whole_predict_the_same(config, nested):
    script = WHOLE.replace("CONFIG", config).replace("NESTED", nested)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    if "linear" in config:
        assert done.stdout.split()[-1] == "0", "compiled in pieces, not as a whole"


def test_meshes_of_another_precision_are_refused():
    double = build_network(HEAT, seed=0).double()
    batch = heat_batch()
    with pytest.raises(InputError, match="need one precision"):
        double.predict(batch, grid_mesh(HEAT.space, 3))


@pytest.mark.parametrize("reads", ["finest", "all"])
def test_a_second_pass_tells_samples_what_is_known_at_their_places(reads):
    network, batch = build_network(HEAT, replace(DEFAULT, passes=2, reads=reads)), heat_batch()
    mesh = union(grid_mesh(HEAT.space, 4).nested(), 1)
    inputs, _ = network.seen(batch)
    first = network.settle(inputs, mesh)
    told = network.informed(inputs, first, mesh)
    queries = {"heat": Queries(inputs["heat"].points, items=inputs["heat"].items)}
    there = network.recall(first, queries, mesh)["heat"]
    assert torch.equal(told["heat"].values, torch.cat([inputs["heat"].values, there], -1))
    states, last = network.absorb(inputs, mesh)
    assert torch.equal(last["heat"].values, told["heat"].values)
    for found, expected in zip(states, network.settle(told, mesh), strict=True):
        assert torch.equal(found, expected)
    assert not torch.equal(states[-1], first[-1])
    answers = network.read(states, batch.queries, mesh, last)
    assert torch.equal(answers["warmth"], network(batch, mesh)["warmth"])
    assert build_network(HEAT, DEFAULT).absorb(inputs, mesh)[1] is inputs
    for too_few in (inputs, batch.inputs):
        with pytest.raises(InputError, match="as `absorb` gives them"):
            network.read(states, batch.queries, mesh, too_few)
    with pytest.raises(InputError, match="passes must be 1 or more; got 0"):
        replace(DEFAULT, passes=0)


def test_places_are_seen_in_octaves():
    points = torch.tensor([[1.0, 0.5], [2.0, 0.0]])
    expected = torch.tensor([[0, 0, 0, 0, 1, 1, 0, 0, 1, 1], [0.5, -0.25, 1, -(0.5**0.5), 0, 0.5**0.5, 0, -1, -1, 0]])
    assert torch.allclose(
        place_features(points, HEAT.space, 2), expected, atol=1e-6
    )  # periods of two units of length, and of one
    mesh, values = grid_mesh(HEAT.space, 1), torch.ones(1, 2)
    for config, differ in (
        (PAPER, False),
        (replace(PAPER, num_octaves=1), True),
        (replace(PAPER, encoder_sees="position"), True),
    ):
        network = build_network(HEAT, config)
        codes = []
        for point in points:
            inputs, _ = network.seen(SFTBatch({"heat": FunctionSamples(point[None], values)}, {}))
            codes.append(network.write(inputs, mesh))
        assert torch.equal(*codes) != differ  # one node hears of the place only if encoders see it
    with pytest.raises(InputError, match="num_octaves must be 0 to 16; got 17"):
        replace(DEFAULT, num_octaves=17)
