"""Specifications and flat batches: collation, selection, and what is said about malformed ones."""

from __future__ import annotations

from dataclasses import replace

import jaxtyping
import numpy as np
import pytest
import torch
from cases import RAGGED_SFT, random_item, seeded

from graphelements.errors import InputError
from graphelements.functions import SFT, InputFunction, OutputFunction
from graphelements.samples import FunctionSamples, Queries, SFTBatch, collate
from graphelements.spaces import Box

SPECIFICATION = SFT(
    Box(),
    (InputFunction("heat", 2),),
    (OutputFunction("warmth", 1, conditions=1), OutputFunction("total", 1, integrated=True)),
)


def good_batch() -> SFTBatch:
    return SFTBatch(
        {"heat": FunctionSamples(torch.rand(4, 2), torch.rand(4, 2))},
        {"warmth": Queries(torch.rand(3, 2), torch.rand(3, 1)), "total": Queries()},
        {"warmth": torch.rand(3, 1), "total": torch.rand(1, 1)},
    )


def with_input(points: torch.Tensor, values: torch.Tensor, *items: torch.Tensor, name: str = "heat") -> SFTBatch:
    return replace(good_batch(), inputs={name: FunctionSamples(points, values, *items)})


def with_query(query: Queries, name: str = "warmth") -> SFTBatch:
    return replace(good_batch(), queries={name: query}, targets={})


def with_target(target: torch.Tensor) -> SFTBatch:
    return replace(good_batch(), targets={"warmth": target})


def test_a_good_batch_is_accepted():
    SPECIFICATION.validate(good_batch())
    SPECIFICATION.validate(replace(good_batch(), inputs={}, targets={}))
    SPECIFICATION.validate(with_input(torch.zeros(0, 2), torch.zeros(0, 2)))
    SPECIFICATION.validate(with_input(torch.tensor([[0.0, 1.0]]), torch.zeros(1, 2)))


def test_values_may_have_gradients():
    batch = good_batch()
    heat = replace(batch.inputs["heat"], values=batch.inputs["heat"].values.clone().requires_grad_())
    SPECIFICATION.validate(replace(batch, inputs={"heat": heat}))


INF, NAN = torch.inf, torch.nan
MALFORMED = {
    "double values": (
        lambda: with_input(torch.rand(1, 2), torch.rand(1, 2).double()),
        "must be torch.float32; got torch.float64",
    ),
    "double points": (lambda: with_query(Queries(torch.rand(1, 2).double(), torch.rand(1, 1))), "got torch.float64, convert"),
    "whole numbers": (lambda: with_input(torch.rand(1, 2), torch.ones(1, 2).long()), "got torch.int64, convert"),
    "unknown input": (lambda: with_input(torch.rand(1, 2), torch.rand(1, 2), name="cold"), r"\['cold'\]"),
    "unknown output": (lambda: with_query(Queries(torch.rand(1, 2)), "cold"), r"output functions are .*\['cold'\]"),
    "wrong channels": (lambda: with_input(torch.rand(1, 2), torch.rand(1, 3)), "need 2 channels; got 3"),
    "nan value": (lambda: with_input(torch.rand(1, 2), torch.tensor([[NAN, 0.0]])), "must be finite"),
    "infinite value": (lambda: with_input(torch.rand(1, 2), torch.tensor([[-INF, 0.0]])), "must be finite"),
    "values too large to be squared": (
        lambda: with_input(torch.rand(1, 2), torch.tensor([[0.0, -1e16]])),
        "values of 'heat' must be 1e\\+15 at most, whatever their sign; got -1e\\+16 to 0, use larger units",
    ),
    "nan point": (lambda: with_input(torch.tensor([[NAN, 0.0]]), torch.rand(1, 2)), "points of 'heat' must be finite"),
    "wrong dimension": (lambda: with_input(torch.rand(1, 3), torch.rand(1, 2)), "need 2 coordinates; got 3"),
    "outside": (
        lambda: with_input(torch.tensor([[0.5, 1.5]]), torch.rand(1, 2)),
        r"1 of 1 do not, the first at \[\[0.5, 1.5\]\]",
    ),
    "item too large": (lambda: with_input(torch.rand(2, 2), torch.rand(2, 2), torch.tensor([0, 1])), "item"),
    "item negative": (lambda: with_input(torch.rand(1, 2), torch.rand(1, 2), torch.tensor([-1])), "item"),
    "query item too large": (lambda: with_query(Queries(torch.rand(1, 2), torch.rand(1, 1), torch.tensor([5]))), "item"),
    "field without points": (lambda: with_query(Queries(None, torch.rand(1, 1))), "a field: its queries need points"),
    "integral with points": (lambda: with_query(Queries(torch.rand(1, 2)), "total"), "integrated: its queries have no points"),
    "missing conditions": (lambda: with_query(Queries(torch.rand(1, 2))), "need 1 conditions; got 0"),
    "too many conditions": (lambda: with_query(Queries(torch.rand(1, 2), torch.rand(1, 2))), "need 1 conditions; got 2"),
    "nan condition": (lambda: with_query(Queries(torch.rand(1, 2), torch.tensor([[NAN]]))), "conditions of 'warmth'"),
    "query outside": (lambda: with_query(Queries(torch.full((2, 2), -1.0), torch.rand(2, 1))), "2 of 2 do not"),
    "wrong target channels": (lambda: with_target(torch.rand(3, 2)), "targets of 'warmth' need 1 channels; got 2"),
    "nan target": (lambda: with_target(torch.full((3, 1), NAN)), "targets of 'warmth' must be finite"),
}


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(("batch", "said"), MALFORMED.values(), ids=MALFORMED)
def test_malformed_batches_are_refused_in_one_line(batch, said):
    with pytest.raises(InputError, match=said) as caught:
        SPECIFICATION.validate(batch())
    assert "\n" not in str(caught.value)


