"""Writing and reading in their cheap form: the same numbers and gradients as the networks they stand for, compiled or not."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from cases import RAGGED_SFT, random_item, seeded

from graphelements.building import build_network
from graphelements.compilation import compiler_available
from graphelements.errors import InputError
from graphelements.meshes import scattered_mesh
from graphelements.network import GraphElementNetwork
from graphelements.network_config import DEFAULT
from graphelements.perceptron import GatedPerceptron
from graphelements.point_kernels import read_hidden, write_hidden
from graphelements.representations import Coupling
from graphelements.samples import collate
from graphelements.spaces import Box

SPACE = RAGGED_SFT.space


def network(**changes) -> GraphElementNetwork:
    return build_network(RAGGED_SFT, replace(DEFAULT, **changes), seed=1)


def coupling(points: int = 40, nodes: int = 9, touched: int = 4, dtype: torch.dtype = torch.float64) -> Coupling:
    g = seeded(0)
    weights = torch.rand(points, touched, generator=g, dtype=dtype).softmax(-1)
    offsets = torch.randn(points, touched, 2, generator=g, dtype=dtype)
    return Coupling(torch.randint(nodes, (points, touched), generator=g), weights, offsets, nodes)


each_kind = pytest.mark.parametrize("gated", [False, True], ids=["plain", "gated"])


@each_kind
def test_writing_cheaply_is_scattering_the_codes_of_every_touched_node(gated):
    gen = network(gated=gated)
    mesh = gen.meshes([scattered_mesh(SPACE, n, seeded(n)) for n in (3, 12, 7)])
    inputs, _ = gen.seen(collate([random_item(RAGGED_SFT, seeded(n)) for n in range(3)]))
    expected = torch.zeros(mesh.num_nodes, gen.config.latent_size)
    for name, samples in inputs.items():
        c = gen.representation(samples.points, samples.items, mesh)
        values = samples.values[:, None].expand(-1, c.nodes.shape[1], -1)
        expected += c.scatter(gen.encoders[name](torch.cat([values, c.local_coordinates(mesh)], -1)))
    torch.testing.assert_close(gen.write(inputs, mesh), expected, rtol=1e-4, atol=1e-5)


@each_kind
def test_reading_cheaply_is_blending_what_rho_says_of_every_touched_node(gated):
    gen = network(gated=gated)
    assert gen.reader is not None
    mesh = gen.meshes(scattered_mesh(SPACE, 12, seeded(1)))
    queries = random_item(RAGGED_SFT, seeded(3), most=30).queries["flow"]
    states = torch.randn(12, gen.config.latent_size, generator=seeded(2))
    c = gen.representation(queries.points, queries.items, mesh)
    expected = c.blend(gen.reader(torch.cat([states[c.nodes], c.local_coordinates(mesh)], -1)))
    torch.testing.assert_close(gen.gather(states, queries, mesh), expected, rtol=1e-4, atol=1e-5)


def test_a_gated_network_is_linear_in_what_it_is_told_apart_from_where():
    """A sample's value doubled is its code doubled, as far as the relu stays as it is: the hidden layer does not see it."""
    net = GatedPerceptron(2, 3, 8, 4)
    with torch.no_grad():
        net.first.weight[:, :2] = 0
        net.gate.bias.zero_()
        net.last.bias.zero_()
    values, offsets = torch.randn(5, 2, generator=seeded(1)), torch.randn(5, 3, generator=seeded(2))
    once, twice = (net(torch.cat([factor * values, offsets], -1)) for factor in (1, 2))
    torch.testing.assert_close(twice, 2 * once)


def test_gates_are_refused_where_there_are_no_offsets():
    with pytest.raises(InputError, match="gated networks have encoders of one hidden layer"):
        replace(DEFAULT, gated=True, encoder_hidden=(16, 16))
    with pytest.raises(InputError, match="see offsets; got"):
        replace(DEFAULT, gated=True, encoder_sees="value")


def test_encoders_and_readers_may_have_more_hidden_layers():
    gen = network(encoder_hidden=(16, 16))
    mesh, item = scattered_mesh(SPACE, 12, seeded(1)), random_item(RAGGED_SFT, seeded(5), most=30)
    gen.loss(gen(item, mesh), item).backward()
    assert all(p.grad is not None and p.grad.any() for p in gen.encoders["heat"].parameters())


@pytest.mark.skipif(not compiler_available(), reason="no C++ compiler")
@each_kind
@pytest.mark.parametrize("kernel", [read_hidden, write_hidden])
def test_compiled_kernels_give_the_numbers_and_gradients_of_plain_torch(kernel, gated):
    c, g = coupling(), seeded(7)
    rows = c.num_nodes if kernel is read_hidden else len(c.nodes)
    results = []
    base, gate = torch.randn(2, rows, 6, generator=g, dtype=torch.float64)
    local, weight = torch.randn(*c.nodes.shape, 3, generator=g).double(), torch.randn(3, 6, generator=g).double()
    for compiled in (False, True):
        inputs = [x.clone().requires_grad_() for x in (base, weight, *([gate] if gated else []))]
        output = kernel(inputs[0], inputs[2] if gated else None, c, local, inputs[1], compiled)
        output.sin().sum().backward()
        results.append([output, *(x.grad for x in inputs)])
    for plain, fused in zip(*results, strict=True):
        torch.testing.assert_close(plain, fused)


@pytest.mark.skipif(not compiler_available(), reason="no C++ compiler")
def test_positions_get_their_gradients_with_compiled_kernels_on():
    gradients = []
    for compiled in (False, True):
        gen = build_network(replace(RAGGED_SFT, space=Box((0.0, -1.0), (2.0, 1.0))), DEFAULT, seed=1)
        gen.compiled_kernels = compiled
        positions = scattered_mesh(SPACE, 12, seeded(1)).positions.requires_grad_()
        item = random_item(RAGGED_SFT, seeded(5), most=30)
        mesh = scattered_mesh(SPACE, 12, seeded(1)).moved(positions)
        gen.loss(gen(item, mesh), item).backward()
        gradients.append(positions.grad)
    assert gradients[0].abs().min() > 0
    torch.testing.assert_close(*gradients, rtol=1e-3, atol=1e-6)
