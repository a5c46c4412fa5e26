"""Meshes as files: one safetensors file with the nodes and edges of a mesh and of the coarser ones behind it."""

from __future__ import annotations

from pathlib import Path
from typing import get_type_hints

from torch import Tensor

from .checkpoints import read_tensors, write_tensors
from .configs import from_plain, to_plain
from .errors import InputError, require
from .functions import SFT
from .meshes import Mesh

KIND = "mesh"
NEEDED = {"positions": 2, "senders": 1, "receivers": 1, "levels": 1}  # with the numbers of their dimensions
SPACE = get_type_hints(SFT)["space"]


def save_mesh(mesh: Mesh, path: Path | str) -> None:
    """Write a mesh to `path`, replacing what was there only when complete."""
    tensors: dict[str, Tensor] = {}
    for number, level in enumerate(mesh.nest):
        tensors |= {f"{number}.{name}": getattr(level, name) for name in NEEDED}
        tensors |= {} if level.cells is None else {f"{number}.cells": level.cells}
        tensors |= {f"{number}.axis {axis}": along for axis, along in enumerate(level.axes or ())}
    tensors = {name: tensor.clone() for name, tensor in tensors.items()}  # a grid on a line has its axis as its positions
    write_tensors(path, tensors, KIND, {"space": to_plain(mesh.space), "nesting_ratio": mesh.nesting_ratio})


def load_mesh(path: Path | str) -> Mesh:
    """The mesh in a file."""
    tensors, header = read_tensors(path, KIND)
    space, mesh = from_plain(SPACE, header.get("space"), f"{path}: space"), None
    ratio = header.get("nesting_ratio")
    require(ratio is None or (isinstance(ratio, float) and ratio > 1), f"{path}: the nesting ratio is no number above 1; damaged")
    for number in reversed(range(len({name.partition(".")[0] for name in tensors}))):
        parts = {name.partition(".")[2]: tensor for name, tensor in tensors.items() if name.startswith(f"{number}.")}
        for name, dims in (NEEDED | ({"cells": 2} if "cells" in parts else {})).items():
            sound = name in parts and parts[name].ndim == dims and parts[name].is_floating_point() == (name == "positions")
            require(sound, f"{path}: {name} of a mesh are missing or of another shape or type; the file is damaged")
        axes = tuple(parts[name] for name in sorted(name for name in parts if name.startswith("axis ")))
        try:
            nodes_and_edges = (parts[name] for name in NEEDED)
            mesh = Mesh(space, *nodes_and_edges, axes=axes or None, cells=parts.get("cells"), coarser=mesh, nesting_ratio=ratio)
        except InputError as error:
            raise InputError(f"{path}: {error}") from None
    require(mesh is not None, f"{path}: there is no mesh in the file; it is damaged")
    assert mesh is not None
    return mesh
