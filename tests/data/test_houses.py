"""Houses: validation, the 64-sample encoding, batches, and whether random houses are distributed like the real ones."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from real_data import needs_real_houses, real_houses
from scipy.stats import chisquare, ks_2samp

from graphelements.data.houses import POISSON_SQUARE, Heater, House, Houses, Scenario, encode
from graphelements.data.random_houses import HouseDistribution, draw_houses
from graphelements.errors import InputError
from graphelements.samples import collate


def small_houses(num: int = 5, seed: int = 0) -> Houses:
    drawn = draw_houses(num, np.random.default_rng(seed), HouseDistribution(num_scenarios=3, num_queries=7))
    return Houses(tuple(replace(h, temperatures=h.query_points.sum(-1) + h.number) for h in drawn.houses))


def a_house(**changes: object) -> House:
    parts = {
        "number": 3,
        "rectangles": np.array([[0.1, 0.1, 0.2, 0.3]]),
        "powers": np.zeros((2, 1)),
        "exterior_temperatures": np.zeros(2),
        "query_points": np.full((2, 4, 2), 0.5),
        "temperatures": np.zeros((2, 4)),
    }
    return House(**{**parts, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("heater", "says"),
    [
        ((0.2, 0.1, 0.2, 0.3, 1.0), "x0 < x1"),
        ((0.3, 0.1, 0.2, 0.3, 1.0), "x0 < x1"),
        ((0.1, 0.4, 0.2, 0.3, 1.0), "y0 < y1"),
        ((-0.1, 0.1, 0.2, 0.3, 1.0), "unit square"),
        ((0.1, 0.1, 0.2, 1.1, 1.0), "unit square"),
        ((0.1, float("nan"), 0.2, 0.3, 1.0), "finite"),
        ((0.1, 0.1, 0.2, 0.3, float("inf")), "finite"),
        ((0.1, 0.1, 0.2, 0.3, -1e16), "power must be 1e.12 at most, whatever its sign; got -1e.16"),
        ((0.1, 0.1, 0.1 + 1e-10, 0.2, 1.0), "sides must be 1e-06 or longer"),
    ],
)
def test_a_heater_that_is_no_rectangle_in_the_square_is_refused(heater: tuple[float, ...], says: str) -> None:
    with pytest.raises(InputError, match=says):
        Heater(*heater)


@pytest.mark.parametrize("num", [0, 7])
def test_a_scenario_has_one_to_six_heaters(num: int) -> None:
    with pytest.raises(InputError, match=f"1 to 6 heaters; got {num}"):
        Scenario((Heater(0.1, 0.1, 0.2, 0.3, 1.0),) * num, 0.0)


def test_a_scenario_needs_a_finite_exterior_temperature() -> None:
    with pytest.raises(InputError, match="finite"):
        Scenario((Heater(0.1, 0.1, 0.2, 0.3, 1.0),), float("nan"))


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"number": -1}, "number"),
        ({"rectangles": np.array([[0.3, 0.1, 0.2, 0.3]])}, "x0 < x1"),
        ({"rectangles": np.zeros((0, 4))}, "1 to 6 heaters"),
        ({"rectangles": np.zeros((1, 3))}, "shape"),
        ({"powers": np.zeros((2, 2))}, "powers need shape"),
        ({"powers": np.full((2, 1), np.nan)}, "powers must be finite"),
        ({"powers": np.full((2, 1), -1e39)}, "largest of the powers must be 1e.12 at most"),
        ({"exterior_temperatures": np.full(2, 1e22)}, "largest of the exterior temperatures must be 1e.12 at most"),
        ({"exterior_temperatures": np.zeros(3)}, "shape"),
        ({"exterior_temperatures": np.zeros(0)}, "one exterior temperature per scenario"),
        ({"query_points": np.full((2, 4, 3), 0.5)}, "query points need shape"),
        ({"query_points": np.full((2, 0, 2), 0.5)}, "needs query points"),
        ({"query_points": np.full((2, 4, 2), 1.5)}, "unit square"),
        ({"temperatures": np.zeros((2, 5))}, "temperatures need shape"),
        ({"temperatures": np.full((2, 4), np.inf)}, "temperatures must be finite"),
    ],
)
def test_a_house_whose_arrays_do_not_fit_is_refused(changes: dict[str, object], says: str) -> None:
    with pytest.raises(InputError, match=says):
        a_house(**changes)


def test_houses_need_different_numbers_equal_shapes_and_temperatures_for_all_or_none() -> None:
    with pytest.raises(InputError, match="different numbers"):
        Houses((a_house(), a_house()))
    with pytest.raises(InputError, match="equally many"):
        Houses((a_house(), a_house(number=4, query_points=np.full((2, 5, 2), 0.5), temperatures=np.zeros((2, 5)))))
    with pytest.raises(InputError, match="1 of 2"):
        Houses((a_house(), a_house(number=4, temperatures=None)))
    with pytest.raises(InputError, match="at least one"):
        Houses(())


@pytest.mark.parametrize("num_heaters", range(1, 7))
def test_a_scenario_is_64_samples_nine_on_each_heater_and_the_rest_on_the_border(num_heaters: int) -> None:
    heaters = tuple(Heater(0.1 * i + 0.05, 0.3, 0.1 * i + 0.1, 0.9, float(i + 1)) for i in range(num_heaters))
    samples = encode(Scenario(heaters, -0.25))
    assert len(samples["heaters"].points) == 9 * num_heaters
    assert len(samples["border"].points) == 64 - 9 * num_heaters
    assert samples["heaters"].values[:, 0].tolist() == np.repeat(np.arange(1.0, num_heaters + 1), 9).tolist()
    assert (samples["border"].values == -0.25).all()
    border = samples["border"].points.double()
    assert torch.minimum(border, 1 - border).amin(1).abs().max() < 1e-6


def test_a_heater_is_sampled_at_corners_edge_midpoints_and_centre() -> None:
    points = encode(Scenario((Heater(0.2, 0.4, 0.4, 0.8, 1.0),), 0.0))["heaters"].points
    expected = {(x, y) for x in (0.2, 0.3, 0.4) for y in (0.4, 0.6, 0.8)}
    assert {(round(x, 6), round(y, 6)) for x, y in points.tolist()} == expected


@pytest.mark.parametrize("num_heaters", [1, 2, 4])
def test_border_samples_start_at_the_corner_and_are_evenly_spaced_along_the_border(num_heaters: int) -> None:
    heaters = tuple(Heater(0.1 * i, 0.3, 0.1 * i + 0.05, 0.9, 1.0) for i in range(num_heaters))
    x, y = encode(Scenario(heaters, 0.0))["border"].points.double().T
    assert (x[0], y[0]) == (0, 0)
    walked = torch.where(y < 1e-6, x, torch.where(x > 1 - 1e-6, 1 + y, torch.where(y > 1 - 1e-6, 3 - x, 4 - y)))
    assert torch.allclose(walked.diff(), torch.full_like(walked[1:], 4 / len(x)), atol=1e-6)


def powers_of(*heaters: Heater) -> np.ndarray:
    """The power of every heater's samples, row by row from below."""
    return encode(Scenario(heaters, 0.5))["heaters"].values.reshape(-1, 3, 3).numpy()


