"""`graphelements compare`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def compare(
    ours: Annotated[list[Path], typer.Option("--ours", help="Saved evaluation, one per seed; may be repeated.")],
    theirs: Annotated[list[Path], typer.Option("--theirs", help="Saved evaluation of the other method; may be repeated.")],
) -> None:
    """Compare saved evaluations house by house: the paired difference of the errors with its 95 % bootstrap interval over houses.

    Every resolution of one method is set against the same resolution of the other, or against its only one (a neural process).
    The errors of several seeds are averaged for each house first.

    Example: graphelements compare --ours runs/gen/evaluation.json --theirs runs/np/evaluation.json
    """
    from rich.console import Console
    from rich.table import Table

    from ..experiments.comparison import compared

    table = Table("resolution", "ours", "over seeds", "theirs", "over seeds", "ours - theirs", "95 % over houses")
    for row in compared(ours, theirs):
        table.add_row(
            "np" if row.resolution == "np" else f"{row.resolution}x{row.resolution}",
            f"{row.ours:.5f}",
            f"{row.ours_spread:.5f}",
            f"{row.theirs:.5f}",
            f"{row.theirs_spread:.5f}",
            f"{row.difference:+.5f}",
            f"{row.low:+.5f} to {row.high:+.5f}",
        )
    Console().print(table)
