"""Bad input is one line that says what is wrong, exit code 2, and nothing written: not a byte, not a temporary file."""

from __future__ import annotations

import contextlib
import json
import pickle
import shutil
from pathlib import Path

import lightning_fabric
import numpy as np
import pytest
import torch
from command_line import SMALL, call, files_in, settings
from safetensors.torch import save_file

from graphelements import PAPER, SFT, Box, Checkpoint, InputFunction, OutputFunction, build_network, load_checkpoint, save

HEATER = [0.1, 0.1, 0.3, 0.4, 200.0]

BAD_HOUSES: dict[str, tuple[str, str]] = {
    "empty": ("not readable as JSON", ""),
    "not_json": ("not readable as JSON", "heaters: 3"),
    "cut_off": ("not readable as JSON", '{"heaters": [[0.1, 0.1'),
    "a_list": ("'heaters' is needed", "[]"),
    "no_heaters_key": ("'heaters' is needed", '{"exterior_temperature": 0.0}'),
    "no_temperature": ("'exterior_temperature' is needed", json.dumps({"heaters": [HEATER]})),
    "outside": ("unit square", json.dumps({"heaters": [[0.1, 0.1, 0.3, 1.4, 1.0]], "exterior_temperature": 0.0})),
    "no_size": ("x0 < x1", json.dumps({"heaters": [[0.1, 0.1, 0.1, 0.4, 1.0]], "exterior_temperature": 0.0})),
    "nan_power": ("finite number", '{"heaters": [[0.1, 0.1, 0.3, 0.4, NaN]], "exterior_temperature": 0.0}'),
    "infinite_temperature": ("finite number", json.dumps({"heaters": [HEATER]})[:-1] + ', "exterior_temperature": 1e999}'),
    "four_numbers": ("[x0, y0, x1, y1, power]", json.dumps({"heaters": [HEATER[:4]], "exterior_temperature": 0.0})),
    "six_numbers": ("[x0, y0, x1, y1, power]", json.dumps({"heaters": [[*HEATER, 1.0]], "exterior_temperature": 0.0})),
    "text_as_power": ("finite number", json.dumps({"heaters": [[*HEATER[:4], "hot\nhot"]], "exterior_temperature": 0.0})),
    "text_as_temperature": ("finite number", json.dumps({"heaters": [HEATER], "exterior_temperature": "1.0"})),
    "no_heaters": ("1 to 6 heaters; got 0", json.dumps({"heaters": [], "exterior_temperature": 0.0})),
    "seven_heaters": ("1 to 6 heaters; got 7", json.dumps({"heaters": [HEATER] * 7, "exterior_temperature": 0.0})),
}

BAD_POINTS: dict[str, tuple[str, bytes]] = {
    "empty": ("got an empty file", b""),
    "no_y": ("columns x and y; got ['x', 'z']", b"x,z\n0.1,0.2\n"),
    "no_header": ("columns x and y", b"0.1,0.2\n0.3,0.4\n"),
    "no_rows": ("no rows", b"x,y\n"),
    "text": ("could not convert", b"x,y\n0.1,here\n"),
    "short_row": ("CSV file of numbers", b"x,y\n0.1,0.2\n0.1\n"),
    "nan": ("row 3 does not", b"x,y\n0.1,0.2\nnan,0.2\n"),
    "outside": ("row 2 does not", b"x,y\n1.1,0.2\n"),
    "binary": ("CSV file of numbers", b"\xff\xfe\x00\x01x,y\n\x00"),
    "null_bytes": ("CSV file of numbers", b"x,y\n0.1,0.2\x00\n"),
}

BAD_CHECKPOINTS = {
    "nowhere.safetensors": "does not exist",
    "no-such-model": "shipped models",
    "folder": "is a directory",
    "empty.safetensors": "not a readable safetensors file",
    "truncated.safetensors": "not a readable safetensors file",
    "pickled.safetensors": "pickled .pt or .pth files are never read",
    "pickled.pt": "pickled .pt or .pth files are never read",
    "foreign.safetensors": "not one of graphelements",
    "state.safetensors": "not a checkpoint",
    "infinite.safetensors": "NaN or infinite",
    "houses.npz": "not a readable safetensors file",
}

