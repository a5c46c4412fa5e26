"""Files appear complete or not at all."""

from __future__ import annotations

import stat

import pytest

from graphelements.errors import InputError
from graphelements.files import replaced, require_writable


def test_a_file_takes_its_place_when_the_block_ends(tmp_path):
    path = tmp_path / "made" / "on" / "the" / "way" / "a.txt"
    with replaced(path) as temporary:
        temporary.write_text("new")
        assert not path.exists()
        assert temporary.suffix == ".txt"
    assert path.read_text() == "new"
    assert [p.name for p in path.parent.iterdir()] == ["a.txt"]


def test_the_old_file_stays_and_nothing_is_left_behind_when_the_block_fails(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("old")

    def write_half() -> None:
        with replaced(path) as temporary:
            temporary.write_text("half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_half()
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["a.txt"]


def test_files_get_the_permissions_of_ordinary_new_files(tmp_path):
    (tmp_path / "ordinary").write_text("")
    with replaced(tmp_path / "a") as temporary:
        temporary.write_text("")
    modes = [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("ordinary", "a")]
    assert modes[0] == modes[1]


def test_places_that_cannot_be_written_are_named_in_one_line(tmp_path):
    (tmp_path / "file").write_text("")
    for place in (tmp_path, tmp_path / "file" / "below"):
        with pytest.raises(InputError, match="written") as caught, replaced(place):
            pass
        assert str(place) in str(caught.value)
        assert "\n" not in str(caught.value)


def test_a_name_that_is_too_long_is_named_in_one_line_and_leaves_nothing_behind(tmp_path):
    with pytest.raises(InputError, match="written"), replaced(tmp_path / ("a" * 300)):
        pass
    assert list(tmp_path.iterdir()) == []


def test_asking_whether_a_place_can_be_written_makes_nothing(tmp_path):
    (tmp_path / "file").write_text("old")
    for place in (tmp_path / "a", tmp_path / "new" / "folder" / "a", tmp_path / "file"):
        require_writable(place)
    for place in (tmp_path, tmp_path / "file" / "below"):
        with pytest.raises(InputError, match="written"):
            require_writable(place)
    assert [p.name for p in tmp_path.iterdir()] == ["file"]
    assert (tmp_path / "file").read_text() == "old"
