"""Sums over edges equal the edge-by-edge form in plain torch, and so do whole rounds in C++, for any graph and any sizes."""

from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from graphelements.compilation import compiler_available
from graphelements.edge_kernels import CompiledRound, runs_in_cpp, sum_relu_messages
from graphelements.errors import InputError
from graphelements.topology import build_tables, grid_edges


@pytest.fixture
def compiler():
    if not compiler_available():
        pytest.skip("there is no C++ compiler")


@pytest.fixture(params=[1, 2, 3])
def threads(request):
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


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
SIZES = {"the paper's": (32, 16, 48, 64), "odd ones": (5, 3, 7, 2), "wide ones": (70, 33, 100, 129)}  # z, u and the hidden layers


def random_round(graph, num_features: int, sizes=SIZES["odd ones"], dtype=torch.float32, seed: int = 0):
    """States, edge features, weights and biases of m_e and m_v, and the shares of sums and biases."""
    generator = torch.Generator().manual_seed(seed)
    (senders, _, num_nodes), (latent, message, edge, node) = graph, sizes
    shapes = (num_nodes, latent), (len(senders), num_features)
    shapes = *shapes, (edge, 2 * latent + num_features), (edge,), (message, edge), (message,)
    shapes = *shapes, (node, latent + message), (node,), (latent, node), (latent,), (num_nodes, 1), (num_nodes, 1)
    return [torch.randn(shape, generator=generator, dtype=dtype) for shape in shapes]


def edge_by_edge(graph, residual, states, features, *rest):
    """From the definition."""
    first, first_bias, last, last_bias, update, update_bias, output, output_bias, of_sums, of_bias = rest
    senders, receivers, num_nodes = graph
    hidden = torch.cat([states[senders], states[receivers], features], dim=1) @ first.T + first_bias
    sums = hidden.new_zeros(num_nodes, len(first)).index_add(0, receivers, hidden.relu())
    incoming = (1 if of_sums is None else of_sums) * (sums @ last.T) + of_bias * last_bias
    updated = (torch.cat([states, incoming], 1) @ update.T + update_bias).relu() @ output.T + output_bias
    return states + updated if residual else updated


def in_cpp(graph, residual, *inputs):
    return CompiledRound.apply(*inputs, residual, build_tables(*graph))


def with_gradients(form, graph, residual, inputs):
    """The result and the gradients by states, features, weights and biases."""
    *learned, of_sums, of_bias = inputs
    learned = [tensor.detach().requires_grad_() for tensor in learned]
    result = form(graph, residual, *learned, of_sums, of_bias)
    cotangent = torch.randn(result.shape, generator=torch.Generator().manual_seed(1)).to(result)
    return [result.detach(), *torch.autograd.grad(result, learned, cotangent)]


def assert_close(value, expected, tolerance):
    assert value.shape == expected.shape
    assert (value - expected).norm() <= tolerance * expected.norm()


@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.parametrize("num_features", [0, 3])
def test_sums_in_plain_torch_equal_the_edge_by_edge_form(name, num_features):
    graph = GRAPHS[name]
    senders, receivers, num_nodes = graph
    states, features, first, bias, *_ = random_round(graph, num_features)
    of_sender, of_receiver, of_features = first.split([5, 5, num_features], dim=1)
    sums = sum_relu_messages(states @ of_sender.T, states @ of_receiver.T + bias, features, of_features.T, senders, receivers)
    states, features, first, bias = (each.double() for each in (states, features, first, bias))
    hidden = (torch.cat([states[senders], states[receivers], features], 1) @ first.T + bias).relu()
    assert_close(sums, hidden.new_zeros(num_nodes, len(bias)).index_add(0, receivers, hidden), 1e-5)


@pytest.mark.usefixtures("compiler", "threads")
@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.parametrize("num_features", [0, 3])
@pytest.mark.parametrize("sizes", SIZES)
def test_rounds_in_cpp_and_their_gradients_equal_the_edge_by_edge_form(name, num_features, sizes):
    graph = GRAPHS[name]
    inputs = random_round(graph, num_features, SIZES[sizes])
    exact = with_gradients(edge_by_edge, graph, True, [each.double() for each in inputs])
    for value, expected in zip(with_gradients(in_cpp, graph, True, inputs), exact, strict=True):
        assert_close(value, expected, 2e-5)


@pytest.mark.usefixtures("compiler")
@settings(max_examples=60, deadline=None)
@given(st.data(), st.integers(1, 200), st.integers(1, 400), st.integers(0, 4), st.booleans(), st.booleans())
def test_any_graph_with_any_sizes_has_the_round_of_the_edge_by_edge_form(
    data, num_nodes, num_edges, num_features, residual, mean
):
    seed, sizes = data.draw(st.integers(0, 10**6)), data.draw(st.tuples(*[st.integers(1, 40)] * 4))
    graph = random_graph(num_nodes, num_edges, seed)
    inputs = random_round(graph, num_features, sizes, torch.float64, seed)
    inputs[-2] = inputs[-2] if mean else None
    found, expected = (with_gradients(form, graph, residual, inputs) for form in (in_cpp, edge_by_edge))
    for value, exact in zip(found, expected, strict=True):
        assert_close(value, exact, 1e-12)


