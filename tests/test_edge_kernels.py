"""The edge stage equals the edge-by-edge form: in plain torch, over tables, and compiled."""

from __future__ import annotations

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from graphelements import edge_kernels
from graphelements.edge_kernels import compiler_available, sum_relu_messages
from graphelements.errors import InputError
from graphelements.topology import build_tables


@pytest.fixture
def uncompiled(monkeypatch):
    """Run the kernels as the plain torch they are written in: every property but speed and memory shows without a compiler."""
    monkeypatch.setattr(edge_kernels, "_compiled", lambda kernel: kernel)


@pytest.fixture(params=["eager", "tables", "compiled"])
def tables_of(request):
    """Gives the tables that make `sum_relu_messages` take one of its forms."""
    if request.param == "eager":
        return lambda *graph: None
    if request.param == "tables":
        request.getfixturevalue("uncompiled")
    elif not compiler_available():
        pytest.skip("torch finds no C++ compiler")
    return build_tables


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
    "a hub that hears 300 leaves": star(300, inwards=True),
    "a hub that speaks to 300 leaves": star(300, inwards=False),
    "no edges": random_graph(5, 0),
    "one node": random_graph(1, 0),
    "one node that hears itself twice": random_graph(1, 2),
}


def random_layer(graph, num_features: int, hidden_size: int = 16, dtype=torch.float32, seed: int = 0):
    """States, edge features, and the first layer of an edge module that sees (z_i, z_j, features)."""
    generator = torch.Generator().manual_seed(seed)
    senders, _, num_nodes = graph
    shapes = (num_nodes, 4), (len(senders), num_features), (hidden_size, 8 + num_features), (hidden_size,)
    return [torch.randn(shape, generator=generator, dtype=dtype).requires_grad_() for shape in shapes]


def edge_by_edge(graph, states, features, weight, bias):
    senders, receivers, num_nodes = graph
    hidden = torch.cat([states[senders], states[receivers], features], dim=1) @ weight.T + bias
    return hidden.new_zeros(num_nodes, len(bias)).index_add(0, receivers, hidden.relu())


def node_by_node(graph, tables, states, features, weight, bias):
    senders, receivers, _ = graph
    of_sender, of_receiver, of_features = weight.split([4, 4, features.shape[1]], dim=1)
    return sum_relu_messages(
        states @ of_sender.T, states @ of_receiver.T + bias, features, of_features.T, senders, receivers, tables
    )


def assert_close(value, expected):
    assert value.shape == expected.shape
    assert (value - expected).norm() <= 1e-5 * expected.norm()


@pytest.mark.parametrize(
    "tables_of, name, num_features",
    [
        *itertools.product(("eager", "tables"), GRAPHS, (0, 3)),
        # Every size of 1 and every number of features is compiled for itself, which takes seconds.
        *itertools.product(("compiled",), ("skewed", "a hub that hears 300 leaves"), (3,)),
        ("compiled", "random", 0),
    ],
    indirect=["tables_of"],
)
def test_sums_and_gradients_equal_the_edge_by_edge_form(tables_of, name, num_features):
    graph = GRAPHS[name]
    inputs = random_layer(graph, num_features)
    exact = [tensor.detach().double().requires_grad_() for tensor in inputs]
    value, expected = node_by_node(graph, tables_of(*graph), *inputs), edge_by_edge(graph, *exact)
    assert_close(value, expected)
    cotangent = torch.randn(value.shape, generator=torch.Generator().manual_seed(1))
    gradients = torch.autograd.grad(value, inputs, cotangent)
    for gradient, of_exact in zip(gradients, torch.autograd.grad(expected, exact, cotangent.double()), strict=True):
        assert_close(gradient, of_exact)


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 12), st.integers(0, 60), st.integers(0, 3), st.integers(1, 5), st.integers(0, 10**6))
def test_derivatives_of_any_graph_are_those_of_finite_differences(num_nodes, num_edges, num_features, hidden_size, seed):
    graph = random_graph(num_nodes, num_edges, seed)
    inputs = random_layer(graph, num_features, hidden_size, torch.float64, seed)
    inputs = [tensor for tensor in inputs if tensor.numel() > 0 or tensor is inputs[1]]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(edge_kernels, "_compiled", lambda kernel: kernel)
        for tables in (None, build_tables(*graph)):
            # A step that crosses a kink of the relu gives a wrong difference: small steps make that rare enough.
            assert torch.autograd.gradcheck(
                lambda *tensors, tables=tables: node_by_node(graph, tables, *tensors),
                inputs,
                eps=1e-8,
                atol=1e-5,
                rtol=1e-4,
                fast_mode=True,
            )


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 400), st.integers(0, 3000), st.integers(0, 10**6), st.booleans())
def test_tables_hold_every_edge_once_at_its_receiver_and_at_its_sender(num_nodes, num_edges, seed, skewed):
    senders, receivers, _ = random_graph(num_nodes, num_edges, seed)
    if skewed:
        senders, receivers, _ = skewed_graph(num_nodes, num_edges)
    tables = build_tables(senders, receivers, num_nodes)
    for buckets, own, other in ((tables.incoming, receivers, senders), (tables.outgoing, senders, receivers)):
        found = []
        for bucket in buckets:
            width, rows = bucket.edges.shape
            filled = torch.arange(width)[:, None] < bucket.degrees
            assert (own[bucket.edges] == bucket.nodes).all()
            assert (other[bucket.edges] == bucket.neighbours).all()
            assert int((~filled).sum()) <= 2048 + rows + int(filled.sum()) // 8
            found.append(bucket.edges[filled])
        assert torch.equal(torch.cat(found).sort().values if found else torch.arange(0), torch.arange(num_edges))


