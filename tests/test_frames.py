"""What functions declare is exact in networks with `relative`: scaling and shifting."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from cases import seeded

from graphelements.building import build_network
from graphelements.errors import InputError
from graphelements.functions import SFT, InputFunction, OutputFunction
from graphelements.meshes import grid_mesh
from graphelements.network_config import ATTENTION, DEFAULT, NEURAL_PROCESS
from graphelements.samples import FunctionSamples, Queries, SFTBatch, collate
from graphelements.spaces import Box

HEAT = SFT(
    Box(),
    (InputFunction("power", scales=True), InputFunction("border", scales=True, shifts=True), InputFunction("wind")),
    (OutputFunction("temperature", scales=True, shifts=True), OutputFunction("flux", 2, scales=True), OutputFunction("risk")),
)
CONFIGS = {"default": DEFAULT, "np": replace(NEURAL_PROCESS, relative=True), "attention": replace(ATTENTION, relative=True)}
every_config = pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)


def heat_batch(scale: float = 1.0, shift: float = 0.0, seed: int = 0, num_items: int = 3) -> SFTBatch:
    g = seeded(seed)
    inputs = {}
    for function in HEAT.inputs:
        values = torch.randn(24, 1, generator=g)
        values = scale * values if function.scales else values
        values = values + shift if function.shifts else values
        inputs[function.name] = FunctionSamples(HEAT.space.sample(24, g), values, torch.arange(24) % num_items)
    queries = {f.name: Queries(HEAT.space.sample(12, g), items=torch.arange(12) % num_items) for f in HEAT.outputs}
    targets = {f.name: torch.randn(12, f.channels, generator=g) for f in HEAT.outputs}
    return SFTBatch(inputs, queries, targets, num_items)


def fitted(config):
    network = build_network(HEAT, config, seed=1)
    network.fit_normalisation([heat_batch(3.0, 5.0, seed=7)])
    return network.eval()


@every_config
@pytest.mark.parametrize(("scale", "shift"), [(20.0, 0.0), (0.01, 0.0), (1.0, 7.0), (3.0, -2.0)])
def test_answers_scale_and_shift_with_what_was_given(config, scale, shift):
    network, mesh = fitted(config), grid_mesh(HEAT.space, 3)
    here, there = network.predict(heat_batch(), mesh), network.predict(heat_batch(scale, shift), mesh)
    near = {"rtol": 2e-3, "atol": 2e-3 * scale}
    torch.testing.assert_close(there["temperature"], scale * here["temperature"] + shift, **near)
    torch.testing.assert_close(there["flux"], scale * here["flux"], **near)
    torch.testing.assert_close(there["risk"], here["risk"], rtol=2e-3, atol=2e-3)


@every_config
def test_nothing_but_a_level_gives_that_level(config):
    """All powers zero, the border at one temperature: the problem's answer is that temperature, for any weights."""
    network, batch = fitted(config), heat_batch()
    inputs = dict(batch.inputs)
    inputs["power"] = replace(inputs["power"], values=torch.zeros(24, 1))
    inputs["border"] = replace(inputs["border"], values=torch.full((24, 1), 4.5))
    found = network.predict(replace(batch, inputs=inputs), grid_mesh(HEAT.space, 3))
    assert (found["temperature"] - 4.5).abs().max() < 1e-4
    assert found["flux"].abs().max() < 1e-4


@every_config
def test_items_without_samples_have_finite_answers_and_losses(config):
    network, batch = fitted(config), heat_batch(num_items=4)
    inputs = {name: s.mapped(lambda rows, s=s: rows[s.items != 2]) for name, s in batch.inputs.items()}
    batch, mesh = replace(batch, inputs=inputs), grid_mesh(HEAT.space, 3)
    assert all(answers.isfinite().all() for answers in network.predict(batch, mesh).values())
    loss = network.loss(network(batch, mesh), batch)
    loss.backward()
    assert loss.isfinite()
    assert all(p.grad is None or p.grad.isfinite().all() for p in network.parameters())


@every_config
def test_an_item_is_not_changed_by_those_it_is_batched_with(config):
    network, mesh = fitted(config), grid_mesh(HEAT.space, 3)
    full, empty = heat_batch(num_items=1), heat_batch(num_items=1, seed=3)
    empty = replace(empty, inputs={"wind": empty.inputs["wind"]})
    together = network.predict(collate([full, empty]), mesh)
    for name, answers in together.items():
        alone = torch.cat([network.predict(item, mesh)[name] for item in (full, empty)])
        torch.testing.assert_close(answers, alone, rtol=1e-3, atol=1e-4)


def test_zeros_have_finite_gradients():
    network, batch = fitted(DEFAULT), heat_batch()
    values = torch.zeros(24, 1, requires_grad=True)
    inputs = {name: replace(samples, values=values) for name, samples in batch.inputs.items()}
    network(replace(batch, inputs=inputs), grid_mesh(HEAT.space, 3))["temperature"].sum().backward()
    assert values.grad is not None
    assert values.grad.isfinite().all()


def test_what_is_declared_is_ignored_without_relative():
    network, mesh = fitted(replace(DEFAULT, relative=False)), grid_mesh(HEAT.space, 3)
    here, there = network.predict(heat_batch(), mesh), network.predict(heat_batch(20.0), mesh)
    assert (there["temperature"] - 20 * here["temperature"]).abs().max() > 0.1


def test_an_output_can_only_follow_inputs_of_its_kind():
    border = InputFunction("border", 1, shifts=True)
    with pytest.raises(InputError, match="needs an input that scales"):
        SFT(Box(), (border,), (OutputFunction("temperature", scales=True),))
    with pytest.raises(InputError, match="equally many channels"):
        SFT(Box(), (border,), (OutputFunction("temperature", 2, shifts=True),))
    with pytest.raises(InputError, match="scale all or none"):
        SFT(Box(), (border, InputFunction("inner", 1, scales=True, shifts=True)), (OutputFunction("temperature"),))
    with pytest.raises(InputError, match="neither scale nor shift"):
        OutputFunction("kind", 3, loss="cross_entropy", scales=True)
