"""Summaries and tables: means and deviations over seeds, pairs of houses, and nothing that was not run."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from evaluations import write_all, write_evaluation

from graphelements.experiments.poisson_experiments import DEFAULT_ABLATION, POISSON_ABLATION, POISSON_SQUARE
from graphelements.experiments.reproduce import EXPERIMENTS
from graphelements.experiments.summaries import Summary, summarised, table_of

RESULTS = Path(__file__).parents[2] / "results"


def summary_of(folder: Path, name: str, num_seeds: int = 2) -> Summary:
    paths = write_all(folder, EXPERIMENTS[name], num_seeds)
    return summarised(EXPERIMENTS[name], paths, "generated houses", "houses.npz", quick=False)


def row(table: str, start: str) -> list[str]:
    (line,) = [line for line in table.splitlines() if line.startswith(f"| {start} |") and "`" not in line]
    return [cell.strip() for cell in line.split("|")[1:-1]]


def test_errors_are_means_and_standard_deviations_over_seeds(tmp_path: Path) -> None:
    summary = summary_of(tmp_path, "poisson-square", num_seeds=3)
    line = next(line for line in summary["lines"] if line["cells"][0]["curve"] == "paper-grid")
    of_seeds = [2 * (1 + seed / 10) / 7 for seed in range(3)]
    assert line["errors"]["7"]["mean"] == pytest.approx(np.mean(of_seeds))
    assert line["errors"]["7"]["std"] == pytest.approx(np.std(of_seeds, ddof=1))
    assert [(cell["seed"], cell["seconds"], cell["threads"]) for cell in line["cells"]] == [(0, 100, 1), (1, 101, 1), (2, 102, 1)]
    assert row(table_of(summary), "paper, barycentric")[7] == "0.314 ± 0.029"
    assert json.loads(json.dumps(summary)) == summary


def test_small_deviations_are_seen(tmp_path: Path) -> None:
    summary = summary_of(tmp_path, "poisson-square")
    line = next(line for line in summary["lines"] if line["cells"][0]["curve"] == "paper-grid")
    for std, shown in (
        (0.029, "0.314 ± 0.029"),
        (0.0004, "0.3143 ± 0.0004"),
        (0.00001, "0.31429 ± 0.00001"),
        (0.000003, "0.314286 ± 0.000003"),
        (0.0, "0.314 ± 0.000"),
    ):
        line["errors"]["7"] |= {"mean": 2.2 / 7, "std": std}
        assert row(table_of(summary), "paper, barycentric")[7] == shown


def test_a_single_seed_has_no_deviation(tmp_path: Path) -> None:
    table = table_of(summary_of(tmp_path, "poisson-square", num_seeds=1))
    assert row(table, "paper, soft nearest")[:3] == ["paper, soft nearest", "1", "0.500"]


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_recorded_tables_are_made_of_recorded_results(name: str) -> None:
    folder, experiment = RESULTS / name, EXPERIMENTS[name]
    recorded = json.loads((folder / "summary.json").read_text())
    paths = {c.name: sorted(folder.glob(f"{c.name}-[0-9].json")) for c in experiment.curves}
    known = {curve: files for curve, files in paths.items() if files}
    made = summarised(experiment, known, recorded["houses"]["origin"], recorded["houses"]["data"], recorded["quick"])
    beside = {"optimised": recorded["optimised"], "references": recorded["references"]}  # also of other experiments
    others = [pair for pair in recorded["comparisons"] if pair["ours"] in recorded["references"]]
    assert made | beside | {"comparisons": made["comparisons"] + others} == recorded
    assert table_of(recorded) == (folder / "table.md").read_text()


def test_what_was_not_run_is_not_in_the_table(tmp_path: Path) -> None:
    paths = write_all(tmp_path, POISSON_SQUARE, 1)
    table = table_of(summarised(POISSON_SQUARE, {"np": paths["np"]}, "authors' houses", "poisson_houses", quick=True))
    assert "attention" not in table
    assert "default" not in table
    assert row(table, "neural process")[2] == "7.000 whatever the mesh"
    assert "on 4 unseen houses (authors' houses), from `poisson_houses`" in table
    assert "Quick form" in table


def test_errors_on_finer_meshes_are_multiples_of_the_networks_own_at_7x7(tmp_path: Path) -> None:
    summary = summary_of(tmp_path, "poisson-square")
    assert summary["finer"]["default (ours)"]["32"] == pytest.approx([7 / 32] * 3)  # the same for all houses
    assert "paper, soft nearest" not in summary["finer"]
    assert "| default (ours) | 0.875 (0.875 to 0.875); 0.875, 0.875 |" in table_of(summary)
    assert table_of(summary_of(tmp_path / "other", "poisson-ablation")).count("multiples") == 0


def test_the_default_is_paired_with_all_rivals_and_with_finite_elements(tmp_path: Path) -> None:
    summary = summary_of(tmp_path, "poisson-square")
    ours = [pair for pair in summary["comparisons"] if pair["ours"] == "default (ours)"]
    pairs = {(pair["theirs"], pair["resolution"]): pair for pair in ours}
    rivals = {"neural process", "neural process, tuned", "attention", "finite elements", "ours, near samples heard"}
    assert {theirs for theirs, _ in pairs} == rivals
    assert {resolution for _, resolution in pairs} == {2, 3, 4, 5, 6, 7, 8, 10, 12, 16, 24, 32}
    difference = 3 * 1.05 / 7 - 1 / 49
    pair = pairs["finite elements", 7]
    assert pair["difference"] == pytest.approx(difference)
    assert pair["ratio"] == pytest.approx(3 * 1.05 / 7 * 49)
    # every house's difference is the mean's times 0.8 to 1.2
    assert 0.8 * difference <= pair["low"] < difference < pair["high"] <= 1.2 * difference
    assert "default (ours) - finite elements" in table_of(summary)
    ratio = f"), x {pair['ratio']:.2f} ({pair['ratio_low']:.2f} to {pair['ratio_high']:.2f})"
    assert f"{ratio}, less in {pair['less']:.0%} |" in table_of(summary)


def test_models_for_one_mesh_each_are_one_line(tmp_path: Path) -> None:
    summary = summary_of(tmp_path, "poisson-ablation")
    table = table_of(summary)
    cells = row(table, "one model per mesh")
    assert cells[1] == "2"
    assert cells[2:8] == [f"{(2 + i) * 1.05 / k:.3f} ± {(2 + i) * 0.1 / k / 2**0.5:.3f}" for i, k in enumerate(range(2, 8))]
    assert cells[8] == ""  # 8x8
    assert row(table, "trained up to 5x5")[8] != ""
    assert "one model per mesh - one model for all meshes" in table
    assert len(summary["lines"]) == len({curve.label for curve in POISSON_ABLATION.curves}) == 6


def test_changes_stand_beside_the_unchanged_with_their_ratio(tmp_path: Path) -> None:
    table = table_of(summary_of(tmp_path, "default-ablation", num_seeds=1))
    assert row(table, "default: unchanged")[2:] == ["0.250", "0.143", "0.062", "0.031"]
    assert row(table, "default: no message passing")[2:] == [
        "0.500 (x 2.00)",
        "0.286 (x 2.00)",
        "0.125 (x 2.00)",
        "0.062 (x 2.00)",
    ]
    assert "x" not in "".join(row(table, "nodes: unchanged"))
    labels = [curve.label for curve in DEFAULT_ABLATION.curves]
    ratio = (1 + labels.index("nodes: 4 rounds")) / (1 + labels.index("nodes: unchanged"))
    assert row(table, "nodes: 4 rounds")[2].endswith(f" (x {ratio:.2f})")  # each preset has its own
    assert "`network.rounds=0`" in table
    assert all(f"| {curve.label} |" in table for curve in DEFAULT_ABLATION.curves)


def test_curves_are_compared_with_the_seeds_that_both_have(tmp_path: Path) -> None:
    paths = write_all(tmp_path, DEFAULT_ABLATION, 3)
    seeds_of = {"default-unchanged": [0, 1], "default-no-message-passing": [1, 2], "default-4-rounds": [2]}
    chosen = {name: [paths[name][seed] for seed in seeds] for name, seeds in seeds_of.items()}
    summary = summarised(DEFAULT_ABLATION, chosen, "generated houses", "houses.npz", quick=False)
    assert {pair["ours"] for pair in summary["comparisons"]} == {"default: no message passing"}
    assert row(table_of(summary), "default: no message passing")[3] == "0.329 ± 0.020 (x 2.00)"
    assert row(table_of(summary), "default: 4 rounds")[3] == f"{12 * 1.2 / 7:.3f}"  # no seed in common


@pytest.mark.parametrize("value, told", [(False, "none"), (True, "on"), (["flip", "sign"], "flip, sign"), ("square", "square")])
def test_augmentation_is_told_where_runs_know_it(tmp_path: Path, value: object, told: str) -> None:
    old = write_evaluation(tmp_path / "np-0.json", 0, {1: 0.2}, "np")
    new = write_evaluation(tmp_path / "default-0.json", 0, {2: 0.3, 7: 0.1}, symmetries=value)
    paths = {"np": [old], "default": [new]}
    table = table_of(summarised(POISSON_SQUARE, paths, "generated houses", "houses.npz", quick=False))
    rows = {line.split(" | ")[0][2:]: line.split(" | ")[-1].rstrip(" |") for line in table.splitlines() if "`" in line[1:]}
    assert (rows["default (ours)"], rows["neural process"]) == (told, "none")
    without = table_of(summarised(POISSON_SQUARE, {"np": [old]}, "generated houses", "houses.npz", quick=False))
    assert "augmentation" not in without


@pytest.mark.parametrize("name", ["poisson-sphere", "scattered-sphere"])
def test_a_table_needs_no_method_that_knows_a_mesh(tmp_path: Path, name: str) -> None:
    paths = write_all(tmp_path, EXPERIMENTS[name], 1)
    table = table_of(summarised(EXPERIMENTS[name], {"np-tuned": paths["np-tuned"]}, "generated houses", "h.npz", quick=False))
    assert row(table, "neural process, tuned")[2].endswith("whatever the mesh")
    assert "any mesh" in table
