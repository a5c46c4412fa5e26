"""One round of message passing: the cheap form is the edge-by-edge one; r rounds carry information r hops."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from cases import seeded
from torch import Tensor

from graphelements.compilation import compiler_available
from graphelements.errors import InputError
from graphelements.message_passing import Graph, MessagePassing
from graphelements.perceptron import Perceptron
from graphelements.topology import both_ways, build_tables, grid_edges


def graph_of(senders: Tensor, receivers: Tensor, num_nodes: int, num_features: int) -> Graph:
    features = torch.randn(len(senders), num_features, generator=seeded(11))
    degrees = torch.zeros(num_nodes).index_add(0, receivers, torch.ones(len(receivers)))
    return Graph(senders, receivers, features, degrees)


def random_graph(name: str, num_nodes: int = 12) -> tuple[Tensor, Tensor]:
    nodes = torch.arange(1, num_nodes)
    if name == "grid":
        return grid_edges((3, 4))[:2]
    if name == "directed":
        return tuple(torch.randint(num_nodes, (2, 40), generator=seeded(1)))  # with loops and repeated edges
    if name == "hub":
        return both_ways(torch.stack([torch.zeros_like(nodes), nodes], -1))[:2]
    if name == "into hub":
        return nodes, torch.zeros_like(nodes)
    return nodes[:0], nodes[:0]


def edge_by_edge(layer: MessagePassing, states: Tensor, graph: Graph) -> Tensor:
    """The paper's section 2.1 as it is written."""
    heard = torch.cat([states[graph.senders], states[graph.receivers], graph.features], -1)
    messages = layer.edge_module(heard)
    incoming = torch.zeros(len(states), messages.shape[-1]).index_add(0, graph.receivers, messages)
    if layer.mean:
        incoming = incoming / graph.degrees.clamp(min=1)[:, None]
    updated = layer.node_module(torch.cat([states, incoming], -1))
    return layer.norm(states + updated if layer.residual else updated)


@pytest.fixture(params=["eager", "compiled"])
def form(request):
    """Makes a graph take one of the forms of a round: plain torch, or C++."""
    if request.param == "eager":
        return lambda graph: graph
    if not compiler_available():
        pytest.skip("there is no C++ compiler")
    return lambda graph: replace(graph, tables=build_tables(graph.senders, graph.receivers, len(graph.degrees)))


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("aggregation", ["sum", "mean"])
@pytest.mark.parametrize(("num_features", "residual", "norm"), [(0, False, "none"), (4, True, "layer")])
@pytest.mark.parametrize("kind", ["grid", "directed", "hub", "into hub", "none"])
def test_the_cheap_form_is_the_edge_by_edge_one_with_its_gradients(form, kind, aggregation, num_features, residual, norm):
    torch.manual_seed(0)
    layer = MessagePassing(6, 5, 8, 7, num_features, residual, norm, aggregation)
    graph = graph_of(*random_graph(kind), 12, num_features)
    graph.features.requires_grad_()
    states = torch.randn(12, 6, generator=seeded(2)).requires_grad_()
    inputs = [states, graph.features, *layer.parameters()]
    found = []
    for result in (layer(states, form(graph)), edge_by_edge(layer, states, graph)):
        gradients = torch.autograd.grad(result.pow(3).sum(), inputs, allow_unused=True)
        found.append([result, *(torch.zeros_like(x) if g is None else g for x, g in zip(inputs, gradients, strict=True))])
    for cheap, plain in zip(*found, strict=True):
        assert cheap.shape == plain.shape
        assert cheap.numel() == 0 or (cheap - plain).abs().max() < 1e-12 * max(1, plain.abs().max())


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_predictions_without_gradients_and_of_strided_inputs_are_the_same(form, mode):
    torch.manual_seed(0)
    layer, graph = MessagePassing(6, 5, 8, 7, 4), graph_of(*random_graph("directed"), 12, 4)
    wide, features = torch.randn(12, 12, generator=seeded(2)), graph.features.T.contiguous().T
    with mode():
        value = layer(wide[:, ::2], form(replace(graph, features=features)))
        assert (value - edge_by_edge(layer, wide[:, ::2], graph)).abs().max() < 1e-5


@pytest.mark.usefixtures("double")
def test_gradients_are_computed_for_what_asks_for_them(form):
    torch.manual_seed(0)
    layer, graph = MessagePassing(6, 5, 8, 7, 4), graph_of(*random_graph("grid"), 12, 4)
    states = torch.randn(12, 6, generator=seeded(2)).requires_grad_()
    (alone,) = torch.autograd.grad(layer.requires_grad_(False)(states, form(graph)).sum(), states)
    graph.features.requires_grad_()
    result = layer.requires_grad_(True)(states, form(graph)).sum()
    inputs = [states, graph.features, *layer.parameters()]
    together = torch.autograd.grad(result, inputs, retain_graph=True)
    assert torch.equal(alone, together[0])
    for each, expected in zip(inputs, together, strict=True):
        assert torch.equal(torch.autograd.grad(result, each, retain_graph=True)[0], expected)


