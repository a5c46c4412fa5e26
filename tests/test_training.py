"""Training: it learns, it resumes exactly, it says what is wrong."""

from __future__ import annotations

import csv
import math
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from cases import RAGGED_SFT, random_item, seeded

from graphelements.building import build_network
from graphelements.checkpoints import read_tensors, write_tensors
from graphelements.errors import InputError
from graphelements.functions import SFT, InputFunction, OutputFunction
from graphelements.meshes import Mesh, grid_mesh
from graphelements.network import GraphElementNetwork
from graphelements.network_config import DEFAULT, PAPER
from graphelements.samples import FunctionSamples, Queries, SFTBatch, collate
from graphelements.spaces import Box
from graphelements.training import Report, TrainingConfig, fit, item_errors, share
from graphelements.unions import union

SPECIFICATION = SFT(Box(), (InputFunction("slope"),), (OutputFunction("height"),))
SMALL = replace(DEFAULT, latent_size=12, edge_hidden=12, node_hidden=12, message_size=8, encoder_hidden=(12,), rounds=2)
STEPS = TrainingConfig(steps=20, warmup=3, save_every=8, compile="off")
MESH = grid_mesh(Box(), 3)


def batch_of(step: int, scale: float = 1.0, shift: float = 0.0) -> tuple[SFTBatch, Mesh]:
    """Random planes, seen at 12 points and asked for at 10 others."""
    g, items = seeded(step), torch.arange(8).repeat_interleave(12)
    slopes = torch.randn(8, 2, generator=g)
    points, places = torch.rand(96, 2, generator=g), torch.rand(96, 2, generator=g)

    def height(x: torch.Tensor) -> torch.Tensor:
        return scale * (slopes[items] * (x - 0.5)).sum(-1, keepdim=True) + shift

    samples = {"slope": FunctionSamples(points, height(points), items)}
    return SFTBatch(samples, {"height": Queries(places, None, items)}, {"height": height(places)}, 8), MESH


def fresh() -> GraphElementNetwork:
    return build_network(SPECIFICATION, SMALL, seed=5)


def train(
    network: GraphElementNetwork, folder: Path | None, stop_at: int | None = None, config: TrainingConfig = STEPS
) -> list[Report]:
    """The reports of a run, closed after `stop_at` steps of it."""
    reports, run = [], fit(network, batch_of, config, folder=folder)
    for report in run:
        reports.append(report)
        if len(reports) == stop_at:
            break
    run.close()
    return reports


def same_weights(a: GraphElementNetwork, b: GraphElementNetwork) -> bool:
    return all(torch.equal(x, y) for x, y in zip(a.state_dict().values(), b.state_dict().values(), strict=True))


def log_rows(folder: Path) -> list[list[str]]:
    with (folder / "log.csv").open(newline="") as file:
        return list(csv.reader(file))


def test_a_small_regression_is_learned():
    network = fresh()
    config = TrainingConfig(steps=80, learning_rate=0.01, warmup=10, compile="off")
    before = item_errors(network, *batch_of(1000))["height"].mean()
    losses = [report.loss for report in fit(network, batch_of, config)]
    assert sum(losses[-10:]) < 0.4 * sum(losses[:10])
    assert item_errors(network, *batch_of(1000))["height"].mean() < 0.4 * before
    assert not network.training


def test_the_units_of_the_data_do_not_change_what_is_learned():
    config, runs = replace(STEPS, steps=15), []
    for scale, shift in ((1.0, 0.0), (1000.0, 300.0)):
        network = fresh()
        network.fit_normalisation([batch_of(step, scale, shift)[0] for step in range(100, 104)])
        losses = [r.loss for r in fit(network, lambda step, s=scale, t=shift: batch_of(step, s, t), config)]
        predictions = network.predict(*batch_of(99, scale, shift))["height"]
        runs.append((losses, (predictions - shift) / scale))
    assert runs[0][0] == pytest.approx(runs[1][0], rel=1e-2)
    assert (runs[0][1] - runs[1][1]).abs().max() < 1e-2


@pytest.mark.parametrize("optimizer", ["adam", "muon"])
@pytest.mark.parametrize("stop_at", [1, 7, 8, 19])
def test_a_stopped_run_resumes_to_the_very_same_numbers(tmp_path, stop_at, optimizer):
    straight, first, second = fresh(), fresh(), fresh()
    config = replace(STEPS, optimizer=optimizer)
    expected = train(straight, None, config=config)
    begun = train(first, tmp_path, stop_at, config)
    assert [r.step for r in begun] == list(range(1, stop_at + 1))
    rest = train(second, tmp_path, config=config)
    assert [r.step for r in rest] == list(range(stop_at + 1, 21))
    assert [r.loss for r in begun + rest] == [r.loss for r in expected]
    assert same_weights(second, straight)
    assert rest[-1].seconds > begun[-1].seconds
    rows = log_rows(tmp_path)
    assert [row[0] for row in rows] == ["step", *map(str, range(1, 21))]
    assert [float(row[1]) for row in rows[1:]] == [r.loss for r in expected]


