"""`graphelements adapt`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def adapt(
    checkpoint: Annotated[str, typer.Argument(help="A checkpoint file, or the name of a shipped model.")],
    data: Annotated[Path, typer.Option(help="A data file, or a directory in the authors' format.")],
    house: Annotated[int, typer.Option(min=0, help="The number of the house to adapt to.")],
    out: Annotated[Path, typer.Option(help="The adapted mesh, a .safetensors file.")],
    resolution: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Nodes along each side of the mesh to begin with [5; 3 or 2 if it grows; of an icosahedron 2 or 1].",
        ),
    ] = None,
    nodes: Annotated[int | None, typer.Option(min=4, help="Grow the mesh to so many nodes, at most.")] = None,
    tolerance: Annotated[
        float | None, typer.Option(help="Grow and prune to as few nodes as reach this mean squared error.")
    ] = None,
    steps: Annotated[
        int | None, typer.Option(min=0, help="Steps by which nodes move; if the mesh grows, after every change [40, 10].")
    ] = None,
    scenarios: Annotated[int, typer.Option(min=2, help="Scenarios of the house to adapt to; the others are held out.")] = 16,
    figure: Annotated[Path | None, typer.Option(help="A picture of the meshes before and after, .png.")] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress bar.")] = False,
) -> None:
    """Move the nodes of a mesh to where one house needs them; with --nodes or --tolerance, add and remove nodes as well.

    A quarter of the scenarios judges. Where they do not surely gain, the mesh stays as it is. On a sphere, a house is a group of
    fields, and --resolution counts latitudes, or pieces of the edges of an icosahedron.

    Examples:

    graphelements adapt poisson-square-near --data houses.npz --house 3 --out mesh.safetensors --figure mesh.png

    graphelements adapt poisson-sphere --data sphere.npz --house 3 --out mesh.safetensors --figure globe.png
    """
    from dataclasses import replace

    import torch
    from rich.console import Console
    from rich.progress import track

    from ..adaptation import AdaptationConfig, adapt_mesh, mean_errors
    from ..checkpoints import load_checkpoint
    from ..data.houses import Houses
    from ..errors import choose, require
    from ..files import require_writable
    from ..mesh_files import save_mesh
    from ..mesh_growth import GrowthConfig, grow_mesh
    from ..samples import collate
    from ..tasks import get_task
    from ..tasks.globe_fields import draw_adapted_globes
    from ..tasks.house_fields import draw_adaptation
    from ..tasks.task import meshed_network

    choose("the ending of --out", out.suffix, (".safetensors",))
    require(figure is None or figure.suffix == ".png", f"--figure must end in .png; got {figure}")
    for path in (out, *([] if figure is None else [figure])):
        require_writable(path)
    loaded = load_checkpoint(checkpoint)
    require(loaded.task is not None, f"{checkpoint} was trained for no task of this library; use graphelements.adapt_mesh")
    task, network = get_task(str(loaded.task)), meshed_network(loaded, checkpoint)
    require(figure is None or task.name != "pushing", "there is no picture of adapted meshes for pushing; leave out --figure")
    chosen = task.given(task.load(data, str(house)), network.sft)
    solved = collate(task.all_of(chosen))
    total = solved.num_items
    require(scenarios < total, f"--scenarios must leave one of the {total} of the house to judge by; got {scenarios}")
    given, held_out = solved.selected(range(scenarios)), solved.selected(range(scenarios, total))
    grows = nodes is not None or tolerance is not None
    usual = {"grid": (3, 2) if grows else (5,), "icosahedron": (1,) if grows else (2,)}[loaded.mesh.layout]
    starts = [task.mesh(loaded.mesh, size) for size in ((resolution,) if resolution is not None else usual)]
    mesh = next((start for start in starts if nodes is None or start.num_nodes <= nodes), starts[-1])
    require(
        mesh.num_nodes > 2, f"a mesh that adapts needs three nodes or more; got {mesh.num_nodes}, raise --resolution or --nodes"
    )
    config = AdaptationConfig()
    best = mesh
    if grows:
        growth = GrowthConfig(num_nodes=nodes or 100, tolerance=tolerance)
        growth = growth if steps is None else replace(growth, moves=steps)
        meshes = grow_mesh(network, mesh, given, growth, config)
        length = (growth.changes + 1) * (growth.moves + 1)
    else:
        config = config if steps is None else replace(config, steps=steps)
        meshes, length = adapt_mesh(network, mesh, given, config), config.steps + 1
    for step in track(meshes, "adapting", length, console=Console(stderr=True), disable=quiet, transient=True):
        best = step.best
    before, after = mean_errors(network, [mesh, best], held_out)
    save_mesh(best, out)
    if figure is not None:
        titles = f"{mesh.num_nodes} even nodes, MSE {before:.2g}", f"{best.num_nodes} adapted nodes, MSE {after:.2g}"
        drawn = dict(zip(titles, (mesh, best), strict=True))
        if isinstance(chosen, Houses):
            draw_adaptation(figure, chosen.houses[0].scenario(total - 1), drawn)
        else:
            draw_adapted_globes(figure, solved.selected([total - 1]), drawn)
    typer.echo(
        f"house {house}, mean squared error on its {total - scenarios} other scenarios: "
        f"{before:.5f} with {mesh.num_nodes} even nodes, {after:.5f} with {best.num_nodes} adapted ones"
    )
    if best.num_nodes == mesh.num_nodes and torch.equal(best.positions, mesh.positions):
        typer.echo("no change surely helped the scenarios that judge: the mesh is as it was; more --scenarios may help")
    typer.echo(f"saved {out}" + ("" if figure is None else f" and {figure}"))
