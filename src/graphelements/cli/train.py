"""`graphelements train`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def train(
    task: Annotated[str, typer.Argument(help="The task, see `graphelements tasks`.")],
    data: Annotated[Path, typer.Option(help="A data file, or a directory in the authors' format.")],
    out: Annotated[Path, typer.Option(help="The folder of the run; a run that is there with the same settings goes on.")],
    preset: Annotated[str, typer.Option(help="A named configuration: default, paper, np, attention, ...")] = "default",
    settings: Annotated[
        list[str], typer.Option("--set", metavar="NAME=VALUE", help="Change a value of the configuration; may be repeated.")
    ] = [],
    houses: Annotated[str, typer.Option(help="all, train, test (the written-down split) or numbers such as 0-9,12.")] = "all",
    validation: Annotated[float, typer.Option(help="The fraction of houses kept for the validation error.")] = 0.1,
    seed: Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Seed of weights, batches and split.")] = 0,
    devices: Annotated[int, typer.Option(min=1, help="Processes that share every batch.")] = 1,
    tensorboard: Annotated[bool, typer.Option("--tensorboard", help="Write a TensorBoard log into the run's folder.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress bar.")] = False,
) -> None:
    """Train a network. Ctrl-C stops after the current step; the same command goes on from there.

    Examples:

    graphelements train poisson-square --data houses.npz --out runs/first

    graphelements train poisson-square --data houses.npz --out runs/wide --set network.latent_size=64 --set training.steps=4000
    """
    import torch
    from lightning_fabric import Fabric

    from ..configs import with_settings
    from ..errors import choose
    from ..experiments.runs import MODEL, Run
    from ..experiments.runs import train as carry_out
    from ..tasks import get_task
    from .progress import stop_asked, training_progress

    presets = get_task(task).presets
    choose("the preset", preset, presets)
    config = with_settings(presets[preset], settings)
    fabric = Fabric(accelerator="cpu", devices=devices, strategy="ddp_find_unused_parameters_true" if devices > 1 else "auto")
    reports = carry_out(Run(task, config, data, houses, validation, seed), out, fabric, tensorboard)
    stop = False
    with stop_asked() as asked, training_progress(config.training.steps, fabric.is_global_zero and not quiet) as show:
        for report in reports:
            show(report)
            stop = bool(fabric.all_reduce(torch.tensor(float(asked())), reduce_op="sum"))  # all processes at the same step
            if stop:
                break
        reports.close()  # type: ignore[attr-defined]
    if fabric.is_global_zero:
        typer.echo(f"{'stopped; the same command goes on' if stop else 'done'}: {out / MODEL}")
        if stop:
            raise typer.Exit(130)
