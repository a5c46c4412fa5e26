"""Archives of arrays: `.npz` without pickles, with a manifest (JSON) that says what is in them and how it was made."""

from __future__ import annotations

import json
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from .._version import __version__
from ..errors import InputError, require
from ..files import replaced

FORMAT_VERSION = 1

_UNREADABLE = (
    OSError,
    ValueError,
    EOFError,
    KeyError,
    MemoryError,
    RecursionError,
    NotImplementedError,
    zipfile.BadZipFile,
    zlib.error,
)


def save_archive(path: Path, what: str, arrays: Mapping[str, np.ndarray], manifest: Mapping[str, Any]) -> None:
    """Write arrays of `what`, such as houses, all or nothing; `manifest` says what they are and how they were made."""
    described = {
        **manifest,
        "format": f"graphelements {what}",
        "version": FORMAT_VERSION,
        "library": f"graphelements {__version__}",
    }
    with replaced(path) as temporary, temporary.open("wb") as file:
        np.savez(file, manifest=np.array(json.dumps(described, sort_keys=True)), **arrays)  # type: ignore[arg-type]


@contextmanager
def opened(path: Path, what: str) -> Iterator[np.lib.npyio.NpzFile]:
    """The archive of `what` in a file; what is wrong with it, here or in the block, ends in an `InputError` with its name."""
    with named(path, f"not a readable .npz of {what}; make it again"):
        require(path.exists(), "no such file; name a .npz")
        require(
            zipfile.is_zipfile(path), f"a file of {what} is a .npz archive; got something else or a part of one, make it again"
        )
        with np.load(path, allow_pickle=False) as archive:
            manifest, expected = _manifest(archive, what), f"graphelements {what}"
            require(manifest.get("format") == expected, f"the manifest's format must be {expected!r}; got another")
            yield archive


def read_manifest(path: str | Path) -> dict[str, Any]:
    """What an archive says about itself, whatever is in it."""
    path = Path(path)
    with named(path, "not a readable .npz of data; make it again"):
        require(path.exists(), "no such file; name a .npz")
        require(zipfile.is_zipfile(path), "a file of data is a .npz archive; got something else or a part of one, make it again")
        with np.load(path, allow_pickle=False) as archive:
            return _manifest(archive, "data")


def real_numbers(name: str, array: np.ndarray) -> np.ndarray:
    """The array in double precision, if it is of finite numbers."""
    require(array.dtype.kind in "fiu", f"{name} must hold real numbers; got {array.dtype}")
    require(bool(np.isfinite(array).all()), f"{name} must be finite; found NaN or infinity")
    return array.astype(np.float64)


@contextmanager
def named(path: Path, otherwise: str) -> Iterator[None]:
    """Puts the file's name in front of what is wrong with it, in one line."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    except _UNREADABLE as error:
        said = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise InputError(f"{path}: {otherwise} ({' '.join(said.split())[:120] or type(error).__name__})") from None


def _manifest(archive: np.lib.npyio.NpzFile, what: str) -> dict[str, Any]:
    require("manifest" in archive.files, f"a file of {what} needs a manifest; found none, it was made by something else")
    manifest = json.loads(str(archive["manifest"]))
    ours = isinstance(manifest, dict) and str(manifest.get("format")).startswith("graphelements ")
    require(ours, f"the manifest's format must be 'graphelements {what}'; got another")
    version = manifest.get("version")
    require(version == FORMAT_VERSION, f"the format's version must be {FORMAT_VERSION}; got {version!r}, update graphelements")
    return manifest