def test_a_hub_does_not_widen_the_rows_of_others():
    senders, receivers, num_nodes = star(5000, inwards=True)
    tables = build_tables(torch.cat([senders, receivers]), torch.cat([receivers, senders]), num_nodes)
    assert sorted(tuple(bucket.edges.shape) for bucket in tables.incoming) == [(2, 5000), (5000, 1)]


def test_one_compilation_serves_all_graphs_and_sizes():
    if not compiler_available():
        pytest.skip("torch finds no C++ compiler")

    def run(num_nodes, num_edges, hidden_size):
        graph = random_graph(num_nodes, num_edges, seed=num_nodes)
        inputs = random_layer(graph, 3, hidden_size)
        torch.autograd.grad(node_by_node(graph, build_tables(*graph), *inputs).sum(), inputs)

    run(30, 200, 16)
    with torch.compiler.set_stance("fail_on_recompile"):
        for num_nodes, num_edges, hidden_size in ((31, 200, 16), (7, 9, 48), (500, 10_000, 16), (2000, 3000, 5)):
            run(num_nodes, num_edges, hidden_size)


def test_compiled_results_are_the_same_bit_for_bit():
    if not compiler_available():
        pytest.skip("torch finds no C++ compiler")
    graph = random_graph(500, 10_000)
    inputs = random_layer(graph, 3)

    def run():
        sums = node_by_node(graph, build_tables(*graph), *inputs)
        return sums, *torch.autograd.grad(sums.square().sum(), inputs)

    for first, second in zip(run(), run(), strict=True):
        assert torch.equal(first, second)


@pytest.mark.filterwarnings("ignore::UserWarning")  # of the profiler
def test_compiled_kernels_never_store_anything_of_size_edges_times_hidden():
    if not compiler_available():
        pytest.skip("torch finds no C++ compiler")
    graph = random_graph(500, 10_000)
    inputs = random_layer(graph, 3)
    tables = build_tables(*graph)

    def run():
        torch.autograd.grad(node_by_node(graph, tables, *inputs).sum(), inputs)

    run()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        run()
    largest = max(abs(event.cpu_memory_usage) for event in profile.events() if event.name == "[memory]")
    assert largest < 10_000 * 16 * 4 / 2


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_predictions_without_gradients_and_of_strided_inputs_are_the_same(tables_of, mode):
    graph = senders, receivers, num_nodes = GRAPHS["random"]
    generator = torch.Generator().manual_seed(0)
    tables = tables_of(*graph)
    with mode():
        wide = torch.randn(num_nodes, 32, generator=generator)
        features, weight = torch.randn(3, len(senders), generator=generator).T, torch.randn(16, 3, generator=generator).T
        value = sum_relu_messages(wide[:, ::2], wide[:, 1::2], features, weight, senders, receivers, tables)
        terms = wide[senders, ::2] + wide[receivers, 1::2] + features @ weight
        assert_close(value, torch.zeros(num_nodes, 16).index_add(0, receivers, terms.relu()))


@pytest.mark.usefixtures("uncompiled")
def test_only_the_gradients_that_are_asked_for_are_computed(monkeypatch):
    ran = []
    monkeypatch.setattr(edge_kernels, "compiled_run", lambda kernel, *args: (ran.append(kernel.__name__), kernel(*args))[1])
    senders, receivers, num_nodes = GRAPHS["random"]
    inputs = torch.randn(num_nodes, 5), torch.randn(num_nodes, 5), torch.randn(len(senders), 3), torch.randn(3, 5)
    kernels = ["store_sender_gradient", None, "feature_gradient", "weight_gradient"]  # B z_j needs none
    for tensor, kernel in zip(inputs, kernels, strict=True):
        tensor.requires_grad_()
        sum_relu_messages(*inputs, senders, receivers, build_tables(senders, receivers, num_nodes)).sum().backward()
        assert [name for name in ran if name != "store_sums"] == ([] if kernel is None else [kernel])
        tensor.requires_grad_(False)
        ran.clear()


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


def test_tables_of_another_graph_are_refused():
    senders, receivers, num_nodes = GRAPHS["random"]
    nodes, features, weight = torch.zeros(num_nodes, 5), torch.zeros(len(senders), 3), torch.zeros(3, 5)
    with pytest.raises(
        InputError, match="tables must be built from the same graph, 30 nodes and 200 edges; got tables of 5 nodes"
    ):
        sum_relu_messages(nodes, nodes, features, weight, senders, receivers, build_tables(*GRAPHS["no edges"]))
