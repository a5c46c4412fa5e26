"""The tasks on the sphere from the command line: data, training, scores, rotations, predictions."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from command_line import call
from matplotlib.image import imread

import graphelements as ge
from graphelements.mesh_files import load_mesh
from graphelements.tasks import get_task

TINY = ("batches.items=3", "batches.queries=8", "training.steps=2", "training.compile=off", "network.latent_size=8")


@pytest.fixture(scope="module", params=["poisson-sphere", "scattered-sphere"])
def trained(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """A folder with data, a network that has hardly learned, and measurements."""
    folder = tmp_path_factory.mktemp("sphere")
    assert call("data", "generate", request.param, "--out", str(folder / "fields.npz"), "--num", "6").code == 0
    settings = [word for setting in TINY for word in ("--set", setting)]
    run = ["--data", str(folder / "fields.npz"), "--houses", "train", "--out", str(folder / "run"), "--validation", "0.2"]
    assert call("train", request.param, *run, *settings, "--quiet").code == 0
    with (folder / "measured.csv").open("w", newline="") as file:
        rows = [(10 * k, 20 * k, np.sin(k)) for k in range(-8, 9)]
        csv.writer(file).writerows([("latitude", "longitude", "value"), *rows])
    return request.param, folder


def test_data_say_what_they_are(trained):
    name, folder = trained
    outcome = call("data", "inspect", str(folder / "fields.npz"))
    assert outcome.code == 0
    assert f"task                 {name}" in outcome.out
    assert "scenarios            192" in outcome.out


def test_scores_stand_beside_references_and_rotations(trained):
    _, folder = trained
    model, data = str(folder / "run" / "model.safetensors"), str(folder / "fields.npz")
    layout = ["--layout", "icosahedron", "--resolutions", "1,2", "--rotations", "3", "--houses", "test"]
    outcome = call("evaluate", model, "--data", data, *layout)
    assert outcome.code == 0, outcome.err
    assert "12 nodes" in outcome.out
    assert "42 nodes" in outcome.out
    assert "3 rotations on 42 nodes: predictions deviate by" in outcome.out
    saved = json.loads((folder / "run" / "evaluation.json").read_text())
    assert saved["layout"] == "icosahedron"
    assert [turned["nodes"] for turned in saved["rotations"]] == [12, 42]
    assert {"gen", "harmonics", "mean"} <= {score["method"] for score in saved["results"]}


def test_a_mesh_adapts_on_the_sphere_and_is_used(trained):
    name, folder = trained
    model, data, mesh = str(folder / "run" / "model.safetensors"), str(folder / "fields.npz"), folder / "mesh.safetensors"
    few = ["--data", data, "--house", "2", "--scenarios", "6", "--steps", "2", "--out", str(mesh), "--quiet"]
    outcome = call("adapt", model, *few, "--figure", str(folder / "mesh.png"))
    assert outcome.code == 0, outcome.err
    num = {"poisson-sphere": 26, "scattered-sphere": 42}[name]  # five latitudes, or edges of an icosahedron in two pieces
    assert re.search(rf"on its 26 other scenarios: \d+\.\d+ with {num} even nodes", outcome.out)
    even = get_task(name).mesh(ge.load_checkpoint(model).mesh, {26: 5, 42: 2}[num])
    stayed = torch.equal(load_mesh(mesh).positions, even.positions)
    assert stayed == ("no change surely helped" in outcome.out)
    assert min(imread(folder / "mesh.png").shape[:2]) > 300
    scores = call(
        "evaluate", model, "--data", data, "--mesh", str(mesh), "--resolutions", "2", "--json", "--out", str(folder / "e")
    )
    assert next(score["nodes"] for score in json.loads(scores.out)["results"]) == num
    outcome = call("adapt", model, *few, "--nodes", "14")
    assert outcome.code == 0, outcome.err
    first = {"poisson-sphere": 6, "scattered-sphere": 12}[name]
    assert f"with {first} even nodes" in outcome.out
    assert first <= load_mesh(mesh).num_nodes <= 14


@pytest.mark.parametrize("ending", [".csv", ".npz", ".png"])
def test_predictions_anywhere_on_the_sphere(trained, ending):
    _, folder = trained
    out = folder / f"field{ending}"
    given = ["--samples", str(folder / "measured.csv"), "--resolution", "2", "--grid", "10"]
    outcome = call("predict", str(folder / "run" / "model.safetensors"), *given, "--out", str(out))
    assert outcome.code == 0, outcome.err
    assert f"wrote {out}: 200 points" in outcome.out
    if ending == ".csv":
        head, *rows = csv.reader(out.read_text().splitlines())
        assert head[:2] == ["latitude", "longitude"]
        assert [float(rows[0][0]), float(rows[0][1])] == [81, -171]
        assert len(rows) == 200
    elif ending == ".npz":
        with np.load(out) as archive:
            assert archive["places"].shape == (200, 2)


def test_points_of_ones_own_get_the_values_of_the_grid(trained):
    _, folder = trained
    model, given = str(folder / "run" / "model.safetensors"), ["--samples", str(folder / "measured.csv"), "--resolution", "2"]
    assert call("predict", model, *given, "--grid", "4", "--out", str(folder / "grid.csv")).code == 0
    assert call("predict", model, *given, "--points", str(folder / "grid.csv"), "--out", str(folder / "again.csv")).code == 0
    grid, again = (np.loadtxt(folder / name, delimiter=",", skiprows=1) for name in ("grid.csv", "again.csv"))
    assert again == pytest.approx(grid, abs=1e-5)


BAD = {
    "takes --samples": ["--out", "new.csv"],
    "needs columns latitude, longitude and value": ["--samples", "points.csv", "--out", "new.csv"],
    "row 3 is not": ["--samples", "far.csv", "--out", "new.csv"],
    "not a CSV file of numbers": ["--samples", "text.csv", "--out", "new.csv"],
    "a picture needs a grid": ["--samples", "measured.csv", "--points", "points.csv", "--out", "new.png"],
}


@pytest.mark.parametrize("said", BAD)
def test_bad_input_is_one_line(trained, said: str, monkeypatch: pytest.MonkeyPatch):
    _, folder = trained
    monkeypatch.chdir(folder)
    (folder / "points.csv").write_text("latitude,longitude\n1,2\n")
    (folder / "far.csv").write_text("latitude,longitude,value\n1,2,3\n91,2,3\n")
    (folder / "text.csv").write_text("latitude,longitude,value\n1,2,warm\n")
    outcome = call("predict", "run/model.safetensors", *BAD[said])
    assert outcome.code == 2
    assert said in outcome.err
    assert outcome.err.count("\n") == 1
    assert not (folder / "new.csv").exists()


BAD_SCORES = {
    "a deviation needs two rotations or more; got 1": ["--rotations", "1"],
    "layout: Input should be 'grid' or 'icosahedron'": ["--layout", "cube"],
    "number of pieces of its edges, 1, 2, 4, ...; got 3": ["--layout", "icosahedron", "--resolutions", "3"],
    "no such file": ["--data", "nowhere.npz"],
}


@pytest.mark.parametrize("said", BAD_SCORES)
def test_bad_wishes_for_scores_are_one_line(trained, said: str, monkeypatch: pytest.MonkeyPatch):
    _, folder = trained
    monkeypatch.chdir(folder)
    outcome = call("evaluate", "run/model.safetensors", "--data", "fields.npz", *BAD_SCORES[said])
    assert (outcome.code, outcome.err.count("\n")) == (2, 1)
    assert said in outcome.err


def test_rotations_are_refused_where_there_is_no_sphere(houses: Path):
    outcome = call("evaluate", "poisson-square", "--data", str(houses), "--rotations", "5", "--resolutions", "2")
    assert outcome.code == 2
    assert "rotations are for tasks on a sphere; got poisson-square" in outcome.err


def test_the_wrong_kind_of_input_is_refused(tmp_path: Path):
    outcome = call("predict", "poisson-square", "--out", str(tmp_path / "new.csv"))
    assert outcome.code == 2
    assert "takes --house" in outcome.err
