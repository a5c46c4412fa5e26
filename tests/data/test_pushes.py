"""Pushes as batches and in files: ours, and the folder of Omnipush."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from real_data import OMNIPUSH_SPLIT, needs_omnipush_split

from graphelements.data.push_files import (
    NOISE,
    TIP,
    joined,
    load_pushes,
    random_pushes,
    read_omnipush,
    read_split,
    save_pushes,
    simulate,
)
from graphelements.data.push_objects import VIEW, PushObject
from graphelements.data.pushes import (
    MOTION_SCALE,
    NUM_EXAMPLES,
    NUM_PIXELS,
    PUSHING_TOLD,
    TRAVEL,
    Pushes,
    picture_of,
    push_batch,
    sft_given,
)
from graphelements.errors import InputError

KEYS = ["1a2B3c4a", "2a2a2a2a", "3a4a3b1a"]


@pytest.fixture(scope="module")
def pushes() -> Pushes:
    return joined(KEYS, [False, False, True], [simulate(key, (0, n), 60, ellipsoid=True) for n, key in enumerate(KEYS)])


class TestABatch:
    def test_gives_the_picture_the_push_and_examples_as_the_task_says(self, pushes: Pushes) -> None:
        chosen = torch.tensor([5, 100, 61])
        sft = sft_given(["pixels", "push", "examples"])
        batch = pushes.giving(sft).batch(chosen)
        sft.validate(batch)
        pixels, push, examples = (batch.inputs[name] for name in ("pixels", "push", "examples"))
        assert torch.bincount(pixels.items).tolist() == [NUM_PIXELS] * 3
        assert torch.bincount(examples.items).tolist() == [NUM_EXAMPLES] * 3
        expected = pushes.pushes[chosen]
        assert push.values[:, :2].numpy() == pytest.approx(expected[:, :2], rel=1e-6)
        assert push.points.numpy() == pytest.approx(expected[:, :2].clip(-VIEW, VIEW), rel=1e-6)  # into the picture
        assert torch.linalg.norm(push.values[:, 2:], dim=1).numpy() == pytest.approx(TRAVEL, rel=1e-6)
        assert batch.targets["motion"].numpy() * MOTION_SCALE == pytest.approx(pushes.motions[chosen], abs=1e-7)

    def test_shows_pixels_of_the_object_that_is_pushed(self, pushes: Pushes) -> None:
        batch = pushes.batch(torch.arange(180)[::7])
        pixels = batch.inputs["pixels"]
        objects = pushes.objects[::7][pixels.items]
        for number, key in enumerate(KEYS):
            rows = objects == number
            classes = PushObject(key).classes(pixels.points[rows].double().numpy())
            assert pixels.values[rows].argmax(1).tolist() == classes.tolist()

    def test_has_examples_of_the_same_object_and_never_the_push_itself(self, pushes: Pushes) -> None:
        given = pushes.giving(sft_given(["examples", "push"]))
        for seed in (None, 3):
            batch = given.batch(torch.arange(180), seed=seed)
            examples, push = batch.inputs["examples"], batch.inputs["push"]
            told = torch.cat([push.values, batch.targets["motion"]], 1)
            for item in range(0, 180, 13):
                rows = examples.values[examples.items == item]
                assert len(rows.unique(dim=0)) == NUM_EXAMPLES
                own = told[torch.as_tensor(pushes.objects == pushes.objects[item])]
                matches = (rows[:, None] == own).all(-1)
                assert matches.any(1).all()
                assert not (rows == told[item]).all(1).any()

    def test_is_the_same_whatever_is_asked_for_besides_unless_a_seed_draws_anew(self, pushes: Pushes) -> None:
        given = pushes.giving(sft_given(["pixels", "push", "examples"]))
        alone, among = given.batch(torch.tensor([70])), given.batch(torch.tensor([3, 70]))
        other = given.selected([1]).batch(torch.tensor([10]))  # the same push where only its object is there
        drawn = given.batch(torch.tensor([70]), seed=1)
        for name in ("pixels", "examples"):
            own = alone.inputs[name].values
            assert own.equal(among.inputs[name].values[among.inputs[name].items == 1])
            assert own.equal(other.inputs[name].values)
            assert not alone.inputs[name].points.equal(drawn.inputs[name].points)
        assert drawn.inputs["pixels"].points.equal(given.batch(torch.tensor([70]), seed=1).inputs["pixels"].points)

    def test_has_exact_targets_and_measured_examples_without_noise(self, pushes: Pushes) -> None:
        given = pushes.giving(sft_given(["examples", "push"]))
        chosen = torch.arange(20)
        exact, measured = replace(given, without_noise=True).batch(chosen), given.batch(chosen)
        assert exact.inputs["examples"].values.equal(measured.inputs["examples"].values)
        assert pushes.exact is not None
        assert exact.targets["motion"].numpy() * MOTION_SCALE == pytest.approx(pushes.exact[:20], abs=1e-7)
        with pytest.raises(InputError, match="measured"):
            replace(given, exact=None, without_noise=True)

    def test_of_one_object_asks_as_the_data_do(self, pushes: Pushes) -> None:
        batch = push_batch(PUSHING_TOLD, picture_of(KEYS[1]), pushes.pushes[60:64])
        PUSHING_TOLD.validate(batch)
        assert batch.inputs["push"].values.equal(pushes.batch(torch.arange(60, 64)).inputs["push"].values)
        own = batch.inputs["pixels"].points.reshape(4, NUM_PIXELS, 2)
        assert own[0].equal(own[3])

    @pytest.mark.parametrize("integrated", [False, True])
    def test_tells_the_push_in_the_query_where_it_is_no_input(self, pushes: Pushes, integrated: bool) -> None:
        sft = sft_given(["pixels"], integrated)
        given, chosen = pushes.giving(sft), torch.tensor([5, 100, 61])
        batch = given.batch(chosen)
        sft.validate(batch)
        asked = batch.queries["motion"]
        assert asked.conditions is not None
        x, y, angle = pushes.pushes[chosen].T
        told = np.stack([x / VIEW, y / VIEW, np.cos(angle), np.sin(angle), (x * np.sin(angle) - y * np.cos(angle)) / VIEW], -1)
        assert asked.conditions.numpy() == pytest.approx(told, abs=1e-5)
        if integrated:
            assert asked.points is None
        else:
            assert asked.points is not None
            midway = np.stack([x + TRAVEL / 2 * np.cos(angle), y + TRAVEL / 2 * np.sin(angle)], -1)
            assert asked.points.numpy() == pytest.approx(midway.clip(-VIEW, VIEW), abs=1e-6)
        one = push_batch(sft, picture_of(KEYS[1]), pushes.pushes[60:64])
        sft.validate(one)
        assert (one.num_items, len(one.queries["motion"])) == (1, 4)

    def test_asks_for_several_pushes_of_the_object_none_of_them_an_example(self, pushes: Pushes) -> None:
        batch = pushes.giving(sft_given(["examples"])).batch(torch.arange(0, 180, 9), num_queries=6, seed=3)
        asked, examples = batch.queries["motion"], batch.inputs["examples"]
        assert torch.bincount(asked.items).tolist() == [6] * 20
        for item in range(20):
            own = pushes.motions[pushes.objects == pushes.objects[9 * item]] / MOTION_SCALE
            motions = batch.targets["motion"][asked.items == item].double().numpy()
            shown = examples.values[examples.items == item, 4:].double().numpy()
            assert len(np.unique(motions, axis=0)) == 6
            assert np.abs(motions[:, None] - own).max(-1).min(1) == pytest.approx(0, abs=1e-6)
            assert (np.abs(motions[:, None] - shown).max(-1) > 1e-6).all()

    def test_with_a_blank_picture_shows_nothing_at_the_places_of_a_picture(self, pushes: Pushes) -> None:
        blank, seen = (pushes.giving(sft_given([name])).batch(torch.arange(3)).inputs[name] for name in ("blank", "pixels"))
        assert blank.points.equal(seen.points)
        assert (blank.values.argmax(1) == 0).all()
        assert (seen.values.argmax(1) > 0).any()


class TestSimulation:
    def test_is_the_same_with_the_same_seed_and_measures_with_the_stated_noise(self) -> None:
        first, again, other = (simulate(KEYS[0], (seed,), 20, ellipsoid=True) for seed in (1, 1, 2))
        assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
        assert not np.array_equal(first[0], other[0])
        _, exact, measured = simulate(KEYS[1], (3,), 400, ellipsoid=True)
        assert (measured - exact).std(0) == pytest.approx(NOISE, rel=0.15)

    def test_starts_every_tip_clear_of_the_object(self) -> None:
        made = PushObject(KEYS[0])
        drawn = random_pushes(made, 300, np.random.default_rng(0))
        assert made.outline.nearest(drawn[:, :2])[1].min() > TIP.radius
        assert drawn[:, :2].std(0) == pytest.approx([0.0555, 0.0565], rel=0.08)  # as in Omnipush
        assert drawn[:, 2].std() == pytest.approx(1.80, rel=0.08)


class TestOurFiles:
    def test_give_back_what_was_saved(self, pushes: Pushes, tmp_path: Path) -> None:
        save_pushes(tmp_path / "p.npz", pushes, {"seed": 0})
        again = load_pushes(tmp_path / "p.npz")
        assert again.keys == pushes.keys
        assert again.held_out.tolist() == [False, False, True]
        assert np.array_equal(again.motions, pushes.motions)
        assert np.array_equal(again.exact, pushes.exact)

    @pytest.mark.parametrize(
        ("name", "value", "said"),
        [
            ("keys", np.array(["1a2a3a4a", "junk", "2a2a2a2a"]), "such as 1a2B3c4a"),
            ("keys", np.array([1, 2, 3]), "do not fit"),
            ("motions", np.zeros((5, 3)), "do not fit"),
            ("exact", np.full((180, 3), np.nan), "finite"),
            ("objects", np.zeros(180, dtype=int), "every object needs"),
            ("objects", np.arange(180)[::-1] // 60, "in the order"),
            ("pushes", np.full((180, 3), 0.5), "within 0.12 m"),
        ],
    )
    def test_with_anything_wrong_end_in_one_line(
        self, pushes: Pushes, tmp_path: Path, name: str, value: np.ndarray, said: str
    ) -> None:
        path = tmp_path / "p.npz"
        save_pushes(path, pushes, {})
        with np.load(path) as archive:
            arrays = dict(archive) | {name: value}
        np.savez(path, **arrays)
        with pytest.raises(InputError, match=said) as caught:
            load_pushes(path)
        assert "\n" not in str(caught.value)
        assert str(path) in str(caught.value)


class TestOmnipush:
    """Files as Omnipush has them, written here."""

    @staticmethod
    def write(folder: Path, motions: np.ndarray | None = None) -> None:
        rng = np.random.default_rng(0)
        for key in ("2B3c4a1a", "2a2a2a2a"):  # the first is read from its second side
            pushes = np.column_stack([rng.uniform(-0.08, 0.08, (8, 2)), rng.uniform(-3, 3, 8)])
            np.save(folder / f"{key}_X_3_not_norm_0.npy", pushes)
            moved = rng.normal(size=(8, 3)) * [0.01, 0.01, 0.2] if motions is None else motions
            moved[3, 2] = 0.9  # a turn that no push makes
            np.save(folder / f"{key}_y_3_not_norm_0.npy", moved)
        (folder / "split.json").write_text(json.dumps({"train_keys": ["2a2a2a2a"], "test_keys": ["1a2B3c4a"]}))

    def test_is_read_with_its_split_and_without_errors_of_tracking(self, tmp_path: Path) -> None:
        self.write(tmp_path)
        found = load_pushes(tmp_path)
        assert found.keys == ("2B3c4a1a", "2a2a2a2a")
        assert found.held_out.tolist() == [True, False]  # by the object, whatever side its key starts with
        assert found.num_items == 14
        assert np.abs(found.motions[:, 2]).max() <= np.pi / 4
        assert found.exact is None
        first = np.load(tmp_path / "2B3c4a1a_X_3_not_norm_0.npy")
        assert np.array_equal(found.pushes[:7], np.delete(first, 3, 0))
        batch = found.batch(torch.arange(14))
        PUSHING_TOLD.validate(batch)

    def test_that_is_incomplete_is_refused_by_name(self, tmp_path: Path) -> None:
        with pytest.raises(InputError, match=r"split.json"):
            read_omnipush(tmp_path)
        self.write(tmp_path)
        (tmp_path / "2a2a2a2a_y_3_not_norm_0.npy").unlink()
        with pytest.raises(InputError, match=r"2a2a2a2a_y_3_not_norm_0\.npy is missing"):
            read_omnipush(tmp_path)
        self.write(tmp_path)
        np.save(tmp_path / "3a3a3a3a_X_3_not_norm_0.npy", np.zeros((2, 3)))
        with pytest.raises(InputError, match="does not have the object 3a3a3a3a"):
            read_omnipush(tmp_path)

    def test_is_never_unpickled(self, tmp_path: Path) -> None:
        self.write(tmp_path)
        np.save(tmp_path / "2a2a2a2a_X_3_not_norm_0.npy", np.array([{}], dtype=object), allow_pickle=True)
        with pytest.raises(InputError, match="2a2a2a2a_X"):
            read_omnipush(tmp_path)

    @needs_omnipush_split
    def test_has_200_objects_to_train_on_and_50_others(self) -> None:
        train, test = read_split(OMNIPUSH_SPLIT)
        assert (len(train), len(test)) == (200, 50)
        assert len({PushObject(key).name for key in (*train, *test)}) == 250

    @needs_omnipush_split
    def test_has_the_deviations_that_errors_are_measured_in(self) -> None:
        told = json.loads(OMNIPUSH_SPLIT.read_text())
        x, y, turn = np.ravel(told["y_std"])
        assert np.array([(x + y) / 2, (x + y) / 2, turn]) == pytest.approx(MOTION_SCALE, rel=1e-3)
