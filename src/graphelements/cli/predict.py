"""`graphelements predict`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def predict(
    checkpoint: Annotated[str, typer.Argument(help="A checkpoint file, or the name of a shipped model.")],
    house: Annotated[Path, typer.Option(help='JSON with "heaters" ([x0, y0, x1, y1, power], ...) and "exterior_temperature".')],
    out: Annotated[Path, typer.Option(help="The result: .csv, .npz or .png (a grid only).")],
    resolution: Annotated[int | None, typer.Option(min=1, help="Nodes along each side of the mesh [7].")] = None,
    mesh: Annotated[Path | None, typer.Option(help="Predict on the mesh in this file, as adapt writes it.")] = None,
    grid: Annotated[
        int | None, typer.Option(min=2, max=5000, help="Predict on a grid of so many points along each side [100].")
    ] = None,
    points: Annotated[Path | None, typer.Option(help="Predict at these points: CSV with columns x and y.")] = None,
) -> None:
    """The temperature anywhere in a house.

    Example: graphelements predict runs/first/model.safetensors --house house.json --resolution 7 --grid 100 --out field.png
    """
    from ..data.house_files import read_house_json
    from ..errors import choose, require
    from ..files import require_writable
    from ..mesh_files import load_mesh
    from ..tasks.house_fields import grid_points, read_points, write_field
    from ..tasks.poisson_square import load_house_checkpoint, mesh_for, method_of, predict_scenario

    choose("the ending of --out", out.suffix, (".csv", ".npz", ".png"))
    require(points is None or grid is None, "give either --grid or --points, not both")
    require(mesh is None or resolution is None, "give either --mesh or --resolution, not both")
    require(out.suffix != ".png" or points is None, "a picture needs a grid; write points to .csv or .npz")
    require_writable(out)
    loaded = load_house_checkpoint(checkpoint)
    kind = method_of(loaded.network)
    require(mesh is None or kind == "gen", f"{checkpoint} runs on no mesh: it is of the kind {kind}; leave out --mesh")
    used = mesh_for(loaded, resolution or 7) if mesh is None else load_mesh(mesh)
    scenario = read_house_json(house)
    places = grid_points(grid or 100) if points is None else read_points(points)
    temperatures = predict_scenario(loaded.network, scenario, used, places)
    write_field(out, places, temperatures, scenario, used)
    typer.echo(f"wrote {out}: {len(places)} points, {temperatures.min():.3f} to {temperatures.max():.3f}")
