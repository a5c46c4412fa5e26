"""The edge stage equals the edge-by-edge form: in plain torch, over tables, and compiled."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from graphelements import edge_kernels
from graphelements.edge_kernels import (
    Terms,
    compiler_available,
    feature_gradient,
    node_gradient,
    sum_over_tables,
    sum_relu_messages,
    weight_gradient,
)
from graphelements.errors import InputError
from graphelements.topology import build_tables, grid_edges


@pytest.fixture(params=["eager", "tables", "compiled"])
def form(request, monkeypatch):
    """Plain torch, the kernels as the plain torch they are written in (all but speed and memory shows), or compiled."""
    if request.param == "tables":
        monkeypatch.setattr(edge_kernels, "_compiled", lambda kernel: kernel)
    elif request.param == "compiled" and not compiler_available():
        pytest.skip("torch finds no C++ compiler")
    return plain_torch if request.param == "eager" else over_tables


def random_graph(num_nodes: int, num_edges: int, seed: int = 0):
    """Directed, with loops, repeated edges and, as the last one, a node without edges."""
    generator = torch.Generator().manual_seed(seed)
    ends = torch.randint(max(num_nodes - 1, 1), (2, num_edges), generator=generator)
    return ends[0], ends[1], num_nodes


def skewed_graph(num_nodes: int, num_edges: int):
    """The first nodes hear the most and the last ones speak the most."""
    senders, receivers, _ = random_graph(num_nodes, num_edges, seed=1)
    return num_nodes - 1 - senders**3 // num_nodes**2, receivers**3 // num_nodes**2, num_nodes


def star(leaves: int, inwards: bool):
    hub, others = torch.zeros(leaves, dtype=torch.long), torch.arange(1, leaves + 1)
    return (others, hub, leaves + 1) if inwards else (hub, others, leaves + 1)


GRAPHS = {
    "random": random_graph(30, 200),
    "skewed": skewed_graph(900, 6000),
    "grid": (*grid_edges((5, 6))[:2], 30),
    "a hub that hears 300 leaves": star(300, inwards=True),
    "a hub that speaks to 300 leaves": star(300, inwards=False),
    "one node that hears itself twice": random_graph(1, 2),
}


def random_layer(graph, num_features: int, hidden_size: int = 16, dtype=torch.float32, seed: int = 0):
    """States, edge features, and the first layer of an edge module that sees (z_i, z_j, features)."""
    generator = torch.Generator().manual_seed(seed)
    senders, _, num_nodes = graph
    shapes = (num_nodes, 4), (len(senders), num_features), (hidden_size, 8 + num_features), (hidden_size,)
    return [torch.randn(shape, generator=generator, dtype=dtype) for shape in shapes]


def cotangent_of(graph, bias):
    return torch.randn(graph[2], len(bias), generator=torch.Generator().manual_seed(1)).to(bias)


def with_gradients(sums_of, inputs, cotangent):
    inputs = [tensor.detach().requires_grad_() for tensor in inputs]
    sums = sums_of(*inputs)
    return [sums.detach(), *torch.autograd.grad(sums, inputs, cotangent)]


def edge_by_edge(graph, *inputs):
    """The sums and their gradients by all inputs, from the definition."""

    def sums(states, features, weight, bias):
        senders, receivers, num_nodes = graph
        hidden = torch.cat([states[senders], states[receivers], features], dim=1) @ weight.T + bias
        return hidden.new_zeros(num_nodes, len(bias)).index_add(0, receivers, hidden.relu())

    return with_gradients(sums, inputs, cotangent_of(graph, inputs[-1]))


def plain_torch(graph, *inputs):
    def sums(states, features, weight, bias):
        of_sender, of_receiver, of_features = weight.split([4, 4, features.shape[1]], dim=1)
        return sum_relu_messages(states @ of_sender.T, states @ of_receiver.T + bias, features, of_features.T, *graph[:2])

    return with_gradients(sums, inputs, cotangent_of(graph, inputs[-1]))


def over_tables(graph, states, features, weight, bias):
    tables, hidden_size = build_tables(*graph), len(bias)
    of_sender, of_receiver, of_features = weight.split([4, 4, features.shape[1]], dim=1)
    of_nodes = torch.cat([of_sender, of_receiver])
    nodes = torch.cat([states @ of_nodes.T, torch.full_like(of_nodes[:1, :1], -math.inf).expand(1, 2 * hidden_size)])
    terms = Terms(nodes, bias, features, of_features.T.contiguous())
    cotangent = cotangent_of(graph, bias)
    cotangent = torch.cat([cotangent, torch.full_like(cotangent[:1], math.nan)])
    by_nodes = node_gradient(cotangent, terms, tables)
    by_weight = [*(by_nodes.T @ states).split(hidden_size), weight_gradient(cotangent, terms, tables).T]
    return [
        sum_over_tables(terms, tables),
        by_nodes @ of_nodes,
        feature_gradient(cotangent, terms, tables),
        torch.cat(by_weight, 1),
        by_nodes[:, hidden_size:].sum(0),
    ]


def assert_close(value, expected, tolerance=1e-5):
    assert value.shape == expected.shape
    assert (value - expected).norm() <= tolerance * expected.norm()


@pytest.mark.parametrize(
    "form, name, num_features",
    [
        *itertools.product(("eager", "tables"), GRAPHS, (0, 3)),
        # Every size of 1, every number of features and opposite edges are compiled for themselves, which takes seconds.
        *itertools.product(("compiled",), ("skewed", "a hub that hears 300 leaves"), (3,)),
        *itertools.product(("compiled",), ("random", "grid"), (0,)),
    ],
    indirect=["form"],
)
def test_sums_and_gradients_equal_the_edge_by_edge_form(form, name, num_features):
    graph = GRAPHS[name]
    inputs = random_layer(graph, num_features)
    exact = edge_by_edge(graph, *(tensor.double() for tensor in inputs))
    for value, expected in zip(form(graph, *inputs), exact, strict=True):
        assert_close(value, expected)


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 12), st.integers(1, 60), st.integers(0, 3), st.integers(1, 5), st.integers(0, 10**6))
def test_any_graph_has_the_sums_and_gradients_of_the_edge_by_edge_form(num_nodes, num_edges, num_features, hidden_size, seed):
    graph = random_graph(num_nodes, num_edges, seed)
    inputs = random_layer(graph, num_features, hidden_size, torch.float64, seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(edge_kernels, "_compiled", lambda kernel: kernel)
        for value, expected in zip(over_tables(graph, *inputs), edge_by_edge(graph, *inputs), strict=True):
            assert_close(value, expected, 1e-12)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 400), st.integers(0, 3000), st.integers(0, 10**6), st.booleans())
def test_tables_hold_every_edge_once_at_its_receiver_and_at_its_sender(num_nodes, num_edges, seed, skewed):
    senders, receivers, _ = random_graph(num_nodes, num_edges, seed)
    if skewed:
        senders, receivers, _ = skewed_graph(num_nodes, num_edges)
    buckets = build_tables(senders, receivers, num_nodes).buckets
    if num_edges > 0:
        assert torch.equal(torch.cat([bucket.nodes for bucket in buckets]).sort().values, torch.arange(num_nodes))
    for own, other, others, edges in ((receivers, senders, 1, 2), (senders, receivers, 3, 4)):
        found = []
        for bucket in buckets:
            filled = bucket[others] < num_nodes
            found.append(bucket[edges][filled])
            assert (own[bucket[edges]] == bucket.nodes)[filled].all()
            assert (other[bucket[edges]] == bucket[others])[filled].all()
        assert torch.equal(torch.cat(found).sort().values if found else torch.arange(0), torch.arange(num_edges))


def test_senders_and_receivers_are_one_table_where_every_edge_has_its_opposite():
    (bucket,) = build_tables(*GRAPHS["grid"]).buckets
    assert bucket.senders is bucket.receivers
    assert torch.equal(bucket.nodes, torch.arange(30))
    assert all(bucket.senders is not bucket.receivers for bucket in build_tables(*GRAPHS["random"]).buckets)


def test_a_hub_does_not_widen_the_rows_of_others():
    senders, receivers, num_nodes = star(5000, inwards=True)
    tables = build_tables(torch.cat([senders, receivers]), torch.cat([receivers, senders]), num_nodes)
    assert [tuple(bucket.senders.shape) for bucket in tables.buckets] == [(2, 5000), (5000, 1)]


def test_three_compilations_serve_all_graphs():
    """Rows of one bucket are taken as they lie, those of several are copied; and the compiler sums many edges in another way."""
    if not compiler_available():
        pytest.skip("torch finds no C++ compiler")

    def run(num_nodes, num_edges):
        graph = random_graph(num_nodes, num_edges, seed=num_nodes)
        over_tables(graph, *random_layer(graph, 3))

    for num_nodes, num_edges in ((30, 200), (2100, 3100), (600, 12_000)):
        run(num_nodes, num_edges)
    with torch.compiler.set_stance("fail_on_recompile"):
        for num_nodes, num_edges in ((31, 200), (7, 9), (500, 10_000), (2000, 3000)):
            run(num_nodes, num_edges)


def test_compiled_results_are_the_same_bit_for_bit():
    if not compiler_available():
        pytest.skip("torch finds no C++ compiler")
    graph = random_graph(500, 10_000)
    inputs = random_layer(graph, 3)
    for first, second in zip(over_tables(graph, *inputs), over_tables(graph, *inputs), strict=True):
        assert torch.equal(first, second)


@pytest.mark.filterwarnings("ignore::UserWarning")  # of the profiler
@pytest.mark.parametrize("graph", [random_graph(500, 10_000), (*grid_edges((50, 50), "both")[:2], 2500)])
def test_compiled_kernels_never_store_anything_of_size_edges_times_hidden(graph):
    if not compiler_available():
        pytest.skip("torch finds no C++ compiler")
    inputs = random_layer(graph, 3)
    over_tables(graph, *inputs)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        over_tables(graph, *inputs)
    largest = max(abs(event.cpu_memory_usage) for event in profile.events() if event.name == "[memory]")
    assert largest < len(graph[0]) * 16 * 4 / 2


def test_shapes_can_be_inferred_without_data():
    nodes, features, weight = torch.empty(7, 5, device="meta"), torch.empty(9, 3, device="meta"), torch.empty(3, 5, device="meta")
    edges = torch.empty(9, dtype=torch.long, device="meta")
    sums = sum_relu_messages(nodes, nodes, features, weight, edges, edges)
    assert (sums.shape, sums.device.type) == ((7, 5), "meta")


def test_edges_beyond_the_nodes_are_named():
    with pytest.raises(InputError, match="edges join nodes 0 to 2; found others"):
        build_tables(torch.tensor([0, 3]), torch.tensor([1, 1]), 3)
    with pytest.raises(InputError, match="edges join nodes 0 to 2; found others"):
        build_tables(torch.tensor([0, 1]), torch.tensor([-1, 1]), 3)