def test_where_heaters_overlap_the_sample_has_the_power_of_the_last_one() -> None:
    first, second = powers_of(Heater(0.2, 0.2, 0.4, 0.4, 100.0), Heater(0.3, 0.1, 0.6, 0.3, -50.0))
    assert (second == -50).all()
    assert first.tolist() == [[100, -50, -50], [100, -50, -50], [100, 100, 100]]  # the other's sides included
    assert (powers_of(Heater(0.2, 0.2, 0.3, 0.3, 100.0), Heater(0.1, 0.1, 0.6, 0.6, -50.0)) == -50).all()


def test_heaters_that_only_touch_keep_their_samples() -> None:
    first, second, third = powers_of(
        Heater(0.2, 0.2, 0.4, 0.4, 100.0), Heater(0.4, 0.1, 0.6, 0.5, -50.0), Heater(0.1, 0.4, 0.2, 0.87, 7.0)
    )
    assert (first == 100).all()
    assert (second == -50).all()
    assert (third == 7).all()


def test_heaters_of_equal_power_differ_by_millionths() -> None:
    first, second, third, fourth = powers_of(
        *(Heater(x, 0.2, x + 0.1, 0.4, p) for x, p in zip((0.1, 0.3, 0.5, 0.7), (-300.0, 50.0, -300.0, -300.0), strict=True))
    )
    values = [float(of_heater[0, 0]) for of_heater in (first, third, fourth)]
    assert len(set(values)) == 3
    assert values == pytest.approx(3 * [-300], rel=3e-6)
    assert (first == -300).all()
    assert (second == 50).all()
    assert (third == third[0, 0]).all()


