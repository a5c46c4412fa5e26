"""Every command does what its help says: files appear, numbers agree with the library, helps are quick."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from command_line import SMALL, call, rows_of, settings

from graphelements import Box, Queries, SFTBatch, __version__, grid_mesh, load_checkpoint, load_mesh
from graphelements.data.house_files import load_houses, read_house_json
from graphelements.data.houses import encode
from graphelements.data.poisson import p1_temperatures

COMMANDS = ["", "data", "data generate", "data inspect", "mesh", "mesh inspect", "train", "evaluate", "predict", "adapt"]
COMMANDS += ["compare", "reproduce", "tasks", "demo"]

HELPS = """
import contextlib, io, json, sys
from graphelements.cli import main
helps = {}
for command in json.loads(sys.argv[1]):
    with contextlib.redirect_stdout(io.StringIO()) as out:
        try:
            main([*command.split(), "--help"])
        except SystemExit as end:
            assert end.code == 0
    helps[command] = out.getvalue()
print(json.dumps({"helps": helps, "modules": sorted({name.partition(".")[0] for name in sys.modules})}))
"""


@pytest.fixture(scope="module")
def helps() -> dict:
    ended = subprocess.run([sys.executable, "-c", HELPS, json.dumps(COMMANDS)], capture_output=True, text=True, check=True)
    return json.loads(ended.stdout)


@pytest.mark.parametrize("command", COMMANDS)
def test_the_help_of_every_command_has_an_example(helps: dict, command: str) -> None:
    text = " ".join(helps["helps"][command].split())
    first_words = f"graphelements {command}".strip()
    assert "Usage: " + first_words in text
    examples = text.partition("Example")[2] or text.partition("A first run:")[2]
    assert first_words in examples


@pytest.mark.parametrize("module", ["torch", "numpy", "scipy", "matplotlib", "skfem", "lightning_fabric"])
def test_help_loads_nothing_heavy(helps: dict, module: str) -> None:
    assert module not in helps["modules"]


def test_shell_completion_is_offered_and_completes_commands() -> None:
    assert "--show-completion" in call("--help").out
    asked = {"_GRAPHELEMENTS_COMPLETE": "complete_bash", "COMP_WORDS": "graphelements ev", "COMP_CWORD": "1"}
    command = [sys.executable, "-c", "from graphelements.cli import main; main()"]
    ended = subprocess.run(command, env=os.environ | asked, capture_output=True, text=True, check=True)
    assert ended.stdout.split() == ["evaluate"]


def test_the_version_is_printed() -> None:
    assert call("--version").out.strip() == f"graphelements {__version__}"


@pytest.mark.parametrize("group", [[], ["data"]], ids=["graphelements", "data"])
def test_no_command_prints_the_help_as_it_is_laid_out(group: list[str]) -> None:
    outcome = call(*group)
    assert outcome.code == 2
    assert outcome.err.strip() == call(*group, "--help").out.strip()


def test_an_interrupt_ends_a_command_without_a_traceback(houses: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(name: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("graphelements.tasks.get_task", interrupted)
    outcome = call("data", "inspect", houses)
    assert (outcome.code, outcome.out) == (130, "")
    assert outcome.err.strip() in ("", "stopped")


def test_tasks_lists_the_tasks() -> None:
    outcome = call("tasks")
    assert outcome.code == 0
    assert [line.split()[0] for line in outcome.out.splitlines()] == [
        "poisson-square",
        "poisson-sphere",
        "pushing",
        "scattered-sphere",
    ]


def test_generated_data_hold_as_many_solved_houses_as_were_asked_for(houses: Path) -> None:
    loaded = load_houses(houses)
    assert loaded.numbers == (0, 1, 2, 3, 4, 5)
    for house in loaded.houses:
        assert np.allclose(house.temperatures, p1_temperatures(house), atol=1e-9)


def test_the_same_seed_gives_the_same_arrays_and_another_seed_others(houses: Path, tmp_path: Path) -> None:
    again, other = tmp_path / "again.npz", tmp_path / "other.npz"
    again.write_text("replaced when the new file is complete")
    for path, seed in ((again, 1), (other, 2)):
        outcome = call("data", "generate", "poisson-square", "--out", path, "--num", 2, "--seed", seed)
        assert outcome.code == 0
        assert str(path) in outcome.out.replace("\n", "")
    first, same, different = (load_houses(path).selected([0, 1]).houses for path in (houses, again, other))
    for a, b, c in zip(first, same, different, strict=True):
        for name in ("rectangles", "powers", "exterior_temperatures", "query_points", "temperatures"):
            assert np.array_equal(getattr(a, name), getattr(b, name))
        assert not np.array_equal(a.exterior_temperatures, c.exterior_temperatures)


def test_inspect_counts_what_is_there(houses: Path) -> None:
    outcome = call("data", "inspect", houses, "--houses", "1-3,5")
    told = dict(line.split(maxsplit=1) for line in outcome.out.replace(" a ", "_a_").splitlines())
    assert outcome.code == 0
    assert (told["houses"], told["numbers"]) == ("4", "1 to 5")
    assert (told["scenarios_a_house"], told["queries_a_scenario"]) == ("32", "256")
    temperatures = np.stack([house.temperatures for house in load_houses(houses).selected([1, 2, 3, 5]).houses])
    assert f"mean {temperatures.mean():.4f}, variance {temperatures.var():.4f}" in told["temperatures"]


def test_train_writes_model_log_config_validation_and_state(trained: Path, houses: Path) -> None:
    assert {path.name for path in trained.iterdir()} == {
        "config.json",
        "log.csv",
        "model.safetensors",
        "state.safetensors",
        "validation.csv",
    }
    log = rows_of(trained / "log.csv")
    assert [int(row["step"]) for row in log] == list(range(1, 21))
    assert all(0 < float(row["loss"]) < 10 for row in log)
    validation = rows_of(trained / "validation.csv")
    assert [(int(row["step"]), row["mesh"]) for row in validation] == [(10, "2x2"), (10, "3x3"), (20, "2x2"), (20, "3x3")]
    config = json.loads((trained / "config.json").read_text())
    assert (config["data"]["path"], config["data"]["houses"]) == (str(houses), 5)
    assert (config["seed"], config["validation"], config["network"]["latent_size"]) == (3, 0.2, 8)
    checkpoint = load_checkpoint(trained / "model.safetensors")
    assert checkpoint.task == "poisson-square"
    assert checkpoint.training["network"] == config["network"]


def test_the_validation_error_is_that_of_the_model_on_the_houses_that_were_held_back(
    trained: Path, houses: Path, tmp_path: Path
) -> None:
    number = int(np.random.default_rng(3).permutation(6)[0])
    chosen = "--resolutions", 3, "--houses", number, "--json", "--out", tmp_path / "scores.json"
    (score,) = (s for s in scores(trained / "model.safetensors", houses, *chosen) if s["method"] == "gen")
    noted = rows_of(trained / "validation.csv")[-1]
    assert noted["mesh"] == "3x3"
    assert score["mse_mean"] == pytest.approx(float(noted["error"]), rel=1e-6)


def test_settings_change_the_network_that_is_trained(houses: Path, tmp_path: Path) -> None:
    changed = settings(network_latent_size=5, network_rounds=1, network_encoder_hidden="6,7", training_steps=1)
    more = "--set", "network.residual=false", "--set", "mesh.diagonals=both", "--set", "mesh.edges=grid"
    where = "--preset", "near", "--data", houses, "--out", tmp_path / "run"
    outcome = call("train", "poisson-square", *where, *SMALL, *changed, *more)
    assert outcome.code == 0
    checkpoint = load_checkpoint(tmp_path / "run" / "model.safetensors")
    config = checkpoint.network.config
    assert (config.latent_size, config.rounds, config.encoder_hidden, config.residual) == (5, 1, (6, 7), False)
    assert (checkpoint.mesh.edges, checkpoint.mesh.diagonals) == ("grid", "both")


def scores(*arguments: object) -> list[dict]:
    model, data, *rest = arguments
    outcome = call("evaluate", model, "--data", data, *rest)
    assert (outcome.code, outcome.err) == (0, "")
    return json.loads(outcome.out)["results"]


def test_evaluate_prints_a_table_and_saves_every_house_beside_the_checkpoint(model: Path, houses: Path, tmp_path: Path) -> None:
    copy = tmp_path / "model.safetensors"
    copy.write_bytes(model.read_bytes())
    outcome = call("evaluate", copy, "--data", houses, "--resolutions", "2,4")
    assert outcome.code == 0
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in outcome.out.splitlines() if "│" in line]
    assert [row[:2] for row in rows] == [["gen", "2x2"], ["gen", "4x4"], ["fem", "2x2"], ["fem", "4x4"], ["mean", "-"]]
    saved = json.loads((tmp_path / "evaluation.json").read_text())
    assert saved["task"] == "poisson-square"
    for row, score in zip(rows, saved["results"], strict=True):
        assert len(score["mse_of_item"]) == 6
        assert score["mse_mean"] == pytest.approx(np.mean(score["mse_of_item"]))
        assert score["mse_std"] == pytest.approx(np.std(score["mse_of_item"]))
        assert float(row[2]) == pytest.approx(score["mse_mean"], abs=1e-5)


def test_json_is_one_object_with_all_methods(model: Path, houses: Path, tmp_path: Path) -> None:
    out = tmp_path / "scores.json"
    outcome = call("evaluate", model, "--data", houses, "--resolutions", "2,3", "--json", "--out", out)
    assert (outcome.code, outcome.err, outcome.out.count("\n")) == (0, "", 1)
    printed = json.loads(outcome.out)
    assert set(printed) == {"task", "results"}
    assert printed["task"] == "poisson-square"
    keys = {"method", "resolution", "nodes", "mse_mean", "mse_std", "seconds_per_scenario"}
    assert all(set(score) == keys for score in printed["results"])
    methods = [(score["method"], score["resolution"], score["nodes"]) for score in printed["results"]]
    assert methods == [("gen", 2, 4), ("gen", 3, 9), ("fem", 2, 4), ("fem", 3, 9), ("mean", 0, 0)]
    saved = json.loads(out.read_text())["results"]
    assert [{name: score[name] for name in keys} for score in saved] == printed["results"]


def test_the_references_are_those_of_the_data(model: Path, houses: Path, tmp_path: Path) -> None:
    found = scores(model, houses, "--resolutions", 3, "--json", "--out", tmp_path / "scores.json")
    by_method = {score["method"]: score["mse_mean"] for score in found}
    loaded = load_houses(houses).houses
    truths = np.stack([house.temperatures for house in loaded])
    elements = np.stack([p1_temperatures(house, 3) for house in loaded])
    assert by_method["mean"] == pytest.approx(truths.var())
    assert by_method["fem"] == pytest.approx(np.mean((elements - truths) ** 2))


def test_a_neural_process_is_scored_once_under_its_own_name(houses: Path, tmp_path: Path) -> None:
    sizes = settings(network_latent_size=8, network_encoder_hidden=8, network_decoder_hidden=8, batches_items=4)
    more = settings(training_steps=2, training_compile="off")
    run = call("train", "poisson-square", "--preset", "np", "--data", houses, "--out", tmp_path / "np", "--quiet", *sizes, *more)
    assert run.code == 0, run.err
    found = scores(tmp_path / "np" / "model.safetensors", houses, "--resolutions", "2,3", "--json")
    assert [(score["method"], score["resolution"]) for score in found] == [
        ("np", 1),
        ("fem", 2),
        ("fem", 3),
        ("mean", 0),
    ]
    assert (tmp_path / "np" / "evaluation.json").exists()


def test_attention_is_trained_resumed_scored_and_asked_like_any_network(houses: Path, house: Path, tmp_path: Path) -> None:
    sizes = settings(network_latent_size=8, network_hidden_size=8, network_num_self_layers=1, batches_items=4, training_steps=3)
    out, command = tmp_path / "run", ("train", "poisson-square", "--preset", "attention", "--data", houses, "--quiet")
    for _ in range(2):  # the second time there is nothing left to do
        run = call(*command, "--out", out, *sizes)
        assert run.code == 0, run.err
    assert load_checkpoint(out / "model.safetensors").network.config.num_self_layers == 1
    found = scores(out / "model.safetensors", houses, "--resolutions", "2,3", "--json")
    assert [(score["method"], score["resolution"]) for score in found] == [
        ("attention", 1),
        ("fem", 2),
        ("fem", 3),
        ("mean", 0),
    ]
    predicted = call("predict", out / "model.safetensors", "--house", house, "--grid", 5, "--out", tmp_path / "a.csv")
    assert predicted.code == 0, predicted.err
    assert len(rows_of(tmp_path / "a.csv")) == 25


def test_the_authors_directory_gives_the_numbers_of_our_file(model: Path, houses: Path, tmp_path: Path) -> None:
    directory = tmp_path / "authors"
    directory.mkdir()
    for house in load_houses(houses).houses:
        scenarios = [
            {"boxes": [[*h.rectangle, h.power] for h in scenario.heaters], "exterior_temp": scenario.exterior_temperature}
            for scenario in map(house.scenario, range(32))
        ]
        (directory / f"desc_{house.number}.json").write_text(json.dumps(scenarios))
        np.save(directory / f"{house.number}-X.npy", house.query_points)
        assert house.temperatures is not None
        np.save(directory / f"{house.number}-y.npy", house.temperatures[..., None])
    chosen = "--resolutions", 3, "--houses", "0,2-4", "--json", "--out", tmp_path / "scores.json"
    ours, theirs = (scores(model, data, *chosen) for data in (houses, directory))
    assert [score["method"] for score in theirs] == ["gen", "fem", "mean"]
    assert [score["mse_mean"] for score in theirs] == pytest.approx([score["mse_mean"] for score in ours], rel=1e-6)


def predicted(model: Path, house: Path, resolution: int, points: np.ndarray) -> np.ndarray:
    """What the library says, from its public parts."""
    network = load_checkpoint(model).network
    batch = SFTBatch(encode(read_house_json(house)), {"temperature": Queries(torch.as_tensor(points, dtype=torch.float32))})
    return network.predict(batch, grid_mesh(Box((0.0, 0.0), (1.0, 1.0)), resolution).nested(3.0))["temperature"][:, 0].numpy()


def read_field(path: Path) -> tuple[np.ndarray, np.ndarray]:
    if path.suffix == ".npz":
        with np.load(path) as archive:
            return archive["points"], archive["temperatures"]
    rows = rows_of(path)
    assert list(rows[0]) == ["x", "y", "temperature"]
    table = np.array([list(row.values()) for row in rows], dtype=float)
    return table[:, :2], table[:, 2]


@pytest.mark.parametrize("suffix", [".csv", ".npz"])
def test_a_predicted_grid_is_what_the_library_predicts_in_original_units(
    model: Path, house: Path, tmp_path: Path, suffix: str
) -> None:
    out = tmp_path / f"field{suffix}"
    outcome = call("predict", model, "--house", house, "--resolution", 4, "--grid", 9, "--out", out)
    assert outcome.code == 0
    assert "81 points" in outcome.out.replace("\n", " ")
    points, temperatures = read_field(out)
    assert points[:3] == pytest.approx(np.array([[0, 0], [1 / 8, 0], [2 / 8, 0]]))
    assert points[-1] == pytest.approx([1, 1])
    assert np.allclose(temperatures, predicted(model, house, 4, points), atol=1e-6)
    assert np.ptp(temperatures) > 1e-4


@pytest.mark.parametrize("suffix", [".csv", ".npz"])
def test_predictions_at_points_are_what_the_library_predicts_there(model: Path, house: Path, tmp_path: Path, suffix: str) -> None:
    asked = np.array([[0.25, 0.75], [0.0, 1.0], [0.123456789, 0.5]])
    listed = tmp_path / "points.csv"
    listed.write_text("\ufeffname,y,x\n" + "".join(f"p,{y!r},{x!r}\n" for x, y in asked.tolist()), encoding="utf-8")
    out = tmp_path / "deep" / f"answers{suffix}"
    outcome = call("predict", model, "--house", house, "--resolution", 5, "--points", listed, "--out", out)
    assert outcome.code == 0, outcome.err
    points, temperatures = read_field(out)
    assert np.array_equal(points, asked)
    assert np.allclose(temperatures, predicted(model, house, 5, asked), atol=1e-6)


def test_the_default_grid_has_a_hundred_points_a_side_on_seven_by_seven_nodes(model: Path, house: Path, tmp_path: Path) -> None:
    assert call("predict", model, "--house", house, "--out", tmp_path / "field.npz").code == 0
    points, temperatures = read_field(tmp_path / "field.npz")
    assert len(points) == 10_000
    assert np.allclose(temperatures, predicted(model, house, 7, points), atol=1e-6)


def test_a_picture_is_a_picture(model: Path, house: Path, tmp_path: Path) -> None:
    from matplotlib.image import imread

    assert call("predict", model, "--house", house, "--grid", 12, "--out", tmp_path / "field.png").code == 0
    picture = imread(tmp_path / "field.png")
    assert min(picture.shape[:2]) > 300
    assert len(np.unique(picture.reshape(-1, picture.shape[2]), axis=0)) > 50


def test_an_adapted_mesh_is_saved_drawn_inspected_and_used(model: Path, houses: Path, house: Path, tmp_path: Path) -> None:
    mesh, picture, field = tmp_path / "mesh.safetensors", tmp_path / "mesh.png", tmp_path / "field.csv"
    few = ["--data", houses, "--house", 2, "--scenarios", 4, "--quiet"]
    moved = call("adapt", model, *few, "--resolution", 3, "--steps", 3, "--out", mesh, "--figure", picture)
    assert moved.code == 0, moved.err
    assert "with 9 even nodes" in moved.out
    assert load_mesh(mesh).num_nodes == 9
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert json.loads(call("mesh", "inspect", mesh, "--json").out)["nodes"] == 9
    assert call("predict", model, "--house", house, "--grid", 4, "--mesh", mesh, "--out", field).code == 0
    scored = call("evaluate", model, "--data", houses, "--resolutions", 2, "--mesh", mesh, "--out", tmp_path / "scores.json")
    assert scored.code == 0, scored.err
    assert "9 of" in scored.out
    results = json.loads((tmp_path / "scores.json").read_text())["results"]
    assert [(score["method"], score["resolution"], score["nodes"]) for score in results][:2] == [("gen", 0, 9), ("gen", 2, 4)]
    grown = call("adapt", model, *few, "--steps", 2, "--nodes", 11, "--out", mesh)
    assert grown.code == 0, grown.err
    assert 9 <= load_mesh(mesh).num_nodes <= 11


def test_the_demo_leads_from_nothing_to_a_table_and_figures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from graphelements import training
    from graphelements.cli import demo

    for name, value in {"TRAIN_HOUSES": 3, "TEST_HOUSES": 3, "STEPS": 2}.items():
        monkeypatch.setattr(demo, name, value)
    monkeypatch.setattr(training, "compiler_available", lambda: False)
    outcome = call("demo", "--out", tmp_path)
    assert outcome.code == 0
    assert {path.suffix for path in tmp_path.iterdir()} == {".npz", ".json", ".png", ""}
    assert sum(path.suffix == ".png" for path in tmp_path.iterdir()) == 6
    tables = [json.loads((tmp_path / name).read_text())["results"] for name in ("evaluation.json", "shipped_evaluation.json")]
    assert [len(table) for table in tables] == [13, 13]
    assert "by the model that comes with the library" in outcome.out
