"""The meshes of a training step."""

from __future__ import annotations

import numpy as np
import pytest

from graphelements.data.houses import UNIT_SQUARE
from graphelements.errors import InputError
from graphelements.meshes import Mesh, MeshConfig, build_grid
from graphelements.network_config import DEFAULT
from graphelements.tasks.mesh_mixes import LARGE_ITEMS, mesh_mix
from graphelements.tasks.task import BatchConfig, RunConfig
from graphelements.unions import MeshUnion


def draws(batches: BatchConfig, num: int = 40, seed: int = 0, nested: bool = False) -> list[MeshUnion]:
    config = RunConfig(DEFAULT, MeshConfig(nested=nested), batches)
    draw = mesh_mix(lambda resolution: build_grid(config.mesh, UNIT_SQUARE, resolution), config, 32, seed)
    return [draw(np.random.default_rng(step)) for step in range(num)]


def test_by_default_a_step_has_one_grid_of_a_random_resolution_for_all_items():
    unions = draws(BatchConfig())
    assert {len(u.parts) for u in unions} == {1}
    assert {u.num_items for u in unions} == {32}
    assert {u.num_nodes // 32 for u in unions} == {k * k for k in range(2, 8)}
    assert len(set(map(id, unions))) == 6  # made once each


def test_a_mix_spreads_the_items_of_a_step_over_several_meshes():
    unions = draws(BatchConfig(meshes=8))
    assert max(len(u.parts) for u in unions) > 3
    for u in unions:
        assert {part.axes is not None for part in u.parts} == {True}
        counts = np.bincount(u.part_of_item)
        assert counts.sum() == 32
        assert counts.min() >= 4


def test_a_share_of_the_meshes_is_random_and_nested_as_the_grids_are():
    for nested in (False, True):
        parts: list[Mesh] = [part for u in draws(BatchConfig(meshes=8, random_meshes=0.5), nested=nested) for part in u.parts]
        scattered = [part for part in parts if part.axes is None]
        assert 0.3 < len(scattered) / len(parts) < 0.9  # grids of the same resolution are one part
        assert any(part.coarser is not None for part in scattered) is nested


def test_a_share_of_the_steps_has_large_meshes_and_fewer_items():
    unions = draws(BatchConfig(meshes=2, large_resolutions=(9, 10), large_share=0.5), num=100)
    large = [u for u in unions if u.parts[0].num_nodes > 49]
    assert 20 < len(large) < 80
    assert {u.num_items for u in large} == {32 // LARGE_ITEMS}
    assert {part.num_nodes for u in large for part in u.parts} == {81, 100}


def test_the_same_seed_and_step_give_the_same_meshes():
    config = BatchConfig(meshes=4, random_meshes=1.0)
    for a, b in zip(draws(config, 5), draws(config, 5), strict=True):
        assert np.array_equal(a.positions, b.positions)
    assert any(not np.array_equal(a.positions, b.positions) for a, b in zip(draws(config, 5), draws(config, 5, 1), strict=True))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [({"large_share": 0.1}, "large_resolutions"), ({"random_meshes": 1.5}, "share"), ({"meshes": 0}, "must be positive")],
)
def test_impossible_mixes_are_refused(wrong, message):
    with pytest.raises(InputError, match=message):
        BatchConfig(**wrong)
