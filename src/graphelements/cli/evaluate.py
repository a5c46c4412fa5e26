"""`graphelements evaluate`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer


def evaluate(
    checkpoint: Annotated[str, typer.Argument(help="A checkpoint file, or the name of a shipped model.")],
    data: Annotated[Path, typer.Option(help="A data file, or a directory in the authors' format.")],
    resolutions: Annotated[
        str | None, typer.Option(help="Nodes along each side, latitudes or pieces of edges, comma-separated [those of the task].")
    ] = None,
    houses: Annotated[str, typer.Option(help="all, train, test (the written-down split) or numbers such as 0-9,12.")] = "all",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a table.")] = False,
    out: Annotated[
        Path | None, typer.Option(help="Where to save the scores, each house's included [beside the checkpoint].")
    ] = None,
    mesh: Annotated[Path | None, typer.Option(help="Score on the mesh in this file as well, as adapt writes it.")] = None,
    layout: Annotated[str | None, typer.Option(help="On a sphere: grid or icosahedron [as in training].")] = None,
    rotations: Annotated[int, typer.Option(min=0, help="On a sphere: how much answers differ over so many rotations.")] = 0,
) -> None:
    """Mean squared error per resolution, beside the task's references: finite elements with the same nodes, the mean, ...

    Examples:

    graphelements evaluate runs/first/model.safetensors --data test.npz --resolutions 2,4,7

    graphelements evaluate poisson-sphere --data sphere.npz --layout icosahedron --resolutions 1,2,4 --rotations 20
    """
    from rich.console import Console
    from rich.table import Table

    from ..errors import InputError, require
    from ..experiments.evaluation import save_evaluation
    from ..experiments.summaries import size_name
    from ..files import exists

    try:
        sizes = tuple(dict.fromkeys(int(part) for part in resolutions.split(","))) if resolutions is not None else None
    except ValueError:
        raise InputError(f"--resolutions are numbers such as 2,3,4; got {resolutions!r}") from None
    require(sizes is None or min(sizes) > 0, f"--resolutions must be positive; got {resolutions!r}")
    target = out or (Path(checkpoint).parent if exists(Path(checkpoint)) else Path()) / "evaluation.json"
    with Console(stderr=True).status("evaluating") as status:
        evaluation = save_evaluation(
            target, checkpoint, data, houses, sizes, lambda text: status.update(f"evaluating {text}"), mesh, layout, rotations
        )
    if as_json:
        brief = [{name: value for name, value in score.items() if name != "mse_of_item"} for score in evaluation["results"]]
        turned = {"rotations": evaluation["rotations"]} if rotations else {}
        typer.echo(json.dumps({"task": evaluation["task"], "results": brief} | turned))
        return
    table = Table("method", "nodes", "MSE", "std over houses", "ms a scenario")
    for score in evaluation["results"]:
        size = score["resolution"]
        nodes = size_name(size, score["nodes"]) if size else f"{score['nodes']} of {mesh}" if score["nodes"] else "-"
        seconds = f"{1e3 * score['seconds_per_scenario']:.2f}" if score["seconds_per_scenario"] else "-"
        table.add_row(score["method"], nodes, f"{score['mse_mean']:.5f}", f"{score['mse_std']:.5f}", seconds)
    Console().print(table)
    for turned in evaluation.get("rotations", []):
        typer.echo(
            f"{rotations} rotations on {turned['nodes']} nodes: predictions deviate by {turned['spread']:.4f}, "
            f"{turned['ratio']:.2f} of the error of {turned['error']:.4f} (root mean squares)"
        )
    typer.echo(f"saved {target}")
