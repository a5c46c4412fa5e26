"""Checkpoints: one file rebuilds its network; anything else is named in one line."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from cases import RAGGED_SFT, random_item, seeded
from safetensors import safe_open
from safetensors.torch import save_file

from graphelements.building import build_network
from graphelements.checkpoints import Checkpoint, load, load_checkpoint, save
from graphelements.errors import InputError
from graphelements.meshes import MeshConfig, grid_mesh
from graphelements.network_config import ATTENTION, DEFAULT, NEURAL_PROCESS, PAPER
from graphelements.samples import SFTBatch, collate

CONFIGS = {
    "paper": PAPER,
    "default": DEFAULT,
    "neural_process": NEURAL_PROCESS,
    "barycentric": replace(DEFAULT, representation="barycentric", rounds=3, encoder_hidden=(8, 8), decoder_sees="value"),
    "attention": replace(ATTENTION, latent_size=12, num_heads=3, num_self_layers=1, num_octaves=0),
}


def units(batch: SFTBatch) -> SFTBatch:
    """The batch with values far from mean zero and variance one."""
    inputs = {name: replace(samples, values=40 * samples.values + 7) for name, samples in batch.inputs.items()}
    return replace(batch, inputs=inputs, targets={name: 5 - 300 * target for name, target in batch.targets.items()})


BATCH = units(collate([random_item(RAGGED_SFT, seeded(seed)) for seed in range(4)]))
MESH = grid_mesh(RAGGED_SFT.space, 3)


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_a_loaded_network_predicts_exactly_the_same_in_original_units(tmp_path, config):
    network = build_network(RAGGED_SFT, config, seed=9)
    network.fit_normalisation([BATCH])
    save(network, tmp_path / "a.safetensors")
    again = load(tmp_path / "a.safetensors")
    assert again.config == config
    assert again.sft == RAGGED_SFT
    assert not again.training
    before, after = network.predict(BATCH, MESH), again.predict(BATCH, MESH)
    assert all(torch.equal(after[name], before[name]) for name in before)
    assert all(after[name].abs().max() > 1 for name in after)
    assert [p.requires_grad for p in again.parameters()] == [p.requires_grad for p in network.parameters()]


def test_everything_beside_the_weights_comes_back(tmp_path):
    network = build_network(RAGGED_SFT, PAPER)
    mesh, training = MeshConfig(edges="multiscale", scale_ratio=3.0), {"steps": 5, "seconds": 1.5, "note": "ä\nb"}
    save(Checkpoint(network, mesh, "poisson", training), str(tmp_path / "a.safetensors"))
    again = load_checkpoint(str(tmp_path / "a.safetensors"))
    assert (again.mesh, again.task, again.training) == (mesh, "poisson", training)
    save(network, tmp_path / "b.safetensors")
    assert load_checkpoint(tmp_path / "b.safetensors").task is None


def test_the_header_can_be_read_with_safetensors_alone(tmp_path):
    save(build_network(RAGGED_SFT, PAPER), tmp_path / "a.safetensors")
    with safe_open(tmp_path / "a.safetensors", framework="pt") as file:
        header = json.loads(file.metadata()["graphelements"])
    assert header["network"]["latent_size"] == 32
    assert header["sft"]["space"]["upper"] == [2.0, 1.0]
    assert header["kind"] == "checkpoint"
    assert header["versions"]["torch"] == torch.__version__


def test_saving_replaces_and_leaves_nothing_else_behind(tmp_path):
    for seed in (0, 1):
        save(build_network(RAGGED_SFT, PAPER, seed), tmp_path / "deep" / "a.safetensors")
    assert [p.name for p in (tmp_path / "deep").iterdir()] == ["a.safetensors"]
    expected = build_network(RAGGED_SFT, PAPER, 1).state_dict()
    assert all(
        torch.equal(tensor, expected[name]) for name, tensor in load(tmp_path / "deep" / "a.safetensors").state_dict().items()
    )


def test_a_failed_save_keeps_the_old_file_and_leaves_nothing_else_behind(tmp_path, monkeypatch):
    path = tmp_path / "a.safetensors"
    save(build_network(RAGGED_SFT, PAPER), path)
    before = path.read_bytes()

    def fail_half_way(_: object, temporary: Path, __: object) -> None:
        Path(temporary).write_bytes(b"half")
        raise KeyboardInterrupt

    monkeypatch.setattr("safetensors.torch.save_file", fail_half_way)
    with pytest.raises(KeyboardInterrupt):
        save(build_network(RAGGED_SFT, PAPER, 1), path)
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["a.safetensors"]


def parts_of(path: Path) -> tuple[dict[str, torch.Tensor], dict]:
    with safe_open(path, framework="pt") as file:
        return {name: file.get_tensor(name) for name in file.keys()}, json.loads(file.metadata()["graphelements"])  # noqa: SIM118


def truncated(share: float) -> Callable[[Path], None]:
    return lambda path: path.write_bytes(path.read_bytes()[: int(share * path.stat().st_size)])


def header(**changes: object) -> Callable[[Path], None]:
    """Dotted names are set; those set to ... are left out."""

    def damage(path: Path) -> None:
        tensors, plain = parts_of(path)
        for name, value in changes.items():
            *groups, last = name.split("__")
            level = plain
            for group in groups:
                level = level[group]
            level[last] = value
            if value is ...:
                del level[last]
        save_file(tensors, path, {"graphelements": json.dumps(plain)})

    return damage


def raw_header(text: str) -> Callable[[Path], None]:
    return lambda path: save_file(parts_of(path)[0], path, {"graphelements": text})


def tensors(change: Callable[[dict[str, torch.Tensor]], object]) -> Callable[[Path], None]:
    def damage(path: Path) -> None:
        found, plain = parts_of(path)
        change(found)
        save_file(found, path, {"graphelements": json.dumps(plain)})

    return damage


WEIGHT = "encoders.heat.0.weight"
DAMAGES = {
    **{
        f"truncated at {share}": (truncated(share), "not a readable safetensors file")
        for share in (0.0, 0.0005, 0.01, 0.1, 0.5, 0.99)
    },
    "text": (lambda path: path.write_text("weights\n" * 100), "not a readable safetensors file"),
    "zeros": (lambda path: path.write_bytes(bytes(10000)), "not a readable"),
    "pickle": (lambda path: torch.save({"a": torch.ones(2)}, path), "never read"),
    "foreign": (lambda path: save_file({"a": torch.ones(2)}, path), "not one of graphelements"),
    "foreign header": (lambda path: save_file({"a": torch.ones(2)}, path, {"format": "pt"}), "not one of graphelements"),
    "header not json": (raw_header("{"), "not valid JSON"),
    "header empty": (raw_header("{}"), "not a checkpoint"),
    "header a list": (raw_header("[]"), "not a checkpoint"),
    "header a number": (raw_header("3"), "not a checkpoint"),
    "header nested deeply": (raw_header("[" * 100000), "not valid JSON"),
    "other kind": (header(kind="training state"), "not a checkpoint"),
    "newer format": (header(format=99), "has format 99, this version reads up to 1; update"),
    "no format": (header(format=...), "format"),
    "odd format": (header(format="new"), "format"),
    "no sft": (header(sft=...), "has no 'sft'"),
    "no network": (header(network=...), "has no 'network'"),
    "no mesh": (header(mesh=...), "has no 'mesh'"),
    "unknown name": (header(network__depth=3), "unknown name depth"),
    "unknown name in a function": (header(sft__inputs=[{"name": "heat", "depth": 3}]), r"unknown name inputs\.0\.depth"),
    "unknown kind": (header(network__kind="memory"), "network: kind must be one of attention; got 'memory'"),
    "odd kind": (header(network__kind=["attention"]), "kind must be one of attention"),
    "other kind of network": (header(network__kind="attention"), "unknown name aggregation, .*the names are latent_size"),
    "unknown choice": (header(network__norm="batch"), "norm"),
    "sft of another kind": (header(sft=3), "sft"),
    "network null": (header(network=None), "network"),
    "mesh of another kind": (header(mesh=[]), "mesh"),
    "no space": (header(sft__space=...), "space"),
    "impossible space": (header(sft__space={"lower": [1.0], "upper": [0.0]}), "lower bound"),
    "negative size": (header(network__latent_size=-1), "latent_size must be positive"),
    "other size": (header(network__latent_size=16), "must have shape"),
    "enormous size": (header(network__latent_size=10**7), "must have shape"),
    "absurd size": (header(network__latent_size=10**14), "must have shape"),
    "endless size": (header(network__latent_size=10**18), "size"),
    "impossible sharpness": (header(network__sharpness=-1.0), "sharpness"),
    "task a number": (header(task=3), "task"),
    "training a list": (header(training=[1]), "training"),
    "wrong shape": (tensors(lambda t: t.update({WEIGHT: torch.ones(2, 2)})), "must have shape"),
    "missing tensor": (tensors(lambda t: t.pop(WEIGHT)), f"disagree, first at {WEIGHT}"),
    "extra tensor": (tensors(lambda t: t.update(extra=torch.ones(2))), "disagree, first at extra"),
    "nan": (tensors(lambda t: t[WEIGHT][0].fill_(torch.nan)), "NaN or infinite"),
    "infinity": (tensors(lambda t: t[WEIGHT][0].fill_(-torch.inf)), "NaN or infinite"),
    "directory": (lambda path: (path.unlink(), path.mkdir()), "is a directory"),
    "missing": (lambda path: path.unlink(), "does not exist"),
}


@pytest.fixture(scope="module")
def good(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("good") / "good.safetensors"
    save(build_network(RAGGED_SFT, PAPER), path)
    return path


@pytest.mark.parametrize(("damage", "said"), DAMAGES.values(), ids=DAMAGES)
def test_damaged_files_are_named_in_one_line(tmp_path, good, damage, said):
    path = tmp_path / "model.safetensors"
    path.write_bytes(good.read_bytes())
    damage(path)
    with pytest.raises(InputError, match=said) as caught:
        load(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 600


def test_every_prefix_of_a_file_is_refused(tmp_path, good):
    whole, path = good.read_bytes(), tmp_path / "model.safetensors"
    for length in torch.randint(len(whole), (60,), generator=seeded(0)).tolist():
        path.write_bytes(whole[:length])
        with pytest.raises(InputError):
            load(path)


def test_unknown_names_list_the_shipped_models():
    with pytest.raises(
        InputError, match="no checkpoint file and no shipped model is called nosuchmodel; shipped models: "
    ) as caught:
        load("nosuchmodel")
    assert "\n" not in str(caught.value)


def test_a_shipped_model_is_found_by_its_name(tmp_path, monkeypatch):
    network = build_network(RAGGED_SFT, PAPER, seed=3)
    save(network, tmp_path / "small-model.safetensors")
    monkeypatch.setattr("graphelements.checkpoints.SHIPPED", tmp_path)
    found = load("small-model")
    assert all(torch.equal(tensor, found.state_dict()[name]) for name, tensor in network.state_dict().items())


def test_a_network_in_double_precision_comes_back_in_it(tmp_path):
    save(build_network(RAGGED_SFT, PAPER).double(), tmp_path / "double.safetensors")
    assert {tensor.dtype for tensor in load(tmp_path / "double.safetensors").state_dict().values()} == {torch.float64}


def test_a_name_that_no_file_can_have_is_one_line():
    with pytest.raises(InputError, match="does not exist"):
        load("x" * 300 + ".safetensors")