@pytest.mark.parametrize("power", [300.0, -1e-30, 1e11])
def test_what_is_set_apart_meets_no_third_power(power: float) -> None:
    powers = (power, power, power * (1 + 1e-6), power * (1 + 2e-6), power)
    values = powers_of(*(Heater(0.1 + i / 6, 0.2, 0.2 + i / 6, 0.4, each) for i, each in enumerate(powers)))[:, 0, 0]
    assert len(set(values.tolist())) == 5
    assert values.tolist() == pytest.approx(list(powers), rel=1e-5)


def test_heaters_without_power_stay_without() -> None:
    assert (powers_of(Heater(0.1, 0.2, 0.3, 0.4, 0.0), Heater(0.5, 0.2, 0.7, 0.4, -0.0)) == 0).all()


def test_a_batch_is_the_collation_of_its_scenarios() -> None:
    houses = small_houses()
    index, scenario = np.array([4, 0, 4, 2]), np.array([0, 2, 1, 1])
    batch = houses.batch(index, scenario)
    POISSON_SQUARE.validate(batch)
    assert batch.num_items == 4
    for item, (h, s) in enumerate(zip(index.tolist(), scenario.tolist(), strict=True)):
        alone, house = batch.selected([item]), houses.houses[h]
        for name, samples in encode(house.scenario(s)).items():
            assert torch.equal(alone.inputs[name].points, samples.points)
            assert torch.equal(alone.inputs[name].values, samples.values)
        points = alone.queries["temperature"].points
        assert points is not None
        assert points.dtype == torch.float32
        assert np.allclose(points.numpy(), house.query_points[s])
        assert np.allclose(alone.targets["temperature"][:, 0].numpy(), house.temperatures[s])
    parts = collate([houses.batch(np.array([h]), np.array([s])) for h, s in zip(index, scenario, strict=True)])
    assert torch.equal(parts.inputs["heaters"].items, batch.inputs["heaters"].items)
    assert torch.equal(parts.queries["temperature"].items, batch.queries["temperature"].items)


def test_a_batch_takes_the_chosen_queries_in_their_order() -> None:
    houses = small_houses()
    chosen = torch.tensor([[6, 0], [3, 3]])
    batch = houses.batch(torch.tensor([1, 2]), torch.tensor([0, 1]), chosen)
    expected = np.concatenate([houses.houses[1].temperatures[0, [6, 0]], houses.houses[2].temperatures[1, [3, 3]]])
    assert np.allclose(batch.targets["temperature"][:, 0].numpy(), expected)
    assert batch.queries["temperature"].items.tolist() == [0, 0, 1, 1]


def test_houses_that_are_not_solved_give_batches_without_targets() -> None:
    batch = draw_houses(2, np.random.default_rng(0)).batch(np.array([0]), np.array([5]))
    assert batch.targets == {}
    assert len(batch.queries["temperature"]) == 256


@pytest.mark.parametrize(
    ("index", "scenario", "queries", "says"),
    [
        ([5], [0], None, "houses must be 0 to 4; got 5"),
        ([-1], [0], None, "houses must be 0 to 4; got -1"),
        ([0], [3], None, "scenarios must be 0 to 2"),
        ([0], [0], [[7]], "queries must be 0 to 6"),
        ([0, 1], [0, 1], [[1]], "one row of queries per item"),
    ],
)
def test_an_index_out_of_range_is_refused(index: list, scenario: list, queries: list | None, says: str) -> None:
    with pytest.raises(InputError, match=says):
        small_houses().batch(np.array(index), np.array(scenario), None if queries is None else np.array(queries))


