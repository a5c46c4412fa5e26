"""`graphelements reproduce`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..experiments.poisson_experiments import OPTIMISED_MESHES
from ..experiments.push_experiments import PUSHING_LOGS, PUSHING_PIXELS
from . import data as data_commands

NAMES = (
    "poisson-square, poisson-ablation, default-ablation, poisson-tuning, optimised-meshes, poisson-sphere, scattered-sphere, "
    "pushing, pushing-tuning, pushing-logs or pushing-pixels."
)

if TYPE_CHECKING:
    from ..experiments.reproduce import Cell, Reproduction


def reproduce(
    experiment: Annotated[str, typer.Argument(help=NAMES)],
    data: Annotated[
        Path | None, typer.Option(help="The authors' directory, or a data file [houses are generated into the folder].")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="The folder of the results [results/EXPERIMENT, results/quick/EXPERIMENT].")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="A few minutes: few steps, one seed, few houses.")] = False,
    only: Annotated[str | None, typer.Option(help="Curves or cells, comma-separated: default,np-0")] = None,
    seeds: Annotated[int | None, typer.Option(min=1, help="How many seeds, from 0 on [those of the experiment].")] = None,
    model: Annotated[
        list[str] | None, typer.Option(help="For optimised-meshes: a checkpoint, may be given again [poisson-square-near].")
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress bars.")] = False,
) -> None:
    """Train and score what an experiment needs; write a table and figures from all results that are there.

    Every cell (a curve with a seed) is one file in the folder. Cells that are there are not done again. Ctrl-C stops, the same
    command goes on. With --only, two processes may fill the same folder side by side.

    Examples:

    graphelements reproduce poisson-square --quick

    graphelements reproduce poisson-square --data poisson_houses --only default,np
    """
    if experiment == OPTIMISED_MESHES:
        refused = [name for name, value in {"--only": only, "--seeds": seeds}.items() if value is not None]
        _optimise_meshes(model or ["poisson-square-near"], data, out, quick, quiet, refused)
        return
    if experiment in (PUSHING_LOGS, PUSHING_PIXELS):
        from ..errors import require

        given = {"--only": only, "--seeds": seeds, "--model": model}
        given |= {"--quick": quick or None} if experiment == PUSHING_LOGS else {}
        refused = [name for name, value in given.items() if value is not None]
        require(not refused, f"{experiment} trains nothing; leave out {', '.join(refused)}")
        if experiment == PUSHING_LOGS:
            _check_simulator(data, out or Path("results") / experiment, quiet)
        else:
            _judge_pixels(data, out or Path("results") / ("quick" if quick else "") / experiment, quick, quiet)
        return
    from ..errors import choose, require
    from ..experiments.reproduce import EXPERIMENTS, Reproduction, cells_of, find_houses, get_experiment, houses_to_generate
    from ..files import require_writable

    choose("the experiment", experiment, (*EXPERIMENTS, OPTIMISED_MESHES, PUSHING_LOGS, PUSHING_PIXELS))
    require(model is None, f"--model is for optimised-meshes; {experiment} trains its own")
    chosen = get_experiment(experiment, quick)
    cells = cells_of(chosen, seeds, only)
    folder = out or Path("results") / ("quick" if quick else "") / experiment
    require_writable(folder / "summary.json")
    try:
        if data is None:
            for path, (num, seed) in houses_to_generate(folder, chosen, quick).items():
                data_commands.generate(chosen.task, path, num, seed)
        work = Reproduction(chosen, folder, find_houses(data, folder, chosen), quick)
        for cell in cells:
            work.run(cell)  # what is wrong with one is said before the first is trained
        for path in work.adopt(cells):
            typer.echo(f"copied {path}")
        table = work.summarise()
        left = [cell for cell in cells if cell not in work.finished()]
        for number, cell in enumerate(left):
            if cell not in work.finished():  # another process may have done it meanwhile
                _carry_out(work, cell, f"{cell.name}, {len(left) - number - 1} more", not quiet)
                table = work.summarise()
    except KeyboardInterrupt:
        typer.echo(f"stopped; the same command goes on: {folder}")
        raise typer.Exit(130) from None
    typer.echo(table)
    typer.echo(f"summary, table and figures are in {folder}")


def _check_simulator(data: Path | None, folder: Path, quiet: bool) -> None:
    """The errors of the simulator of pushes on real pushes, as a table and a figure."""
    from rich.console import Console

    from ..errors import require
    from ..experiments.push_validation import draw, table_of, validated
    from ..experiments.summaries import write_results
    from ..files import require_writable

    require(data is not None, f"{PUSHING_LOGS} needs --data, a folder with logs of real pushes")
    assert data is not None
    require_writable(folder / "summary.json")
    with Console(stderr=True, quiet=quiet).status("simulating") as status:
        summary, logs, answers = validated(data, lambda text: status.update(f"simulating {text}"))
    table = table_of(summary)
    write_results(folder, summary, table, {"errors.png": draw(logs, answers)})
    typer.echo(table)
    typer.echo(f"summary, table and figure are in {folder}")


def _judge_pixels(data: Path | None, folder: Path, quick: bool, quiet: bool) -> None:
    """What the pixels of pushed objects leave open, as a table and a figure."""
    from rich.console import Console
    from rich.progress import Progress

    from ..errors import require
    from ..experiments.push_pixels import draw, left_open, table_of
    from ..experiments.summaries import write_results
    from ..files import require_writable

    require(data is not None, f"{PUSHING_PIXELS} needs --data, a file of `graphelements data generate pushing`")
    assert data is not None
    require_writable(folder / "summary.json")
    with Progress(console=Console(stderr=True), disable=quiet, transient=True) as bar:
        task = bar.add_task("simulating", total=None)
        summary, found, pixels = left_open(data, quick, lambda done, of: bar.update(task, completed=done, total=of))
    table = table_of(summary)
    write_results(folder, summary, table, {"alike.png": draw(found, pixels)})
    typer.echo(table)
    typer.echo(f"summary, table and figure are in {folder}")


def _carry_out(work: Reproduction, cell: Cell, name: str, shown: bool) -> None:
    """Train and score a cell; a wish to stop ends it after the current step."""
    from rich.console import Console

    from .progress import stop_asked, training_progress

    steps, reports = work.run(cell).config.training.steps, work.train(cell)
    with stop_asked() as asked, training_progress(steps, shown, name) as show:
        for report in reports:
            show(report)
            if asked():
                break
        reports.close()  # type: ignore[attr-defined]
    if asked():
        raise KeyboardInterrupt
    with Console(stderr=True, quiet=not shown).status(name) as status:
        work.score(cell, lambda text: status.update(f"{name}: {text}"))


def _optimise_meshes(
    models: list[str], data: Path | None, out: Path | None, quick: bool, quiet: bool, refused: list[str]
) -> None:
    """The trials of every model that are missing, one file each, and a table and figures from all of them."""
    from rich.console import Console

    from ..errors import require
    from ..experiments import mesh_summary
    from ..experiments.optimised_meshes import QUICK, Work, all_results, carry_out, houses_of
    from ..experiments.summaries import write_results
    from ..files import require_writable
    from ..tasks.poisson_square import load_meshed_checkpoint

    require(not refused, f"{' and '.join(refused)} are for experiments that train; {OPTIMISED_MESHES} takes --model")
    folder, work = out or Path("results") / ("quick" if quick else "") / OPTIMISED_MESHES, QUICK if quick else Work()
    require_writable(folder / "summary.json")
    names = {
        Path(source).parent.name if Path(source).name == "model.safetensors" else Path(source).stem: source for source in models
    }
    distinct = len(names) == len(models) and "summary" not in names
    require(distinct, f"every --model needs a name of its own, and none may be called summary; got {', '.join(models)}")
    for source in models:
        load_meshed_checkpoint(source)
    houses = houses_of(data, work)
    all_results(folder, houses, work)  # what is wrong with those that are there is said before any trial
    with Console(stderr=True, quiet=quiet).status("optimising meshes") as status:
        for name, source in names.items():
            carry_out(folder / f"{name}.json", source, houses, work, lambda text, name=name: status.update(f"{name}: {text}"))
    results = all_results(folder, houses, work)
    summary, first = mesh_summary.summarised(results), results[next(iter(names))]["houses"]
    table = mesh_summary.table_of(summary)
    figures = {
        "errors.png": mesh_summary.draw_nodes_and_errors(summary),
        "meshes.png": mesh_summary.draw_meshes(houses, first),
        "one_house.png": mesh_summary.draw_one_house(houses, first),
    }
    write_results(folder, summary, table, figures)
    typer.echo(table)
    typer.echo(f"summary, table and figures are in {folder}")
