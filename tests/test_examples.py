"""Examples and documentation run, and give the numbers they promise."""

from __future__ import annotations

import itertools
import re
import runpy
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from real_data import ERA_INTERIM, needs_era_interim

ROOT = Path(__file__).parent.parent
EXAMPLES, DOCS = ROOT / "examples", ROOT / "docs"


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch):
    """Loads an example by name, as `python examples/name.py` would, but without running its main."""
    monkeypatch.syspath_prepend(EXAMPLES)
    return lambda name: runpy.run_path(str(EXAMPLES / f"{name}.py"))


@pytest.fixture
def measurements(example, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with the synthetic CSV files."""
    example("measurements")["write_measurements"](tmp_path, seed=0)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def assert_maps_the_last_day(folder: Path) -> None:
    """predictions.csv is in metres above sea level and close to that day's wells, which were not used for training."""
    lines = (folder / "predictions.csv").read_text().splitlines()
    assert lines[0] == "x_km,y_km,groundwater_m"
    x, y, level = np.loadtxt(lines[1:], delimiter=",").T
    assert len(level) == 31 * 21
    assert level.min() > 211.5
    assert level.max() < 214
    wells = np.genfromtxt(folder / "groundwater.csv", delimiter=",", skip_header=1)
    wells = wells[np.isfinite(wells).all(1)]
    past, today = wells[wells[:, 0] < 199], wells[wells[:, 0] == 199]
    nearest = np.hypot(today[:, 1, None] - x, today[:, 2, None] - y).argmin(1)
    assert np.square(level[nearest] - today[:, 3]).mean() < 0.5 * np.square(past[:, 3].mean() - today[:, 3]).mean()


def test_own_data_learns_groundwater_from_csv_files_in_original_units(example, tmp_path: Path):
    errors = example("own_data")["main"](tmp_path / "made")
    assert errors["network"] == pytest.approx(0.044, rel=0.25)
    assert errors["network"] < 0.5 * errors["mean"]
    assert_maps_the_last_day(tmp_path / "made")


def test_image_to_image_labels_pixels_that_one_pixel_could_not(example):
    shares = example("image_to_image")["main"]()
    assert 1 - shares["accuracy"] == pytest.approx(0.09, rel=0.25)
    assert shares["accuracy"] > shares["background"] + 0.1


def test_function_to_itself_fills_in_new_functions_better_than_interpolation(example):
    errors = example("function_to_itself")["main"]()
    assert errors["network"] == pytest.approx(0.19, rel=0.25)
    assert errors["network"] < 0.7 * errors["interpolation"] < 0.7 * errors["mean"]


@needs_era_interim
@pytest.mark.long
def test_wind_from_geopotential_runs_from_file_to_picture(example, tmp_path: Path):
    errors = example("wind_from_geopotential")["main"](ERA_INTERIM, tmp_path / "wind.png", steps=2)
    assert errors["mean wind of training"] == pytest.approx(10.1, abs=0.1)
    assert (tmp_path / "wind.png").stat().st_size > 10_000


@pytest.mark.long
@needs_era_interim
def test_wind_is_learned_from_geopotential_of_other_regions(example):
    errors = example("wind_from_geopotential")["main"](ERA_INTERIM)
    assert errors["network"] < 0.5 * errors["mean wind of training"]


def test_the_same_seed_gives_the_same_numbers(example):
    main = example("function_to_itself")["main"]
    assert main(seed=1, steps=2) == main(seed=1, steps=2)


@pytest.mark.parametrize(
    "path, most", [("own_data", 60), ("image_to_image", 80), ("function_to_itself", 60), ("wind_from_geopotential", 130)]
)
def test_examples_stay_short(path: str, most: int):
    assert len((EXAMPLES / f"{path}.py").read_text().splitlines()) <= most


def blocks_of(page: Path) -> list[tuple[str, str]]:
    """Kind and text of the blocks of Python and of output, in order."""
    return re.findall(r"^```(python|text)\n(.*?)^```$", page.read_text(), re.DOTALL | re.MULTILINE)


def test_the_first_block_of_the_readme_goes_from_csv_files_to_a_map_in_30_lines(measurements: Path):
    code = next(text for kind, text in blocks_of(ROOT / "README.md") if kind == "python")
    assert len(code.splitlines()) <= 30
    exec(compile(code, "README.md", "exec"), {"__name__": "readme"})
    assert_maps_the_last_day(measurements)


def test_measurements_run_as_a_program_make_the_files_of_the_readme(tmp_path: Path):
    subprocess.run([sys.executable, EXAMPLES / "measurements.py", tmp_path / "made"], check=True, timeout=60)
    assert sorted(file.name for file in (tmp_path / "made").iterdir()) == ["groundwater.csv", "rain.csv", "soil.csv"]


@pytest.mark.parametrize("page", ["how_it_works", "paper_map", "sphere"])
def test_a_block_with_output_prints_what_is_written_below_it(page: str, capsys: pytest.CaptureFixture[str]):
    blocks = blocks_of(DOCS / f"{page}.md")
    pairs = [(code, text) for (_, code), (kind, text) in itertools.pairwise(blocks) if kind == "text"]
    assert len(pairs) > 0
    for code, text in pairs:
        exec(compile(code, page, "exec"), {})
        assert capsys.readouterr().out == text


def test_every_block_of_own_data_runs_and_prints_what_is_written_below_it(measurements: Path):
    blocks = blocks_of(DOCS / "own_data.md")
    code = "print(end='\\0')\n".join(text for kind, text in blocks if kind == "python")
    # Apart, because readers have no type checker that speaks before the library's own messages do.
    run = subprocess.run([sys.executable, "-"], input=code, capture_output=True, text=True, timeout=300, check=False)
    assert run.stderr == ""
    outputs = iter(run.stdout.split("\0"))
    printed = ""
    for kind, text in blocks:
        if kind == "python":
            printed = next(outputs)
        else:
            assert printed == text


def test_the_block_about_meshes_adapts_one_to_a_house(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys):
    monkeypatch.chdir(tmp_path)
    ((_, code),) = [block for block in blocks_of(DOCS / "meshes.md") if block[0] == "python"]
    exec(compile(code, "meshes", "exec"), {})
    before, after = map(float, re.findall(r"\d\.\d+", capsys.readouterr().out))
    assert after < 0.8 * before
    assert (tmp_path / "mesh.safetensors").exists()