@pytest.mark.usefixtures("compiler", "threads")
def test_rounds_in_cpp_are_the_same_bit_for_bit():
    graph = random_graph(500, 10_000)
    first, second = (with_gradients(in_cpp, graph, True, random_round(graph, 3)) for _ in range(2))
    assert all(torch.equal(one, other) for one, other in zip(first, second, strict=True))


@pytest.mark.usefixtures("compiler")
def test_what_is_not_a_number_stays_so():
    graph = (*grid_edges((5, 6))[:2], 30)
    inputs = random_round(graph, 0)
    inputs[0][7, 2] = math.nan
    result = in_cpp(graph, False, *inputs)
    assert torch.equal(result.isnan(), edge_by_edge(graph, False, *inputs).isnan())
    assert 0 < result.isnan().any(1).sum() < 30


IN_A_PROCESS = """
import sys
sys.path[:0] = ["tests", "."]
from benchmarks.memory import peak_increase
from test_edge_kernels import in_cpp, random_graph, random_round, with_gradients
for graph in (random_graph(30, 200), random_graph(500, 200_000)):
    inputs = random_round(graph, 3, (4, 4, 64, 8))
    found = peak_increase(lambda: with_gradients(in_cpp, graph, True, inputs))[1]
print(found)
"""


@pytest.mark.usefixtures("compiler")
def test_rounds_in_cpp_never_store_anything_of_size_edges_times_hidden():
    done = subprocess.run([sys.executable, "-c", IN_A_PROCESS], capture_output=True, text=True, cwd=Path(__file__).parent.parent)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout.split()[-1]) < 200_000 * 64 * 4 / 2**20 / 2  # megabytes; the tables of the graph are in it


@pytest.mark.usefixtures("compiler")
def test_strided_inputs_are_taken_and_mixed_precisions_refused():
    graph = GRAPHS["grid"]
    inputs = random_round(graph, 3)
    expected = in_cpp(graph, True, *inputs)
    strided = [each.T.contiguous().T if each.ndim == 2 else each for each in inputs]
    strided[-1] = torch.stack([inputs[-1], inputs[-1] + 1], -1)[..., 0]
    assert torch.equal(in_cpp(graph, True, *strided), expected)
    ones = inputs[-1].new_ones(1, 1)
    constant = in_cpp(graph, True, *inputs[:-1], ones.expand(30, 1))
    assert torch.equal(constant, in_cpp(graph, True, *inputs[:-1], ones.expand(30, 1).contiguous()))
    with pytest.raises(InputError, match="needs one precision"):
        in_cpp(graph, True, inputs[0], inputs[1].double(), *inputs[2:])


@pytest.mark.usefixtures("compiler")
def test_what_the_backward_pass_needs_must_not_change():
    graph = GRAPHS["grid"]
    inputs = [each.requires_grad_() for each in random_round(graph, 3)]
    result = in_cpp(graph, True, *inputs)
    with torch.no_grad():
        inputs[1].add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        result.sum().backward()


def test_plain_torch_runs_what_cpp_does_not():
    tables = build_tables(*GRAPHS["grid"])
    assert runs_in_cpp(torch.zeros(30, 4), tables)
    assert not runs_in_cpp(torch.zeros(30, 4, dtype=torch.bfloat16), tables)
    assert not runs_in_cpp(torch.zeros(30, 4, device="meta"), tables)
    assert not runs_in_cpp(torch.zeros(30, 4), build_tables(torch.arange(0), torch.arange(0), 30))


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 400), st.integers(0, 3000), st.integers(0, 10**6), st.booleans())
def test_tables_hold_every_edge_once_at_its_receiver_and_at_its_sender(num_nodes, num_edges, seed, skewed):
    senders, receivers, _ = random_graph(num_nodes, num_edges, seed)
    if skewed:
        senders, receivers, _ = skewed_graph(num_nodes, num_edges)
    tables = build_tables(senders, receivers, num_nodes)
    for (starts, others, numbers), own, other in (
        (tables.incoming, receivers, senders),
        (tables.outgoing, senders, receivers),
    ):
        assert torch.equal(own[numbers], torch.arange(num_nodes).repeat_interleave(starts.diff()))
        assert torch.equal(other[numbers], others.long())
        assert torch.equal(numbers.sort().values, torch.arange(num_edges, dtype=torch.int32))
        assert len(starts) == num_nodes + 1
        assert (starts[0], starts[-1]) == (0, num_edges)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 300), st.integers(1, 5), st.integers(0, 400), st.integers(0, 10**6))
def test_no_edge_leaves_a_group_of_nodes(num_nodes, copies, num_edges, seed):
    ends = random_graph(num_nodes, num_edges, seed)[:2]
    senders, receivers = (torch.cat([each + copy * num_nodes for copy in range(copies)]) for each in ends)
    groups = build_tables(senders, receivers, copies * num_nodes).groups
    assert (groups[0], groups[-1]) == (0, copies * num_nodes)
    assert (groups.diff() > 0).all()
    group_of = torch.arange(len(groups) - 1).repeat_interleave(groups.diff())
    assert torch.equal(group_of[senders], group_of[receivers])


def test_copies_of_a_mesh_are_groups_that_fit_the_cache():
    edges = grid_edges((7, 7))
    senders, receivers = (torch.cat([ends + 49 * copy for copy in range(256)]) for ends in edges[:2])
    groups = build_tables(senders, receivers, 49 * 256).groups
    assert (groups % 49 == 0).all()
    assert groups.diff()[:-1].min() > 150
    assert groups.diff().max() < 350


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
