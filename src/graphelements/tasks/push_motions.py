"""One push: from an object's key or a picture of it to its motion, in files and pictures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Float, Int, UInt8

from ..data.push_objects import CLASSES, VIEW
from ..data.pushes import ACROSS, FARTHEST, MOTION_SCALE, PLACES, TRAVEL, push_batch, sft_given
from ..errors import InputError, require
from ..files import replaced
from ..meshes import Mesh
from ..sft_network import SFTNetwork

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LEVELS = 255 // (len(CLASSES) - 1)  # of grey between one class and the next in a picture
COLOURS = ("#f4f4f4", "#9aa5b1", "#56B4E9", "#0072B2")  # nothing, object, light weight, heavy weight
TRUE, PREDICTED = "#009E73", "#D55E00"

Picture = UInt8[np.ndarray, " pixels"]
"""The class of every pixel, as `picture_of` has them."""


def read_mask(path: Path) -> Picture:
    """A square picture from a file, grey: 0 where there is nothing, 85 object, 170 light weight, 255 heavy weight; up is +y."""
    from matplotlib.image import imread

    try:
        image = np.asarray(imread(path))
    except (OSError, ValueError, SyntaxError) as error:
        raise InputError(f"{path}: not a readable picture ({str(error).splitlines()[0]}); save it as a grey PNG") from None
    grey = image[..., 0] if image.ndim == 3 else image
    grey = grey * 255 if grey.dtype.kind == "f" else grey.astype(float)
    size = 2e3 * VIEW
    require(grey.shape[0] == grey.shape[1] >= 8, f"{path}: a mask is a square picture of {size:.0f} mm; got {grey.shape} pixels")
    rows = ((np.arange(ACROSS) + 0.5) * len(grey) / ACROSS).astype(int)
    classes = np.rint(grey[::-1][np.ix_(rows, rows)] / LEVELS)
    odd = grey[np.abs(grey / LEVELS - np.rint(grey / LEVELS)) > 0.1][:1]
    require(len(odd) == 0, f"{path}: greys are 0, 85, 170 and 255 ({', '.join(CLASSES)}); got {odd} besides")
    require(bool((classes > 0).any()), f"{path}: the picture shows nothing; draw the object in greys of 85 and more")
    return classes.astype(np.uint8).ravel()


def parse_push(text: str) -> Float[np.ndarray, " 3"]:
    """x and y of the tip in m and the direction of its way in degrees, with commas between, as m, m and rad."""
    try:
        x, y, degrees = (float(part) for part in text.split(","))
    except ValueError:
        raise InputError(f"a push is x,y,degrees such as 0.08,0.01,180, in metres; got {text!r}") from None
    most = FARTHEST
    fits = abs(x) <= most and abs(y) <= most and abs(degrees) <= 360  # false for NaN
    require(fits, f"a push starts within {most} m of the middle of the object, degrees are -360 to 360; got {text!r}")
    return np.array([x, y, np.radians(degrees)])


def predict_motion(
    network: SFTNetwork, picture: Picture, pushes: Float[np.ndarray, "n 3"], mesh: Mesh, seed: int = 0
) -> Float[np.ndarray, "n 3"]:
    """How one object moves in each of n pushes: dx, dy and the angle by which it turns, in m, m and rad."""
    names = [f.name for f in network.sft.inputs]
    require("examples" not in names, "this network learns from pushes of the same object, not from a picture; use another")
    batch = push_batch(network.sft, picture, pushes, seed)
    return network.predict(batch, mesh)["motion"].double().numpy() * MOTION_SCALE


def draw_picture(axes: Axes, picture: Picture) -> None:
    """The picture as colours of the classes."""
    from matplotlib.colors import ListedColormap

    shown = {"cmap": ListedColormap(COLOURS), "vmin": 0, "vmax": len(COLOURS) - 1}
    side = 1e3 * VIEW
    axes.imshow(picture.reshape(ACROSS, ACROSS), origin="lower", extent=(-side, side, -side, side), **shown)
    most = 1e3 * FARTHEST
    axes.set(xlim=(-most, most), ylim=(-most, most), aspect="equal", xlabel="x / mm", ylabel="y / mm")


def draw_push(axes: Axes, push: Float[np.ndarray, " 3"], **style: object) -> None:
    """The way of the tip as an arrow."""
    x, y, angle = push
    along = 1e3 * TRAVEL * np.array([np.cos(angle), np.sin(angle)])
    options: dict = {"color": "black", "width": 1.0, "head_width": 5, "length_includes_head": True, "zorder": 4} | style
    axes.arrow(1e3 * x, 1e3 * y, *along, **options)


def draw_motion(axes: Axes, picture: Picture, motion: Float[np.ndarray, " 3"], colour: str, label: str, dashed: bool) -> None:
    """The outline of what the picture shows where it is after the motion."""
    shown = (picture.reshape(ACROSS, ACROSS) > 0).astype(float)
    dx, dy, turn = motion
    cos, sin = np.cos(turn), np.sin(turn)
    x, y = (axis.reshape(ACROSS, ACROSS) for axis in PLACES.double().numpy().T)
    moved = 1e3 * (cos * x - sin * y + dx), 1e3 * (sin * x + cos * y + dy)
    axes.contour(*moved, shown, levels=[0.5], colors=[colour], linewidths=1.6, linestyles="dashed" if dashed else "solid")
    axes.plot([], [], color=colour, linestyle="--" if dashed else "-", label=label)


def write_motion(
    path: Path, picture: Picture, push: Float[np.ndarray, " 3"], motion: Float[np.ndarray, " 3"], mesh: Mesh
) -> None:
    """The motion as JSON, or drawn."""
    if path.suffix == ".json":
        told = dict(zip(("dx_m", "dy_m", "dtheta_rad"), motion.tolist(), strict=True))
        with replaced(path) as temporary:
            temporary.write_text(json.dumps({"push": push.tolist()} | told, indent=1) + "\n")
        return
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.5, 5.5), layout="constrained")
    axes = figure.subplots()
    draw_picture(axes, picture)
    draw_push(axes, push)
    draw_motion(axes, picture, motion, PREDICTED, "predicted", False)
    nodes = 1e3 * mesh.positions.numpy()
    axes.scatter(nodes[:, 0], nodes[:, 1], s=12, color="black", marker="+", label="nodes")
    axes.legend(loc="lower right")
    dx, dy, turn = motion
    axes.set_title(f"{1e3 * dx:.1f} mm, {1e3 * dy:.1f} mm, {np.degrees(turn):.1f} degrees", fontsize=10)
    with replaced(path) as temporary:
        figure.savefig(temporary, dpi=120)


def sampled(picture: Picture, seed: int = 0) -> tuple[Float[np.ndarray, "drawn 2"], Int[np.ndarray, " drawn"]]:
    """The places of the 64 pixels that a network is given, and their classes."""
    samples = push_batch(sft_given(["pixels"]), picture, np.zeros((1, 3)), seed).inputs["pixels"]
    return samples.points.numpy(), torch.argmax(samples.values, -1).numpy()
