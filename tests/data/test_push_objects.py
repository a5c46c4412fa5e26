"""Objects from their keys: outline, picture, load."""

from __future__ import annotations

import numpy as np
import pytest

from graphelements.data.push_objects import BASE, DENSITY, REACH, WEIGHTS, PushObject, random_keys
from graphelements.errors import InputError


@pytest.mark.parametrize("key", ["", "1a2a3a", "1a2a3a5a", "1a2a3a4b", "1B2a3a4a", "1a2a3a4A", "1a2d3a4a", "1a2a3a4a1a"])
def test_a_key_that_is_none_is_refused_with_an_example(key: str) -> None:
    with pytest.raises(InputError, match="such as 1a2B3c4a"):
        PushObject(key)


def test_the_same_object_read_from_another_side_has_the_same_name_and_a_mirrored_one_has_not() -> None:
    names = {PushObject(key).name for key in ("1a2B3c4a", "2B3c4a1a", "3c4a1a2B", "4a1a2B3c")}
    assert names == {"1a2B3c4a"}
    assert PushObject("1a4a3c2B").name not in names


def test_objects_are_as_wide_as_those_of_omnipush() -> None:
    for key in random_keys(20, np.random.default_rng(0)):
        across = np.ptp(PushObject(key).outline.corners, axis=0)
        assert (across >= 0.115).all()
        assert (across <= 0.135).all()


def test_the_area_of_an_object_is_that_of_its_sides() -> None:
    corners = PushObject("2a2a2a4a").outline.corners
    x, y = corners.T
    area = 0.5 * float(np.sum(x * np.roll(y, -1) - y * np.roll(x, -1)))  # positive: counter-clockwise
    side = 2 * BASE * (REACH - BASE)
    assert area == pytest.approx(4 * BASE**2 + 3.5 * side)


def test_a_picture_shows_the_object_and_its_weights_where_the_key_says() -> None:
    """Side 0 faces along x, the others follow to the left."""
    places = np.array([[0.0, 0.0], [0.0475, 0.0], [0.0, 0.035], [-0.035, 0.0], [0.0, -0.035], [0.065, 0.065]])
    assert PushObject("2B3c1b4a").classes(places).tolist() == [1, 2, 3, 2, 1, 0]


def test_weights_move_the_centre_of_the_load_by_their_share() -> None:
    plain, loaded = PushObject("2a2a2a2a").support(), PushObject("2c2a2a2a").support()
    assert plain.centre == pytest.approx([0.0, 0.0], abs=1e-9)
    own = DENSITY * (4 * BASE**2 + 8 * BASE * (REACH - BASE))
    assert loaded.centre == pytest.approx([0.035 * WEIGHTS["c"] / (own + WEIGHTS["c"]), 0.0], abs=5e-5)


def test_random_keys_are_of_different_objects_some_with_weights() -> None:
    keys = random_keys(250, np.random.default_rng(3))
    assert len({PushObject(key).name for key in keys}) == 250
    letters = "".join(key[1::2] for key in keys)
    assert 0.15 < 1 - letters.count("a") / len(letters) < 0.45


def test_more_objects_than_there_are_cannot_be_drawn() -> None:
    with pytest.raises(InputError, match="there are 5226 different objects; got 5227"):
        random_keys(5227, np.random.default_rng(0))
