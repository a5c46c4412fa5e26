"""What is compiled where it runs: kernels in plain torch, by torch's compiler, and C++ of this package, by the system's.

Compiled C++ is kept in the user's cache folder, `$XDG_CACHE_HOME/graphelements` or `~/.cache/graphelements`.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import platform
import shlex
import subprocess
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, no_type_check

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import embedding

from .errors import InputError
from .files import replaced

SOURCES = Path(__file__).parent / "native"
FLAGS = ("-std=c++17", "-O3", "-fPIC", "-shared", "-fno-math-errno", "-fno-trapping-math", "-Wno-psabi")
OPTIONAL_FLAGS = (("-march=native", "-fopenmp"), ("-march=native",), ("-fopenmp",), ())  # the first that the compiler takes


def compiled_run(kernel: Callable, *args) -> Any:
    """Run a kernel that is plain torch, compiled at its first call; it never stores its terms."""
    return _compiled(kernel)(*args)


def run(kernel: Callable, *args, compiled: bool) -> Any:
    """Run a kernel that is plain torch, compiled or as it is; compiled, it may store its terms."""
    return _compiled(kernel, stores=True)(*args) if compiled else kernel(*args)


UNCHECKED: dict[str, Any] = {"assert_indirect_indexing": False}
"""Options of the compiler where rows are known to exist: `build_tables` and `SFT.validate` have checked."""


@functools.cache
def _compiled(kernel: Callable, stores: bool = False) -> Callable:
    inline = 1000  # operations up to which the compiler repeats a term where it is used instead of storing it
    fused = {f"realize_{kind}_threshold": inline for kind in ("reads", "opcount", "acc_reads")}
    options = UNCHECKED if stores else UNCHECKED | fused
    # Every hidden size, number of features and size of 1 is compiled for itself, and torch gives up beyond its limit. The limit
    # is the process's: one for these kernels alone is set and reset in every call, which takes as long as the call itself.
    torch._dynamo.config.recompile_limit = max(torch._dynamo.config.recompile_limit, 64)
    return torch.compile(kernel, dynamic=True, fullgraph=True, options=options)


@no_type_check  # the compiler cannot see through the shape checks of the tests
def rows_of(table: Float[Tensor, "rows channels"], numbers: Int[Tensor, "*n"]) -> Float[Tensor, "*n channels"]:
    """Rows of a table by their numbers, copied row by row, where indexing goes number by number."""
    if torch.compiler.is_compiling():
        return embedding(numbers, table)
    return table.index_select(0, numbers.flatten()).unflatten(0, numbers.shape)


@functools.cache
def compiler_available() -> bool:
    """Whether kernels can be compiled for this machine: it has a C++ compiler, its headers and Python's; tried once a process."""
    try:
        library("rounds")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch's own, about itself
            torch.compile(lambda x: x.relu() + 1, fullgraph=True)(torch.zeros(2))
    except Exception:  # whatever is missing, the answer is no
        return False
    return True


@functools.cache
def library(name: str) -> ctypes.CDLL:
    """The functions of a C++ file of this package, which is compiled if it was not before."""
    source, command = SOURCES / f"{name}.cpp", shlex.split(os.environ.get("CXX", "c++"))
    texts = [path.read_bytes() for path in (*sorted(SOURCES.glob("*.h")), source)]
    made_by = repr((command, _said([*command, "--version"]), FLAGS, OPTIONAL_FLAGS, _processor())).encode()
    key = hashlib.sha256(b"\n".join([*texts, made_by])).hexdigest()[:16]
    try:
        return _kept(_cache_folder() / f"{name}-{key}.so", command, source)
    except (InputError, OSError):  # a folder that cannot be written, that others can write, or from which nothing may be run
        with tempfile.TemporaryDirectory(prefix="graphelements-") as folder:  # what is loaded stays, whatever becomes of its file
            return _kept(Path(folder) / f"{name}.so", command, source)


def numbers(*given: int | Tensor | None) -> ctypes.Array:
    """Whole numbers and addresses of tensors, all of 64 bits: a structure for C++. None is no address."""
    found = [each.data_ptr() if isinstance(each, Tensor) else int(each or 0) for each in given]
    return (ctypes.c_int64 * len(found))(*found)


def _kept(path: Path, command: list[str], source: Path) -> ctypes.CDLL:
    """A library that was compiled before, or is now; one that cannot be loaded is compiled again."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    for owned in (path.parent, path):
        if owned.exists() and hasattr(os, "getuid") and (owned.stat().st_uid != os.getuid() or owned.stat().st_mode & 0o022):
            raise OSError(f"{owned} could have been changed by others")
    if path.exists():
        try:
            return ctypes.CDLL(str(path))
        except OSError:
            path.unlink()
    with replaced(path) as temporary:
        _build(command, source, temporary)
    path.chmod(0o700)
    return ctypes.CDLL(str(path))


def _cache_folder() -> Path:
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "graphelements"
    except RuntimeError as error:  # a user without a home
        raise OSError(str(error)) from None


def _processor() -> str:
    """What machine code is made for: a home may be shared by machines that differ."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    return platform.machine() + "".join(sorted({line for line in lines if line.startswith(("flags", "Features"))}))


def _said(command: list[str]) -> str:
    """What a command prints; what is wrong with it where it cannot be run."""
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout
    except OSError as error:
        return str(error)


def _build(command: list[str], source: Path, target: Path) -> None:
    said = ""
    for optional in OPTIONAL_FLAGS:
        whole = [*command, *FLAGS, *optional, str(source), "-o", str(target)]
        try:
            done = subprocess.run(whole, capture_output=True, text=True, check=False)
        except OSError as error:
            said = str(error)
            break
        if done.returncode == 0:
            return
        said = done.stderr[:500]
        if not any(word in done.stderr for word in ("march", "omp")):  # the flags are not to blame
            break
    raise RuntimeError(f"{shlex.join(command)} cannot compile {source.name}; set CXX to a C++17 compiler: {said}")
