"""The command line called in this process, and the settings of runs that take a second."""

from __future__ import annotations

import csv
import io
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path

from graphelements.cli import main


@dataclass(frozen=True)
class Outcome:
    """What a command left behind: exit code, standard output and standard error."""

    code: int
    out: str
    err: str


def call(*arguments: object) -> Outcome:
    """Run a command of graphelements."""
    out, err = io.StringIO(), io.StringIO()
    code = None
    with redirect_stdout(out), redirect_stderr(err):
        try:
            main([str(argument) for argument in arguments])
        except SystemExit as end:
            code = end.code
    assert isinstance(code, int), f"a command must end with an exit code; got {code!r}"
    return Outcome(code, out.getvalue(), err.getvalue())


def settings(**values: object) -> list[str]:
    """`--set` for each value; the first underscore of a name stands for the dot."""
    return [part for name, value in values.items() for part in ("--set", f"{name.replace('_', '.', 1)}={value}")]


SMALL = [
    "--quiet",
    *settings(
        network_latent_size=8,
        network_edge_hidden=8,
        network_node_hidden=8,
        batches_items=4,
        batches_queries=16,
        batches_resolutions="2,3",
        batches_large_resolutions="",
        batches_large_share=0,
        training_compile="off",
    ),
]


def files_in(folder: Path) -> dict[str, bytes | None]:
    """Every file below a folder with its bytes; folders have none."""
    return {str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None for path in sorted(folder.rglob("*"))}


def rows_of(path: Path) -> list[dict[str, str]]:
    """The rows of a CSV file."""
    return list(csv.DictReader(path.read_text().splitlines()))