def test_selected_houses_come_in_the_order_asked_for() -> None:
    houses = small_houses()
    assert houses.selected([3, 1]).numbers == (3, 1)
    with pytest.raises(InputError, match="not among them: 7, 9"):
        houses.selected([1, 7, 9])
    with pytest.raises(InputError, match="different numbers"):
        houses.selected([1, 1])


def test_the_same_seed_draws_the_same_houses_and_a_longer_draw_begins_alike() -> None:
    first, second = draw_houses(3, np.random.default_rng(5)), draw_houses(6, np.random.default_rng(5))
    for one, other in zip(first.houses, second.houses, strict=False):
        assert np.array_equal(one.rectangles, other.rectangles)
        assert np.array_equal(one.powers, other.powers)
        assert np.array_equal(one.query_points, other.query_points)


@pytest.mark.parametrize("changes", [{"max_heaters": 7}, {"min_side": 0.3}, {"strip": 0.2}, {"num_queries": 0}])
def test_an_impossible_distribution_is_refused(changes: dict[str, float]) -> None:
    with pytest.raises(InputError, match="got"):
        HouseDistribution(**changes)  # type: ignore[arg-type]


def features(houses: Houses) -> dict[str, np.ndarray]:
    """Numbers that are independent of each other within each feature, or nearly so."""
    first = np.concatenate([h.rectangles[:-1] for h in houses.houses])
    last = np.stack([h.rectangles[-1] for h in houses.houses])
    both = np.concatenate([first, last])
    return {
        "x0 of all but the last": first[:, 0].round(4),
        "x1 of all but the last": first[:, 2].round(4),
        "x0 of the last": last[:, 0].round(4),
        "y0": both[:, 1].round(4),
        "y1": both[:, 3].round(4),
        "width": (both[:, 2] - both[:, 0]).round(4),
        "height": (both[:, 3] - both[:, 1]).round(4),
        "area": ((both[:, 2] - both[:, 0]) * (both[:, 3] - both[:, 1])).round(6),
        "power": np.concatenate([h.powers.ravel() for h in houses.houses]),
        "exterior temperature": np.concatenate([h.exterior_temperatures for h in houses.houses]).round(4),
        "query x": np.concatenate([h.query_points[0, :, 0] for h in houses.houses]).round(4),
        "query y": np.concatenate([h.query_points[0, :, 1] for h in houses.houses]).round(4),
    }


def overlap_frequency(houses: Houses) -> float:
    def overlaps(a: np.ndarray, b: np.ndarray) -> bool:
        return bool((np.minimum(a[2:], b[2:]) - np.maximum(a[:2], b[:2]) > 1e-9).all())

    return float(
        np.mean([any(overlaps(r, s) for i, r in enumerate(h.rectangles) for s in h.rectangles[:i]) for h in houses.houses])
    )


@needs_real_houses
def test_random_houses_are_distributed_like_the_real_ones() -> None:
    drawn = draw_houses(2000, np.random.default_rng(0))
    real, generated = features(real_houses()), features(drawn)
    p_values = {name: ks_2samp(real[name], generated[name]).pvalue for name in real}
    assert min(p_values.values()) > 0.02, p_values
    counts = np.bincount([len(h.rectangles) for h in real_houses().houses], minlength=5)[1:]
    assert chisquare(counts).pvalue > 0.02
    # 19 of 200 real houses: a binomial deviation of 0.021
    assert abs(overlap_frequency(real_houses()) - overlap_frequency(drawn)) < 0.045


@needs_real_houses
def test_the_strip_matters_to_the_distribution() -> None:
    plain = features(draw_houses(2000, np.random.default_rng(0), HouseDistribution(strip=0.5)))
    assert ks_2samp(features(real_houses())["x1 of all but the last"], plain["x1 of all but the last"]).pvalue < 1e-4


def test_importing_houses_loads_neither_scikit_fem_nor_matplotlib() -> None:
    modules = "sys, graphelements.data.poisson, graphelements.data.house_files, graphelements.data.random_houses"
    code = f"import {modules}; print({{'skfem', 'matplotlib'}} & set(sys.modules))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "set()"
