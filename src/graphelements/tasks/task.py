"""What the command line and the experiments need to know of a task."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar

import numpy as np

from ..checkpoints import Checkpoint
from ..configs import require_types
from ..errors import InputError, require
from ..functions import SFT
from ..meshes import Mesh, MeshConfig
from ..moving_meshes import MovingMeshes
from ..network import GraphElementNetwork
from ..network_config import AnyNetworkConfig, AttentionConfig, NetworkConfig
from ..samples import SFTBatch
from ..sft_network import SFTNetwork
from ..training import BatchOf, TrainingConfig

Data = TypeVar("Data")
Symmetry = Literal["square", "rotation", "sign", "scale", "shift"]


@dataclass(frozen=True)
class BatchConfig:
    """What a training step sees: so many items (houses) and scenarios of each, a few queries of those, one of the resolutions.

    With `meshes` above 1 the items of a step are spread over so many meshes, each of its own resolution; a share
    `random_meshes` of them are scattered, jittered or graded meshes of as many nodes. In a share `large_share` of the steps
    the meshes have `large_resolutions`, and fewer items. Nested meshes have coarser ones behind them by one of the
    `nesting_ratios`; ratios below 2 make deeper nests, from which a network learns to be at home in yet deeper ones.
    `symmetries` of the problem are used as augmentation where the task has them. `inputs` are the functions that the network is
    given, those that the task usually gives if none are named; with `integrated` it answers for the whole space where
    it could also answer at points. With `moving_starts`, every item (house) has so
    many meshes of every resolution for itself, whose nodes learn at a rate of `moving_rate` (paper A.4), and no others.
    """

    items: int = 64
    scenarios: int = 2
    queries: int = 64
    resolutions: tuple[int, ...] = (2, 3, 4, 5, 6, 7)
    meshes: int = 1
    random_meshes: float = 0.0
    large_resolutions: tuple[int, ...] = ()
    large_share: float = 0.0
    nesting_ratios: tuple[float, ...] = (2.0,)
    symmetries: tuple[Symmetry, ...] = ()
    inputs: tuple[str, ...] = ()
    integrated: bool = False
    moving_starts: int = 0
    moving_rate: float = 3e-4

    def __post_init__(self) -> None:
        require_types(self)
        numbers = (self.items, self.scenarios, self.queries, self.meshes)
        require(min(numbers) > 0, "batches.items, scenarios, queries and meshes must be positive")
        require(self.moving_starts >= 0, f"batches.moving_starts must be 0 or more; got {self.moving_starts}")
        require(0 < self.moving_rate < math.inf, f"batches.moving_rate must be positive; got {self.moving_rate}")
        for name in ("random_meshes", "large_share"):
            require(0 <= getattr(self, name) <= 1, f"batches.{name} is a share, from 0 to 1; got {getattr(self, name)}")
        require(
            min(self.large_resolutions, default=1) > 0 and (len(self.large_resolutions) > 0 or self.large_share == 0),
            "batches.large_share needs batches.large_resolutions, positive ones; "
            f"got {self.large_share} and {self.large_resolutions}",
        )
        require(
            len(self.nesting_ratios) > 0 and min(self.nesting_ratios) > 1,
            f"batches.nesting_ratios must be above 1; got {self.nesting_ratios}",
        )
        require(
            len(self.resolutions) > 0 and min(self.resolutions) > 0,
            f"batches.resolutions must be positive; got {self.resolutions}",
        )


@dataclass(frozen=True)
class RunConfig:
    """Everything that decides a training run, besides data and seed."""

    network: AnyNetworkConfig = NetworkConfig()
    mesh: MeshConfig = MeshConfig()
    batches: BatchConfig = BatchConfig()
    training: TrainingConfig = TrainingConfig()


@dataclass(frozen=True)
class Score:
    """The error of a method at one resolution: mean and standard deviation over items (houses), and each item's own."""

    method: str
    resolution: int
    nodes: int
    mse_mean: float
    mse_std: float
    seconds_per_scenario: float
    mse_of_item: tuple[float, ...] = field(default=(), repr=False)


