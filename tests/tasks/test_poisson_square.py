"""The houses' task: batches, splits, subsets and references."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from real_data import needs_real_houses, real_houses

from graphelements import Checkpoint, NetworkConfig, SFTBatch, build_network
from graphelements.data.house_files import save_houses
from graphelements.data.houses import POISSON_SQUARE, Houses
from graphelements.data.random_houses import HouseDistribution, draw_houses
from graphelements.errors import InputError
from graphelements.tasks.poisson_square import HELD_OUT, TASK, parse_numbers
from graphelements.tasks.task import BatchConfig, RunConfig

SMALLEST = NetworkConfig(latent_size=2, encoder_hidden=(2,), decoder_hidden=(2,), rounds=0, representation="multilinear")
CONFIG = RunConfig(batches=BatchConfig(items=3, scenarios=2, queries=5, resolutions=(1, 2, 4, 7)))


@cache
def numbered_houses(num: int = 8) -> Houses:
    """Houses whose temperatures say where they come from: 10 times the house, plus the scenario, plus a bit of the query."""
    drawn = draw_houses(num, np.random.default_rng(0), HouseDistribution(num_scenarios=4, num_queries=9))
    labels = np.arange(4)[:, None] + np.arange(9) / 100
    return Houses(tuple(replace(house, temperatures=10 * house.number + labels) for house in drawn.houses))


def labels_of(batch: SFTBatch) -> list[tuple[int, int]]:
    """House and scenario of every item, after checking that all its queries agree."""
    labels = batch.targets["temperature"][:, 0].round(decimals=2)
    items = batch.queries["temperature"].items
    found = [{divmod(int(label), 10) for label in labels[items == item].tolist()} for item in range(batch.num_items)]
    assert all(len(of_item) == 1 for of_item in found)
    return [of_item.pop() for of_item in found]


def same(one: SFTBatch, other: SFTBatch) -> bool:
    pairs = [
        (one.targets["temperature"], other.targets["temperature"]),
        (one.queries["temperature"].points, other.queries["temperature"].points),
        (one.queries["temperature"].items, other.queries["temperature"].items),
    ]
    for name in ("heaters", "border"):
        a, b = one.inputs[name], other.inputs[name]
        pairs += [(a.points, b.points), (a.values, b.values), (a.items, b.items)]
    return all(a is not None and b is not None and torch.equal(a, b) for a, b in pairs)


def test_a_batch_is_a_pure_function_of_seed_and_step() -> None:
    first, second = (TASK.batch_of(numbered_houses(), CONFIG, seed=7) for _ in range(2))
    forwards = [first(step) for step in range(12)]
    backwards = [second(step) for step in reversed(range(12))][::-1]
    for (batch, mesh), (again, mesh_again) in zip(forwards, backwards, strict=True):
        assert same(batch, again)
        assert torch.equal(mesh.positions, mesh_again.positions)
    other_seed = TASK.batch_of(numbered_houses(), CONFIG, seed=8)
    assert not any(same(forwards[i][0], forwards[i + 1][0]) for i in range(11))
    assert not any(same(forwards[i][0], other_seed(i)[0]) for i in range(12))


def test_a_batch_mixes_houses_with_different_scenarios_of_each() -> None:
    batch_of = TASK.batch_of(numbered_houses(), CONFIG, seed=0)
    seen = set()
    for step in range(40):
        labels = labels_of(batch_of(step)[0])
        assert len(set(labels)) == 6
        houses = [house for house, _ in labels]
        assert sorted(houses.count(house) for house in set(houses)) == [2, 2, 2]
        seen |= set(labels)
    assert seen == {(house, scenario) for house in range(8) for scenario in range(4)}


def test_a_batch_asks_different_queries_of_every_item() -> None:
    batch, _ = TASK.batch_of(numbered_houses(), CONFIG, seed=0)(0)
    hundredths = (batch.targets["temperature"][:, 0] * 100).round().long() % 100
    of_item = [tuple(hundredths[batch.queries["temperature"].items == item].tolist()) for item in range(6)]
    assert all(len(set(queries)) == 5 for queries in of_item)
    assert len({tuple(sorted(queries)) for queries in of_item}) > 1


def test_all_resolutions_occur_and_a_batch_has_one() -> None:
    batch_of = TASK.batch_of(numbered_houses(), CONFIG, seed=0)
    sizes = []
    for step in range(60):
        batch, mesh = batch_of(step)
        assert mesh.num_items == batch.num_items == 6
        sizes.append(mesh.num_nodes // 6)
    assert set(sizes) == {1, 4, 16, 49}
    assert min(sizes.count(size) for size in set(sizes)) > 5


def test_a_batch_larger_than_the_data_is_all_of_them() -> None:
    large = RunConfig(batches=BatchConfig(items=100, scenarios=100, queries=100))
    batch, _ = TASK.batch_of(numbered_houses(), large, seed=0)(3)
    assert len(set(labels_of(batch))) == batch.num_items == 8 * 4
    assert len(batch.targets["temperature"]) == 8 * 4 * 9


def test_all_of_the_data_are_seen_by_the_normalisation() -> None:
    (batch,) = TASK.all_of(numbered_houses())
    assert labels_of(batch) == [(house, scenario) for house in range(8) for scenario in range(4)]


@pytest.mark.parametrize("fraction, num", [(0.1, 1), (0.25, 2), (0.5, 4), (0.9, 7)])
def test_a_split_is_disjoint_complete_and_seeded(fraction: float, num: int) -> None:
    data = numbered_houses()
    splits = {}
    for seed in range(6):
        training, held_out = TASK.split(data, fraction, seed)
        assert held_out is not None
        assert len(held_out) == num
        assert sorted(training.numbers + held_out.numbers) == list(data.numbers)
        again = TASK.split(data, fraction, seed)[1]
        assert again is not None
        assert again.numbers == held_out.numbers
        splits[seed] = held_out.numbers
    assert len(set(splits.values())) > 1


@pytest.mark.parametrize("fraction, num_houses", [(0.0, 8), (0.05, 8), (0.9, 1)])
def test_too_small_a_split_holds_nothing_back(fraction: float, num_houses: int) -> None:
    data = numbered_houses(num_houses)
    training, held_out = TASK.split(data, fraction, 0)
    assert held_out is None
    assert training.numbers == data.numbers


@pytest.mark.parametrize("fraction", [-0.1, 1.0, 1.5, float("nan"), 0.99])
def test_a_split_must_leave_something_to_train_on(fraction: float) -> None:
    with pytest.raises(InputError, match="validation fraction"):
        TASK.split(numbered_houses(), fraction, 0)


@pytest.mark.parametrize(
    "text, numbers",
    [
        ("3", [3]),
        ("0-3", [0, 1, 2, 3]),
        ("0-2,12,40-41", [0, 1, 2, 12, 40, 41]),
        ("5,5,4-6", [5, 4, 6]),
        (" 1, 2 - 3", [1, 2, 3]),
    ],
)
def test_numbers_are_parsed_in_order_and_once(text: str, numbers: list[int]) -> None:
    assert parse_numbers(text) == numbers


@pytest.mark.parametrize("text", ["", ",", "a", "1,", "3-", "-3", "1-2-3", "4-2", "1,4-2", "1.5", "0-99999999999999999999"])
def test_other_texts_are_refused_with_what_they_say(text: str) -> None:
    with pytest.raises(InputError, match="houses"):
        parse_numbers(text)


def test_subsets_are_those_that_were_written_down(tmp_path: Path) -> None:
    save_houses(tmp_path / "houses.npz", numbered_houses(21))
    assert TASK.load(tmp_path / "houses.npz", "test").numbers == (17, 20)
    assert TASK.load(tmp_path / "houses.npz", "train").numbers == (*range(17), 18, 19)
    assert TASK.load(tmp_path / "houses.npz", "3,1-2").numbers == (3, 1, 2)
    assert TASK.load(tmp_path / "houses.npz").numbers == tuple(range(21))


def test_forty_houses_are_held_out() -> None:
    assert len(set(HELD_OUT)) == len(HELD_OUT) == 40
    assert list(HELD_OUT) == sorted(HELD_OUT)


def test_the_mean_reference_is_the_variance_of_the_temperatures() -> None:
    data = numbered_houses()
    network = build_network(POISSON_SQUARE, SMALLEST)
    (score,) = (s for s in TASK.evaluate(Checkpoint(network), data, (2,)) if s.method == "mean")
    temperatures = np.stack([house.temperatures for house in data.houses])
    assert score.mse_mean == pytest.approx(temperatures.var())
    assert len(score.mse_of_item) == 8


def test_scores_come_in_the_order_they_were_asked_for_with_elements_from_two_nodes_on() -> None:
    network = build_network(POISSON_SQUARE, SMALLEST)
    told: list[str] = []
    scores = TASK.evaluate(Checkpoint(network), numbered_houses(), (3, 1, 2), told.append)
    assert [(s.method, s.resolution, s.nodes) for s in scores] == [
        ("gen", 3, 9),
        ("gen", 1, 1),
        ("gen", 2, 4),
        ("fem", 3, 9),
        ("fem", 2, 4),
        ("mean", 0, 0),
    ]
    assert told == ["gen 3x3", "gen 1x1", "gen 2x2", "fem 3x3", "fem 2x2"]


@needs_real_houses
def test_the_held_out_houses_were_drawn_with_the_seed_2019() -> None:
    numbers = sorted(real_houses().numbers)
    assert len(numbers) == 200
    drawn = np.random.default_rng(2019).choice(numbers, 40, replace=False)
    assert sorted(drawn.tolist()) == list(HELD_OUT)


@needs_real_houses
def test_on_the_authors_houses_elements_on_seven_by_seven_nodes_have_the_known_error() -> None:
    network = build_network(POISSON_SQUARE, SMALLEST)
    scores = {score.method: score for score in TASK.evaluate(Checkpoint(network), real_houses(), (7,))}
    assert scores["fem"].mse_mean == pytest.approx(0.0088, abs=0.0015)
    assert len(scores["fem"].mse_of_item) == 200
