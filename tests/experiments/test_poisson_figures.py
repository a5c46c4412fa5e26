"""Figures show every line that was run, by its name."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from evaluations import write_all

from graphelements.experiments import optimised_meshes
from graphelements.experiments.poisson_experiments import SIZES
from graphelements.experiments.reproduce import EXPERIMENTS, FIGURES, Cell, HouseFiles, Reproduction
from graphelements.experiments.summaries import summarised, table_of

PICTURES = ("view.png", "pushes.png", "motions.png")  # of objects, without lines

VARIANTS = {"default, not cautious", "default, trained up to 16x16"}


@pytest.mark.parametrize("name", PICTURES)
def test_pictures_of_pushes_say_that_they_are_simulated(name: str) -> None:
    figure = FIGURES["pushing"][name]({})
    assert figure is not None
    said = [figure.get_suptitle(), *(axes.get_title() for axes in figure.axes)]
    assert any("simulated" in text.lower() for text in said)
    assert all(len(axes.get_images()) == 1 for axes in figure.axes)


@pytest.mark.parametrize("experiment, name", [(e, n) for e, figures in FIGURES.items() for n in figures if n not in PICTURES])
def test_every_line_is_named_beside_its_end_and_no_two_names_overlap(tmp_path: Path, experiment: str, name: str) -> None:
    chosen = EXPERIMENTS[experiment]
    summary = summarised(chosen, write_all(tmp_path, chosen), "generated houses", "houses.npz", quick=True)
    figure = FIGURES[experiment][name](summary)
    assert figure is not None
    figure.savefig(tmp_path / name)
    title = figure.get_suptitle()
    assert "Quick form" in title
    assert "generated houses" in title
    for axes in figure.axes:
        boxes = sorted((text.get_window_extent() for text in axes.texts), key=lambda box: box.y0)
        assert all(above.y0 > below.y1 - 2 for below, above in pairwise(boxes) if above.x0 < below.x1)
        assert all(box.y1 <= figure.bbox.y1 and box.x1 <= figure.bbox.x1 for box in boxes)
    shown = {text.get_text().replace("\n", " ") for axes in figure.axes for text in [*axes.texts, *axes.get_xticklabels()]}
    expected = {line["label"] for line in summary["lines"]} - VARIANTS  # behind `default` up to 7x7
    expected = {"default (ours)", *VARIANTS} if name == "larger_meshes.png" else expected
    assert expected <= shown


def test_optimised_meshes_are_one_more_curve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = EXPERIMENTS["poisson-square"]
    paths = write_all(tmp_path / "poisson-square", chosen)
    houses = {"house 17": 0.1, "house 20": 0.3, "generated 0": 100.0}
    trial = {"start": "even", "nodes": 4, "before": 1.0, "seconds": 1.0, "valid": True, "smallest_angle": 45.0}
    trial |= {"positions": [], "coarser": []}
    found = {name: [trial | {"resolution": k, "after": error / k} for k in SIZES] for name, error in houses.items()}
    beside = tmp_path / "optimised-meshes"
    beside.mkdir()
    for seed in range(2):
        for trials in found.values():
            trials[0]["after"] *= 1 + seed
        claims = {"model": "m", "weights": "w", "work": {}, "contents": {name: f"of {name}" for name in houses}}
        (beside / f"default-{seed}.json").write_text(json.dumps(claims | {"houses": found}))
    files = HouseFiles(Path("t"), "train", Path("t"), "test", "generated houses", {"houses": 2})
    cells = {Cell(c, seed): path for c in chosen.curves for seed, path in enumerate(paths[c.name])}
    reproduction = Reproduction(chosen, tmp_path / "poisson-square", files)
    contents = {"house 17": "of house 17", "house 20": "of house 20"}
    monkeypatch.setattr(optimised_meshes, "contents_of", lambda data, subset: contents)
    optimised = reproduction._optimised(cells)
    assert list(optimised) == ["default"]
    assert optimised["default"]["2"]["of_seed"] == pytest.approx([0.1, 0.2])
    assert optimised["default"]["7"]["mean"] == pytest.approx(0.2 / 7)
    assert optimised["default"]["7"]["std"] == pytest.approx(0)
    summary = summarised(chosen, paths, "generated houses", "houses.npz", quick=False) | {"optimised": optimised}
    contents["house 20"] = "of another"
    assert reproduction._optimised(cells) == {}
    contents |= {"house 20": "of house 20", "house 21": "of house 21"}
    assert reproduction._optimised(cells) == {}  # not all were tried
    assert "| default (ours), optimised meshes | 2 | 0.150 ± 0.071 | 0.067 ± 0.000 |" in table_of(summary)
    figure = FIGURES["poisson-square"]["errors.png"](summary)
    assert figure is not None
    drawn = [np.asarray(line.get_xydata()) for line in figure.axes[0].get_lines()]
    assert any(points[-1] == pytest.approx([7, 0.2 / 7]) for points in drawn)
    assert "default (ours), optimised meshes" in {text.get_text() for text in figure.axes[0].texts}


def test_the_drawn_points_are_the_means(tmp_path: Path) -> None:
    chosen = EXPERIMENTS["poisson-square"]
    summary = summarised(chosen, write_all(tmp_path, chosen), "generated houses", "houses.npz", quick=False)
    figure = FIGURES["poisson-square"]["larger_meshes.png"](summary)
    assert figure is not None
    left, middle, right = figure.axes
    sizes = np.array([2, 3, 4, 5, 6, 7, 8, 10, 12, 16, 24, 32])
    errors = [place * 1.05 / sizes for place in (3, 4, 5)]  # default, near, nodes: by their places among the curves
    relative = 5 * [7 / sizes[5:]]  # and the variants of default
    for line, values in zip(middle.get_lines(), relative, strict=True):
        assert np.asarray(line.get_xydata()) == pytest.approx(np.column_stack([sizes[5:], values]))
    for axes, expected in ((left, [*errors, 1 / sizes**2]), (right, 4 * [0.1 * sizes**2])):
        for line, values in zip(axes.get_lines(), expected, strict=True):
            drawn = np.asarray(line.get_xydata())
            assert drawn == pytest.approx(np.column_stack([sizes, values])[-len(drawn) :])
        assert len(drawn) == len(sizes) - (axes is right)  # elements on 2x2 nodes have nothing to solve


def test_a_partial_experiment_has_the_figures_that_can_be_drawn(tmp_path: Path) -> None:
    chosen = EXPERIMENTS["poisson-square"]
    paths = write_all(tmp_path, chosen, 1)
    summary = summarised(chosen, {"np": paths["np"]}, "generated houses", "houses.npz", quick=False)
    drawn = {name: draw(summary) for name, draw in FIGURES["poisson-square"].items()}
    assert drawn["errors.png"] is not None
    assert drawn["larger_meshes.png"] is None
