"""An experiment in a folder: one result file per cell (curve and seed), made only where it is missing.

`<out>/<curve>-<seed>.json` is an evaluation, `<out>/runs/<curve>-<seed>/` its training run; `summary.json`, `table.md` and the
figures are made from the evaluations that are there.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ..configs import with_settings
from ..data.archives import read_manifest
from ..errors import InputError, choose, require
from ..files import exists, read_json, replaced
from ..tasks import get_task
from ..training import Report
from . import poisson_figures, push_figures, sphere_figures
from .comparison import compared_with, learned
from .evaluation import save_evaluation
from .experiment import QUICK, QUICK_LARGEST, Curve, Experiment
from .poisson_experiments import DEFAULT_ABLATION, OPTIMISED_MESHES, POISSON_ABLATION, POISSON_SQUARE, POISSON_TUNING
from .push_experiments import OBSERVED, OBSERVERS, PUSHING, PUSHING_PIXELS, PUSHING_TUNING
from .runs import MODEL, Run, completed, differences, settings_of, train
from .sphere_experiments import POISSON_SPHERE, SCATTERED_SPHERE
from .summaries import Summary, pair_of, summarised, table_of, write_results

EXPERIMENTS = {
    experiment.name: experiment
    for experiment in (
        POISSON_SQUARE,
        POISSON_ABLATION,
        DEFAULT_ABLATION,
        POISSON_TUNING,
        POISSON_SPHERE,
        SCATTERED_SPHERE,
        PUSHING,
        PUSHING_TUNING,
    )
}
FIGURES = poisson_figures.FIGURES | sphere_figures.FIGURES | push_figures.FIGURES

GENERATED = {"houses-train.npz": (160, 1), "houses-test.npz": (40, 2)}
GENERATED_QUICK = {"houses-train.npz": (64, 1), "houses-test.npz": (16, 2)}
GENERATED_SPHERE = {"houses-train.npz": (200, 1), "houses-test.npz": (50, 2)}
SIMULATED, SIMULATED_QUICK = {"pushes.npz": (250, 1)}, {"pushes.npz": (40, 1)}
"""File -> number of houses and seed; as many as the authors' split has, and fewer in the quick form. Pushed objects are in one
file, so that none of them is in both parts."""


@dataclass(frozen=True)
class HouseFiles:
    """Where the houses of an experiment are, and whose they are; `contents` describes those that are scored."""

    training: Path
    training_subset: str
    test: Path
    test_subset: str
    origin: str
    contents: dict[str, Any]


@dataclass(frozen=True)
class Cell:
    """A curve with one seed."""

    curve: Curve
    seed: int

    @property
    def name(self) -> str:
        return f"{self.curve.name}-{self.seed}"


def get_experiment(name: str, quick: bool = False) -> Experiment:
    """The experiment of a name; its quick form has the main curves, one seed, few steps and no large meshes."""
    choose("the experiment", name, EXPERIMENTS)
    experiment = EXPERIMENTS[name]
    if not quick:
        return experiment
    curves = (
        replace(c, settings=(*c.settings, *QUICK), resolutions=tuple(k for k in c.resolutions if k <= QUICK_LARGEST))
        for c in experiment.curves
        if c.in_quick
    )
    left_out = {curve.name for curve in experiment.curves if not curve.in_quick}
    against = tuple(pair for pair in experiment.against if not left_out & set(pair))
    return replace(experiment, curves=tuple(curves), against=against, num_seeds=1)


def cells_of(experiment: Experiment, num_seeds: int | None = None, only: str | None = None) -> list[Cell]:
    """All cells, seed by seed, or those of `only`: names of curves and cells with commas between."""
    cells = [Cell(curve, seed) for seed in range(num_seeds or experiment.num_seeds) for curve in experiment.curves]
    if only is None:
        return cells
    wanted = only.split(",")
    names = [curve.name for curve in experiment.curves] + [cell.name for cell in cells]
    for name in wanted:
        require(
            name in names,
            f"--only takes curves such as {names[0]} and cells such as {cells[0].name}, the curves are "
            f"{', '.join(curve.name for curve in experiment.curves)} and the seeds below {cells[-1].seed + 1}; got {name!r}",
        )
    return [cell for cell in cells if cell.name in wanted or cell.curve.name in wanted]


def houses_to_generate(out: Path, experiment: Experiment, quick: bool) -> dict[Path, tuple[int, int]]:
    """The files of houses that an experiment without data still needs, each with number and seed."""
    for path in out.glob("*-*.json"):
        saved = read_json(path, "an evaluation saved by `graphelements reproduce`")
        on = str(saved.get("data")) if isinstance(saved, dict) else "something else"
        require(
            Path(on).name in GENERATED | SIMULATED, f"{out} has results on {on}; give --data with it, or choose another --out"
        )
    wanted = GENERATED_QUICK if quick else GENERATED if experiment.task == POISSON_SQUARE.task else GENERATED_SPHERE
    if experiment.task == PUSHING.task:
        wanted = SIMULATED_QUICK if quick else SIMULATED
    if experiment.judged_by == "validation":
        wanted = dict(list(wanted.items())[:1])
    files = {out / name: made for name, made in wanted.items()}
    return {path: made for path, made in files.items() if not exists(path)}


def find_houses(data: Path | None, out: Path, experiment: Experiment) -> HouseFiles:
    """The houses at `data`, split by number as written down; without `data` those that were generated in `out`.

    An experiment that chooses settings is judged by a fifth of the training houses, and never sees the test houses.
    """
    task = get_task(experiment.task)
    if data is None and task.name == PUSHING.task:
        (name,) = SIMULATED
        data = out / name
    generated = data is None
    if data is None:
        data, test = (out / name for name in GENERATED)
        if experiment.judged_by == "test":
            return HouseFiles(data, "all", test, "all", "generated houses", task.describe(task.load(test)))
    houses = task.load(data)
    held_out = [] if generated else task.held_out(houses)
    require(
        generated or 0 < len(held_out) < len(houses),
        f"{data} must have houses to train on and of the test split; got {len(houses)} houses, {len(held_out)} of that split",
    )
    if task.name == PUSHING.task:
        origin = "Omnipush" if data.is_dir() else "simulated pushes"
    elif data.is_dir():
        theirs = len(houses) == 200 and len(held_out) == 40
        origin = "authors' houses" if theirs else "houses in the authors' format"
    else:
        origin = "generated houses" if {"distribution", "task"} & set(read_manifest(data)) else f"houses of {data.name}"
    if experiment.judged_by == "test":
        return HouseFiles(data, "train", data, "test", origin, task.describe(houses.selected(held_out)))
    rest = sorted(set(houses.numbers) - set(held_out))
    judged = sorted(np.random.default_rng(2019).choice(rest, max(1, len(rest) // 5), replace=False).tolist())
    training, validation = (",".join(map(str, numbers)) for numbers in (sorted(set(rest) - set(judged)), judged))
    return HouseFiles(data, training, data, validation, origin, task.describe(houses.selected(judged)))


@dataclass(frozen=True)
class Reproduction:
    """An experiment with its folder and its houses."""

    experiment: Experiment
    out: Path
    houses: HouseFiles
    quick: bool = False

    def run(self, cell: Cell) -> Run:
        """The training run of a cell."""
        task = get_task(self.experiment.task)
        choose(f"the preset of the curve {cell.curve.name}", cell.curve.preset, task.presets)
        config = with_settings(task.presets[cell.curve.preset], (*self.experiment.settings, *cell.curve.settings))
        return Run(task.name, config, self.houses.training, self.houses.training_subset, seed=cell.seed)

    def finished(self) -> dict[Cell, Path]:
        """The cells of which there is an evaluation, whatever their seed; all of these curves, settings and houses."""
        found = {}
        for curve in self.experiment.curves:
            names = (re.fullmatch(re.escape(curve.name) + r"-(\d+)", path.stem) for path in self.out.glob("*.json"))
            for seed in sorted(int(name[1]) for name in names if name):
                cell = Cell(curve, seed)
                path = self._path(cell)
                wrong = self._mismatch(cell, path)
                require(not wrong, f"{path} is of another experiment: {wrong}; move it away, or choose another --out")
                found[cell] = path
        return found

    def adopt(self, cells: list[Cell]) -> list[str]:
        """Copy the evaluations of cells that another experiment beside this one has already; their names."""
        adopted = []
        for cell in cells:
            for name in (name for name, each in EXPERIMENTS.items() if each.task == self.experiment.task):
                path = self.out.parent / name / f"{cell.name}.json"
                if exists(path) and not exists(self._path(cell)) and not self._mismatch(cell, path):
                    with replaced(self._path(cell)) as temporary:
                        shutil.copyfile(path, temporary)
                    adopted.append(str(path))
        return adopted

    def train(self, cell: Cell) -> Iterator[Report]:
        """The reports of a cell's training run, which goes on where it was stopped."""
        return train(self.run(cell), self._folder(cell))

    def score(self, cell: Cell, progress: Callable[[str], None] = lambda _: None) -> None:
        """Write the evaluation of a cell whose training run is done."""
        model, houses = self._folder(cell) / MODEL, self.houses
        save_evaluation(self._path(cell), str(model), houses.test, houses.test_subset, cell.curve.resolutions, progress)

    def summarise(self) -> str:
        """Write summary, table and figures from the evaluations that are there; the table, empty if there is none."""
        table, finished = "", self.finished()
        while finished:
            paths: dict[str, list[Path]] = {}
            for cell, path in finished.items():
                paths.setdefault(cell.curve.name, []).append(path)
            summary = summarised(self.experiment, paths, self.houses.origin, str(self.houses.test), self.quick)
            summary["optimised"] = self._optimised(finished)
            self._add_observers(summary, paths)
            table = table_of(summary)
            drawn = {name: draw(summary) for name, draw in FIGURES.get(self.experiment.name, {}).items()}
            write_results(self.out, summary, table, drawn)
            before, finished = finished, self.finished()
            if finished == before:  # else another process has finished a cell meanwhile
                break
        return table

    def _optimised(self, finished: dict[Cell, Path]) -> dict[str, Any]:
        """The errors on meshes optimised for each house of the curves that `optimised-meshes` beside this experiment has."""
        beside, files = self.out.parent / OPTIMISED_MESHES, {}
        for cell in finished if self.experiment.name == POISSON_SQUARE.name else ():
            if exists(path := beside / f"{cell.name}.json"):
                files.setdefault(cell.curve.name, []).append(path)
        if not files:
            return {}
        from .mesh_summary import optimised_errors
        from .optimised_meshes import contents_of, read_results

        contents = contents_of(self.houses.test, self.houses.test_subset)
        found = {curve: optimised_errors(list(map(read_results, paths)), contents) for curve, paths in files.items()}
        return {curve: errors for curve, errors in found.items() if errors}

    def _add_observers(self, summary: Summary, paths: dict[str, list[Path]]) -> None:
        """What one errs by who knows all but what the pixels of pushed objects leave open, from `pushing-pixels` beside this."""
        path = self.out.parent / PUSHING_PIXELS / "summary.json"
        if self.experiment.name != PUSHING.name or not exists(path):
            return
        told = read_json(path, f"a summary saved by `graphelements reproduce {PUSHING_PIXELS}`")
        try:
            fits = told["contents"] == self.houses.contents and told["quick"] == self.quick
            errors = {OBSERVERS[name]: [float(error) for error in each["of_object"]] for name, each in told["observers"].items()}
        except (KeyError, TypeError, ValueError, AttributeError):
            raise InputError(f"{path} is not a summary of `graphelements reproduce {PUSHING_PIXELS}`; move it away") from None
        for label, of_object in errors.items() if fits else ():
            mean = float(np.mean(of_object))
            found = {"mean": mean, "std": None, "of_seed": [mean], "nodes": 0, "seconds_per_scenario": 0.0}
            summary["references"][label] = {"0": found}
            for curve in (curve for curve in self.experiment.curves if curve.name in paths and curve.name in OBSERVED):
                rows = compared_with(of_object, paths[curve.name])
                summary["comparisons"] += [pair_of(label, curve.label, row) for row in rows]

    def _path(self, cell: Cell) -> Path:
        return self.out / f"{cell.name}.json"

    def _folder(self, cell: Cell) -> Path:
        return self.out / "runs" / cell.name

    def _mismatch(self, cell: Cell, path: Path) -> str:
        """What an evaluation has other than this cell: settings, houses or resolutions."""
        saved = read_json(path, "an evaluation saved by `graphelements reproduce`")
        run = self.run(cell)
        expected = json.loads(json.dumps(settings_of(run) | {"steps_done": run.config.training.steps}))
        try:
            trained = {
                name: value for name, value in saved["training"].items() if name in expected
            }  # beside it: seconds and such
            wrong = differences(completed(trained), expected)
            wrong += ["houses"] if saved["contents"] != self.houses.contents else []
            scored = {key for key in map(learned, saved["results"]) if key is not None}
        except (KeyError, TypeError, ValueError, AttributeError):
            raise InputError(f"{path} is not an evaluation saved by `graphelements reproduce`; move it away") from None
        wrong += ["resolutions"] if not any(isinstance(k, str) for k in scored) and scored != set(cell.curve.resolutions) else []
        return f"it differs in {', '.join(wrong)}" if wrong else ""
