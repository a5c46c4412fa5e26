"""C++ of the package is compiled once, kept in the user's cache, and where it cannot be compiled the reason is said."""

from __future__ import annotations

import pytest
import torch

from graphelements import compilation
from graphelements.compilation import library, rows_of


@pytest.fixture
def fresh(monkeypatch, tmp_path):
    """No library is loaded yet, and none is in the cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    library.cache_clear()
    yield tmp_path
    library.cache_clear()


def test_what_was_compiled_is_not_compiled_again(fresh, monkeypatch):
    if not compilation.compiler_available():
        pytest.skip("there is no C++ compiler")
    library("rounds")
    (kept,) = (fresh / "graphelements").iterdir()
    library.cache_clear()
    monkeypatch.setattr(compilation, "_build", lambda *_: pytest.fail("compiled again"))
    library("rounds")
    assert [kept] == list((fresh / "graphelements").iterdir())


def test_a_missing_compiler_is_named_and_leaves_nothing(fresh, monkeypatch):
    monkeypatch.setenv("CXX", "false")
    with pytest.raises(RuntimeError, match=r"false cannot compile rounds\.cpp; set CXX to a C\+\+17 compiler"):
        library("rounds")
    assert list((fresh / "graphelements").iterdir()) == []
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(RuntimeError, match=r"no-such-compiler cannot compile rounds\.cpp"):
        library("rounds")


def test_a_cache_that_cannot_be_written_is_done_without(fresh, monkeypatch):
    if not compilation.compiler_available():
        pytest.skip("there is no C++ compiler")
    (fresh / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(fresh / "file"))
    assert library("rounds").round_float32_forward is not None


def test_what_others_could_have_changed_is_not_loaded(fresh):
    if not compilation.compiler_available():
        pytest.skip("there is no C++ compiler")
    folder = fresh / "graphelements"
    folder.mkdir()
    folder.chmod(0o777)
    assert library("rounds").round_float32_forward is not None
    assert list(folder.iterdir()) == []


def test_a_damaged_file_is_replaced(fresh, monkeypatch):
    if not compilation.compiler_available():
        pytest.skip("there is no C++ compiler")
    load = compilation._kept

    def damaged(path, *rest):
        path.parent.mkdir(mode=0o700)
        path.write_bytes(b"no library")
        path.chmod(0o700)
        return load(path, *rest)

    monkeypatch.setattr(compilation, "_kept", damaged)
    assert library("rounds").round_float32_forward is not None
    (kept,) = (fresh / "graphelements").iterdir()
    assert kept.read_bytes().startswith(b"\x7fELF")


def test_rows_are_those_of_their_numbers():
    table, numbers = torch.arange(12.0).view(4, 3), torch.tensor([[3, 0], [1, 1]])
    assert torch.equal(rows_of(table, numbers), table[numbers])
