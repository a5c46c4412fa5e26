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
from graphelements.data.push_files import joined, simulate
from graphelements.data.push_objects import PushObject
from graphelements.data.pushes import MOTION_SCALE, PUSHING, TRAVEL, Pushes, picture_of
from graphelements.data.quasi_static import PatchFriction, Tip, pushed
from graphelements.errors import InputError
from graphelements.functions import SFT
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
    assert given_by(PRESETS["default"]) == given_by(PRESETS["np-tuned"]) == given_by(PRESETS["paper"]) == ["pixels", "push"]
    assert given_by(PRESETS["no-picture"]) == ["push"]
    assert given_by(PRESETS["examples"]) == ["push", "examples"]
    with pytest.raises(InputError, match="pixels, push, examples"):
        TASK.sft_of(with_settings(PRESETS["default"], ["batches.inputs=sound"]))
    with pytest.raises(InputError, match=r"leave out batches\.inputs"):
        get_task("poisson-square").sft_of(with_settings(get_task("poisson-square").presets["paper"], ["batches.inputs=border"]))


def test_the_paper_sums_the_states_of_all_nodes_of_a_grid_and_sees_no_positions() -> None:
    network = PRESETS["paper"].network
    assert (network.integration, network.representation, network.encoder_sees) == ("sum", "multilinear", "value")  # type: ignore[union-attr]
    assert PUSHING.outputs[0].integrated


@pytest.mark.parametrize("preset", PRESETS)
def test_every_preset_learns_from_its_batches(pushes: Pushes, preset: str) -> None:
    config = with_settings(PRESETS[preset], ["training.steps=2", "batches.items=4", "batches.scenarios=2"])
    sft = TASK.sft_of(config)
    data = TASK.given(pushes, sft)
    network = build_network(sft, config.network)
    network.fit_normalisation(TASK.all_of(data))
    before = {name: tensor.clone() for name, tensor in network.named_parameters() if not name.endswith("log_sharpness")}
    reports = list(fit(network, TASK.batch_of(data, config, 0), config.training))
    assert all(np.isfinite(report.loss) for report in reports)
    changed = [name for name, tensor in network.named_parameters() if name in before and not tensor.equal(before[name])]
    assert len(changed) == len(before)
    assert set(TASK.validator(data, config)(network)) == {str(k) for k in config.batches.resolutions}


def test_scores_are_against_exact_and_measured_motions_and_beside_no_motion_and_the_noise(pushes: Pushes) -> None:
    config = PRESETS["default"]
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
    @pytest.mark.parametrize("symmetry", ["square", "rotation"])
    def test_turn_and_mirror_pushes_pictures_and_motions_alike(self, pushes: Pushes, symmetry: str) -> None:
        """Distances and angles between all vectors of an item stay; the sign of turns goes with the mirror."""
        batch = pushes.giving(["pixels", "push", "examples"]).batch(torch.arange(0, 120, 5))
        other = transformed(batch, (symmetry,), np.random.default_rng(0))  # type: ignore[arg-type]
        PUSHING.validate(other)

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

    def test_hold_for_the_simulator(self) -> None:
        """A push and its object, a quarter turned and mirrored: the simulated motion is that of the augmented batch."""
        made, mirrored = PushObject("1a2b3c4a"), PushObject("1a4a3c2b")
        push = np.array([[0.085, 0.012, np.pi - 0.1]])
        tip = Tip(0.00475, TRAVEL, 0.3)
        first = pushed(PatchFriction(made.support()), made.outline, tip, push[:, :2], push[:, 2])
        second = pushed(PatchFriction(mirrored.support()), mirrored.outline, tip, push[:, :2] * [1, -1], -push[:, 2])
        assert second * [1, -1, -1] == pytest.approx(first, abs=1e-4)


class TestOnePush:
    def test_is_predicted_in_metres_and_radians(self, pushes: Pushes) -> None:
        config = PRESETS["default"]
        network = build_network(TASK.sft_of(config), config.network)
        network.fit_normalisation(TASK.all_of(TASK.given(pushes, network.sft)))
        mesh = TASK.mesh(config.mesh, 2)
        motion = predict_motion(network, picture_of(KEYS[0]), pushes.pushes[:5], mesh)
        batch = TASK.given(pushes, network.sft).batch(torch.arange(5), seed=0)
        assert motion.shape == (5, 3)
        direct = network.predict(batch, mesh)["motion"].numpy() * MOTION_SCALE
        assert np.abs(motion - direct).max() < 0.05  # other pixels of the same picture
        examples = replace(PUSHING, inputs=tuple(f for f in PUSHING.inputs if f.name != "pixels"))
        assert isinstance(examples, SFT)
        with pytest.raises(InputError, match="not from a picture"):
            predict_motion(build_network(examples, config.network), picture_of(KEYS[0]), pushes.pushes[:1], mesh)

    @pytest.mark.parametrize("text", ["", "1,2", "a,b,c", "0.5,0,0", "0,0,1000", "nan,0,0"])
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
