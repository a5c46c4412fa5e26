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
from collections.abc import Callable, Iterator
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
    texts = [path.read_bytes() for path in (*sorted(SOURCES.glob("*.h")), SOURCES / f"{name}.cpp")]
    command = shlex.split(os.environ.get("CXX", "c++"))
    key = hashlib.sha256(b"\n".join([*texts, repr((command, FLAGS, OPTIONAL_FLAGS, _processor())).encode()])).hexdigest()[:16]
    problem: Exception | None = None
    for folder in _folders():
        path = folder / f"{name}-{key}.so"
        try:
            if not path.exists():
                with replaced(path) as temporary:
                    _build(command, SOURCES / f"{name}.cpp", temporary)
            return ctypes.CDLL(str(path))
        except (InputError, OSError) as error:  # a folder that cannot be written, or from which nothing may be run
            problem = error
    raise RuntimeError(f"compiled C++ can be kept in no folder; set XDG_CACHE_HOME to one: {problem}")


def _folders() -> Iterator[Path]:
    yield Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "graphelements"
    yield Path(tempfile.mkdtemp(prefix="graphelements-"))


def _processor() -> str:
    """What machine code is made for: a home may be shared by machines that differ."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    return platform.platform() + platform.processor() + "".join(sorted({x for x in lines if x.startswith(("flags", "Features"))}))


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
    raise RuntimeError(f"{shlex.join(command)} cannot compile {source.name}; set CXX to a C++17 compiler: {said}")