GENERATE = ["data", "generate", "poisson-square", "--num", "1", "--out"]
TRAIN = ["train", "poisson-square", *SMALL, "--set", "training.steps=1", "--data"]
RUN = [*TRAIN, "houses.npz", "--out", "run"]
DAMAGED_RUN = [part for part in RUN if part not in ("--quiet", "run")] + ["damaged_run"]
EVALUATE = ["evaluate", "model.safetensors", "--resolutions", "2", "--data"]
ADAPT = ["adapt", "model.safetensors", "--data", "houses.npz", "--out", "mesh.safetensors"]
PREDICT = ["predict", "model.safetensors", "--house", "house.json", "--out"]


def changed(*given: str) -> list[str]:
    """A run with other settings."""
    return [*RUN, *(part for setting in given for part in ("--set", setting))]


CASES: dict[str, tuple[str, list[str]]] = {
    # the words of a command
    "an unknown command": ("'frobnicate'", ["frobnicate"]),
    "an unknown command of data": ("'frobnicate'", ["data", "frobnicate"]),
    "an unknown option": ("--frobnicate", ["--frobnicate"]),
    "an unknown option of a command": ("--colour", [*RUN, "--colour", "red"]),
    "an argument too many": ("unexpected extra argument", ["tasks", "poisson-square"]),
    "no task": ("Missing argument", ["train"]),
    "train without data": ("--data", ["train", "poisson-square", "--out", "run"]),
    "train without a folder": ("--out", ["train", "poisson-square", "--data", "houses.npz"]),
    "evaluate without data": ("--data", ["evaluate", "model.safetensors"]),
    "predict without a house": ("--house", ["predict", "model.safetensors", "--out", "field.csv"]),
    "generate without a file": ("--out", ["data", "generate", "poisson-square"]),
    "an option without its value": ("--out", GENERATE),
    # data
    "generate: an unknown task": (
        "must be one of poisson-square, poisson-sphere, pushing, scattered-sphere; got 'mazes'",
        ["data", "generate", "mazes", "--out", "new.npz"],
    ),
    "generate: no houses": ("--num must be 1 or more; got 0", [*GENERATE, "new.npz", "--num", "0"]),
    "generate: fewer than no houses": ("--num must be 1 or more", [*GENERATE, "new.npz", "--num", "-4"]),
    "generate: half a house": ("'--num'", [*GENERATE, "new.npz", "--num", "1.5"]),
    "generate: a negative seed": ("'--seed'", [*GENERATE, "new.npz", "--seed", "-1"]),
    "generate: into a directory": ("directory", [*GENERATE, "folder"]),
    "generate: below a file": ("cannot be written", [*GENERATE, "house.json/new.npz"]),
    "inspect: nothing there": ("no such file", ["data", "inspect", "nowhere.npz"]),
    "inspect: another format": ("is a .npz archive", ["data", "inspect", "house.json"]),
    "inspect: a folder without houses": ("found no desc_<i>.json", ["data", "inspect", "folder"]),
    "inspect: an unknown task": ("must be one of poisson-square", ["data", "inspect", "houses.npz", "--task", "mazes"]),
    "houses: a word": ("numbers such as 0-9,12; got 'some'", ["data", "inspect", "houses.npz", "--houses", "some"]),
    "houses: nothing": ("numbers such as 0-9,12", ["data", "inspect", "houses.npz", "--houses", ""]),
    "houses: a negative number": ("numbers such as 0-9,12", ["data", "inspect", "houses.npz", "--houses", "-3"]),
    "houses: an open range": ("numbers such as 0-9,12", ["data", "inspect", "houses.npz", "--houses", "3-"]),
    "houses: a reversed range": ("low-high", ["data", "inspect", "houses.npz", "--houses", "5,4-2"]),
    "houses: more than there can be": ("a million", ["data", "inspect", "houses.npz", "--houses", "0-99999999999999999999"]),
    "houses: not there": ("not among them: 6, 7", ["data", "inspect", "houses.npz", "--houses", "4-7"]),
    "houses: none of the split": ("no house of the test split", ["data", "inspect", "houses.npz", "--houses", "test"]),
    # train
    "train: an unknown task": ("must be one of poisson-square", ["train", "mazes", "--data", "houses.npz", "--out", "run"]),
    "train: an unknown preset": ("must be one of default, near, nodes, ", [*RUN, "--preset", "best"]),
    "train: no data": ("no such file", [*TRAIN, "nowhere.npz", "--out", "run"]),
    "train: data of another format": ("is a .npz archive", [*TRAIN, "model.safetensors", "--out", "run"]),
    "train: houses that are not there": ("not among them: 9", [*RUN, "--houses", "0,9"]),
    "train: into a file": ("cannot be written", [*TRAIN, "houses.npz", "--out", "house.json"]),
    "train: below a file": ("cannot be written", [*TRAIN, "houses.npz", "--out", "house.json/run"]),
    "train: a bar before the error": (
        "no such file",
        ["train", "poisson-square", "--data", "nowhere.npz", "--out", "run"],
    ),
    "train: more validation than data": ("below 1; got 1.5", [*RUN, "--validation", "1.5"]),
    "train: negative validation": ("below 1; got -0.1", [*RUN, "--validation", "-0.1"]),
    "train: validation nan": ("below 1; got nan", [*RUN, "--validation", "nan"]),
    "train: nothing left to train on": ("leaves none of 6 houses", [*RUN, "--validation", "0.99"]),
    "train: a negative seed": ("'--seed'", [*RUN, "--seed", "-1"]),
    "train: a seed too long": ("'--seed'", [*RUN, "--seed", "99999999999999999999"]),
    "train: no processes": ("'--devices'", [*RUN, "--devices", "0"]),
    "train: items that cannot be shared": (
        "a step of 1 items cannot be shared by 2 processes",
        [*RUN, "--devices", "2", *settings(batches_items=1, batches_scenarios=1)],
    ),
    "train: a folder with a broken config": ("not readable as the JSON of a run", [*TRAIN, "houses.npz", "--out", "broken_run"]),
    "train: a folder with a state of unknown origin": (
        "a training state without config.json",
        [*TRAIN, "houses.npz", "--out", "orphan_run"],
    ),
    "train: a folder with a damaged state": ("not a readable safetensors file", DAMAGED_RUN),
    # settings
    "set: an unknown name": ("the names are network.latent_size, network.message_size", changed("network.depth=3")),
    "set: a group": ("the names are network.latent_size", changed("network=3")),
    "set: no equals sign": ("name=value; got 'network.latent_size'", changed("network.latent_size")),
    "set: text for a number": ("network.latent_size", changed("network.latent_size=large")),
    "set: a fraction for a whole number": ("training.steps", changed("training.steps=1.5")),
    "set: an unknown choice": ("'constant' or 'cosine'", changed("training.schedule=linear")),
    "set: text in a list": ("batches.resolutions", changed("batches.resolutions=2,three")),
    "set: no steps": ("training.steps must be positive; got 0", changed("training.steps=0")),
    "set: negative steps": ("training.steps must be positive; got -5", changed("training.steps=-5")),
    "set: a learning rate of zero": ("training.learning_rate must be positive", changed("training.learning_rate=0")),
    "set: no items": ("must be positive", changed("batches.items=0")),
    "set: no resolutions": ("batches.resolutions must be positive", changed("batches.resolutions=")),
    "set: resolution zero": ("batches.resolutions must be positive", changed("batches.resolutions=2,0")),
    "set: resolution too large": ("resolution must be 1 to 1000", changed("batches.resolutions=2,100000")),
    "set: no latent": ("latent_size must be positive; got 0", changed("network.latent_size=0")),
    "set: more latents than memory": ("not enough memory", changed("network.latent_size=100000000000000")),
    "set: negative rounds": ("rounds must be 0 or more", changed("network.rounds=-1")),
    "set: a sharpness of nan": ("sharpness", changed("network.sharpness=nan")),
    "set: a radius below zero": ("radius", changed("mesh.edges=radius", "mesh.radius=-1")),
    "set: equal scales": ("ratio", changed("mesh.edges=multiscale", "mesh.scale_ratio=1")),
    # evaluate
    "evaluate: no data": ("no such file", [*EVALUATE, "nowhere.npz"]),
    "evaluate: data of another format": ("is a .npz archive", [*EVALUATE, "points.csv"]),
    "evaluate: houses that are not there": ("not among them: 77", [*EVALUATE, "houses.npz", "--houses", "77"]),
    "evaluate: resolutions of text": ("numbers such as 2,3,4; got '2,x'", [*EVALUATE, "houses.npz", "--resolutions", "2,x"]),
    "evaluate: a hole in the resolutions": ("numbers such as 2,3,4", [*EVALUATE, "houses.npz", "--resolutions", "2,,3"]),
    "evaluate: no resolutions": ("numbers such as 2,3,4", [*EVALUATE, "houses.npz", "--resolutions", ""]),
    "evaluate: resolution zero": ("must be positive; got '2,0'", [*EVALUATE, "houses.npz", "--resolutions", "2,0"]),
    "evaluate: a negative resolution": ("must be positive; got '-2'", [*EVALUATE, "houses.npz", "--resolutions", "-2"]),
    "evaluate: an endless resolution": ("must be 1 to 1000", [*EVALUATE, "houses.npz", "--resolutions", "9" * 20]),
    "evaluate: into a directory": ("directory", [*EVALUATE, "houses.npz", "--out", "folder"]),
    "evaluate: below a file": ("cannot be written", [*EVALUATE, "houses.npz", "--out", "house.json/scores.json"]),
    "evaluate: a checkpoint without a task": ("no task", ["evaluate", "bare.safetensors", "--data", "houses.npz"]),
    "evaluate: a checkpoint of another task": ("'mazes'", ["evaluate", "mazes.safetensors", "--data", "houses.npz"]),
    "evaluate: a checkpoint of other functions": (
        "a space of the network's kind",
        ["evaluate", "other.safetensors", "--data", "houses.npz"],
    ),
    "evaluate: a name that no file can have": (
        "does not exist",
        ["evaluate", "x" * 300 + ".safetensors", "--data", "houses.npz"],
    ),
    "train: a folder that no file system takes": ("cannot be written", [*TRAIN, "houses.npz", "--out", "x" * 300]),
    # predict
    "predict: a grid and points": ("either --grid or --points", [*PREDICT, "field.csv", "--grid", "5", "--points", "points.csv"]),
    "predict: a picture of points": ("a picture needs a grid", [*PREDICT, "field.png", "--points", "points.csv"]),
    "predict: an unknown ending": ("one of .csv, .npz, .png, .json; got '.txt'", [*PREDICT, "field.txt"]),
    "predict: no ending": ("one of .csv, .npz, .png, .json; got ''", [*PREDICT, "field"]),
    "predict: into a directory": ("directory", [*PREDICT, "folder.csv"]),
    "predict: below a file": ("cannot be written", [*PREDICT, "house.json/field.csv"]),
    "predict: a name too long": ("cannot be written", [*PREDICT, "x" * 300 + ".csv"]),
    "predict: a grid of one": ("'--grid'", [*PREDICT, "field.csv", "--grid", "1"]),
    "predict: a grid of text": ("'--grid'", [*PREDICT, "field.csv", "--grid", "ten"]),
    "predict: a grid too large": ("'--grid'", [*PREDICT, "field.csv", "--grid", "1000000000"]),
    "predict: resolution zero": ("'--resolution'", [*PREDICT, "field.csv", "--resolution", "0"]),
    "predict: resolution too large": ("must be 1 to 1000", [*PREDICT, "field.csv", "--resolution", "5000"]),
    "predict: no house": ("No such file", ["predict", "model.safetensors", "--house", "nowhere.json", "--out", "field.csv"]),
    "predict: a folder as house": ("directory", ["predict", "model.safetensors", "--house", "folder", "--out", "field.csv"]),
    "predict: no points": ("No such file", [*PREDICT, "field.csv", "--points", "nowhere.csv"]),
    "predict: a folder as points": ("directory", [*PREDICT, "field.csv", "--points", "folder"]),
    "predict: a checkpoint without a task": ("no task", ["predict", "bare.safetensors", *PREDICT[2:], "field.csv"]),
    "predict: a checkpoint of another task": ("mazes", ["predict", "mazes.safetensors", *PREDICT[2:], "field.csv"]),
    "predict: a checkpoint of other functions": (
        "a space of the network's kind",
        ["predict", "other.safetensors", *PREDICT[2:], "field.csv"],
    ),
    "predict: a mesh and a resolution": (
        "either --mesh or --resolution",
        [*PREDICT, "field.csv", "--mesh", "mesh.safetensors", "--resolution", "3"],
    ),
    "predict: a mesh that is none": ("is not a mesh of graphelements", [*PREDICT, "field.csv", "--mesh", "model.safetensors"]),
    # adapt
    "adapt: a house that is not there": ("not among them: 77", [*ADAPT, "--house", "77"]),
    "adapt: no scenario to judge by": ("must leave one of the 32", [*ADAPT, "--house", "0", "--scenarios", "32"]),
    "adapt: an unknown ending": ("one of .safetensors; got '.txt'", [*ADAPT[:-1], "mesh.txt", "--house", "0"]),
    "adapt: a figure of another kind": ("must end in .png", [*ADAPT, "--house", "0", "--figure", "mesh.pdf"]),
    "adapt: a tolerance of zero": ("tolerance must be positive", [*ADAPT, "--house", "0", "--tolerance", "0"]),
    "adapt: no checkpoint of a task": ("no task", ["adapt", "bare.safetensors", *ADAPT[2:], "--house", "0"]),
    "adapt: one node": ("needs three nodes or more; got 1", [*ADAPT, "--house", "0", "--resolution", "1"]),
    "adapt: no picture of pushes": ("no picture", ["adapt", "pushing", *ADAPT[2:], "--house", "0", "--figure", "mesh.png"]),
    # files
    **{
        f"house: {name}": (part, ["predict", "model.safetensors", "--house", f"house_{name}.json", "--out", "field.csv"])
        for name, (part, _) in BAD_HOUSES.items()
    },
    **{
        f"points: {name}": (part, [*PREDICT, "field.csv", "--points", f"points_{name}.csv"])
        for name, (part, _) in BAD_POINTS.items()
    },
    **{f"evaluate {name}": (part, ["evaluate", name, "--data", "houses.npz"]) for name, part in BAD_CHECKPOINTS.items()},
    **{f"predict with {name}": (part, ["predict", name, *PREDICT[2:], "field.csv"]) for name, part in BAD_CHECKPOINTS.items()},
}


