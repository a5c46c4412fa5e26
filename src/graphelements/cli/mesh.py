"""`graphelements mesh inspect`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)


@app.callback()
def mesh() -> None:
    """Look at meshes.

    Example: graphelements mesh inspect mesh.safetensors
    """


@app.command()
def inspect(
    file: Annotated[Path, typer.Argument(help="A mesh file, as `graphelements adapt` and `graphelements.save_mesh` write it.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")] = False,
) -> None:
    """Sizes, degrees, lengths, the worst triangle and the coverage of a mesh, and what is wrong with it.

    Example: graphelements mesh inspect mesh.safetensors
    """
    import json
    import math
    from dataclasses import asdict

    from ..mesh_files import load_mesh
    from ..mesh_quality import inspect_mesh

    report = inspect_mesh(load_mesh(file))
    values = asdict(report)
    if as_json:
        values = {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in values.items()}
        typer.echo(json.dumps(values | {"problems": report.problems}))
        return
    least, mean, most = values.pop("degrees")
    values |= {"edges at a node": f"{least} to {most}, {mean:.2f} in the mean"}
    values["coarser"] = ", ".join(map(str, report.coarser)) or "none"
    for name, value in values.items():
        typer.echo(f"{name.replace('_', ' '):16} {f'{value:.4g}' if isinstance(value, float) else value}")
    for problem in report.problems:
        typer.echo(f"warning: {problem}")
