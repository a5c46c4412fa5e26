"""Items in groups: selection, batches, files, and what is wrong with files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from graphelements.data.archives import read_manifest
from graphelements.data.sampled_fields import SampledFields, load_fields, save_fields
from graphelements.data.sphere_fields import POISSON_SPHERE, SCATTERED_SPHERE, poisson_fields, scattered_fields
from graphelements.errors import InputError
from graphelements.samples import SFTBatch, collate


@pytest.fixture(scope="module")
def fields() -> SampledFields:
    groups = list(scattered_fields(3, seed=0))
    return SampledFields(collate([group.items for group in groups]), torch.cat([2 * group.groups + 1 for group in groups]))


def one_by_one(fields: SampledFields, items: list[int]) -> SFTBatch:
    return collate([fields.items.selected([item]) for item in items])


def pairs_of(batch: SFTBatch, item: int) -> set[tuple[float, ...]]:
    """Places and targets of an item."""
    asked = batch.queries["field"]
    assert asked.points is not None
    rows = torch.cat([asked.points, batch.targets["field"]], -1)[asked.items == item]
    return {tuple(row) for row in rows.tolist()}


def test_groups_are_selected_in_order(fields):
    assert fields.numbers == (1, 3, 5)
    some = fields.selected([5, 1])
    assert some.groups.tolist() == [5] * 32 + [1] * 32
    expected = one_by_one(fields, [*range(64, 96), *range(32)])
    for name, samples in expected.inputs.items():
        for kind in ("points", "values", "items"):
            assert torch.equal(getattr(some.items.inputs[name], kind), getattr(samples, kind))
    assert torch.equal(some.items.targets["field"], expected.targets["field"])
    with pytest.raises(InputError, match="not among them: 2, 9"):
        fields.selected([1, 2, 9])


def test_a_batch_has_the_samples_of_its_items_and_some_of_their_queries(fields):
    chosen = torch.tensor([70, 3, 40])
    batch = fields.batch(chosen, num_queries=10, seed=1)
    whole = one_by_one(fields, chosen.tolist())
    assert torch.equal(batch.inputs["stations"].values, whole.inputs["stations"].values)
    asked = batch.queries["field"]
    assert asked.items.tolist() == [0] * 10 + [1] * 10 + [2] * 10
    for item in range(3):
        assert len(pairs_of(batch, item)) == 10
        assert pairs_of(batch, item) <= pairs_of(whole, item)
    other = fields.batch(chosen, num_queries=10, seed=2)
    assert not torch.equal(other.targets["field"], batch.targets["field"])
    assert len(fields.batch(chosen, num_queries=1000).targets["field"]) == 3 * 128


def test_a_file_gives_back_what_was_saved(fields, tmp_path: Path):
    save_fields(tmp_path / "f.npz", fields, {"seed": 7})
    loaded = load_fields(tmp_path / "f.npz", SCATTERED_SPHERE)
    assert torch.equal(loaded.groups, fields.groups)
    for a, b in zip(loaded.items.tensors(), fields.items.tensors(), strict=True):
        assert torch.equal(a, b)
    assert read_manifest(tmp_path / "f.npz") | {"library": ""} == {
        "seed": 7, "format": "graphelements fields", "version": 1, "library": "", "counts": {"groups": 3, "items": 96},
    }  # fmt: skip


def damaged(arrays: dict[str, np.ndarray], name: str) -> dict[str, np.ndarray]:
    changed = dict(arrays)
    if name == "missing":
        del changed["stations.points"]
    elif name == "counts":
        changed["stations.counts"] = changed["stations.counts"] + 1
    elif name == "fraction":
        changed["groups"] = changed["groups"] + 0.5
    elif name == "unasked":
        changed["field.counts"] = changed["field.counts"] * 0
    elif name == "nan":
        changed["field.targets"] = changed["field.targets"] * np.nan
    elif name == "outside":
        changed["stations.points"] = changed["stations.points"] * 1.1
    elif name == "text":
        changed["stations.values"] = changed["stations.values"].astype(str)
    elif name == "flat":
        changed["stations.values"] = changed["stations.values"].ravel()
    elif name == "manifest":
        del changed["manifest"]
    return changed


@pytest.mark.parametrize(
    "name, said",
    {
        "missing": "has stations.points; it is missing",
        "counts": "stations needs counts of every item",
        "fraction": "groups must be whole numbers from 0",
        "unasked": "field.counts must be whole numbers from 1",
        "nan": "must be finite",
        "outside": "must lie in the space",
        "text": "must hold real numbers",
        "flat": "must have 2 axes",
        "manifest": "needs a manifest",
    }.items(),
)
def test_what_is_wrong_with_a_file_is_said_in_one_line(fields, tmp_path: Path, name: str, said: str):
    save_fields(tmp_path / "good.npz", fields)
    with np.load(tmp_path / "good.npz") as archive:
        np.savez(tmp_path / "bad.npz", **damaged(dict(archive), name))  # type: ignore[arg-type]
    with pytest.raises(InputError, match=said) as raised:
        load_fields(tmp_path / "bad.npz", SCATTERED_SPHERE)
    assert str(raised.value).startswith(f"{tmp_path / 'bad.npz'}: ")
    assert "\n" not in str(raised.value)


def test_fields_of_another_task_are_refused(fields, tmp_path: Path):
    save_fields(tmp_path / "f.npz", fields)
    with pytest.raises(InputError, match="of another task"):
        load_fields(tmp_path / "f.npz", POISSON_SPHERE)
    (tmp_path / "text.npz").write_text("no archive")
    with pytest.raises(InputError, match=r"is a \.npz archive"):
        load_fields(tmp_path / "text.npz", POISSON_SPHERE)


def test_rows_must_be_in_the_order_of_their_items():
    group = next(poisson_fields(1, seed=0))
    mixed = collate([group.items])
    samples = mixed.inputs["laplacian"].mapped(lambda rows: rows.flip(0))
    with pytest.raises(InputError, match="in the order of their items"):
        SampledFields(type(mixed)({"laplacian": samples}, mixed.queries, mixed.targets, mixed.num_items), group.groups)