def test_a_killed_run_goes_on_from_its_last_saved_state(tmp_path):
    straight, killed, resumed = fresh(), fresh(), fresh()
    train(straight, None)
    run = fit(killed, batch_of, STEPS, folder=tmp_path)
    for report in run:
        if report.step == 8:
            shutil.copy(tmp_path / "state.safetensors", tmp_path / "aside")
        if report.step == 13:
            break
    run.close()
    shutil.move(tmp_path / "aside", tmp_path / "state.safetensors")  # as if step 8 had been the last to be saved
    assert log_rows(tmp_path)[-1][0] == "13"
    assert [r.step for r in train(resumed, tmp_path)] == list(range(9, 21))
    assert same_weights(resumed, straight)
    assert [row[0] for row in log_rows(tmp_path)] == ["step", *map(str, range(1, 21))]


def test_a_finished_run_has_nothing_left_to_do(tmp_path):
    first, again = fresh(), fresh()
    train(first, tmp_path)
    assert train(again, tmp_path) == []
    assert same_weights(again, first)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["log.csv", "state.safetensors"]


def test_other_settings_or_another_network_refuse_to_resume(tmp_path):
    train(fresh(), tmp_path, 2)
    with pytest.raises(InputError, match=r"other training settings \(learning_rate, steps\)"):
        train(fresh(), tmp_path, config=replace(STEPS, steps=21, learning_rate=0.1))
    with pytest.raises(InputError, match=r"must have shape|of another network") as caught:
        train(build_network(SPECIFICATION, PAPER), tmp_path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("content", [b"", b"not a state", b"\x00" * 100])
def test_a_damaged_state_is_named_in_one_line(tmp_path, content):
    (tmp_path / "state.safetensors").write_bytes(content)
    with pytest.raises(InputError, match=r"state\.safetensors") as caught:
        train(fresh(), tmp_path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "header", [{}, {"step": 3}, {"step": "x", "seconds": 1.0}, {"step": 3, "seconds": None}, {"step": -1, "seconds": 0}]
)
def test_a_state_with_a_damaged_header_is_named_in_one_line(tmp_path, header):
    from graphelements.checkpoints import read_tensors, write_tensors

    train(fresh(), tmp_path, 2)
    tensors, before = read_tensors(tmp_path / "state.safetensors", "training state")
    write_tensors(tmp_path / "state.safetensors", tensors, "training state", {"training": before["training"], **header})
    with pytest.raises(InputError, match=r"state\.safetensors") as caught:
        train(fresh(), tmp_path)
    assert "\n" not in str(caught.value)


def test_a_loss_that_is_not_a_number_ends_the_run_and_is_not_saved(tmp_path):
    network = fresh()
    with torch.no_grad():
        next(network.decoders["height"].parameters()).fill_(math.nan)
    with pytest.raises(InputError, match="nan at step 1"):
        train(network, tmp_path)
    assert not (tmp_path / "state.safetensors").exists()


def test_validation_runs_when_it_is_due_and_does_not_disturb_training(tmp_path):
    modes = []

    def validate(network: GraphElementNetwork) -> dict[str, float]:
        modes.append(network.training)
        return {"error": float(item_errors(network, *batch_of(500))["height"].mean())}

    watched, alone, quick = fresh(), fresh(), replace(STEPS, learning_rate=0.01)
    reports = list(fit(watched, batch_of, replace(quick, validate_every=6), validate=validate))
    assert [r.step for r in reports if r.validation] == [6, 12, 18, 20]
    assert modes == [False] * 4
    assert reports[-1].validation == validate(watched)
    assert reports[-1].validation["error"] < validate(fresh())["error"]
    train(alone, None, config=quick)
    assert same_weights(watched, alone)


def test_learning_rates_warm_up_and_fade():
    config = TrainingConfig(steps=100, learning_rate=1.0, warmup=9)
    rates = [config.rate(step) for step in range(100)]
    assert rates[0] == pytest.approx(0.1)
    assert max(rates) == pytest.approx(0.98, abs=0.01)
    assert rates[50] == pytest.approx(0.5)
    assert rates[-1] < 0.001
    constant = replace(config, schedule="constant")
    assert [constant.rate(step) for step in (9, 99)] == [1.0, 1.0]


def test_a_step_is_one_of_adam_at_the_rate_of_the_schedule():
    trained, by_hand, config = fresh(), fresh(), replace(STEPS, steps=3, warmup=2, clip=0.5)
    reports = train(trained, None, config=config)
    optimizer = torch.optim.Adam([p for p in by_hand.parameters() if p.requires_grad])
    for step in range(3):
        optimizer.param_groups[0]["lr"] = config.rate(step)
        batch, mesh = batch_of(step)
        optimizer.zero_grad()
        by_hand.loss(by_hand(batch, mesh), batch).backward()
        torch.nn.utils.clip_grad_norm_(by_hand.parameters(), 0.5)
        optimizer.step()
    assert [r.learning_rate for r in reports] == [config.rate(step) for step in range(3)]
    assert same_weights(trained, by_hand)


def test_shares_split_the_items_of_a_batch_with_their_meshes():
    batch = collate([random_item(RAGGED_SFT, seeded(seed)) for seed in range(6)])
    meshes = [grid_mesh(RAGGED_SFT.space, 1 + seed % 3) for seed in range(6)]
    for given in (meshes, union(meshes), meshes[0]):
        for rank in range(2):
            mine, mesh = share(batch, given, rank, 2)
            assert mine.num_items == 3
            assert torch.equal(mine.inputs["heat"].values, batch.selected([rank, rank + 2, rank + 4]).inputs["heat"].values)
            assert mesh is given or [m.num_nodes for m in mesh] == [m.num_nodes for m in meshes[rank::2]]
    assert share(batch, meshes, 0, 1) == (batch, meshes)
    assert [share(batch, meshes, rank, 4)[0].num_items for rank in range(4)] == [2, 2, 1, 1]
    with pytest.raises(InputError, match="6 items cannot be shared by 7 processes"):
        share(batch, meshes, 0, 7)


@pytest.mark.parametrize("num", [3, 4])
def test_the_mean_of_the_losses_of_shares_by_their_items_is_the_loss_of_the_batch(num):
    network, (batch, mesh) = fresh(), batch_of(0)
    whole = network.loss(network(batch, mesh), batch)
    parts = [share(batch, mesh, rank, num)[0] for rank in range(num)]
    shares = [network.loss(network(part, mesh), part) * part.num_items * num / batch.num_items for part in parts]
    assert torch.stack(shares).mean().item() == pytest.approx(whole.item(), rel=1e-5)


def test_errors_of_items_are_in_squared_original_units():
    network, (batch, mesh) = fresh(), batch_of(0)
    errors = item_errors(network, batch, mesh)["height"]
    for item in range(8):
        mine = batch.queries["height"].items == item
        by_hand = (network.predict(batch, mesh)["height"] - batch.targets["height"])[mine].square().mean()
        assert errors[item].item() == pytest.approx(by_hand.item(), rel=1e-4)


def test_folders_are_made_and_stopping_before_the_first_step_leaves_no_state(tmp_path):
    run = fit(fresh(), batch_of, STEPS, folder=tmp_path / "new" / "folder")
    run.close()
    assert not (tmp_path / "new").exists()
    train(fresh(), tmp_path / "new" / "folder", 1)
    assert (tmp_path / "new" / "folder" / "state.safetensors").exists()


@pytest.mark.parametrize(
    "damage", ["no moments", "one moment less", "a wrong shape", "NaN", "one too many", "step is true", "not a dict"]
)
def test_a_state_that_was_tampered_with_is_not_resumed(tmp_path, unchecked, damage):
    list(fit(fresh(), batch_of, replace(STEPS, steps=3), folder=tmp_path))
    tensors, header = read_tensors(tmp_path / "state.safetensors", "training state")
    header = {name: header[name] for name in ("step", "seconds", "training", "tensors")}
    moment = next(name for name in tensors if name.endswith("exp_avg"))
    if damage == "no moments":
        tensors = {name: tensor for name, tensor in tensors.items() if name.startswith("network.")}
    elif damage == "one moment less":
        del tensors[moment]
    elif damage == "a wrong shape":
        tensors[moment] = torch.zeros(1, 1, 1)
    elif damage == "NaN":
        tensors[moment] = torch.full_like(tensors[moment], math.nan)
    elif damage == "one too many":
        tensors["optimizer.999.exp_avg"] = torch.zeros(1)
    elif damage == "step is true":
        header["step"] = True
    else:
        header["training"] = 3
    write_tensors(tmp_path / "state.safetensors", tensors, "training state", header)
    with pytest.raises(InputError) as error:
        next(iter(fit(fresh(), batch_of, replace(STEPS, steps=3), folder=tmp_path)))
    assert "state.safetensors" in str(error.value)
    assert "\n" not in str(error.value)


def test_nan_in_the_data_is_found_before_training_and_named(unchecked):
    batch, _ = batch_of(0)
    batch.targets["height"][0] = math.nan
    with pytest.raises(InputError, match="targets of 'height' must be finite"):
        fresh().fit_normalisation([batch])


def test_kernels_are_plain_again_after_training():
    network = fresh()
    list(fit(network, batch_of, replace(STEPS, steps=1)))
    assert not network.compiled_kernels


def test_a_run_made_shorter_than_what_is_done_is_other_settings_not_damage(tmp_path):
    train(fresh(), tmp_path, 5)
    with pytest.raises(InputError, match=r"other training settings \(steps\)"):
        train(fresh(), tmp_path, config=replace(STEPS, steps=3))