def test_a_backward_pass_can_be_repeated(form):
    torch.manual_seed(0)
    layer, graph = MessagePassing(6, 5, 8, 7), graph_of(*random_graph("grid"), 12, 0)
    states = torch.randn(12, 6, generator=seeded(2)).requires_grad_()
    result = layer(states, form(graph)).sum()
    first, second = (torch.autograd.grad(result, states, retain_graph=True)[0] for _ in range(2))
    assert torch.equal(first, second)


def test_tables_of_another_graph_are_refused():
    layer, graph = MessagePassing(6, 5, 8, 7), graph_of(*random_graph("directed"), 12, 0)
    other = replace(graph, tables=build_tables(*grid_edges((2, 2))[:2], 4))
    with pytest.raises(
        InputError, match="tables must be built from the same graph, 12 nodes and 40 edges; got tables of 4 nodes"
    ):
        layer(torch.zeros(12, 6), other)


@pytest.mark.parametrize("latent, num_features", [(6, 3), (6, 0), (5, 2), (7, 0)])
def test_states_and_features_of_other_widths_never_reach_cpp(latent, num_features):
    layer, graph = MessagePassing(6, 5, 8, 7, feature_size=2), graph_of(*random_graph("directed"), 12, num_features)
    graph = replace(graph, tables=build_tables(graph.senders, graph.receivers, 12))
    with pytest.raises(InputError, match=rf"states of {latent} and features of {num_features} numbers need layers with"):
        layer(torch.zeros(12, latent), graph)


def test_a_node_without_incoming_edges_hears_nothing():
    layer = MessagePassing(3, 4, 5, 5)
    graph = graph_of(torch.tensor([0]), torch.tensor([1]), 3, 0)
    heard = layer.incoming(torch.randn(3, 3), graph)
    assert heard[0].abs().max() == heard[2].abs().max() == 0
    assert heard[1].abs().max() > 0


@pytest.mark.usefixtures("double")
def test_information_travels_one_hop_a_round():
    torch.manual_seed(0)
    layer = MessagePassing(4, 4, 16, 16)
    graph = graph_of(*grid_edges((5, 5))[:2], 25, 0)
    states = torch.randn(25, 4, generator=seeded(0))
    changed = states.clone()
    changed[20] += 10  # a corner that no diagonal helps: 8 hops to the opposite one
    hops = torch.tensor([max(4 - i, 0) + j for i in range(5) for j in range(5)])
    reached = []
    for _ in range(8):
        states, changed = layer(states, graph), layer(changed, graph)
        reached.append(((states - changed).abs().amax(-1) > 0).sum().item())
    assert reached == [(hops <= r).sum().item() for r in range(1, 9)]
    assert all(less < more for less, more in pairwise(reached))


def test_relabelling_nodes_permutes_the_result():
    torch.manual_seed(0)
    layer = MessagePassing(4, 4, 8, 8, 2)
    graph = graph_of(*random_graph("directed"), 12, 2)
    states, order = torch.randn(12, 4, generator=seeded(0)), torch.randperm(12, generator=seeded(1))
    number = torch.empty_like(order).index_copy(0, order, torch.arange(12))
    turned = Graph(number[graph.senders], number[graph.receivers], graph.features, graph.degrees[order])
    assert (layer(states, graph)[order] - layer(states[order], turned)).abs().max() < 1e-5


def test_options_do_what_they_say():
    torch.manual_seed(0)
    graph, states = graph_of(*grid_edges((3, 3))[:2], 9, 0), torch.randn(9, 4, generator=seeded(0))
    layer = MessagePassing(4, 4, 8, 8, residual=True, norm="layer")
    result = layer(states, graph)
    assert result.mean(-1).abs().max() < 1e-5
    assert (result.std(-1, correction=0) - 1).abs().max() < 1e-2
    for parameter in layer.node_module.parameters():
        torch.nn.init.zeros_(parameter)
    layer.norm = torch.nn.Identity()
    assert torch.equal(layer(states, graph), states)


def test_perceptrons_have_relus_between_linear_layers():
    block = Perceptron((3, 5, 4, 2))
    assert [type(layer).__name__ for layer in block] == ["Linear", "ReLU", "Linear", "ReLU", "Linear"]
    x, (first, second, third) = torch.randn(7, 3, generator=seeded(0)), (block[0], block[2], block[4])
    hidden = (x @ first.weight.T + first.bias).clamp(min=0)
    hidden = (hidden @ second.weight.T + second.bias).clamp(min=0)
    assert torch.allclose(block(x), hidden @ third.weight.T + third.bias, atol=1e-6)
    assert block(torch.zeros(0, 3)).shape == (0, 2)


@pytest.mark.parametrize("sizes", [(3,), (), (3, 0, 2), (-1, 2)])
def test_impossible_perceptrons_are_refused(sizes):
    with pytest.raises(InputError, match="perceptron"):
        Perceptron(sizes)
