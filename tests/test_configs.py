"""Configs to and from plain data, and settings from the command line."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace

import pytest

from graphelements.configs import from_plain, setting_names, to_plain, with_settings
from graphelements.errors import InputError
from graphelements.functions import SFT, InputFunction, OutputFunction
from graphelements.meshes import MeshConfig
from graphelements.network_config import (
    ATTENTION,
    DEFAULT,
    NEURAL_PROCESS,
    PAPER,
    AnyNetworkConfig,
    AttentionConfig,
    NetworkConfig,
)
from graphelements.spaces import Box
from graphelements.tasks.task import RunConfig
from graphelements.training import TrainingConfig


@dataclass(frozen=True)
class Experiment:
    network: NetworkConfig = field(default_factory=NetworkConfig)
    training: TrainingConfig = TrainingConfig()
    seed: int = 0


SPECIFICATION = SFT(
    Box((0.0, -1.0), (2.0, 1.0), unit=3.0),
    (InputFunction("heat", 2), InputFunction("border")),
    (OutputFunction("warmth", 3, loss="cross_entropy", conditions=2), OutputFunction("total", integrated=True)),
)


SURVIVORS = [PAPER, DEFAULT, NEURAL_PROCESS, ATTENTION, MeshConfig(), TrainingConfig(), SPECIFICATION, Experiment()]


@pytest.mark.parametrize("config", [*SURVIVORS, RunConfig(ATTENTION), RunConfig(DEFAULT)])
def test_configs_survive_json(config):
    assert from_plain(type(config), json.loads(json.dumps(to_plain(config)))) == config


def test_of_several_configs_the_kind_chooses_and_none_is_a_gen():
    for config in (NEURAL_PROCESS, replace(ATTENTION, num_heads=2)):
        assert from_plain(AnyNetworkConfig, json.loads(json.dumps(to_plain(config)))) == config
    assert from_plain(AnyNetworkConfig, {}) == NetworkConfig()  # what was saved before there were kinds
    assert "kind" not in to_plain(NetworkConfig())
    assert from_plain(RunConfig, {"network": {"kind": "attention", "num_heads": 2}}).network == AttentionConfig(num_heads=2)


@pytest.mark.parametrize(
    ("plain", "said"),
    [
        ({"kind": "memory"}, "a file: network.kind must be one of attention; got 'memory'"),
        ({"kind": {}}, "a file: network.kind must be one of attention; got {}"),
        (
            {"kind": "attention", "rounds": 3},
            "a file: unknown name network.rounds; the names are .*network.num_heads",
        ),
        ({"rouns": 3}, "a file: unknown name network.rouns; the names are network.latent_size, network.message"),
        ({"kind": "attention", "num_heads": "x"}, "a file: network.num_heads: .*'x'"),
        ({"kind": "attention", "num_heads": 3}, "a file: latent_size must be a multiple of num_heads; got 128 and 3"),
        (3, "a file: network: .*3"),
    ],
)
def test_what_is_wrong_inside_one_of_several_configs_is_named_with_its_path(plain, said):
    with pytest.raises(InputError, match=f"^{said}"):
        from_plain(RunConfig, {"network": plain}, "a file")


def test_settings_reach_the_network_that_a_run_has():
    config = with_settings(RunConfig(ATTENTION), ["network.latent_size=32", "training.steps=7"])
    assert config == RunConfig(replace(ATTENTION, latent_size=32), training=TrainingConfig(steps=7))
    with pytest.raises(InputError, match=r"unknown setting 'network\.rounds'; the names are .*network\.num_heads"):
        with_settings(RunConfig(ATTENTION), ["network.rounds=3"])


@pytest.mark.parametrize(
    ("setting", "name", "value"),
    [
        ("latent_size=64", "latent_size", 64),
        ("sharpness=2.5", "sharpness", 2.5),
        ("sharpness=2", "sharpness", 2.0),
        ("learn_sharpness=true", "learn_sharpness", True),
        ("residual=no", "residual", False),
        ("encoder_hidden=8,16,8", "encoder_hidden", (8, 16, 8)),
        ("encoder_hidden=8", "encoder_hidden", (8,)),
        ("encoder_hidden=", "encoder_hidden", ()),
        ("norm=layer", "norm", "layer"),
        ("rounds=6", "rounds", 6),
        ("rounds=0", "rounds", 0),
        ("rounds=diameter", "rounds", "diameter"),
    ],
)
def test_settings_take_the_type_of_what_they_set(setting, name, value):
    found = getattr(with_settings(PAPER, [setting]), name)
    assert found == value
    assert type(found) is type(value)


def test_settings_reach_into_groups_and_later_ones_win():
    config = with_settings(Experiment(), ["network.latent_size=8", "training.steps=5", "seed=3", "network.latent_size=16"])
    assert (config.network.latent_size, config.training.steps, config.seed) == (16, 5, 3)
    assert config.training.learning_rate == TrainingConfig().learning_rate
    assert Experiment().network.latent_size == 32


def test_the_names_of_settings_are_dotted():
    names = setting_names(Experiment())
    assert {"network.rounds", "training.clip", "seed"} <= set(names)
    assert names == setting_names(Experiment)
    assert len(names) == len(setting_names(NetworkConfig)) + len(setting_names(TrainingConfig)) + 1


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("latent_size", "name=value"),
        ("network.latent=3", "unknown setting 'network.latent'; the names are network.latent_size"),
        ("network=3", "unknown setting 'network'"),
        ("=3", "unknown setting ''"),
        ("network.latent_size=many", "network.latent_size: .*'many'"),
        ("network.latent_size=2.5", "network.latent_size: .*'2.5'"),
        ("network.latent_size=-4", "latent_size must be positive; got -4"),
        ("network.encoder_hidden=8,x", "network.encoder_hidden.1: .*'x'"),
        ("network.encoder_hidden=8,0", "hidden sizes must be positive"),
        ("network.norm=batch", "network.norm: .*'none' or 'layer'.*'batch'"),
        ("network.rounds=often", "network.rounds.*'often'"),
        ("network.rounds=-1", "rounds must be 0 or more, or 'diameter'; got -1"),
        ("network.residual=perhaps", "network.residual: .*'perhaps'"),
        ("training.learning_rate=0", "learning_rate must be positive"),
        ("training.learning_rate=nan", "learning_rate"),
        ("training.learning_rate=inf", "learning_rate"),
        ("training.clip=nan", "clip"),
        ("training.steps=0", "training.steps must be positive"),
        ("training.save_every=0", "save_every must be positive"),
        ("training.warmup=-1", "0 or more"),
        ("training.weight_decay=nan", "weight_decay must be finite"),
    ],
)
def test_wrong_settings_are_named_in_one_line(setting, said):
    with pytest.raises(InputError, match=said) as caught:
        with_settings(Experiment(), [setting])
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("plain", "said"),
    [
        ({"network": {"latent": 3}}, "unknown name network.latent; the names are"),
        ({"sead": 1}, "unknown name sead"),
        ({"network": 3}, "network: .*3"),
        ({"network": None}, "network: "),
        ("text", "text"),
        ([], r"\[\]"),
        (None, "None"),
        ({"network": {"rounds": {}}}, "network.rounds"),
    ],
)
def test_wrong_plain_data_are_named_in_one_line(plain, said):
    with pytest.raises(InputError, match=said) as caught:
        from_plain(Experiment, plain, "a file")
    assert str(caught.value).startswith("a file: ")
    assert "\n" not in str(caught.value)


def test_a_specification_needs_all_its_parts():
    plain = to_plain(SPECIFICATION)
    for missing in ("space", "inputs", "outputs"):
        with pytest.raises(InputError, match=missing):
            from_plain(SFT, {name: value for name, value in plain.items() if name != missing})
    with pytest.raises(InputError, match="lower bound"):
        from_plain(SFT, plain | {"space": {"lower": [0.0, 2.0], "upper": [1.0, 1.0]}})
    with pytest.raises(InputError, match="loss"):
        from_plain(SFT, plain | {"outputs": [{"name": "warmth", "loss": "hinge"}]})
    with pytest.raises(InputError, match=r"unknown name inputs\.0\.chanels"):
        from_plain(SFT, plain | {"inputs": [{"name": "heat", "chanels": 2}]})


@pytest.mark.parametrize(
    "wrong",
    [{"rounds": "often"}, {"latent_size": "a"}, {"rounds": 2.5}, {"norm": "batch"}, {"encoder_hidden": 48}, {"residual": 1}],
)
def test_a_config_refuses_values_of_other_types(unchecked, wrong):
    with pytest.raises(InputError, match=f"^{next(iter(wrong))}: ") as error:
        NetworkConfig(**wrong)
    assert "\n" not in str(error.value)
