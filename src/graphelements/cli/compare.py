"""`graphelements compare`."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated

import typer


def compare(
    ours: Annotated[list[Path], typer.Option("--ours", help="Saved evaluation, one per seed; may be repeated.")],
    theirs: Annotated[list[Path], typer.Option("--theirs", help="Saved evaluation of the other method; may be repeated.")],
) -> None:
    """Compare saved evaluations house by house: difference and ratio of the errors with 95 % bootstrap intervals over houses, and
    in how many houses ours errs less.

    Every resolution of one method is set against the same resolution of the other, or against its only one (a neural process).
    The errors of several seeds are averaged for each house first.

    Example: graphelements compare --ours runs/gen/evaluation.json --theirs runs/np/evaluation.json
    """
    from rich.console import Console
    from rich.table import Table

    from ..experiments.comparison import compared

    def mean(value: float, spread: float) -> str:
        return f"{value:.3g}" if math.isnan(spread) else f"{value:.3g} ± {spread:.1g}"

    table = Table("nodes", "ours", "theirs", "ours - theirs", "ours / theirs", "ours less in", caption="below: 95 % over houses")
    for row in compared(ours, theirs):
        table.add_row(
            row.resolution if isinstance(row.resolution, str) else f"{row.resolution}x{row.resolution}",
            mean(row.ours, row.ours_spread),
            mean(row.theirs, row.theirs_spread),
            f"{row.difference:+.3g}\n{row.low:+.2g} to {row.high:+.2g}",
            f"{row.ratio:.2f}\n{row.ratio_low:.2f} to {row.ratio_high:.2f}",
            f"{row.less:.0%}",
        )
    Console().print(table)
