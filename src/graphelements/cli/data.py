"""`graphelements data`: generate and inspect."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    epilog="Example: graphelements data generate poisson-square --out houses.npz --num 250",
)


@app.command()
def generate(
    task: Annotated[str, typer.Argument(help="The task, see `graphelements tasks`.")],
    out: Annotated[Path, typer.Option(help="The file to write; one that is there is replaced when the new one is complete.")],
    num: Annotated[int, typer.Option(help="How many items (houses, objects).")] = 250,
    seed: Annotated[int, typer.Option(min=0, help="The same seed gives the same data.")] = 0,
    source: Annotated[
        Path | None, typer.Option(help="For pushing: a split.json of Omnipush that names the objects [random ones].")
    ] = None,
) -> None:
    """Generate data of a task, with the truth from a fine solver.

    Example: graphelements data generate poisson-square --out houses.npz --num 250 --seed 1
    """
    from rich.console import Console
    from rich.progress import track

    from ..errors import require
    from ..files import require_writable
    from ..tasks import get_task

    require(num > 0, f"--num must be 1 or more; got {num}")
    made = get_task(task)
    require_writable(out)
    console = Console(stderr=True)
    for _ in track(made.generate(out, num, seed, source), f"{task}: solving", total=None if source else num, console=console):
        pass
    typer.echo(f"wrote {out}")


@app.command()
def inspect(
    path: Annotated[Path, typer.Argument(help="A data file, or a directory in the authors' format.")],
    task: Annotated[
        str | None, typer.Option(help="The task that the data belong to [what the file says, or poisson-square].")
    ] = None,
    houses: Annotated[str, typer.Option(help="all, train, test (the written-down split) or numbers such as 0-9,12.")] = "all",
) -> None:
    """Say what is in a data file or directory.

    Example: graphelements data inspect houses.npz
    """
    from ..data.archives import read_manifest
    from ..tasks import get_task

    manifest = read_manifest(path) if path.is_file() else {}
    chosen = get_task(task or str(manifest.get("task", "poisson-square")))
    facts = chosen.describe(chosen.load(path, houses)) | manifest
    for name, value in facts.items():
        typer.echo(f"{name:<20} {value}")
