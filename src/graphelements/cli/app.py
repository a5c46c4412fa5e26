"""The program `graphelements`: its commands, and errors as one line with exit code 2."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from .._version import __version__
from ..errors import InputError
from . import adapt, compare, data, evaluate, mesh, predict, reproduce, train

UsageError: type[Exception] = typer.BadParameter.__mro__[1]  # typer has no public name for it

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
app.add_typer(mesh.app, name="mesh")
app.command("train")(train.train)
app.command("evaluate")(evaluate.evaluate)
app.command("predict")(predict.predict)
app.command("adapt")(adapt.adapt)
app.command("compare")(compare.compare)
app.command("reproduce")(reproduce.reproduce)


def _version(show: bool) -> bool:
    if show:
        typer.echo(f"graphelements {__version__}")
        raise typer.Exit()
    return show


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
        if type(error).__name__ == "NoArgsIsHelpError":  # typer does not export it
            typer.echo(error.format_message(), err=True)  # type: ignore[attr-defined]
            sys.exit(2)
        _fail(error.format_message())  # type: ignore[attr-defined]
    except (typer.Abort, KeyboardInterrupt):
        typer.echo("stopped", err=True)
        sys.exit(130)
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and "allocate memory" not in str(error):
            raise
        _fail("there is not enough memory for this; ask for fewer nodes, points or items, or a smaller network")
    else:
        sys.exit(code if isinstance(code, int) else 0)


def _fail(message: str) -> None:
    if message and os.environ.get("LOCAL_RANK", "0") == "0":  # of several training processes, the first one reports
        typer.echo("error: " + " ".join(message.split()), err=True)
    sys.exit(2)