@pytest.fixture(scope="module")
def place(houses: Path, trained: Path, house: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with good and bad files of every kind, and results that must survive."""
    folder = tmp_path_factory.mktemp("bad_input")
    shutil.copy(houses, folder)
    shutil.copy(house, folder)
    for name in ("model.safetensors", "state.safetensors"):
        shutil.copy(trained / name, folder)
    (folder / "points.csv").write_text("x,y\n0.1,0.2\n")
    (folder / "field.csv").write_text("an earlier result")
    (folder / "new.npz").write_text("an earlier result")
    (folder / "evaluation.json").write_text("an earlier result")
    for name in ("folder", "folder.csv", "broken_run", "orphan_run"):
        (folder / name).mkdir()
    (folder / "folder" / "notes.txt").write_text("keep me")
    (folder / "broken_run" / "config.json").write_text('{"task": ')
    shutil.copy(trained / "state.safetensors", folder / "orphan_run")
    with contextlib.chdir(folder):
        assert call(*DAMAGED_RUN).code == 0
    state = folder / "damaged_run" / "state.safetensors"
    state.write_bytes(state.read_bytes()[:-9])
    for name, (_, text) in BAD_HOUSES.items():
        (folder / f"house_{name}.json").write_text(text)
    for name, (_, content) in BAD_POINTS.items():
        (folder / f"points_{name}.csv").write_bytes(content)
    _write_checkpoints(folder)
    return folder


def _write_checkpoints(folder: Path) -> None:
    good = folder / "model.safetensors"
    checkpoint = load_checkpoint(good)
    (folder / "empty.safetensors").write_bytes(b"")
    (folder / "truncated.safetensors").write_bytes(good.read_bytes()[:-100])
    (folder / "pickled.safetensors").write_bytes(pickle.dumps({"weights": [1.0, 2.0]}))
    torch.save(checkpoint.network.state_dict(), folder / "pickled.pt")
    save_file({"weight": torch.ones(3)}, folder / "foreign.safetensors")
    save(checkpoint.network, folder / "bare.safetensors")
    save(Checkpoint(checkpoint.network, task="mazes"), folder / "mazes.safetensors")
    line = SFT(Box((0.0,), (1.0,)), (InputFunction("sound"),), (OutputFunction("echo"),))
    save(Checkpoint(build_network(line, PAPER), task="poisson-square"), folder / "other.safetensors")
    with torch.no_grad():
        next(checkpoint.network.parameters()).fill_(np.inf)
    save(Checkpoint(checkpoint.network, task="poisson-square"), folder / "infinite.safetensors")


@pytest.fixture(autouse=True)
def no_other_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """No mistake may get as far as starting processes: they would call this test again."""

    def launch(fabric: lightning_fabric.Fabric) -> None:
        assert fabric.world_size == 1, "several processes were started before the input was checked"

    monkeypatch.setattr(lightning_fabric.Fabric, "launch", launch)


@pytest.mark.parametrize("name", CASES)
def test_bad_input_is_one_line_and_leaves_all_files_as_they_were(place: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    expected, arguments = CASES[name]
    monkeypatch.chdir(place)
    before = files_in(place)
    outcome = call(*arguments)
    assert outcome.code == 2, outcome
    assert outcome.err.startswith("error: ")
    assert outcome.err.count("\n") == 1, outcome.err
    assert outcome.err.endswith("\n")
    assert "Traceback" not in outcome.err
    assert expected in outcome.err
    assert outcome.out == ""
    assert files_in(place) == before
