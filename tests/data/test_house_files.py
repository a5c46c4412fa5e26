"""Files of houses: round trips, equality of both formats, and one clear line for everything that can be wrong with them."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from malformed_houses import BAD_DIRECTORY, BAD_HOUSE, BAD_NPZ
from real_data import needs_real_houses, real_houses

from graphelements import _version
from graphelements.data.archives import read_manifest
from graphelements.data.house_files import load_houses, read_house_json, save_houses
from graphelements.data.houses import Houses, encode
from graphelements.data.poisson import solved
from graphelements.data.random_houses import HouseDistribution, draw_houses
from graphelements.errors import InputError

SMALL = HouseDistribution(num_scenarios=3, num_queries=5)


def make_houses(seed: int = 4) -> Houses:
    return solved(draw_houses(4, np.random.default_rng(seed), SMALL), 10)


def write_authors_layout(directory: Path, houses: Houses) -> Path:
    directory.mkdir()
    for house in houses.houses:
        scenarios = [
            {
                "boxes": [[*r, p] for r, p in zip(house.rectangles.tolist(), powers.tolist(), strict=True)],
                "unnorm_boxes": [],
                "exterior_temp": temperature,
            }
            for powers, temperature in zip(house.powers, house.exterior_temperatures.tolist(), strict=True)
        ]
        (directory / f"desc_{house.number}.json").write_text(json.dumps(scenarios))
        np.save(directory / f"{house.number}-X.npy", house.query_points)
        assert house.temperatures is not None
        np.save(directory / f"{house.number}-y.npy", house.temperatures[..., None])
    return directory


def assert_same_batches(one: Houses, other: Houses) -> None:
    assert one.numbers == other.numbers
    index, scenario = (i.ravel() for i in np.indices((len(one), one.num_scenarios)))
    a, b = one.batch(index, scenario), other.batch(index, scenario)
    for name in ("heaters", "border"):
        assert torch.equal(a.inputs[name].points, b.inputs[name].points)
        assert torch.equal(a.inputs[name].values, b.inputs[name].values)
        assert torch.equal(a.inputs[name].items, b.inputs[name].items)
    assert torch.equal(a.queries["temperature"].points, b.queries["temperature"].points)
    assert torch.equal(a.targets["temperature"], b.targets["temperature"])


def assert_one_line(error: pytest.ExceptionInfo[InputError], *parts: str) -> None:
    message = str(error.value)
    assert "\n" not in message
    assert len(message) < 500
    for part in parts:
        assert part in message


def test_both_formats_give_the_same_batches(tmp_path: Path) -> None:
    houses = make_houses()
    save_houses(tmp_path / "houses.npz", houses)
    from_npz = load_houses(tmp_path / "houses.npz")
    assert_same_batches(houses, from_npz)
    assert_same_batches(from_npz, load_houses(write_authors_layout(tmp_path / "authors", houses)))


def test_the_same_seed_gives_the_same_bytes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        save_houses(tmp_path / name, make_houses(seed=9), {"seed": 9})
    save_houses(tmp_path / "c", make_houses(seed=8), {"seed": 9})
    a, b, c = ((tmp_path / name).read_bytes() for name in "abc")
    assert a == b != c


def test_the_manifest_says_how_the_houses_were_made(tmp_path: Path) -> None:
    save_houses(tmp_path / "houses.npz", make_houses(), {"seed": 4, "distribution": asdict(SMALL)})
    manifest = read_manifest(tmp_path / "houses.npz")
    assert manifest["format"] == "graphelements houses"
    assert manifest["version"] == 1
    assert manifest["library"] == f"graphelements {_version.__version__}"
    assert manifest["counts"] == {"houses": 4, "scenarios": 3, "queries": 5}
    again = draw_houses(4, np.random.default_rng(manifest["seed"]), HouseDistribution(**manifest["distribution"]))
    assert_same_batches(solved(again, 10), load_houses(tmp_path / "houses.npz"))


@pytest.mark.parametrize("layout", ["npz", "authors"])
def test_any_set_of_numbers_can_be_loaded_and_a_missing_one_is_named(tmp_path: Path, layout: str) -> None:
    houses, path = make_houses(), tmp_path / "houses"
    save_houses(path, houses) if layout == "npz" else write_authors_layout(path, houses)
    assert_same_batches(load_houses(path, [3, 1]), houses.selected([3, 1]))
    with pytest.raises(InputError) as error:
        load_houses(path, [0, 17, 21])
    assert_one_line(error, str(path), "17, 21", "4 houses")
    with pytest.raises(InputError, match="different numbers"):
        load_houses(path, [1, 1])


@needs_real_houses
def test_the_real_houses_survive_the_way_through_our_format(tmp_path: Path) -> None:
    some = real_houses().selected([0, 3, 249])
    save_houses(tmp_path / "some.npz", some)
    assert_same_batches(some, load_houses(tmp_path / "some.npz"))
    assert (len(real_houses()), real_houses().num_scenarios, real_houses().num_queries) == (200, 32, 256)


@pytest.mark.parametrize("bad", BAD_NPZ)
def test_a_malformed_npz_is_refused_in_one_line_that_names_it(tmp_path: Path, bad: str) -> None:
    path = tmp_path / "houses.npz"
    save_houses(path, make_houses())
    says, damage = BAD_NPZ[bad]
    damage(path)
    before = path.read_bytes()
    with pytest.raises(InputError) as error:
        load_houses(path)
    assert_one_line(error, str(path), says)
    assert path.read_bytes() == before


@pytest.mark.parametrize("bad", BAD_DIRECTORY)
def test_a_malformed_directory_is_refused_in_one_line_that_names_the_file(tmp_path: Path, bad: str) -> None:
    directory = write_authors_layout(tmp_path / "authors", make_houses())
    name, says, damage = BAD_DIRECTORY[bad]
    damage(directory)
    with pytest.raises(InputError) as error:
        load_houses(directory)
    assert_one_line(error, str(directory / name), says)


def test_a_file_that_claims_to_be_huge_is_refused(tmp_path: Path) -> None:
    directory = write_authors_layout(tmp_path / "authors", make_houses())
    with (directory / "1-X.npy").open("wb") as file:
        np.lib.format.write_array_header_1_0(file, {"descr": "<f8", "fortran_order": False, "shape": (10**9, 10**6, 2)})
    with pytest.raises(InputError) as error:
        load_houses(directory)
    assert_one_line(error, "1-X.npy")


@pytest.mark.parametrize("target", ["absent.npz", "absent/houses.npz", "x" * 300])
def test_a_path_that_is_not_there_is_refused(tmp_path: Path, target: str) -> None:
    with pytest.raises(InputError) as error:
        load_houses(tmp_path / target)
    assert_one_line(error, "no such file")


def test_a_directory_without_houses_is_refused(tmp_path: Path) -> None:
    (tmp_path / "desc_x.json").write_text("[]")
    with pytest.raises(InputError) as error:
        load_houses(tmp_path)
    assert_one_line(error, str(tmp_path), "found no desc_<i>.json")


@pytest.mark.parametrize("target", ["", "a_file/houses.npz", "x" * 300, "a\0b"])
def test_an_unwritable_target_is_refused_and_nothing_is_left_behind(tmp_path: Path, target: str) -> None:
    (tmp_path / "a_file").write_text("kept")
    with pytest.raises(InputError) as error:
        save_houses(tmp_path / target, make_houses())
    assert_one_line(error, str(tmp_path))
    assert [entry.name for entry in tmp_path.iterdir()] == ["a_file"]
    assert (tmp_path / "a_file").read_text() == "kept"


@pytest.mark.parametrize("step", ["savez", "replace"])
def test_a_write_that_fails_on_its_way_keeps_the_file_that_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    path = tmp_path / "houses.npz"
    save_houses(path, make_houses(seed=1))
    before = path.read_bytes()
    monkeypatch.setattr(*((np, "savez") if step == "savez" else (Path, "replace")), full)
    with pytest.raises(InputError) as error:
        save_houses(path, make_houses(seed=2))
    assert_one_line(error, str(path), "No space left")
    assert path.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["houses.npz"]


def test_houses_that_are_not_solved_cannot_be_saved(tmp_path: Path) -> None:
    unsolved = Houses(tuple(replace(house, temperatures=None) for house in make_houses().houses))
    with pytest.raises(InputError, match="solve them first"):
        save_houses(tmp_path / "houses.npz", unsolved)
    assert list(tmp_path.iterdir()) == []


def test_a_house_in_json_is_read_as_a_scenario(tmp_path: Path) -> None:
    path = tmp_path / "house.json"
    path.write_text('{"heaters": [[0.2, 0.3, 0.4, 0.5, -100], [0, 0, 1, 0.1, 5.5]], "exterior_temperature": 0.25}')
    scenario = read_house_json(path)
    assert [heater.power for heater in scenario.heaters] == [-100.0, 5.5]
    assert scenario.heaters[1].rectangle == (0.0, 0.0, 1.0, 0.1)
    assert scenario.exterior_temperature == 0.25
    assert sum(len(samples.points) for samples in encode(scenario).values()) == 64


@pytest.mark.parametrize("bad", BAD_HOUSE)
def test_a_malformed_house_in_json_is_refused_in_one_line_that_names_it(tmp_path: Path, bad: str) -> None:
    path = tmp_path / "house.json"
    says, content = BAD_HOUSE[bad]
    path.write_text(content)
    with pytest.raises(InputError) as error:
        read_house_json(path)
    assert_one_line(error, str(path), says)


def test_a_house_in_json_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError) as error:
        read_house_json(tmp_path / "absent.json")
    assert_one_line(error, "absent.json", "No such file")
