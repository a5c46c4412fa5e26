"""Cells, their files, and what may count as finished."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from real_data import DIRECTORY, needs_real_houses

from graphelements.configs import with_settings
from graphelements.data.house_files import load_houses, save_houses
from graphelements.data.houses import Houses
from graphelements.data.random_houses import HouseDistribution, draw_houses
from graphelements.errors import InputError
from graphelements.experiments import reproduce
from graphelements.experiments.experiment import Trials, tuning
from graphelements.experiments.reproduce import (
    Cell,
    Reproduction,
    cells_of,
    find_houses,
    get_experiment,
    houses_to_generate,
)
from graphelements.tasks import get_task
from graphelements.tasks.poisson_square import PRESETS

RESULTS = Path(__file__).parents[2] / "results"
TINY = ("training.steps=2", "batches.items=2", "batches.queries=8", "training.compile=off", "network.latent_size=4")


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Reproduction:
    """A quick poisson-square on a file of 20 small houses, of which two are in the test split."""
    monkeypatch.setattr(reproduce, "QUICK", TINY)
    monkeypatch.setattr(reproduce, "QUICK_LARGEST", 3)
    drawn = draw_houses(21, np.random.default_rng(0), HouseDistribution(num_scenarios=2, num_queries=9))
    solved = Houses(tuple(replace(house, temperatures=house.query_points.sum(-1)) for house in drawn.houses))
    save_houses(tmp_path / "houses.npz", solved, {"distribution": {}})
    houses = find_houses(tmp_path / "houses.npz", tmp_path, get_experiment("poisson-square"))
    return Reproduction(get_experiment("poisson-square", quick=True), tmp_path / "poisson-square", houses, quick=True)


def carry_out(work: Reproduction, name: str) -> None:
    (cell,) = cells_of(work.experiment, only=name)
    assert [report.step for report in work.train(cell)] == [1, 2]
    work.score(cell)


def names(work: Reproduction) -> set[str]:
    return {cell.name for cell in work.finished()}


def test_cells_are_curves_times_seeds_seed_by_seed() -> None:
    cells = cells_of(get_experiment("poisson-square"), 2)
    curves = ["paper", "paper-grid", "default", "near", "nodes", "small", "np", "np-tuned", "attention"]
    curves += ["default-incautious", "default-to-16x16"]
    assert [cell.name for cell in cells] == [f"{curve}-{seed}" for seed in (0, 1) for curve in curves]
    some = cells_of(get_experiment("poisson-square"), None, "np,paper-grid-2")
    assert [cell.name for cell in some] == ["np-0", "np-1", "paper-grid-2", "np-2"]


@pytest.mark.parametrize("only", ["paper-grid-3", "gnn", "", "np,,paper", "np-"])
def test_unknown_cells_are_refused_with_the_choices(only: str) -> None:
    with pytest.raises(
        InputError,
        match=r"the curves are paper, paper-grid, default, near, .*, .*, default-to-16x16 and the seeds below 3",
    ):
        cells_of(get_experiment("poisson-square"), None, only)


@pytest.mark.parametrize("name", ["poisson-square", "poisson-ablation", "default-ablation", "poisson-tuning"])
def test_every_cell_of_every_experiment_has_a_configuration_of_its_own(work: Reproduction, name: str) -> None:
    for quick in (False, True):
        experiment = get_experiment(name, quick)
        assert len({curve.name for curve in experiment.curves}) == len(experiment.curves)
        assert {name for pair in experiment.against for name in pair} <= {curve.name for curve in experiment.curves} | {"fem"}
        known = [cell for cell in cells_of(experiment) if cell.curve.preset in PRESETS]
        runs = [replace(work, experiment=experiment).run(cell) for cell in known]
        assert len({(run.config, run.seed) for run in runs}) == len(runs)


def test_the_quick_form_has_the_papers_network_ours_and_the_baselines() -> None:
    curves = [curve.name for curve in get_experiment("poisson-square", quick=True).curves]
    assert curves == ["paper", "paper-grid", "default", "np", "np-tuned", "attention"]
    assert len(get_experiment("poisson-ablation", quick=True).curves) == len(get_experiment("poisson-ablation").curves)
    changes = get_experiment("default-ablation", quick=True)
    labels = ("unchanged", "no message passing", "no augmentation")
    assert [curve.label for curve in changes.curves] == [
        f"{preset}: {label}" for preset in ("default", "nodes") for label in labels
    ]
    assert set(changes.baselines) <= {curve.name for curve in changes.curves}
    assert all("training.compile=off" in curve.settings for curve in changes.curves)


@pytest.mark.parametrize("name", ["pushing", "pushing-tuning", "poisson-sphere", "scattered-sphere"])
def test_every_curve_of_the_other_tasks_has_a_configuration_of_its_own_and_a_quick_form(name: str) -> None:
    presets = get_task(get_experiment(name).task).presets
    for quick in (False, True):
        curves = get_experiment(name, quick).curves
        configs = [with_settings(presets[curve.preset], curve.settings) for curve in curves]
        steps = {config.training.steps for config in configs}
        assert len(set(configs)) == len(configs)
        assert steps == {300} if quick else 300 not in steps


def test_trials_are_rates_and_then_changes_at_the_first_of_them() -> None:
    trials = Trials("np", 70, (0.1, 0.25), {"wider, at last": ("network.latent_size=9",)}, always=("batches.items=3",))
    experiment = tuning("some", get_experiment("pushing"), [trials], 4)
    assert [curve.name for curve in experiment.curves] == ["np-rate-0.1", "np-rate-0.25", "np-wider-at-last"]
    steps = ("training.steps=70", "training.validate_every=70", "batches.items=3")
    assert [curve.settings for curve in experiment.curves] == [
        (*steps, "training.learning_rate=0.1"),
        (*steps, "training.learning_rate=0.25"),
        (*steps, "training.learning_rate=0.1", "network.latent_size=9"),
    ]
    assert experiment.against == (("np-rate-0.25", "np-rate-0.1"), ("np-wider-at-last", "np-rate-0.1"))
    assert (experiment.task, experiment.items, experiment.judged_by) == ("pushing", "objects", "validation")


def test_the_deep_neural_process_has_twice_the_hidden_layers(work: Reproduction) -> None:
    work = replace(work, experiment=get_experiment("poisson-ablation"))
    plain, deep = (work.run(cells_of(work.experiment, 1, name)[0]).config.network for name in ("np", "np-deep"))
    for name in ("encoder_hidden", "decoder_hidden"):
        assert getattr(deep, name) == 2 * getattr(plain, name)


def test_houses_are_split_by_number_and_named_for_what_they_are(work: Reproduction, tmp_path: Path) -> None:
    assert (work.houses.origin, work.houses.contents["houses"]) == ("generated houses", 2)
    houses = load_houses(tmp_path / "houses.npz")
    save_houses(tmp_path / "other.npz", houses)
    assert find_houses(tmp_path / "other.npz", tmp_path, get_experiment("poisson-square")).origin == "houses of other.npz"
    save_houses(tmp_path / "few.npz", houses.selected(range(5)))
    with pytest.raises(InputError, match="of the test split"):
        find_houses(tmp_path / "few.npz", tmp_path, get_experiment("poisson-square"))


def test_a_finished_cell_is_an_evaluation_of_its_run(work: Reproduction) -> None:
    assert names(work) == set()
    assert work.summarise() == ""
    carry_out(work, "paper-grid")
    assert names(work) == {"paper-grid-0"}
    saved = json.loads((work.out / "paper-grid-0.json").read_text())
    assert list(saved) == ["task", "checkpoint", "data", "houses", "contents", "training", "results"]
    assert (saved["data"], saved["houses"]) == (str(work.houses.test), "test")
    assert [(score["method"], score["resolution"]) for score in saved["results"]] == [
        ("gen", 2),
        ("gen", 3),
        ("fem", 2),
        ("fem", 3),
        ("mean", 0),
    ]


def test_what_another_process_finished_meanwhile_is_in_the_summary(work: Reproduction, monkeypatch: pytest.MonkeyPatch) -> None:
    carry_out(work, "paper-grid")
    carry_out(work, "np")
    moved = shutil.move(work.out / "np-0.json", work.out.parent / "np-0.json")

    def finishing(*arguments):
        if Path(moved).exists():
            shutil.move(moved, work.out / "np-0.json")
        return table_of(*arguments)

    table_of = reproduce.table_of
    monkeypatch.setattr(reproduce, "table_of", finishing)
    assert "neural process" in work.summarise()
    assert "neural process" in (work.out / "table.md").read_text()
    assert len(json.loads((work.out / "summary.json").read_text())["lines"]) == 2


def test_evaluations_of_other_settings_houses_or_resolutions_are_refused_by_name(work: Reproduction) -> None:
    carry_out(work, "paper-grid")
    path = work.out / "paper-grid-0.json"
    good = path.read_text()
    for key, value, name in (
        ("training", {"training": {"steps": 3}}, "training.steps"),
        ("training", {"seed": 1}, "seed"),
        ("training", {"steps_done": 1}, "steps_done"),
        ("contents", {"houses": 7}, "houses"),
        ("results", json.loads(good)["results"][1:], "resolutions"),
    ):
        path.write_text(json.dumps(json.loads(good) | {key: value}))
        with pytest.raises(InputError, match=f"is of another experiment: it differs in .*{name}"):
            work.finished()
    for text in ("[]", "{}", '{"training": {}}'):
        path.write_text(text)
        with pytest.raises(InputError, match="is not an evaluation"):
            work.finished()
    before = json.loads(good)
    del before["training"]["batches"]["moving_starts"]  # a setting that there was not yet, at its default
    path.write_text(json.dumps(before))
    assert names(work) == {"paper-grid-0"}
    del before["training"]["batches"]["queries"]  # another one, of which this run has a value of its own
    path.write_text(json.dumps(before))
    with pytest.raises(InputError, match=r"it differs in batches\.queries"):
        work.finished()


def test_cells_of_an_experiment_beside_it_are_taken_over_where_they_are_the_same(work: Reproduction) -> None:
    carry_out(work, "paper-grid")
    beside = replace(work, experiment=get_experiment("poisson-ablation", quick=True), out=work.out.parent / "poisson-ablation")
    cells = cells_of(beside.experiment)
    assert beside.adopt(cells) == [str(work.out / "paper-grid-0.json")]
    assert names(beside) == {"paper-grid-0"}
    assert beside.adopt(cells) == []
    other = replace(beside, experiment=get_experiment("poisson-ablation"), out=work.out.parent / "full")
    assert other.adopt(cells_of(other.experiment)) == []


@needs_real_houses
def test_the_results_in_the_repository_count_as_finished(tmp_path: Path) -> None:
    for name in ("np", "paper-grid", "paper"):
        for path in (RESULTS / "poisson-square").glob(f"{name}-[0-9].json"):
            shutil.copy(path, tmp_path)
    work = Reproduction(
        get_experiment("poisson-square"), tmp_path, find_houses(DIRECTORY, tmp_path, get_experiment("poisson-square"))
    )
    assert {"np-0", "np-1", "np-2", "paper-0", "paper-grid-0", "paper-grid-1", "paper-grid-2"} <= names(work)
    assert work.houses.origin == "authors' houses"
    assert Cell(work.experiment.curves[0], 0) in work.finished()
    assert "| 0.206 ± 0.009 | 0.144 ± 0.004 | 0.104 ± 0.002 |" in work.summarise()


@pytest.mark.parametrize("name", ["poisson-sphere", "scattered-sphere"])
def test_experiments_on_the_sphere_run_from_data_to_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    assert list(houses_to_generate(tmp_path, get_experiment(name), quick=False).values()) == [(200, 1), (50, 2)]
    monkeypatch.setattr(reproduce, "QUICK", TINY)
    monkeypatch.setattr(reproduce, "QUICK_LARGEST", 2)
    task = get_task(name)
    list(task.generate(tmp_path / "fields.npz", 6, seed=0))
    experiment = get_experiment(name, quick=True)
    houses = find_houses(tmp_path / "fields.npz", tmp_path, experiment)
    assert (houses.origin, houses.contents["houses"]) == ("generated houses", 1)
    work = Reproduction(experiment, tmp_path / name, houses, quick=True)
    carry_out(work, "np-tuned-0")
    assert "whatever the mesh" in work.summarise()
    carry_out(work, "default-0")
    table = work.summarise()
    assert names(work) == {"default-0", "np-tuned-0"}
    assert "nodes" in table
    assert (tmp_path / name / "errors.png").exists()
