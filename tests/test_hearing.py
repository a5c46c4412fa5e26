"""What queries hear of samples: the sum it stands for, compiled or not, and continuous where the nearest samples change."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from cases import RAGGED_SFT, largest_jump, random_item, seeded

from graphelements import hearing
from graphelements.building import build_network
from graphelements.compilation import compiler_available
from graphelements.errors import InputError
from graphelements.hearing import Ear
from graphelements.meshes import grid_mesh
from graphelements.neighbours import ByItem
from graphelements.network import GraphElementNetwork
from graphelements.network_config import DEFAULT
from graphelements.samples import FunctionSamples, Queries, SFTBatch, collate

SPACE = RAGGED_SFT.space
HEARD = 3
needs_compiler = pytest.mark.skipif(not compiler_available(), reason="torch finds no C++ compiler here")


def samples(num: int, num_items: int = 1, dtype: torch.dtype = torch.float32) -> FunctionSamples:
    items = torch.arange(num_items).repeat_interleave(num)[torch.randperm(num * num_items, generator=seeded(5))]
    values = torch.randn(len(items), 4, generator=seeded(1), dtype=dtype)
    return FunctionSamples(SPACE.sample(len(items), seeded(0)).to(dtype), values, items)


def ear(dtype: torch.dtype = torch.float32, **options: int) -> Ear:
    with torch.random.fork_rng():
        torch.manual_seed(3)
        return Ear(4, 2, 8, **options).to(dtype)


def network(**changes) -> GraphElementNetwork:
    return build_network(RAGGED_SFT, replace(DEFAULT, **{"num_heard": HEARD, **changes}), seed=1)


@pytest.mark.parametrize("num_layers", [0, 2])
def test_a_point_hears_the_fading_sum_of_its_nearest_samples(num_layers: int):
    given, hears = samples(6), ear(num_layers=num_layers)
    sizes = torch.rand(6, 2, generator=seeded(2)) + 0.1
    point = torch.tensor([[0.3, -0.2]])
    found = hears(Queries(point), given, sizes, ByItem.of(given.items, 1, HEARD), HEARD, SPACE)
    offsets = (point - given.points) / SPACE.unit_length
    order = offsets.norm(dim=-1).argsort()
    reach = offsets[order[HEARD]].norm()
    expected = torch.zeros(8)
    for i in order[:HEARD]:
        scaled = offsets[i] / sizes[i]
        local = torch.cat([offsets[i], scaled / (1 + scaled**2).sqrt(), 0.5 * (1 + scaled.square().sum()).log()[None]])
        base = hears.base(torch.cat([given.values[i], SPACE.coordinates(given.points[i][None])[0]]))
        fade = (1 - (offsets[i].norm() / reach) ** 2) ** 2
        terms = (base + hears.local(local)).relu()
        for layer in hears.layers:
            terms = terms + layer(terms).relu()
        expected = expected + fade * hears.gate(given.values[i]) * terms
    torch.testing.assert_close(found[0], expected, rtol=1e-4, atol=1e-5)


def test_samples_of_other_items_are_not_heard():
    given, hears = samples(5, num_items=2), ear()
    sizes = torch.ones(10, 2)
    points, items = SPACE.sample(4, seeded(7)), torch.tensor([0, 1, 1, 0])
    together = hears(Queries(points, items=items), given, sizes, ByItem.of(given.items, 2, HEARD), HEARD, SPACE)
    for item in (0, 1):
        own = given.items == item
        alone = FunctionSamples(given.points[own], given.values[own])
        here = points[items == item]
        found = hears(Queries(here), alone, torch.ones(5, 2), ByItem.of(alone.items, 1, HEARD), HEARD, SPACE)
        torch.testing.assert_close(together[items == item], found)


@pytest.mark.parametrize("num", [0, 1, 2, 3])
def test_all_are_heard_in_full_where_there_are_no_more(num):
    given, hears = samples(num), ear()
    queries = Queries(SPACE.sample(5, seeded(7)))
    found = hears(queries, given, torch.ones(num, 2), ByItem.of(given.items, 1, HEARD), HEARD, SPACE)
    of_one = ByItem.of(torch.zeros(1, dtype=torch.long), 1, HEARD)
    one_by_one = [
        hears(queries, FunctionSamples(p[None], v[None]), torch.ones(1, 2), of_one, HEARD, SPACE)
        for p, v in zip(given.points, given.values, strict=True)
    ]
    torch.testing.assert_close(found, torch.stack([torch.zeros(5, 8), *one_by_one]).sum(0))


@pytest.mark.parametrize("compiled", [False, pytest.param(True, marks=needs_compiler)])
@pytest.mark.parametrize("num_layers", [0, 2])
def test_hearing_all_is_the_same_with_and_without_a_search(num_layers: int, compiled: bool, monkeypatch: pytest.MonkeyPatch):
    """An item with more samples than are heard makes all items of a batch search."""
    search, searches = hearing.nearest, []
    monkeypatch.setattr(hearing, "nearest", lambda *given: searches.append(given) or search(*given))
    few, many, hears = samples(6), samples(HEARD + 2), ear(num_layers=num_layers)
    few = replace(few, items=torch.tensor([2, 0, 2, 0, 2, 0]))  # none of item 1
    sizes = torch.rand(6, 2, generator=seeded(2)) + 0.1
    points, items = SPACE.sample(9, seeded(7)), torch.randint(3, (9,), generator=seeded(8))
    direct = hears(Queries(points, items=items), few, sizes, ByItem.of(few.items, 3, HEARD), HEARD, SPACE, compiled)
    assert not searches
    both = [torch.cat(each) for each in ((few.points, many.points), (few.values, many.values), (few.items, many.items + 3))]
    all_sizes, by_item = torch.cat([sizes, torch.ones(len(many.points), 2)]), ByItem.of(both[2], 4, HEARD)
    searched = hears(Queries(points, items=items), FunctionSamples(*both), all_sizes, by_item, HEARD, SPACE)
    assert searches
    torch.testing.assert_close(direct, searched)
    assert not direct[items == 1].any()


@pytest.mark.parametrize("compiled", [False, pytest.param(True, marks=needs_compiler)])
@pytest.mark.parametrize("num_layers", [0, 2])
def test_items_with_equally_many_queries_hear_in_blocks_what_they_hear_by_pairs(num_layers: int, compiled: bool):
    given, hears = samples(6, dtype=torch.float64), ear(torch.float64, num_layers=num_layers)
    given = FunctionSamples(given.points.requires_grad_(), given.values.requires_grad_(), torch.tensor([2, 0, 2, 0, 2, 0]))
    sizes, by_item = torch.rand(6, 2, generator=seeded(2), dtype=torch.float64) + 0.1, ByItem.of(given.items, 3, HEARD)
    queries = Queries(SPACE.sample(12, seeded(7)).double(), items=torch.arange(3).repeat_interleave(4))
    assert queries.counted(3).num_per_item == 4
    results = []
    for asked in (queries, queries.counted(3)):
        found = hears(asked, given, sizes, by_item, HEARD, SPACE, compiled)
        results.append((found, *torch.autograd.grad(found.square().sum(), [given.points, given.values, *hears.parameters()])))
    for by_pairs, in_blocks in zip(*results, strict=True):
        torch.testing.assert_close(by_pairs, in_blocks)
    assert results[0][0][:4].any()


@pytest.mark.parametrize(("items", "blocks"), [([0, 0, 1, 1], 1), ([0, 1, 0, 1], 0)])
def test_predictions_hear_all_samples_in_blocks_where_they_can(items, blocks, monkeypatch: pytest.MonkeyPatch):
    gen, calls, in_blocks = network(num_heard=20, hears=("heat",)), [], Ear._hear_in_blocks
    monkeypatch.setattr(Ear, "_hear_in_blocks", lambda *given: calls.append(given) or in_blocks(*given))
    batch = collate([random_item(RAGGED_SFT, seeded(n), most=20) for n in range(2)])
    queries = {"flow": Queries(SPACE.sample(4, seeded(7)), items=torch.tensor(items))}
    gen.predict(replace(batch, queries=queries, targets={}), grid_mesh(SPACE, 3))
    assert len(calls) == blocks


def test_what_is_heard_is_continuous():
    given, hears = samples(12), ear()
    sizes = torch.full((12, 2), 0.3)

    def first(points: torch.Tensor) -> torch.Tensor:
        return hears(Queries(points), given, sizes, ByItem.of(given.items, 1, HEARD), HEARD, SPACE)[:, 0]

    with torch.no_grad():
        spread = first(SPACE.sample(200, seeded(4))).std()
        assert largest_jump(first, SPACE, 2) < 0.05 * spread


@needs_compiler
def test_compiled_hearing_has_the_same_numbers_and_gradients():
    given, hears = samples(9, num_items=3, dtype=torch.float64), ear(torch.float64)
    points, items = SPACE.sample(20, seeded(7)).double(), torch.randint(3, (20,), generator=seeded(8))
    sizes = torch.rand(27, 2, generator=seeded(9), dtype=torch.float64) + 0.1
    given = replace(given, values=given.values.requires_grad_())
    results = []
    for compiled in (False, True):
        found = hears(Queries(points, items=items), given, sizes, ByItem.of(given.items, 3, HEARD), HEARD, SPACE, compiled)
        gradients = torch.autograd.grad(found.square().sum(), [given.values, *hears.parameters()])
        results.append((found, *gradients))
    for plain, fused in zip(*results, strict=True):
        torch.testing.assert_close(plain, fused)


def test_a_network_that_hears_trains_and_needs_its_inputs_to_read():
    gen, mesh = network(), grid_mesh(SPACE, 3)
    batch = collate([random_item(RAGGED_SFT, seeded(n), most=20) for n in range(3)])
    gen.loss(gen(batch, mesh), batch).backward()
    assert all(p.grad is not None and p.grad.any() for p in gen.ears["heat"].parameters())
    inputs, _ = gen.seen(batch)
    with pytest.raises(InputError, match="give `read` the inputs"):
        gen.read(gen.settle(inputs, gen.meshes(mesh, batch.num_items)), batch.queries, gen.meshes(mesh, batch.num_items))


def test_a_function_that_is_absent_is_silence():
    gen, mesh = network(), grid_mesh(SPACE, 3)
    queries = {"warmth": Queries(SPACE.sample(5, seeded(3)), torch.randn(5, 2, generator=seeded(4)))}
    heat = FunctionSamples(SPACE.sample(4, seeded(0)), torch.randn(4, 2, generator=seeded(1)))
    none = FunctionSamples(torch.zeros(0, 2), torch.zeros(0, next(f.channels for f in RAGGED_SFT.inputs if f.name != "heat")))
    other = next(f.name for f in RAGGED_SFT.inputs if f.name != "heat")
    absent, empty = SFTBatch({"heat": heat}, queries), SFTBatch({"heat": heat, other: none}, queries)
    torch.testing.assert_close(gen.predict(absent, mesh), gen.predict(empty, mesh))


def test_queries_hear_the_functions_that_are_named():
    names = [f.name for f in RAGGED_SFT.inputs]
    assert list(network().ears) == names
    assert list(network(hears=(names[1],)).ears) == names[1:2]
    with pytest.raises(InputError, match=r"network.hears: there is no input smoke; the inputs are"):
        network(hears=("smoke",))
