"""The attention baseline: what its outputs depend on, and what they do not."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from cases import RAGGED_SFT, random_item, seeded

from graphelements.attention import AttentionLayer, AttentionNetwork, padded, ranks
from graphelements.building import build_network
from graphelements.errors import InputError
from graphelements.functions import SFT, InputFunction, OutputFunction
from graphelements.meshes import grid_mesh, scattered_mesh
from graphelements.network_config import AttentionConfig
from graphelements.samples import FunctionSamples, Queries, SFTBatch, collate
from graphelements.spaces import Box
from graphelements.training import TrainingConfig, fit

SMALL = AttentionConfig(latent_size=16, hidden_size=24, num_heads=2, num_self_layers=2, num_cross_layers=2, num_octaves=3)
SPACE = RAGGED_SFT.space
MESH = grid_mesh(SPACE, 2)


def network(config: AttentionConfig = SMALL) -> AttentionNetwork:
    return build_network(RAGGED_SFT, config, seed=1)


def ragged(num: int = 5, most: int = 7) -> SFTBatch:
    return collate([random_item(RAGGED_SFT, seeded(seed), most) for seed in range(num)])


def test_a_layer_is_softmax_attention_over_known_tokens_and_a_perceptron():
    layer, g = AttentionLayer(6, 10, 2), seeded(0)
    rows, tokens = torch.randn(1, 3, 6, generator=g), torch.randn(1, 4, 6, generator=g)
    known = torch.tensor([[True, False, True, True]])
    asked, (keys, values) = layer.ask(layer.norm(rows))[0], layer.tell(tokens[:, known[0]])[0].chunk(2, -1)
    heads = [(asked[:, part] @ keys[:, part].T / 3**0.5).softmax(-1) @ values[:, part] for part in (slice(0, 3), slice(3, 6))]
    expected = rows[0] + layer.merge(torch.cat(heads, -1))
    expected = expected + layer.perceptron(layer.perceptron_norm(expected))
    assert torch.allclose(layer(rows, known, tokens)[0], expected, atol=1e-5)


def test_every_row_has_its_own_place_in_the_table_of_its_item():
    items = torch.tensor([2, 0, 2, 2, 0, 4])
    assert ranks(items, 5).tolist() == [0, 0, 1, 2, 1, 0]
    rows = torch.arange(12.0).reshape(6, 2)
    table, places = padded(rows, items, 5)
    assert table.shape == (5, 3, 2)
    assert torch.equal(table.flatten(0, 1)[places], rows)
    assert torch.equal(table[2], rows[[0, 2, 3]])
    assert table.abs().sum() == rows.abs().sum()  # the rest is zero


@pytest.mark.usefixtures("double")
def test_a_query_does_not_know_of_the_others():
    model, item = network().double(), random_item(RAGGED_SFT, seeded(3), most=9)
    points = SPACE.sample(20, seeded(0))

    def answers(chosen: torch.Tensor) -> torch.Tensor:
        return model(SFTBatch(item.inputs, {"flow": Queries(chosen)}), MESH)["flow"]

    together = answers(points)
    assert together.std(0).min() > 1e-3
    assert torch.allclose(torch.cat([answers(point[None]) for point in points]), together, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("num_self_layers", [0, 2])
def test_items_without_samples_have_finite_answers_and_gradients(num_self_layers):
    model = network(replace(SMALL, num_self_layers=num_self_layers))
    empty = SFTBatch({}, {"flow": Queries(torch.rand(3, 2))}, {"flow": torch.rand(3, 2)})
    full = random_item(RAGGED_SFT, seeded(0))
    for batch in (empty, collate([empty, full]), collate([full, empty, empty])):
        loss = model.loss(model(batch, MESH), batch)
        loss.backward()
        assert loss.isfinite()
        assert all(p.grad.isfinite().all() for p in model.parameters() if p.grad is not None)


def test_every_sample_and_condition_matters_also_to_an_answer_for_the_whole_space():
    model, item = network(), random_item(RAGGED_SFT, seeded(8), most=9)
    queries = {"total": Queries(), "warmth": Queries(SPACE.sample(1, seeded(1)), torch.zeros(1, 2))}
    before = model(SFTBatch(item.inputs, queries), MESH)
    for name, samples in item.inputs.items():
        assert len(samples.values) > 0
        for row in range(len(samples.values)):
            values = samples.values.clone()
            values[row] += 1
            after = model(SFTBatch({**item.inputs, name: replace(samples, values=values)}, queries), MESH)
            assert all((after[output] - before[output]).abs().max() > 1e-6 for output in queries)
    other = {"warmth": replace(queries["warmth"], conditions=torch.ones(1, 2))}
    assert (model(SFTBatch(item.inputs, other), MESH)["warmth"] - before["warmth"]).abs().max() > 1e-6


def test_of_the_meshes_only_the_space_matters():
    model, batch = network(), ragged()
    expected = model(batch, MESH)
    for meshes in (grid_mesh(SPACE, 1), [scattered_mesh(SPACE, n, seeded(n)) for n in (3, 4, 5, 6, 7)]):
        found = model(batch, meshes)
        assert all(torch.equal(found[name], expected[name]) for name in expected)
    with pytest.raises(InputError, match="must lie in a space of the network's kind"):
        model.predict(batch, grid_mesh(Box((0.0,), (1.0,)), 2))


def test_the_unit_of_length_and_the_origin_do_not_matter():
    here = SFT(Box((0.0, 0.0), (2.0, 1.0)), (InputFunction("heat"),), (OutputFunction("warmth"),))
    there = replace(here, space=Box((-30.0, 100.0), (-10.0, 110.0)))  # ten times as large, elsewhere
    points, places, values = (here.space.sample(n, seeded(n)) for n in (6, 9, 6))
    answers = []
    for sft, change in ((here, lambda p: p), (there, lambda p: 10 * p + torch.tensor([-30.0, 100.0]))):
        batch = SFTBatch({"heat": FunctionSamples(change(points), values[:, :1])}, {"warmth": Queries(change(places))})
        answers.append(build_network(sft, SMALL).predict(batch, grid_mesh(sft.space, 1))["warmth"])
    assert (answers[0] - answers[1]).abs().max() < 1e-3


@pytest.mark.parametrize("chunk", [1, 7, 2**14])
def test_predicting_in_pieces_gives_what_forward_gives_and_never_reads_more_than_the_chunk(chunk, monkeypatch):
    model, batch = network(), ragged()
    model.fit_normalisation([batch])
    expected = {name: model.answer(name, outputs) for name, outputs in model(batch, MESH).items()}
    sizes, read = [], AttentionNetwork.read
    monkeypatch.setattr(AttentionNetwork, "read", lambda *a: sizes.append(len(a[2])) or read(*a))
    found = model.predict(batch, MESH, chunk=chunk)
    assert max(sizes) <= max(chunk, batch.num_items)
    assert all(torch.allclose(found[name], expected[name], atol=1e-5) for name in expected)
    assert not found["flow"].requires_grad


def test_it_learns_to_answer_with_the_values_of_the_samples_on_the_same_side():
    sft, mesh = SFT(Box(), (InputFunction("height"),), (OutputFunction("height"),)), grid_mesh(Box(), 1)
    items = torch.arange(16).repeat_interleave(8)

    def batch_of(step: int):
        g = seeded(step)
        heights, points, places = torch.randn(16, 2, generator=g), *(torch.rand(128, 2, generator=g) for _ in range(2))
        samples, targets = (heights[items, (x[:, 0] > 0.5).long()][:, None] for x in (points, places))
        inputs = {"height": FunctionSamples(points, samples, items)}
        return SFTBatch(inputs, {"height": Queries(places, None, items)}, {"height": targets}, 16), mesh

    model = build_network(sft, replace(SMALL, num_self_layers=1, num_cross_layers=1))
    training = TrainingConfig(steps=160, warmup=20, learning_rate=1e-2, compile="off")
    losses = [report.loss for report in fit(model, batch_of, training)]
    assert sum(losses[:10]) / 10 > 0.8
    assert sum(losses[-10:]) / 10 < 0.15


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"latent_size": 30}, "multiple of num_heads; got 30 and 4"),
        ({"num_heads": 0}, "num_heads must be positive"),
        ({"num_cross_layers": 0}, "num_cross_layers must be 1 to 100; got 0"),
        ({"num_self_layers": 10**9}, "num_self_layers must be 0 to 100"),
        ({"num_octaves": 99}, "num_octaves must be 0 to 16"),
    ],
)
def test_sizes_that_cannot_be_are_named_in_one_line(wrong, said):
    with pytest.raises(InputError, match=said):
        AttentionConfig(**wrong)
