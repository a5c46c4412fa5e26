"""Networks whose answers are linear in the values of all samples together, for any weights."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from cases import seeded

from graphelements.building import build_network
from graphelements.compilation import compiler_available
from graphelements.errors import InputError
from graphelements.functions import SFT, InputFunction, OutputFunction
from graphelements.meshes import Mesh, scattered_mesh
from graphelements.message_passing import Graph, LinearMessagePassing
from graphelements.network import GraphElementNetwork
from graphelements.network_config import DEFAULT, NetworkConfig
from graphelements.perceptron import GatedPerceptron, LinearDecoder
from graphelements.samples import FunctionSamples, Queries, SFTBatch
from graphelements.spaces import Box, Space, Sphere

LINEAR = replace(DEFAULT, gated=True, linear=True, norm="none")
CONFIGS = {
    "default": LINEAR,
    "passes": replace(LINEAR, passes=2),
    "fields": replace(LINEAR, fitted=True),
    "values": replace(LINEAR, samples_see="value", num_heard=0),
    "octaves": replace(LINEAR, num_octaves=2),
    "no rounds": replace(LINEAR, rounds=0),
    "ears": replace(LINEAR, ear_layers=2, hears=("walls",), num_heard=5),
    "finest": replace(LINEAR, reads="finest", passes=2, fitted=True),
}
SPACES = {"box": Box(), "sphere": Sphere()}


def sft_on(space: Space, scales: bool = True, shifts: bool = False) -> SFT:
    """Two functions, of which one has two channels, and answers of both kinds."""
    outputs = OutputFunction("flow", 2, scales=scales), OutputFunction("total", integrated=True, scales=scales, shifts=shifts)
    return SFT(space, (InputFunction("sources", 2, scales=scales), InputFunction("walls", scales=scales, shifts=shifts)), outputs)


def case(space: Space, config: NetworkConfig, **declared: bool) -> tuple[GraphElementNetwork, Mesh, SFTBatch]:
    """A network whose functions have means and scales of their own, a mesh and a batch."""
    network = build_network(sft_on(space, **declared), config)
    inputs = {
        "sources": FunctionSamples(space.sample(15, seeded(1)), torch.randn(15, 2, generator=seeded(2))),
        "walls": FunctionSamples(space.sample(9, seeded(3)), torch.randn(9, 1, generator=seeded(4))),
    }
    batch = SFTBatch(inputs, {"flow": Queries(space.sample(20, seeded(6))), "total": Queries(None)})
    targets = {"flow": 3 + torch.randn(20, 2, generator=seeded(8)), "total": torch.full((1, 1), 7.0)}
    network.fit_normalisation([replace(with_values(batch, lambda values: 5 + 2 * values), targets=targets)])
    return network, scattered_mesh(space, 30, seeded(5)).nested(), batch


def with_values(batch: SFTBatch, change) -> SFTBatch:
    """The same samples with other values."""
    return replace(batch, inputs={name: replace(each, values=change(each.values)) for name, each in batch.inputs.items()})


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
@pytest.mark.parametrize("space", SPACES.values(), ids=SPACES)
@pytest.mark.usefixtures("double")
def test_answers_to_a_sum_are_the_sum_of_the_answers(space: Space, config: NetworkConfig):
    assert_linear(space, config)


@pytest.mark.parametrize("declared", [{"scales": False}, {"shifts": True}, {"scales": False, "shifts": True}])
@pytest.mark.parametrize("relative", [False, True])
@pytest.mark.usefixtures("double")
def test_they_are_whatever_functions_declare(declared: dict[str, bool], relative: bool):
    assert_linear(Box(), replace(LINEAR, relative=relative), **declared)


@pytest.mark.usefixtures("double")
def test_boxes_are_linear_as_long_as_the_same_values_are_equal():
    config = replace(LINEAR, samples_see="box", ear_layers=1)
    network, mesh, batch = case(Box(), config)
    groups = torch.arange(5).repeat_interleave(3)  # five boxes of three samples each, of which some overlap
    powers = [torch.randn(5, 2, generator=seeded(seed))[groups] for seed in (20, 21)]
    heated = replace(batch, inputs={"sources": replace(batch.inputs["sources"], values=powers[0])})
    assert len(network.seen(heated)[0]["sources"].points) > 5
    answers = []
    for values in (powers[0], powers[1], 3 * powers[0] - powers[1]):
        samples = replace(batch.inputs["sources"], values=values)
        answers.append(network.predict(replace(batch, inputs={"sources": samples}), mesh)["flow"])
    first, second, both = answers
    assert both.abs().max() > 1e-3
    assert (both - (3 * first - second)).abs().max() < 1e-9 * both.abs().max()


def assert_linear(space: Space, config: NetworkConfig, **declared: bool) -> None:
    network, mesh, batch = case(space, config, **declared)
    other = with_values(batch, lambda values: torch.randn(values.shape, generator=seeded(7)))
    both = replace(
        batch,
        inputs={name: replace(each, values=3 * each.values - other.inputs[name].values) for name, each in batch.inputs.items()},
    )
    first, second, found = (network.predict(each, mesh) for each in (batch, other, both))
    for name in found:
        assert found[name].abs().max() > 1e-3
        assert (found[name] - (3 * first[name] - second[name])).abs().max() < 1e-9 * found[name].abs().max()


@pytest.mark.usefixtures("double")
def test_other_networks_are_not_linear():
    network, mesh, batch = case(Box(), replace(DEFAULT, gated=True))
    doubled = with_values(batch, lambda values: values + values.roll(1, 0))
    shifted = with_values(batch, lambda values: values.roll(1, 0))
    first, second, found = (network.predict(each, mesh)["flow"] for each in (batch, shifted, doubled))
    assert (found - first - second).abs().max() > 1e-3


def test_without_sources_there_is_nothing():
    network, mesh, batch = case(Box(), LINEAR)
    for answers in network.predict(with_values(batch, torch.zeros_like), mesh).values():
        assert torch.equal(answers, torch.zeros_like(answers))


@pytest.mark.parametrize("config", [CONFIGS["default"], CONFIGS["fields"]], ids=["default", "fields"])
def test_all_weights_learn(config: NetworkConfig):
    network, mesh, batch = case(Sphere(), replace(config, passes=2))
    sum(output.square().sum() for output in network(batch, mesh).values()).backward()
    learned = {name: weight.grad for name, weight in network.named_parameters() if weight.requires_grad}
    assert [name for name, gradient in learned.items() if gradient is None or not gradient.any()] == []


@pytest.mark.skipif(not compiler_available(), reason="needs a C++ compiler")
def test_compiled_kernels_agree_with_plain_torch():
    network, mesh, batch = case(Box(), CONFIGS["passes"])
    plain = network.predict(batch, mesh)
    network.compiled_kernels = True
    for name, answers in network.predict(batch, mesh).items():
        assert torch.allclose(answers, plain[name], atol=1e-5)


def test_a_linear_round_is_the_mean_over_edges():
    layer = LinearMessagePassing(4, 6, 3)
    states, features = torch.randn(3, 4, generator=seeded(0)), torch.randn(3, 3, generator=seeded(1))
    senders, receivers = torch.tensor([0, 1, 2]), torch.tensor([1, 2, 1])
    found = layer(states, Graph(senders, receivers, features, torch.tensor([0.0, 2.0, 1.0])))
    messages = layer.local(features).relu() * layer.gate(states[senders])
    expected = states + layer.last(torch.stack([torch.zeros(6), (messages[0] + messages[2]) / 2, messages[1]]))
    assert torch.allclose(found, expected, atol=1e-6)


def test_gated_perceptrons_and_decoders_see_the_other_inputs_in_factors_alone():
    for net in (GatedPerceptron(5, 2, 8, 3, num_linear=4), LinearDecoder(4, 3, 8, 2, 3)):
        linear, others = torch.randn(10, 4, generator=seeded(0)), torch.randn(10, 3, generator=seeded(1))
        answers = net(torch.cat([linear, others], -1))
        assert torch.allclose(net(torch.cat([-2 * linear, others], -1)), -2 * answers, atol=1e-5)
        assert not torch.allclose(net(torch.cat([linear, others + 1], -1)), answers, atol=1e-3)


def test_stages_find_fields_of_values_also_where_samples_are_informed():
    network, mesh, batch = case(Sphere(), CONFIGS["finest"])
    one = network.meshes(mesh, 1)
    inputs, _ = network.seen(batch, one.space)
    found = network.find(inputs, one)
    told = network.informed(inputs, network.settle(inputs, one, found), one, found)
    for known, anew in zip(network.settle(told, one, found), network.settle(told, one), strict=True):
        assert torch.allclose(known, anew, atol=1e-5)


def test_linear_networks_say_what_they_need():
    with pytest.raises(InputError, match=r"network.norm=none"):
        replace(DEFAULT, gated=True, linear=True)
    with pytest.raises(InputError, match=r"network.edges_see=offset"):
        replace(LINEAR, edges_see="nothing", nodes_see="nothing")
    with pytest.raises(InputError, match=r"set network.num_heard"):
        replace(LINEAR, num_heard=0, ear_layers=1)
    mixed = SFT(Box(), (InputFunction("u", scales=True),), (OutputFunction("v"),))
    with pytest.raises(InputError, match=r"u scales, v does not: set network.relative=false"):
        build_network(mixed, LINEAR)
    classes = SFT(Box(), (InputFunction("u"),), (OutputFunction("v", 3, loss="cross_entropy"),))
    with pytest.raises(InputError, match=r"need outputs with a squared error; got v"):
        build_network(classes, LINEAR)