class Task(ABC, Generic[Data]):
    """A named SFT with data to load or generate, presets, meshes and scores. Abstract; tasks are final.

    `symmetries`: those that its training batches can be augmented by; `resolutions`: those that networks are scored at if none
    are named.
    """

    name: str
    sft: SFT
    presets: Mapping[str, RunConfig]
    symmetries: tuple[Symmetry, ...]
    resolutions: tuple[int, ...] = (2, 3, 4, 5, 6, 7)

    @abstractmethod
    def generate(self, path: Path, num: int, seed: int, source: Path | None = None) -> Iterator[int]:
        """Make a data file of `num` items (houses), or where the task can do that, of those that `source` names; yields how many
        are done."""

    @abstractmethod
    def load(self, path: Path, subset: str = "all") -> Data:
        """The data at a path; `subset` is "all", "train", "test" or numbers such as 0-9,12."""

    @abstractmethod
    def held_out(self, data: Data) -> list[int]:
        """The numbers of the items (houses) that are of the test split."""

    @abstractmethod
    def describe(self, data: Data) -> dict[str, Any]:
        """What is in the data, for people."""

    @abstractmethod
    def split(self, data: Data, fraction: float, seed: int) -> tuple[Data, Data | None]:
        """Training and validation data, whole items (houses) each."""

    @abstractmethod
    def batch_of(self, data: Data, config: RunConfig, seed: int, moving: MovingMeshes | None = None) -> BatchOf:
        """Training batches as a pure function of the step, and of where the nodes of `moving` are."""

    def checked(self, config: RunConfig) -> RunConfig:
        """The config, if this task has the symmetries that it asks for."""
        unknown = set(config.batches.symmetries) - set(self.symmetries)
        ours = ", ".join(self.symmetries) or "none"
        require(not unknown, f"batches.symmetries of {self.name} are {ours}; got {', '.join(sorted(unknown))} besides")
        return config

    def sft_of(self, config: RunConfig) -> SFT:
        """What a network of this config learns: the task, with the inputs that it is given."""
        require(not config.batches.inputs, f"networks for {self.name} are given all inputs; leave out batches.inputs")
        require(not config.batches.integrated, f"networks for {self.name} answer at points; leave out batches.integrated")
        return self.sft

    def given(self, data: Data, sft: SFT) -> Data:
        """The data with what a network of this SFT is given."""
        return data

    def refuse(self, source: Path | None) -> None:
        """Say that the task makes its items itself."""
        require(source is None, f"{self.name} draws its houses at random; leave out --source")

    def moving_meshes(self, data: Data, config: RunConfig, seed: int) -> MovingMeshes | None:
        """The meshes of all items if a config asks for some that learn."""
        require(config.batches.moving_starts == 0, f"{self.name} has no meshes that move; leave out batches.moving_starts")
        return None

    @abstractmethod
    def all_of(self, data: Data) -> list[SFTBatch]:
        """All samples and targets of the data, for fitting the normalisation."""

    @abstractmethod
    def validator(self, data: Data, config: RunConfig) -> Callable[[SFTNetwork], Mapping[str, float]]:
        """A function from a network to its error on these data, per resolution of the config."""

    @abstractmethod
    def mesh(self, config: MeshConfig, resolution: int) -> Mesh:
        """The regular mesh of a resolution."""

    @abstractmethod
    def evaluate(
        self,
        checkpoint: Checkpoint,
        data: Data,
        resolutions: tuple[int, ...],
        progress: Callable[[str], None] = lambda _: None,
        mesh: Mesh | None = None,
    ) -> list[Score]:
        """Scores of a network and of the task's references; on a `mesh` of one's own besides, with a resolution of 0."""


def score(method: str, resolution: int, nodes: int, errors: np.ndarray, seconds: float) -> Score:
    """A score from the error of every item."""
    return Score(method, resolution, nodes, float(errors.mean()), float(errors.std()), seconds, tuple(errors.tolist()))


def method_of(network: SFTNetwork) -> Literal["gen", "np", "attention"]:
    """What scores call a network. A neural process has no rounds, and positions instead of nodes tell it where things are."""
    config = network.config
    if isinstance(config, AttentionConfig):
        return "attention"
    return "np" if config.rounds == 0 and config.encoder_sees == config.decoder_sees == "position" else "gen"


def meshed_network(checkpoint: Checkpoint, source: str) -> GraphElementNetwork:
    """The network of a checkpoint if it runs on meshes that can adapt."""
    kind = method_of(checkpoint.network)
    require(kind == "gen", f"{source} has no mesh to adapt: it is of the kind {kind}")
    assert isinstance(checkpoint.network, GraphElementNetwork)
    return checkpoint.network


def split_numbers(numbers: Sequence[int], fraction: float, seed: int) -> tuple[list[int], list[int]]:
    """Numbers to train on and a fraction of them, drawn at random, that is held out."""
    require(0 <= fraction < 1, f"the validation fraction must be at least 0 and below 1; got {fraction}")
    num = round(fraction * len(numbers)) if len(numbers) > 1 else 0
    require(num < len(numbers), f"a validation fraction of {fraction} leaves none of {len(numbers)} houses to train on; lower it")
    order = np.random.default_rng(seed).permutation(numbers).tolist() if num else list(numbers)
    return sorted(order[num:]), sorted(order[:num])


def parse_numbers(text: str) -> list[int]:
    """House numbers such as 0-9,12,40-49."""
    numbers: list[int] = []
    for part in text.split(","):
        first, dash, last = part.partition("-")
        try:
            wanted = range(int(first), int(last if dash else first) + 1)
        except ValueError:
            raise InputError(f"houses are 'all', 'train', 'test' or numbers such as 0-9,12; got {text!r}") from None
        require(wanted.start < wanted.stop, f"houses {part!r} name no house; write ranges low-high")
        require(wanted.stop - wanted.start <= 10**6, f"houses {part!r} name more than a million houses; write a smaller range")
        numbers += wanted
    return list(dict.fromkeys(numbers))
