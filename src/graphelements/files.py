"""Writing files so that nobody ever sees half of one."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

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
    above = next((folder for folder in path.parents if folder.exists()), path)
    _temporary(path if path.parent.exists() else above / path.name).unlink()


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
