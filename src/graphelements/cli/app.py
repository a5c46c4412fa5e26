"""The program `graphelements`: its commands, and errors as one line with exit code 2."""

from __future__ import annotations

import sys
from typing import Annotated

import typer
from rich.console import Console

from .._version import __version__
from ..errors import InputError
from . import data, evaluate, predict, train

console = Console()
errors = Console(stderr=True)
UsageError = typer.BadParameter.__base__ or Exception

app = typer.Typer(
    name="graphelements",
    help="Graph Element Networks: learn maps between functions on a space from scattered samples, on any mesh.",
    epilog="A first run: graphelements data generate poisson-square --out houses.npz, "
    "then graphelements train poisson-square --data houses.npz --out runs/first",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
app.add_typer(data.app, name="data", help="Generate and inspect data.")
app.command("train")(train.train)
app.command("evaluate")(evaluate.evaluate)
app.command("predict")(predict.predict)


def _version(show: bool) -> None:
    if show:
        typer.echo(f"graphelements {__version__}")
        raise typer.Exit()


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and stop.")
    ] = False,
) -> None:
    """Graph Element Networks: learn maps between functions on a space from scattered samples, on any mesh."""


@app.command()
def tasks() -> None:
    """List the tasks.

    Example: graphelements tasks
    """
    from ..tasks import TASKS

    for name, summary in TASKS.items():
        typer.echo(f"{name}  {summary}")


@app.command()
def demo(out: Annotated[str, typer.Option(help="The folder for data, run and figures.")] = "demo") -> None:
    """Generate houses, train a small network for about three minutes, evaluate it and draw what it predicts.

    Example: graphelements demo --out demo
    """
    from .demo import run_demo

    run_demo(out)


def main(arguments: list[str] | None = None) -> None:
    """Run the command line; bad input is one line on standard error and exit code 2."""
    try:
        code = app(args=arguments, prog_name="graphelements", standalone_mode=False)
    except InputError as error:
        _fail(str(error))
    except UsageError as error:
        _fail(error.format_message())  # type: ignore[attr-defined]
    except (typer.Abort, KeyboardInterrupt):
        typer.echo("stopped", err=True)
        sys.exit(130)
    else:
        sys.exit(code if isinstance(code, int) else 0)


def _fail(message: str) -> None:
    if message:
        typer.echo("error: " + " ".join(message.split()), err=True)
    sys.exit(2)
