"""The pushing task: its data, what networks are given, symmetries, scores."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from graphelements import build_network, get_task
from graphelements.checkpoints import Checkpoint
from graphelements.configs import with_settings
from graphelements.data.push_files import TIP, joined, simulate
from graphelements.data.push_objects import PushObject
from graphelements.data.pushes import MOTION_SCALE, PUSHING, Pushes, asked_for, picture_of, push_batch, sft_given
from graphelements.data.quasi_static import EllipsoidFriction, pushed
from graphelements.errors import InputError
from graphelements.samples import SFTBatch
from graphelements.tasks.push_motions import parse_push, predict_motion, read_mask
from graphelements.tasks.push_symmetries import transformed
from graphelements.tasks.pushing import PRESETS, TASK
from graphelements.training import fit

KEYS = ["1a2B3c4a", "2a2a2a2a", "3a4a3b1a", "1c1a1a2a", "4a4a2C3a"]


@pytest.fixture(scope="module")
def pushes() -> Pushes:
    done = [simulate(key, (0, n), 24, ellipsoid=True) for n, key in enumerate(KEYS)]
    return joined(KEYS, [False] * 4 + [True], done)


def given_by(config) -> list[str]:
    return [f.name for f in TASK.sft_of(config).inputs]


def test_presets_are_given_what_they_are_named_for() -> None:
    assert get_task("pushing") is TASK
    assert given_by(PRESETS["paper"]) == given_by(PRESETS["np"]) == ["pixels", "push"]
    for preset, name in {"default": "pixels", "np-tuned": "pixels", "no-picture": "blank", "examples": "examples"}.items():
        sft = TASK.sft_of(PRESETS[preset])
        assert [f.name for f in sft.inputs] == [name]
        assert (sft.outputs[0].conditions, sft.outputs[0].integrated) == (5, False)
    assert TASK.sft_of(PRESETS["summed"]).outputs[0].integrated
    assert PRESETS["no-picture"].network == PRESETS["default"].network
    with pytest.raises(InputError, match="pixels, blank, push, examples"):
        TASK.sft_of(with_settings(PRESETS["default"], ["batches.inputs=sound"]))
    with pytest.raises(InputError, match=r"leave out batches\.inputs"):
        get_task("poisson-square").sft_of(with_settings(get_task("poisson-square").presets["paper"], ["batches.inputs=border"]))
    with pytest.raises(InputError, match=r"leave out batches\.integrated"):
        get_task("poisson-square").sft_of(with_settings(get_task("poisson-square").presets["paper"], ["batches.integrated=true"]))


def test_the_paper_sums_the_states_of_all_nodes_of_a_grid_and_sees_no_positions() -> None:
    network = PRESETS["paper"].network
    assert (network.integration, network.representation, network.encoder_sees) == ("sum", "multilinear", "value")  # type: ignore[union-attr]
    assert PUSHING.outputs[0].integrated


@pytest.mark.parametrize("preset", PRESETS)
def test_every_preset_learns_from_its_batches(pushes: Pushes, preset: str) -> None:
    config = with_settings(PRESETS[preset], ["training.steps=2", "training.compile=off", "batches.items=4"])
    sft = TASK.sft_of(config)
    data = TASK.given(pushes, sft)
    network = build_network(sft, config.network)
    network.fit_normalisation(TASK.all_of(data))
    before = {name: tensor.clone() for name, tensor in network.named_parameters() if not name.endswith("log_sharpness")}
    reports = list(fit(network, TASK.batch_of(data, config, 0), config.training))
    assert all(np.isfinite(report.loss) for report in reports)
    changed = [name for name, tensor in network.named_parameters() if name in before and not tensor.equal(before[name])]
    assert set(before) - set(changed) <= {
        "encoders.blank.gate.weight"
    }  # sees the classes alone, of which an empty picture has one
    assert set(TASK.validator(data, config)(network)) == {str(k) for k in config.batches.resolutions}


def test_scores_are_against_exact_and_measured_motions_and_beside_no_motion_and_the_noise(pushes: Pushes) -> None:
    config = PRESETS["mixed"]
    network = build_network(TASK.sft_of(config), config.network)
    scores = {(s.method, s.resolution): s for s in TASK.evaluate(Checkpoint(network, config.mesh), pushes, (1, 3))}
    assert list(scores) == [("gen", 1), ("gen", 3), ("gen-measured", 1), ("gen-measured", 3), ("still", 0), ("noise", 0)]
    assert all(len(s.mse_of_item) == len(KEYS) for s in scores.values())
    assert pushes.exact is not None
    still = np.square(pushes.exact / MOTION_SCALE).mean()
    assert scores["still", 0].mse_mean == pytest.approx(still)
    floor = np.mean([(0.0007 / 0.0155) ** 2, (0.0007 / 0.0155) ** 2, (0.01 / 0.2152) ** 2])
    assert scores["noise", 0].mse_mean == pytest.approx(floor, rel=0.2)
    real = replace(pushes, exact=None)
    methods = [s.method for s in TASK.evaluate(Checkpoint(network, config.mesh), real, (1,))]
    assert methods == ["gen", "still"]


def test_the_split_is_that_of_the_data(pushes: Pushes, tmp_path: Path) -> None:
    assert TASK.held_out(pushes) == [4]
    assert len(TASK.subset(pushes, "train", [4], "")) == 4
    assert TASK.describe(pushes)["kind"] == "simulated"
    assert TASK.describe(replace(pushes, exact=None))["kind"] == "real"


class TestSymmetries:
    @pytest.mark.parametrize("symmetry", ["square"])
    def test_turn_and_mirror_pushes_pictures_and_motions_alike(self, pushes: Pushes, symmetry: str) -> None:
        """Distances and angles between all vectors of an item stay; the sign of turns goes with the mirror."""
        sft = sft_given(["pixels", "push", "examples"])
        batch = pushes.giving(sft).batch(torch.arange(0, 120, 5))
        other = transformed(batch, (symmetry,), np.random.default_rng(0))  # type: ignore[arg-type]
        sft.validate(other)

        def vectors(of: SFTBatch, item: int) -> torch.Tensor:
            push, motion = of.inputs["push"].values[item], of.targets["motion"][item]
            pixels = of.inputs["pixels"].points[of.inputs["pixels"].items == item]
            return torch.cat([pixels, push[:2][None], push[2:][None], motion[:2][None]])

        mirrored = 0
        for item in range(batch.num_items):
            before, after = vectors(batch, item), vectors(other, item)
            assert (before @ before.T).allclose(after @ after.T, atol=1e-5)
            areas = [each[-3, 0] * each[-2, 1] - each[-3, 1] * each[-2, 0] for each in (before, after)]
            sign = torch.sign(areas[0] * areas[1])
            assert other.targets["motion"][item, 2].allclose(sign * batch.targets["motion"][item, 2])
            mirrored += int(sign < 0)
        assert 0 < mirrored < batch.num_items
        assert other.inputs["pixels"].values.equal(batch.inputs["pixels"].values)

    def test_turn_what_queries_tell_as_they_turn_pushes(self, pushes: Pushes) -> None:
        """A query of the turned batch is that for the turned push."""
        chosen = torch.arange(0, 120, 5)
        told, asked = (
            transformed(pushes.giving(sft).batch(chosen), ("square",), np.random.default_rng(0))
            for sft in (sft_given(["pixels", "push"]), sft_given(["pixels"]))
        )
        expected, found = (
            asked_for(told.inputs["push"].values, told.inputs["push"].items, sft_given(["pixels"])),
            asked.queries["motion"],
        )
        assert found.points is not None
        assert found.conditions is not None
        torch.testing.assert_close(found.points, expected.points, atol=1e-6, rtol=0)
        torch.testing.assert_close(found.conditions, expected.conditions, atol=1e-5, rtol=0)
        assert asked.targets["motion"].allclose(told.targets["motion"])

    def test_hold_for_the_simulator(self) -> None:
        """A mirrored object, pushed as the augmented batch says, moves as the augmented batch says."""
        key, mirrored = "1a2b3c4a", "1a4a3c2b"
        made = joined([key], [False], [simulate(key, (0,), 40, ellipsoid=True)])
        batch = replace(made, without_noise=True).batch(torch.arange(40))
        other = transformed(batch, ("square",), np.random.default_rng(1))
        told = other.inputs["push"].values.double().numpy()
        friction = EllipsoidFriction(PushObject(mirrored).support())
        again = (
            pushed(friction, PushObject(mirrored).outline, TIP, told[:, :2], np.arctan2(told[:, 3], told[:, 2])) / MOTION_SCALE
        )
        expected = other.targets["motion"].numpy()
        only_mirrored = np.abs(told[:, :2] - batch.inputs["push"].values.numpy()[:, :2] * [1, -1]).max(1) < 1e-6
        assert only_mirrored.sum() >= 2
        assert again[only_mirrored] == pytest.approx(expected[only_mirrored], abs=0.02)
        assert np.abs(again - expected)[~only_mirrored].max() > 0.1  # of others the object is turned as well


class TestOnePush:
    def test_is_predicted_in_metres_and_radians(self, pushes: Pushes) -> None:
        config = PRESETS["default"]
        network = build_network(TASK.sft_of(config), config.network)
        network.fit_normalisation(TASK.all_of(TASK.given(pushes, network.sft)))
        mesh = TASK.mesh(config.mesh, 2)
        motion = predict_motion(network, picture_of(KEYS[0]), pushes.pushes[:5], mesh)
        batch = push_batch(network.sft, picture_of(KEYS[0]), pushes.pushes[:5])
        assert motion == pytest.approx(network.predict(batch, mesh)["motion"].numpy() * MOTION_SCALE, rel=1e-5)
        assert motion.shape == (5, 3)
        examples = sft_given(["examples"])
        with pytest.raises(InputError, match="not from a picture"):
            predict_motion(build_network(examples, config.network), picture_of(KEYS[0]), pushes.pushes[:1], mesh)

    @pytest.mark.parametrize("text", ["", "1,2", "a,b,c", "0.5,0,0", "0,0,1000", "nan,0,0", "0,nan,0"])
    def test_that_is_none_is_refused(self, text: str) -> None:
        with pytest.raises(InputError, match=r"x,y,degrees|within 0\.12 m"):
            parse_push(text)

    def test_takes_a_picture_from_a_file(self, tmp_path: Path) -> None:
        from matplotlib.image import imsave

        picture = picture_of(KEYS[0]).reshape(144, 144)
        imsave(tmp_path / "mask.png", np.repeat(np.repeat(picture[::-1], 2, 0), 2, 1) * 85, cmap="gray", vmin=0, vmax=255)
        assert np.array_equal(read_mask(tmp_path / "mask.png"), picture.ravel())
        for name, image, said in (
            ("oblong.png", np.zeros((20, 30)), "square picture"),
            ("grey.png", np.full((20, 20), 40.0), "greys are 0, 85, 170 and 255"),
            ("empty.png", np.zeros((20, 20)), "shows nothing"),
        ):
            imsave(tmp_path / name, image, cmap="gray", vmin=0, vmax=255)
            with pytest.raises(InputError, match=said):
                read_mask(tmp_path / name)
        (tmp_path / "no.png").write_text("no picture")
        with pytest.raises(InputError, match="not a readable picture"):
            read_mask(tmp_path / "no.png")
