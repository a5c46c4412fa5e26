"""`graphelements predict`."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated

import typer


def predict(
    checkpoint: Annotated[str, typer.Argument(help="A checkpoint file, or the name of a shipped model.")],
    out: Annotated[Path, typer.Option(help="The result: .csv, .npz or .png (a grid only); of a push .json or .png.")],
    house: Annotated[
        Path | None, typer.Option(help='JSON with "heaters" ([x0, y0, x1, y1, power], ...) and "exterior_temperature".')
    ] = None,
    samples: Annotated[
        Path | None, typer.Option(help="On a sphere: CSV with columns latitude, longitude (degrees) and value.")
    ] = None,
    key: Annotated[str | None, typer.Option("--object", help="For pushing: the key of an object, such as 1a2B3c4a.")] = None,
    mask: Annotated[
        Path | None, typer.Option(help="For pushing: a square picture of 140 mm, in greys 0, 85, 170, 255 (nothing to heavy).")
    ] = None,
    push: Annotated[
        str | None, typer.Option(help="For pushing: x,y,degrees of the tip's start and way, in m, the object in the middle.")
    ] = None,
    resolution: Annotated[
        int | None,
        typer.Option(min=1, help="Nodes along each side, latitudes or pieces of edges [7; 4 of an icosahedron or for pushing]."),
    ] = None,
    mesh: Annotated[Path | None, typer.Option(help="Predict on the mesh in this file, as adapt writes it.")] = None,
    grid: Annotated[
        int | None, typer.Option(min=2, max=5000, help="Predict on a grid: so many points along each side, or latitudes [100].")
    ] = None,
    points: Annotated[
        Path | None, typer.Option(help="Predict at these points: CSV with columns x and y, or latitude and longitude.")
    ] = None,
) -> None:
    """The temperature anywhere in a house; the field anywhere on a sphere, from samples of another; or how a pushed object moves.

    Examples:

    graphelements predict runs/first/model.safetensors --house house.json --resolution 7 --grid 100 --out field.png

    graphelements predict poisson-sphere --samples laplacian.csv --out solution.png

    graphelements predict pushing --object 1a2B3c4a --push 0.08,0.01,180 --out motion.png
    """
    from ..checkpoints import load_checkpoint
    from ..errors import choose, require
    from ..files import require_writable
    from ..mesh_files import load_mesh
    from ..spaces import Sphere
    from ..tasks import get_task
    from ..tasks.task import method_of

    choose("the ending of --out", out.suffix, (".csv", ".npz", ".png", ".json"))
    require(points is None or grid is None, "give either --grid or --points, not both")
    require(mesh is None or resolution is None, "give either --mesh or --resolution, not both")
    require(out.suffix != ".png" or points is None, "a picture needs a grid; write points to .csv or .npz")
    require_writable(out)
    loaded = load_checkpoint(checkpoint)
    require(loaded.task is not None, f"{checkpoint} was trained for no task of this library; use graphelements.load and predict")
    kind, task = method_of(loaded.network), get_task(str(loaded.task))
    require(mesh is None or kind == "gen", f"{checkpoint} runs on no mesh: it is of the kind {kind}; leave out --mesh")
    pushing = task.name == "pushing"
    choose(f"the ending of --out for {task.name}", out.suffix, (".json", ".png") if pushing else (".csv", ".npz", ".png"))
    usual = 4 if loaded.mesh.layout == "icosahedron" or pushing else 7
    used = task.mesh(loaded.mesh, (resolution or usual) if kind == "gen" else 1) if mesh is None else load_mesh(mesh)
    others = {"--house": house, "--samples": samples} if pushing else {"--object": key, "--mask": mask, "--push": push}
    refused = [name for name, value in others.items() if value is not None]
    require(not refused, f"{' and '.join(refused)} is not for {task.name}; leave it out")
    if pushing:
        from ..data.pushes import picture_of
        from ..tasks.push_motions import parse_push, predict_motion, read_mask, write_motion

        require((key is None) != (mask is None) and push is not None, "pushing takes --push, and either --object or --mask")
        require(grid is None and points is None, "pushing predicts one motion; leave out --grid and --points")
        picture, asked = picture_of(key) if key is not None else read_mask(mask or Path()), parse_push(push or "")
        motion = predict_motion(loaded.network, picture, asked[None], used)[0]
        write_motion(out, picture, asked, motion, used)
        turn = math.degrees(motion[2])
        typer.echo(f"wrote {out}: {1e3 * motion[0]:.1f} mm along x, {1e3 * motion[1]:.1f} mm along y, {turn:.1f} degrees")
        return
    if isinstance(task.sft.space, Sphere):
        from ..tasks.globe_fields import globe_grid, predict_globe, read_places, write_globe

        require(samples is not None and house is None, f"{task.name} takes --samples, a CSV of what was measured where")
        assert samples is not None
        measured = read_places(samples, "value")
        places = globe_grid(grid or 100) if points is None else read_places(points)
        values = predict_globe(loaded.network, measured, used, places)
        write_globe(out, task.sft.outputs[0].name, places, values, measured, used)
    else:
        from ..data.house_files import read_house_json
        from ..tasks.house_fields import grid_points, read_points, write_field
        from ..tasks.poisson_square import predict_scenario

        require(house is not None and samples is None, f"{task.name} takes --house, a JSON of heaters")
        assert house is not None
        scenario = read_house_json(house)
        places = grid_points(grid or 100) if points is None else read_points(points)
        values = predict_scenario(loaded.network, scenario, used, places)
        write_field(out, places, values, scenario, used)
    typer.echo(f"wrote {out}: {len(places)} points, {values.min():.3f} to {values.max():.3f}")
