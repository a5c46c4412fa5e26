"""What pixels leave open: which objects look alike, how they are drawn, and the error that is left."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from graphelements.data.push_files import PUSHES, joined, motions_of, save_pushes, simulate, starts_free
from graphelements.data.push_objects import SIDES, PushObject, random_keys
from graphelements.data.pushes import MOTION_SCALE, PLACES, picture_of
from graphelements.experiments import push_pixels
from graphelements.experiments.push_experiments import LEFT_OPEN, PUSHING
from graphelements.experiments.push_pixels import Alike, allowed_sides, draw, draw_alike, left_open, table_of
from graphelements.experiments.reproduce import HouseFiles, Reproduction

ALL = PLACES.double().numpy()
KEYS = ["1a2B3c4a", "2a2a2a2a", "3b1c2C4a", *random_keys(5, np.random.default_rng(4))]


@pytest.mark.parametrize("key", KEYS)
def test_the_whole_picture_allows_the_object_alone(key: str) -> None:
    allowed = allowed_sides(ALL[None], picture_of(key)[None].astype(int))[0]
    assert [[SIDES[n] for n in np.flatnonzero(row)] for row in allowed] == [[side] for side in PushObject(key).sides]


def test_what_is_allowed_looks_the_same_and_what_is_not_does_not() -> None:
    rng = np.random.default_rng(0)
    for key in KEYS:
        seen_at = rng.permutation(len(ALL))[:64]
        (allowed,) = allowed_sides(ALL[seen_at][None], picture_of(key)[seen_at][None].astype(int))
        for turn, number in np.ndindex(allowed.shape):
            sides = list(PushObject(key).sides)
            sides[turn] = SIDES[number]
            same = (picture_of("".join(sides))[seen_at] == picture_of(key)[seen_at]).all()
            assert same == allowed[turn, number]


def test_objects_are_drawn_as_often_as_their_sides_are_and_never_in_the_way_of_the_tip() -> None:
    shares = np.arange(1.0, len(SIDES) + 1)
    allowed = np.zeros((6000, 4, len(SIDES)), dtype=bool)
    allowed[:, 0, [0, 3, 5]] = allowed[:, 1:, 0] = True
    far = np.tile([0.11, 0.11, 0.0], (6000, 1))
    keys = draw_alike(allowed, shares, far, seed=1)
    counts = np.array([sum(key[:2] == SIDES[side] for key in keys) for side in (0, 3, 5)])
    assert counts / 6000 == pytest.approx(shares[[0, 3, 5]] / shares[[0, 3, 5]].sum(), abs=0.025)
    assert {key[2:] for key in keys} == {3 * SIDES[0]}
    near = np.tile([0.0605, 0.036, 0.0], (200, 1))  # at the corner of a rectangular side, beside a triangular one
    allowed[:, 0] = [side in ("2a", "4a") for side in SIDES]
    keys = draw_alike(allowed[:200], shares, near, seed=1)
    assert {key[:2] for key in keys} == {"4a"}
    assert not starts_free("2a" + 3 * SIDES[0], near).any()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    keys, held_out = ["2a2a2a2a", "1a2a3a4a", "1a2B3c4a", "4a4a2a1b"], [False, False, True, True]
    done = [simulate(key, (5, number), 5) for number, key in enumerate(keys)]
    save_pushes(tmp_path / "p.npz", joined(keys, held_out, done), {"task": "pushing"})
    return tmp_path / "p.npz"


def test_the_error_is_half_the_squared_difference_to_objects_with_the_same_pixels(file: Path) -> None:
    told = []
    summary, found = left_open(file, quick=True, progress=lambda done, of: told.append((done, of)))
    assert summary["pushes"] == 2 * push_pixels.QUICK_EACH == len(found.keys)
    assert (
        told[-1][0]
        == told[-1][1]
        == len({other for other, own in zip(found.other_keys, found.keys, strict=True) if other != own})
    )
    for row, (key, other) in enumerate(zip(found.keys, found.other_keys, strict=True)):
        here = found.pixels[row]
        assert (PushObject(key).classes(here) == PushObject(other).classes(here)).all()
        assert motions_of(other, found.pushes[row : row + 1])[0] == pytest.approx(found.other_motions[row], abs=1e-9)
    halves = np.square((found.other_motions - found.motions) / np.array(MOTION_SCALE)).mean(1) / 2
    assert summary["error"] == pytest.approx(halves.mean())
    assert summary["of_object"] == pytest.approx([halves[:4].mean(), halves[4:].mean()])
    assert f"{summary['error']:.4f}" in table_of(summary)
    assert left_open(file, quick=True)[0]["error"] == summary["error"]  # a seed of its own


def test_nothing_is_left_open_where_every_other_is_the_object_itself(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(push_pixels, "allowed_sides", lambda points, seen: _own(["1a2B3c4a", "4a4a2a1b"], len(points)))
    summary, found = left_open(file, quick=True)
    assert summary["error"] == 0
    assert summary["certain"] == 1
    assert found.other_keys == found.keys


def _own(keys: list[str], num: int) -> np.ndarray:
    allowed = np.zeros((num, 4, len(SIDES)), dtype=bool)
    for row in range(num):
        for turn, side in enumerate(PushObject(keys[row * len(keys) // num]).sides):
            allowed[row, turn, SIDES.index(side)] = True
    return allowed


def test_the_picture_shows_the_pairs_that_differ_most() -> None:
    pushes = np.tile([0.08, 0.0, np.pi], (3, 1))
    own, other = np.zeros((3, 3)), np.diag([0.01, 0.03, 0.02])
    found = Alike(["2a2a2a2a", "2a2a2a2a", "1a2B3c4a"], pushes, own, np.zeros((3, 64, 2)), ["4a2a2a2a"] * 3, other)
    figure = draw(found, num=2)
    titles = [axes.get_title() for axes in figure.axes]
    assert titles == ["2a2a2a2a: 0 degrees", "1a2B3c4a: 0 degrees", "4a2a2a2a: 0 degrees", "4a2a2a2a: 1 degrees"]


def test_the_experiment_tells_it_beside_its_own_results(tmp_path: Path) -> None:
    files = HouseFiles(Path("t"), "train", Path("t"), "test", "simulated pushes", {"houses": 2})
    work = Reproduction(PUSHING, tmp_path / "pushing", files)
    assert work._left_open() == {}
    beside = tmp_path / "pushing-pixels" / "summary.json"
    beside.parent.mkdir()
    beside.write_text(json.dumps({"contents": {"houses": 2}, "error": 0.02}))
    assert work._left_open()[LEFT_OPEN]["0"]["mean"] == 0.02
    assert replace(work, houses=replace(files, contents={"houses": 3}))._left_open() == {}  # of other objects
    assert PUSHES > push_pixels.PUSHES_EACH
