"""Writing files so that nobody ever sees half of one, and reading what may be anything."""

from __future__ import annotations

import csv
import errno
import json
import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from .errors import InputError


@contextmanager
def replaced(path: Path | str) -> Iterator[Path]:
    """A temporary file beside `path` that takes its place when the block ends well, and vanishes when it does not.

    Missing folders are made. A place that cannot be written ends in an `InputError`, and what was there stays.
    """
    path = Path(path)
    temporary = _temporary(path)
    try:
        yield temporary
        temporary.chmod(0o666 & ~_umask())
        temporary.replace(path)
    except OSError as error:
        raise _unwritable(path, error) from None
    finally:
        temporary.unlink(missing_ok=True)


def require_writable(path: Path | str) -> None:
    """Raise an `InputError` before the work starts if its result could not be written to `path`; makes nothing."""
    path = Path(path)
    above = next((folder for folder in path.parents if exists(folder)), path)
    _temporary(path if exists(path.parent) else above / path.name).unlink()


def exists(path: Path) -> bool:
    """Whether something is there; a name that no file can have is not."""
    try:
        return path.exists()
    except (OSError, ValueError):
        return False


def read_json(path: Path, what: str) -> Any:
    """The content of a JSON file, or an `InputError` that says what it should have been."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        raise InputError(f"{path} is not readable as {what}") from None


def read_columns(path: Path, names: Sequence[str]) -> np.ndarray:
    """These columns (rows, names) of a CSV file of numbers with a header."""
    told = f"columns {', '.join(names[:-1])} and {names[-1]}"
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.DictReader(file)
            missing = set(names) - set(reader.fieldnames or ())
            if missing:
                raise InputError(f"{path} needs {told}; got {reader.fieldnames or 'an empty file'}")
            rows = np.array([[float(row[name]) for name in names] for row in reader], dtype=float).reshape(-1, len(names))
    except InputError:
        raise
    except (OSError, UnicodeDecodeError, ValueError, TypeError, csv.Error) as error:
        raise InputError(f"{path} is not a CSV file of numbers in {told} ({error})") from None
    if len(rows) == 0:
        raise InputError(f"{path} has no rows; give at least one below the header")
    return rows


def _temporary(path: Path) -> Path:
    try:
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, "it is a directory")
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.stem}."[:100], suffix=path.suffix[:20])
        os.close(handle)
        if len(path.name.encode()) > os.pathconf(path.parent, "PC_NAME_MAX"):
            Path(name).unlink()
            raise OSError(errno.ENAMETOOLONG, "its name is too long")
    except (OSError, ValueError) as error:
        raise _unwritable(path, error) from None
    return Path(name)


def _unwritable(path: Path, error: Exception) -> InputError:
    reason = getattr(error, "strerror", None) or error
    return InputError(f"{path}: cannot be written ({reason}); choose a place with room and permission")


def _umask() -> int:
    umask = os.umask(0)
    os.umask(umask)
    return umask
