"""`graphelements compare`: paired differences of saved evaluations."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from command_line import call

from graphelements.experiments.comparison import compared, interval
from graphelements.experiments.summaries import pair_of


def write_evaluation(path: Path, errors: dict[int, list[float]], method: str = "gen", houses: int = 2) -> Path:
    results = [{"method": method, "resolution": k, "mse_of_item": of_house} for k, of_house in errors.items()]
    path.write_text(json.dumps({"contents": {"houses": houses}, "results": results}))
    return path


def test_seeds_are_averaged_for_each_house_before_houses_are_paired(tmp_path: Path) -> None:
    ours = [
        write_evaluation(tmp_path / "a.json", {2: [1.0, 2.0], 3: [0.5, 0.5]}),
        write_evaluation(tmp_path / "b.json", {2: [3.0, 4.0], 3: [0.7, 0.9]}),
    ]
    theirs = [write_evaluation(tmp_path / "np.json", {1: [4.0, 2.0]}, "np")]
    two, three = compared(ours, theirs)
    assert (two.resolution, two.ours, two.theirs, two.difference) == (2, 2.5, 3.0, -0.5)
    assert two.ours_spread == pytest.approx(np.std([1.5, 3.5], ddof=1))
    assert (two.low, two.high) == (-2.0, 1.0)  # two houses: the extremes are both draws of one house
    assert three.ours == pytest.approx(0.65)
    assert (two.less, three.less) == (0.5, 1.0)
    assert (two.ratio, three.ratio) == pytest.approx((2.5 / 3, 0.65 / 3))
    assert (two.ratio_low, two.ratio_high) == pytest.approx((2 / 4, 3 / 2))


def test_methods_without_nodes_are_compared_with_all_resolutions_and_with_each_other(tmp_path: Path) -> None:
    gen = write_evaluation(tmp_path / "gen.json", {2: [1.0, 2.0], 3: [0.5, 0.5]})
    process, attention = (write_evaluation(tmp_path / m, {1: [e, e]}, m) for m, e in (("np", 2.0), ("attention", 0.5)))
    assert [(row.resolution, row.difference) for row in compared([gen], [attention])] == [(2, 1.0), (3, 0.0)]
    assert [(row.resolution, row.difference) for row in compared([process], [attention])] == [("np", 1.5)]
    assert [(row.resolution, row.difference) for row in compared([attention], [process])] == [("attention", -1.5)]


@pytest.mark.parametrize("theirs", [[0.0, 0.0], [0.0, 1.0]])
def test_a_ratio_to_no_error_has_no_end_and_is_left_out_of_summaries(tmp_path: Path, theirs: list[float]) -> None:
    ours = write_evaluation(tmp_path / "a.json", {2: [1.0, 2.0]})
    (row,) = compared([ours], [write_evaluation(tmp_path / "b.json", {2: theirs})])
    assert row.ratio == row.ratio_low == row.ratio_high == float("inf")
    assert np.isfinite([row.difference, row.low, row.high]).all()
    assert pair_of("a", "b", row)["ratio_high"] is None


def test_the_interval_of_many_houses_is_that_of_the_normal_distribution() -> None:
    differences = np.random.default_rng(1).normal(2.0, 1.0, 400)
    low, high = interval(differences)
    half = 1.96 * differences.std() / 20
    assert low == pytest.approx(differences.mean() - half, abs=0.01)
    assert high == pytest.approx(differences.mean() + half, abs=0.01)


def test_the_command_prints_a_row_for_each_resolution(tmp_path: Path) -> None:
    ours = write_evaluation(tmp_path / "a.json", {4: [0.1, 0.2], 7: [0.01, 0.02]})
    theirs = write_evaluation(tmp_path / "np.json", {1: [0.3, 0.5]}, "np")
    outcome = call("compare", "--ours", str(ours), "--theirs", str(theirs))
    assert outcome.code == 0
    assert "4x4" in outcome.out
    assert "7x7" in outcome.out
    assert "-0.25" in outcome.out
    assert "0.38" in outcome.out  # of their error
    assert "ours less in" in " ".join(outcome.out.split())
    assert "100%" in outcome.out
    assert "0.33 to 0.40" in outcome.out


@pytest.mark.parametrize(
    "content, message",
    [
        ("", "is not readable as an evaluation"),
        ("[" * 100_000, "is not readable as an evaluation"),
        ("[]", "is not an evaluation"),
        ('{"results": []}', "is not an evaluation"),
        ('{"contents": {"houses": 2}, "results": [{"method": "gen"}]}', "is not an evaluation"),
        ('{"contents": {"houses": 2}, "results": []}', "no learned method"),
        ('{"contents": {"houses": 3}, "results": [{"method": "np", "resolution": 1, "mse_of_item": [1, 2]}]}', "the same houses"),
        ('{"contents": {"houses": 2}, "results": [{"method": "gen", "resolution": 9, "mse_of_item": [1, 2]}]}', "in common"),
        (
            '{"contents": {"houses": 2}, "results": [{"method": "gen", "resolution": 4, "mse_of_item": ["x", 1]}]}',
            "not an evaluation",
        ),
    ],
)
def test_what_cannot_be_compared_is_one_line(tmp_path: Path, content: str, message: str) -> None:
    ours = write_evaluation(tmp_path / "a.json", {4: [0.1, 0.2]})
    (tmp_path / "other.json").write_text(content)
    outcome = call("compare", "--ours", str(ours), "--theirs", str(tmp_path / "other.json"))
    assert outcome.code == 2
    assert outcome.err.count("\n") == 1
    assert message in outcome.err


def test_evaluations_of_different_houses_are_not_averaged(tmp_path: Path) -> None:
    ours = [write_evaluation(tmp_path / f"{houses}.json", {4: [0.1, 0.2]}, houses=houses) for houses in (2, 3)]
    outcome = call("compare", "--ours", str(ours[0]), "--ours", str(ours[1]), "--theirs", str(ours[0]))
    assert outcome.code == 2
    assert "same houses" in outcome.err