IMPOSSIBLE = {
    "uneven samples": (lambda: FunctionSamples(torch.rand(2, 2), torch.rand(3, 1)), "a row of coordinates and a row of values"),
    "flat values": (lambda: FunctionSamples(torch.rand(2, 2), torch.rand(2)), "a row of coordinates and a row of values"),
    "uneven items": (lambda: FunctionSamples(torch.rand(2, 2), torch.rand(2, 1), torch.zeros(3, dtype=torch.long)), "one item"),
    "uneven queries": (lambda: Queries(torch.rand(2, 2), torch.rand(3, 1)), "same length"),
    "no items": (lambda: SFTBatch({}, {}, num_items=0), "at least one item"),
    "targets without queries": (lambda: SFTBatch({}, {}, {"warmth": torch.rand(1, 1)}), "queries of the same name"),
    "too few targets": (
        lambda: SFTBatch({}, {"warmth": Queries(torch.rand(2, 2))}, {"warmth": torch.rand(1, 1)}),
        "1 targets and 2",
    ),
    "no inputs": (lambda: SFT(Box(), (), (OutputFunction("b"),)), "at least one input"),
    "no outputs": (lambda: SFT(Box(), (InputFunction("a"),), ()), "at least one output"),
    "equal names": (lambda: SFT(Box(), (InputFunction("a"), InputFunction("a")), (OutputFunction("b"),)), "different names"),
    "input name": (lambda: SFT(Box(), (InputFunction("a b"),), (OutputFunction("b"),)), "Python identifier"),
    "output name": (lambda: SFT(Box(), (InputFunction("a"),), (OutputFunction("1"),)), "Python identifier"),
    "no channels": (lambda: InputFunction("a", 0), "at least one channel"),
    "negative channels": (lambda: OutputFunction("a", -1), "at least one channel"),
    "negative conditions": (lambda: OutputFunction("a", conditions=-1), "conditions must be 0 or more"),
    "unknown loss": (lambda: OutputFunction("a", loss="hinge"), "one of squared_error, cross_entropy; got 'hinge'"),
    "nothing to collate": (lambda: collate([]), "at least one batch"),
    "mixed conditions": (
        lambda: collate([with_query(Queries(torch.rand(1, 2), torch.rand(1, 1))), with_query(Queries(torch.rand(1, 2)))]),
        "all or no",
    ),
    "missing item": (lambda: good_batch().selected([1]), "items of this batch are 0 to 0; got 1"),
    "item twice": (lambda: good_batch().selected([0, 0]), "once"),
}


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(("make", "said"), IMPOSSIBLE.values(), ids=IMPOSSIBLE)
def test_impossible_parts_are_refused_in_one_line(make, said):
    with pytest.raises(InputError, match=said) as caught:
        make()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["values", "items", "keys", "type", "training", "forward"])
def test_names_that_torch_modules_use_themselves_are_refused(name):
    with pytest.raises(InputError, match=f"another name.*{name!r}"):
        SFT(Box(), (InputFunction(name),), (OutputFunction("b"),))


def test_collating_and_selecting_give_back_the_items():
    items = [random_item(RAGGED_SFT, seeded(seed)) for seed in range(6)]
    together = collate(items)
    assert together.num_items == 6
    RAGGED_SFT.validate(together)
    for number, item in enumerate(items):
        again = together.selected([number])
        for name, samples in item.inputs.items():
            assert torch.equal(again.inputs[name].points, samples.points)
            assert torch.equal(again.inputs[name].values, samples.values)
            assert torch.equal(again.inputs[name].items, samples.items)
        for name, queries in item.queries.items():
            assert again.queries[name].points is None or torch.equal(again.queries[name].points, queries.points)
            assert torch.equal(again.targets[name], item.targets[name])
            assert torch.equal(again.queries[name].items, queries.items)


