"""The rivals in the benchmarks are what they say: solvers solve, the released design is the released design."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import graphelements as ge
from graphelements.data.houses import House
from graphelements.data.poisson import p1_temperatures, unit_load
from graphelements.data.random_houses import HouseDistribution, draw_houses

sys.path.insert(0, str(Path(__file__).parent.parent))  # benchmarks are not installed

from benchmarks import classical, growth, solvers, training_speed

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def houses() -> tuple[House, ...]:
    return draw_houses(24, np.random.default_rng(3), HouseDistribution(num_scenarios=1, num_queries=64)).houses


@pytest.mark.parametrize("resolution", [3, 7, 10, 40])
def test_loads_of_many_houses_are_those_of_single_rectangles(houses: tuple[House, ...], resolution: int) -> None:
    given = classical.problems(houses)
    loads = np.zeros((len(houses), resolution, resolution))
    for item, power, rectangle in zip(given.items, given.powers, given.rectangles.tolist(), strict=True):
        loads[item] += power * unit_load(tuple(rectangle), resolution)
    np.testing.assert_allclose(classical.p1_loads(given, resolution), loads, atol=1e-12 * np.abs(loads).max())


@pytest.mark.parametrize("prepare", [classical.dense_inverse, classical.factorised, classical.sine_transform])
@pytest.mark.parametrize("resolution", [3, 7, 33])
def test_every_way_to_solve_gives_the_finite_element_solution(houses: tuple[House, ...], prepare, resolution: int) -> None:
    expected = np.concatenate([p1_temperatures(house, resolution) for house in houses])
    found = classical.finite_elements(houses, resolution, prepare(resolution))
    np.testing.assert_allclose(found, expected, atol=1e-11)


def test_a_sine_transform_of_250_nodes_is_the_truth_and_a_long_sine_series_agrees(houses: tuple[House, ...]) -> None:
    truth = np.concatenate([p1_temperatures(house) for house in houses])
    found = classical.finite_elements(houses, 250, classical.sine_transform(250))
    np.testing.assert_allclose(found, truth, atol=1e-10)
    errors = [np.square(classical.sine_series(houses, waves) - truth).mean() for waves in (4, 8, 16, 64)]
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] < 1e-7


def test_the_adjacency_of_the_released_design_is_normalised_symmetrically() -> None:
    mesh = ge.grid_mesh(ge.Box(), 3, "none")
    adjacency = training_speed.normalised_adjacency(mesh)
    degrees = torch.tensor([3.0, 4, 3, 4, 5, 4, 3, 4, 3])  # neighbours and the node itself
    assert torch.equal(adjacency, adjacency.T)
    assert adjacency[0, 0] == pytest.approx(1 / 3)
    assert adjacency[1, 4] == pytest.approx(1 / 20**0.5)
    assert adjacency[0, 4] == 0
    torch.testing.assert_close(adjacency @ degrees.sqrt(), degrees.sqrt())  # its eigenvector of the eigenvalue 1


def test_the_released_design_is_a_gcn(houses: tuple[House, ...]) -> None:
    pyg = pytest.importorskip("torch_geometric.nn")
    mesh = ge.grid_mesh(ge.Box(), 4, "none")
    design = training_speed.ReleasedDesign()
    layer = pyg.GCNConv(34, 32)
    layer.lin.weight, layer.bias = design.layer.weight, design.layer.bias
    seen = torch.randn(16, 34)
    expected = layer(seen, torch.stack([mesh.senders, mesh.receivers]))
    ours = training_speed.normalised_adjacency(mesh) @ (seen @ design.layer.weight.T) + design.layer.bias
    torch.testing.assert_close(ours, expected, rtol=1e-5, atol=1e-6)


def test_both_designs_learn_side_by_side_for_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training_speed, "NUM_TRAINED", 3)
    monkeypatch.setattr(training_speed, "NUM_VALIDATED", 1)
    monkeypatch.setattr(training_speed, "WARM_UP", 1)
    monkeypatch.setattr("graphelements.training.compiler_available", lambda: False)
    preset = ge.get_task("poisson-square").presets["default"]
    assert preset.batches.resolutions == training_speed.RESOLUTIONS
    result = training_speed.measure(0.5)
    for name in ("default", "released_design"):
        assert result[name]["steps"] > 0
        assert all(np.isfinite(error) for _, error in result[name]["curve"])
    assert training_speed.draw([result | {"threads": 1}]).axes


def test_the_sentence_names_the_fastest_solver_that_is_as_accurate() -> None:
    def point(method: str, size: int, mse: float, milliseconds: float) -> dict:
        return {"method": method, "size": size, "mse": mse, "single_ms": milliseconds, "batch_ms": milliseconds}

    points = [point("network", 7, 0.01, 1.0), point("coarse", 3, 0.1, 0.1), point("good", 9, 0.005, 0.5)]
    points += [point("small network, compiled", 7, 0.02, 0.1), point("small network", 7, 0.02, 0.2)]
    points += [point("fine", 33, 1e-5, 2.0), point(solvers.CACHED, 250, 0.0, 4.0)]
    sentence = solvers._sentence({"points": points}, "network")
    assert "good of 9x9 nodes is 2.0 times faster than the network" in sentence
    assert "coarse" not in sentence
    assert sentence.endswith("use the classical solver.")
    assert "good of 9x9 nodes is 5.0 times slower than the small network" in solvers._sentence(
        {"points": points}, "small network"
    )
    results = {"points": points, "from_scratch_ms": 80.0, "encoding_ms": {"single": 0.3, "batch": 0.1}, "threads": 2}
    speedups = solvers._speedups(results, "small network")
    assert speedups["batch_against_from_scratch"] == {"given_samples": 800.0, "given_heaters": 400.0}
    assert speedups["batch_against_cached"] == {"given_samples": 40.0, "given_heaters": 20.0}
    assert speedups["single_against_cached"] == {"given_samples": 40.0, "given_heaters": 10.0}
    assert [text.get_text() for text in solvers.draw([results]).axes[0].get_legend().get_texts()] == ["network", "small network"]


def test_a_network_that_is_not_there_is_one_line() -> None:
    command = [sys.executable, "-m", "benchmarks", "solvers", "--checkpoint", "nowhere"]
    told = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert told.returncode == 2
    assert "no shipped model is called nowhere" in told.stderr.splitlines()[-1]


def test_memory_of_a_call_is_what_it_held_at_once() -> None:
    # in a process of its own, where no freed memory lies about to be used again
    code = (
        "import numpy as np; from benchmarks.memory import peak_increase; "
        "print(*peak_increase(lambda: [np.ones(2**22).sum() for _ in range(3)]))"  # 32 MB each, one after another
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT).stdout
    seconds, megabytes = map(float, told.split())
    assert seconds > 0
    assert 16 < megabytes < 80


def test_growth_is_fitted_to_the_largest_counts() -> None:
    assert growth._slope([1, 1000, 10_000], [5.0, 10.0, 100.0]) == 1.0
    point = growth.predict_once(12, 100, 10)
    assert (point["nodes"], point["queries"]) == (144, 100)
