"""Meshes as files, and what is said of them."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from cases import MESHES, SPACES, seeded

from graphelements.checkpoints import write_tensors
from graphelements.cli import main
from graphelements.configs import to_plain
from graphelements.errors import InputError
from graphelements.mesh_files import load_mesh, save_mesh
from graphelements.mesh_quality import inspect_mesh
from graphelements.meshes import Mesh, grid_mesh, mesh_at, scattered_mesh
from graphelements.spaces import Box


@pytest.mark.parametrize("space", SPACES)
@pytest.mark.parametrize("mesh", MESHES)
def test_a_mesh_comes_back_from_its_file_with_what_is_behind_it(space, mesh, tmp_path):
    saved = MESHES[mesh](SPACES[space]).nested()
    save_mesh(saved, tmp_path / "mesh.safetensors")
    loaded = load_mesh(tmp_path / "mesh.safetensors")
    for ours, theirs in zip(saved.nest, loaded.nest, strict=True):
        assert (ours.space, ours.nesting_ratio) == (theirs.space, theirs.nesting_ratio)
        for name in ("positions", "senders", "receivers", "levels"):
            assert torch.equal(getattr(ours, name), getattr(theirs, name))
        assert (ours.cells is None) == (theirs.cells is None)
        assert ours.cells is None or torch.equal(ours.cells, theirs.cells)
        assert [axis.tolist() for axis in ours.axes or ()] == [axis.tolist() for axis in theirs.axes or ()]


def tensors_of(mesh: Mesh) -> dict[str, torch.Tensor]:
    return {f"0.{name}": getattr(mesh, name) for name in ("positions", "senders", "receivers", "levels", "cells")}


GRID = grid_mesh(Box(), 3)
DAMAGED = {
    "no nodes": ({"0.positions": None}, {}, "positions of a mesh are missing"),
    "edges of numbers": ({"0.senders": GRID.senders.float()}, {}, "senders of a mesh are missing or of another shape or type"),
    "edges to nowhere": ({"0.senders": GRID.senders + 7}, {}, "edges join 0 to 8"),
    "nodes outside": ({"0.positions": GRID.positions + 1}, {}, "must lie in the space"),
    "cells of numbers": ({"0.cells": torch.rand(2, 3)}, {}, "cells of a mesh are missing or of another shape or type"),
    "nothing": (dict.fromkeys(tensors_of(GRID)), {}, "no mesh in the file"),
    "a nest of no ratio": ({}, {"nesting_ratio": 0.5}, "no number above 1"),
    "no space": ({}, {"space": None}, "space"),
    "another space": ({}, {"space": {"lower": [0.0], "upper": [1.0]}}, "with 1 coordinates each"),
}


@pytest.mark.parametrize("damage", DAMAGED)
def test_damaged_files_are_refused_in_one_line(damage, tmp_path: Path):
    tensors, header, message = DAMAGED[damage]
    changed = {name: tensor for name, tensor in (tensors_of(GRID) | tensors).items() if tensor is not None}
    write_tensors(tmp_path / "mesh.safetensors", changed, "mesh", {"space": to_plain(Box())} | header)
    with pytest.raises(InputError, match=message) as caught:
        load_mesh(tmp_path / "mesh.safetensors")
    assert "\n" not in str(caught.value)


def test_the_report_on_a_grid_is_what_one_counts():
    report = inspect_mesh(grid_mesh(Box((0.0, 0.0), (4.0, 4.0)), 5).nested())
    assert (report.nodes, report.coarser, report.edges, report.diameter, report.pieces) == (25, (9, 4), 112, 8, 1)
    assert report.degrees == (2, 112 / 25, 6)
    assert report.shortest_edge == report.closest_nodes == pytest.approx(1.0)
    assert report.longest_edge == pytest.approx(math.sqrt(2))
    assert report.smallest_angle == pytest.approx(45.0)
    assert report.coverage == pytest.approx(1.0)
    assert report.problems == []


def test_the_report_names_what_is_wrong_with_a_mesh():
    close = torch.tensor([[0.0, 0.0], [0.5, 0.001], [1.0, 0.0], [0.5, 0.4]])
    thin = inspect_mesh(mesh_at(Box(), close))
    assert thin.smallest_angle < 0.2
    assert [text.partition(":")[0] for text in thin.problems] == [
        "there are very thin triangles",
        "the cells cover less than half of the space",
    ]
    apart = replace(GRID, senders=GRID.senders[:2], receivers=GRID.receivers[:2], levels=GRID.levels[:2])
    assert inspect_mesh(apart).problems[0].startswith("the mesh falls apart")
    twice = mesh_at(Box(), scattered_mesh(Box(), 9, seeded(0)).positions.repeat(2, 1))
    assert "nodes coincide: remove all but one of them" in inspect_mesh(twice).problems


@pytest.mark.parametrize("space", SPACES)
@pytest.mark.parametrize("mesh", MESHES)
def test_every_mesh_has_a_report(space, mesh):
    report = inspect_mesh(MESHES[mesh](SPACES[space]))
    assert report.nodes > 0
    assert report.spread >= 1


def test_the_command_says_what_a_mesh_is_like(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path = str(tmp_path / "mesh.safetensors")
    save_mesh(grid_mesh(Box(), 4).nested(), path)
    for arguments in ([], ["--json"]):
        with pytest.raises(SystemExit) as left:
            main(["mesh", "inspect", path, *arguments])
        assert left.value.code == 0
        out = capsys.readouterr().out
        if arguments:
            assert json.loads(out)["coarser"] == [4]
        else:
            assert "nodes            16" in out
            assert "warning" not in out
    with pytest.raises(SystemExit) as left:
        main(["mesh", "inspect", str(tmp_path / "nothing.safetensors")])
    assert left.value.code == 2
    assert capsys.readouterr().err.count("\n") == 1