def test_selected_items_are_numbered_in_the_order_asked_for():
    together = collate([random_item(RAGGED_SFT, seeded(seed)) for seed in range(4)])
    turned = together.selected([2, 0])
    for position, item in enumerate((2, 0)):
        mine, alone = turned.inputs["heat"].items == position, together.selected([item]).inputs["heat"]
        assert torch.equal(turned.inputs["heat"].values[mine], alone.values)


def test_collation_gives_no_rows_to_items_without_a_function():
    one, other = good_batch(), replace(good_batch(), inputs={}, queries={"total": Queries()}, targets={"total": torch.ones(1, 1)})
    together = collate([other, one])
    assert together.inputs["heat"].items.tolist() == [1, 1, 1, 1]
    assert together.queries["warmth"].items.tolist() == [1, 1, 1]
    assert together.queries["total"].items.tolist() == [0, 1]


def test_items_default_to_the_first():
    assert FunctionSamples(torch.rand(3, 2), torch.rand(3, 1)).items.tolist() == [0, 0, 0]
    assert Queries(None, torch.rand(2, 3)).items.tolist() == [0, 0]
    assert len(Queries()) == 1


def test_queries_split_into_pieces_in_order():
    queries = Queries(torch.rand(7, 2), torch.rand(7, 1), torch.arange(7))
    pieces = queries.split(3)
    assert [len(piece) for piece in pieces] == [3, 3, 1]
    assert torch.equal(torch.cat([piece.points for piece in pieces]), queries.points)
    assert torch.cat([piece.items for piece in pieces]).tolist() == list(range(7))
    assert [len(piece) for piece in Queries(torch.zeros(0, 2)).split(3)] == [0]


def test_a_batch_moves_to_a_device_with_all_its_parts():
    there = good_batch().to("meta")
    assert there.inputs["heat"].points.is_meta
    assert there.inputs["heat"].items.is_meta
    assert there.queries["warmth"].conditions.is_meta
    assert there.queries["total"].items.is_meta
    assert there.targets["total"].is_meta


def test_the_tests_check_shape_annotations():
    """The hook in pyproject.toml is on: otherwise a wrong axis would pass every test that does not compute with it."""
    with pytest.raises(jaxtyping.TypeCheckError):
        FunctionSamples(torch.rand(3, 2), torch.rand(4, 1))


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: FunctionSamples(np.zeros((3, 2)), torch.zeros(3, 1)), "samples are torch tensors; got ndarray"),
        (lambda: FunctionSamples(torch.zeros(3, 2), [[0.0]] * 3), "samples are torch tensors; got list"),
        (lambda: FunctionSamples(torch.zeros(3, 2), torch.zeros(3, 1), torch.zeros(3)), "items of samples are whole numbers"),
        (lambda: FunctionSamples(torch.zeros(3, 2), torch.zeros(3, 1), torch.zeros(2).long()), "one item index each"),
        (lambda: Queries(torch.zeros(3)), "points of queries need a row each"),
        (lambda: Queries(torch.zeros(3, 2), items=torch.zeros(3) > 0), "items of queries are whole numbers"),
        (lambda: SFT(Box(), InputFunction("a"), (OutputFunction("b"),)), "the inputs of an SFT are a tuple"),
        (lambda: Box(0, 10), "the lower bounds of a box are a tuple"),
    ],
)
def test_wrong_types_are_refused_in_one_line(unchecked, make, message):
    with pytest.raises(InputError, match=message) as error:
        make()
    assert "\n" not in str(error.value)


def test_lists_and_whole_numbers_become_what_a_checkpoint_reads_back(unchecked):
    assert SFT(Box([0, 0], [2, 1]), [InputFunction("a")], [OutputFunction("b")]) == SFT(
        Box((0.0, 0.0), (2.0, 1.0)), (InputFunction("a"),), (OutputFunction("b"),)
    )


def test_probabilities_that_do_not_sum_to_one_are_refused():
    sft = SFT(Box(), (InputFunction("a"),), (OutputFunction("b", 2, loss="cross_entropy"),))
    batch = SFTBatch({}, {"b": Queries(torch.zeros(1, 2))}, {"b": torch.tensor([[0.5, 0.6]])})
    with pytest.raises(InputError, match="must be probabilities"):
        sft.validate(batch)


@pytest.mark.parametrize(
    ("items", "per_item"),
    [([0, 0, 1, 1, 2, 2], 2), ([0, 1, 2], 1), ([0, 0, 1, 2, 2, 1], None), ([0, 0, 0, 1, 1, 2], None), ([0, 1], None), ([], 0)],
)
def test_queries_are_counted_only_where_items_have_equally_many_in_order(items, per_item):
    given = Queries(torch.rand(len(items), 2), items=torch.tensor(items, dtype=torch.long))
    assert given.counted(3).num_per_item == per_item
    assert given.counted(3).mapped(lambda rows: rows).num_per_item is None, "what is made of queries is to be counted anew"
