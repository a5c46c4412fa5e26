"""What pixels leave open: which objects look alike, which of them are possible, and the error of an ideal observer."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from graphelements.data.push_files import joined, motions_of, save_pushes, simulate, starts_free
from graphelements.data.push_objects import SIDES, PushObject, random_keys
from graphelements.data.pushes import PLACES, picture_of
from graphelements.errors import InputError
from graphelements.experiments import push_pixels
from graphelements.experiments.push_experiments import OBSERVERS, PUSHING
from graphelements.experiments.push_pixels import (
    Expected,
    Possible,
    allowed_sides,
    draw,
    expectations,
    left_open,
    possible_objects,
    table_of,
)
from graphelements.experiments.reproduce import HouseFiles, Reproduction

EVERY = np.arange(len(PLACES))
KEYS = ["1a2B3c4a", "2a2a2a2a", "3b1c2C4a", *random_keys(5, np.random.default_rng(4))]
EVEN = Expected(np.ones((4, len(SIDES))))
FAR = np.array([0.11, 0.11, 0.0])


@pytest.mark.parametrize("key", KEYS)
def test_the_whole_picture_allows_the_object_alone(key: str) -> None:
    (allowed,) = allowed_sides(EVERY[None], [key])
    assert [[SIDES[n] for n in np.flatnonzero(row)] for row in allowed] == [[side] for side in PushObject(key).sides]


def test_what_is_allowed_looks_the_same_and_what_is_not_does_not() -> None:
    rng = np.random.default_rng(0)
    for key in KEYS:
        seen_at = rng.permutation(EVERY)[:64]
        (allowed,) = allowed_sides(seen_at[None], [key])
        for turn, number in np.ndindex(allowed.shape):
            sides = list(PushObject(key).sides)
            sides[turn] = SIDES[number]
            same = (picture_of("".join(sides))[seen_at] == picture_of(key)[seen_at]).all()
            assert same == allowed[turn, number]


def test_all_objects_of_allowed_sides_are_possible_but_those_in_the_way_of_the_tip() -> None:
    allowed = np.zeros((2, 4, len(SIDES)), dtype=bool)
    allowed[0, 0, [0, 3, 5]] = allowed[0, 1, [1, 2]] = allowed[0, 2:, 0] = True
    allowed[1, 0] = [side in ("2a", "4a") for side in SIDES]
    allowed[1, 1:, 0] = True
    near = np.array([0.0605, 0.036, 0.0])  # at the corner of a rectangular side, beside a triangular one
    found = possible_objects(allowed, np.stack([FAR, near]))
    first = {SIDES[a] + SIDES[b] + 2 * SIDES[0] for a in (0, 3, 5) for b in (1, 2)}
    assert {key: rows.tolist() for key, rows in found.items()} == {key: [0] for key in first} | {"4a" + 3 * SIDES[0]: [1]}
    assert not starts_free(PushObject("2a" + 3 * SIDES[0]), near[None]).any()


def test_observers_expect_what_training_objects_have() -> None:
    sides, weights, directions, objects = expectations(["1a2a2a4a", "1b2a2a4a", "1a2B2b4a"]).values()
    assert sides.shares[0] / sides.shares[0].sum() == pytest.approx(sides.shares[3] / sides.shares[3].sum())
    assert sides.shares[0][SIDES.index("4a")] == (4 + 3) / 4  # the mean of 1, 1, 1 and 1 + 3
    assert directions.shares[3][SIDES.index("4a")] == objects.shares[3][SIDES.index("4a")] == 4
    assert not directions.ruled_out("2a2a4a1a")
    assert objects.ruled_out("2a2a4a1a")  # an object of training, read from another side
    assert not weights.ruled_out("2a2a4a1a")
    assert objects.ruled_out("1c2a2a2a")  # none has a heavy weight
    assert weights.ruled_out("1c2a2a2a")
    assert not objects.ruled_out("1b1b2a2a")
    assert not sides.ruled_out("1a2a2a4a")
    assert objects.prior("1a2a2a4a") == 3 * 3 * 3 * 4


SHARES = np.tile(np.arange(1.0, len(SIDES) + 1), (4, 1))
"""As made up as the motions: the side of number n comes n + 1 times."""


def made_up(true: int, possible: tuple[int, ...]) -> Possible:
    """One push of an object whose side of number `true` faces along x, where others are possible; n moves by n tenths."""
    keys = [SIDES[number] + 3 * SIDES[0] for number in possible]
    motions = np.array([[number / 10, 0.0, 0.0] for number in (true, *possible)]) * push_pixels.MOTION_SCALE[0]
    return Possible([SIDES[true] + 3 * SIDES[0]], FAR[None], motions[:1], np.zeros(len(keys), dtype=int), keys, motions[1:])


def test_the_error_is_that_of_the_mean_of_what_is_possible() -> None:
    shares, values = np.array([1.0, 4.0, 8.0, 12.0]) / 25, np.array([0.0, 0.3, 0.7, 1.1])
    mean = (shares * values).sum()
    errors = []
    for number in (0, 3, 7, 11):
        (error,), (variance,) = made_up(number, (0, 3, 7, 11)).observed(Expected(SHARES))
        assert error == pytest.approx((number / 10 - mean) ** 2 / 3)
        assert variance == pytest.approx(((shares * values**2).sum() - mean**2) / 3)
        errors.append(error)
    assert (shares * errors).sum() == pytest.approx(variance)  # what it expects is what comes, if objects come as expected


def test_what_is_ruled_out_counts_nothing_unless_all_is() -> None:
    ruled = Expected(SHARES, lambda key: not key.startswith(SIDES[7]))
    assert made_up(3, (0, 3, 7)).chances(ruled).tolist() == [0.0, 0.0, 1.0]
    assert made_up(3, (0, 3)).chances(ruled) == pytest.approx([1 / 5, 4 / 5])


@pytest.fixture
def file(tmp_path: Path) -> Path:
    keys, held_out = ["2a2a2a2a", "1a2a3a4a", "1a2B3c4a", "4a4a2a1b"], [False, False, True, True]
    done = [simulate(key, (5, number), 5) for number, key in enumerate(keys)]
    save_pushes(tmp_path / "p.npz", joined(keys, held_out, done), {"task": "pushing"})
    return tmp_path / "p.npz"


def test_observers_are_judged_by_objects_with_the_same_pixels(file: Path) -> None:
    told = []
    summary, found, pixels = left_open(file, quick=True, progress=lambda done, of: told.append((done, of)))
    assert summary["pushes"] == len(found.pushes) == 2 * push_pixels.QUICK_EACH
    assert told[-1][0] == told[-1][1] > 0
    for pair, (row, other) in enumerate(zip(found.rows, found.others, strict=True)):
        assert (PushObject(found.keys[row]).classes(pixels[row]) == PushObject(other).classes(pixels[row])).all()
        if pair % 8 == 0:
            assert motions_of(other, found.pushes[row : row + 1])[0] == pytest.approx(found.moved[pair], abs=1e-9)
    pairs = set(zip(found.rows.tolist(), found.others, strict=True))
    assert len(pairs) == len(found.rows)
    assert set(enumerate(found.keys)) <= pairs
    for name, expected in expectations(["2a2a2a2a", "1a2a3a4a"]).items():
        errors, _ = found.observed(expected)
        assert summary["observers"][name]["of_object"] == pytest.approx([errors[:4].mean(), errors[4:].mean()])
        assert f"{summary['observers'][name]['error']:.4f} (" in table_of(summary)
    assert "Quick form" in table_of(summary)


def test_nothing_is_left_open_where_the_whole_picture_is_seen(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = allowed_sides
    monkeypatch.setattr(push_pixels, "allowed_sides", lambda drawn, keys: seen(np.tile(EVERY, (len(drawn), 1)), keys))
    summary, found, pixels = left_open(file, quick=True)
    assert summary["observers"]["sides"]["error"] == pytest.approx(0, abs=1e-20)
    assert summary["observers"]["sides"]["variance"] == 0
    assert summary["certain"] == 1
    assert draw(replace(found, moved=found.motions[found.rows]), pixels) is None


def test_the_picture_shows_the_pairs_that_differ_most() -> None:
    pushes, keys = np.tile([0.08, 0.0, np.pi], (3, 1)), ["2a2a2a2a", "2a2a2a2a", "1a2B3c4a"]
    found = Possible(keys, pushes, np.zeros((3, 3)), np.arange(3), ["4a2a2a2a"] * 3, np.diag([0.01, 0.03, 0.02]))
    figure = draw(found, np.zeros((3, 64, 2)))
    assert figure is not None
    titles = [axes.get_title() for axes in figure.axes]
    assert titles == ["2a2a2a2a: 0 degrees", "1a2B3c4a: 0 degrees", "4a2a2a2a: 0 degrees", "4a2a2a2a: 1 degrees"]


def test_the_experiment_takes_the_observers_of_its_own_objects(tmp_path: Path) -> None:
    files = HouseFiles(Path("t"), "train", Path("t"), "test", "simulated pushes", {"houses": 2})
    work = Reproduction(PUSHING, tmp_path / "pushing", files)
    evaluation = tmp_path / "np-tuned-0.json"
    score = {"method": "np", "resolution": 1, "mse_of_item": [0.04, 0.02]}
    evaluation.write_text(json.dumps({"contents": {"houses": 2}, "results": [score]}))

    def added(work: Reproduction) -> dict:
        summary: dict = {"references": {}, "comparisons": []}
        work._add_observers(summary, {"np-tuned": [evaluation], "no-picture": [evaluation]})
        return summary

    assert added(work) == {"references": {}, "comparisons": []}
    beside = tmp_path / "pushing-pixels" / "summary.json"
    beside.parent.mkdir()
    told = {"contents": {"houses": 2}, "quick": False, "observers": {"sides": {"of_object": [0.03, 0.01]}}}
    beside.write_text(json.dumps(told))
    summary = added(work)
    assert summary["references"][OBSERVERS["sides"]]["0"]["mean"] == 0.02
    (pair,) = summary["comparisons"]
    assert (pair["ours"], pair["theirs"]) == (OBSERVERS["sides"], "neural process, tuned")
    assert [pair[name] for name in ("ratio", "ratio_low", "ratio_high")] == pytest.approx([2 / 3, 0.5, 0.75])
    assert added(replace(work, houses=replace(files, contents={"houses": 3})))["references"] == {}  # of other objects
    assert added(replace(work, quick=True))["references"] == {}
    beside.write_text(json.dumps(told | {"observers": {"sides": {"of_object": [0.03, 0.01, 0.02]}}}))
    with pytest.raises(InputError, match="of other data"):
        added(work)
    for damaged in ({}, told | {"observers": []}):
        beside.write_text(json.dumps(damaged))
        with pytest.raises(InputError, match="not a summary"):
            added(work)
