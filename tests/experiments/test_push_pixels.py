"""What pixels leave open: which objects look alike, how they are drawn, and the error of an ideal observer."""

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
from graphelements.experiments.push_experiments import OBSERVER, PUSHING
from graphelements.experiments.push_pixels import (
    Alike,
    Expected,
    allowed_sides,
    draw,
    draw_alike,
    expectations,
    left_open,
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


def test_objects_are_drawn_as_they_are_expected_and_never_in_the_way_of_the_tip() -> None:
    rng, shares = np.random.default_rng(1), np.arange(1.0, len(SIDES) + 1)
    allowed = np.zeros((4, len(SIDES)), dtype=bool)
    allowed[0, [0, 3, 5]] = allowed[1:, 0] = True
    keys = draw_alike(allowed, Expected(np.tile(shares, (4, 1))), FAR, rng, 6000)
    counts = np.array([sum(key[:2] == SIDES[side] for key in keys) for side in (0, 3, 5)])
    assert counts / 6000 == pytest.approx(shares[[0, 3, 5]] / shares[[0, 3, 5]].sum(), abs=0.025)
    assert {key[2:] for key in keys} == {3 * SIDES[0]}
    ruled = Expected(np.tile(shares, (4, 1)), lambda key: key.startswith(SIDES[3]))
    assert {key[:2] for key in draw_alike(allowed, ruled, FAR, rng, 200)} == {SIDES[0], SIDES[5]}
    near = np.array([0.0605, 0.036, 0.0])  # at the corner of a rectangular side, beside a triangular one
    allowed[0] = [side in ("2a", "4a") for side in SIDES]
    assert {key[:2] for key in draw_alike(allowed, EVEN, near, rng, 50)} == {"4a"}
    assert not starts_free(PushObject("2a" + 3 * SIDES[0]), near[None]).any()
    allowed[0] = [side == "2a" for side in SIDES]
    with pytest.raises(InputError, match="leaves room for a tip"):
        draw_alike(allowed, EVEN, near, rng)


def test_observers_expect_what_training_objects_have() -> None:
    sides, objects = expectations(["1a2a2a4a", "1b2a2a4a", "1a2B2b4a"]).values()
    assert sides.shares[0] / sides.shares[0].sum() == pytest.approx(sides.shares[3] / sides.shares[3].sum())
    assert sides.shares[0][SIDES.index("4a")] == (4 + 3) / 4  # the mean of 1, 1, 1 and 1 + 3
    assert objects.shares[3][SIDES.index("4a")] == 4
    assert objects.ruled_out("2a2a4a1a")  # an object of training, read from another side
    assert objects.ruled_out("1c2a2a2a")  # none has a heavy weight
    assert not objects.ruled_out("1b1b2a2a")
    assert not sides.ruled_out("1a2a2a4a")


def test_the_error_is_that_of_the_mean_of_what_is_possible() -> None:
    """With motions that are made up for every side, and objects drawn as expected, error and variance are those reckoned."""
    worth = {side: number / 10 for number, side in enumerate(SIDES)}
    rng, num = np.random.default_rng(3), 4000
    allowed = np.zeros((4, len(SIDES)), dtype=bool)
    allowed[0, [0, 3, 7, 11]] = allowed[1:, 0] = True
    expected = Expected(np.tile(np.arange(1.0, len(SIDES) + 1), (4, 1)))

    def moved(keys: list[str]) -> np.ndarray:
        return np.array([[worth[key[:2]], 0.0, 0.0] for key in keys]) * push_pixels.MOTION_SCALE[0]

    own, first, second = (draw_alike(allowed, expected, FAR, rng, num) for _ in range(3))
    found = Alike(own, np.tile(FAR, (num, 1)), moved(own), np.zeros((num, 64, 2)), (first, second), (moved(first), moved(second)))
    shares, values = np.array([1.0, 4.0, 8.0, 12.0]) / 25, np.array([worth[SIDES[n]] for n in (0, 3, 7, 11)])
    variance = (shares * values**2).sum() - (shares * values).sum() ** 2
    assert found.errors.mean() == pytest.approx(variance / 3, rel=0.1)
    assert found.variances.mean() == pytest.approx(variance / 3, rel=0.1)
    always = replace(found, motions=moved([4 * SIDES[0]] * num))  # one that is rarely expected
    assert always.errors.mean() == pytest.approx((shares * values).sum() ** 2 / 3, rel=0.1)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    keys, held_out = ["2a2a2a2a", "1a2a3a4a", "1a2B3c4a", "4a4a2a1b"], [False, False, True, True]
    done = [simulate(key, (5, number), 5) for number, key in enumerate(keys)]
    save_pushes(tmp_path / "p.npz", joined(keys, held_out, done), {"task": "pushing"})
    return tmp_path / "p.npz"


def test_observers_are_judged_by_objects_with_the_same_pixels(file: Path) -> None:
    told = []
    summary, found = left_open(file, quick=True, progress=lambda done, of: told.append((done, of)))
    assert summary["pushes"] == 2 * push_pixels.QUICK_EACH
    assert told[-1][0] == told[-1][1]
    for name, alike in found.items():
        for others, motions in zip(alike.other_keys, alike.other_motions, strict=True):
            for row, (key, other) in enumerate(zip(alike.keys, others, strict=True)):
                here = alike.pixels[row]
                assert (PushObject(key).classes(here) == PushObject(other).classes(here)).all()
                assert motions_of(other, alike.pushes[row : row + 1])[0] == pytest.approx(motions[row], abs=1e-9)
        of_object = summary["observers"][name]["of_object"]
        assert of_object == pytest.approx([alike.errors[:4].mean(), alike.errors[4:].mean()])
        assert f"{summary['observers'][name]['error']:.4f} (" in table_of(summary)
    assert "Quick form" in table_of(summary)
    assert left_open(file, quick=True)[0]["observers"] == summary["observers"]  # a seed of its own


def test_nothing_is_left_open_where_the_whole_picture_is_seen(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = allowed_sides
    monkeypatch.setattr(push_pixels, "allowed_sides", lambda drawn, keys: seen(np.tile(EVERY, (len(drawn), 1)), keys))
    summary, found = left_open(file, quick=True)
    assert summary["observers"]["sides"]["error"] == summary["observers"]["sides"]["variance"] == 0
    assert summary["certain"] == 1
    assert draw(found["sides"]) is None


def test_the_picture_shows_the_pairs_that_differ_most() -> None:
    pushes = np.tile([0.08, 0.0, np.pi], (3, 1))
    own, other = np.zeros((3, 3)), np.diag([0.01, 0.03, 0.02])
    keys, others = ["2a2a2a2a", "2a2a2a2a", "1a2B3c4a"], ["4a2a2a2a"] * 3
    figure = draw(Alike(keys, pushes, own, np.zeros((3, 64, 2)), (others, others), (other, other)))
    assert figure is not None
    titles = [axes.get_title() for axes in figure.axes]
    assert titles == ["2a2a2a2a: 0 degrees", "1a2B3c4a: 0 degrees", "4a2a2a2a: 0 degrees", "4a2a2a2a: 1 degrees"]


def test_the_experiment_takes_the_observer_of_its_own_objects(tmp_path: Path) -> None:
    files = HouseFiles(Path("t"), "train", Path("t"), "test", "simulated pushes", {"houses": 2})
    work = Reproduction(PUSHING, tmp_path / "pushing", files)
    assert work._observer() == {}
    beside = tmp_path / "pushing-pixels" / "summary.json"
    beside.parent.mkdir()
    beside.write_text(json.dumps({"contents": {"houses": 2}, "quick": False, "observers": {"sides": {"error": 0.02}}}))
    assert work._observer()[OBSERVER]["0"]["mean"] == 0.02
    assert replace(work, houses=replace(files, contents={"houses": 3}))._observer() == {}  # of other objects
    assert replace(work, quick=True)._observer() == {}
    beside.write_text("{}")
    with pytest.raises(InputError, match="not a summary"):
        work._observer()
