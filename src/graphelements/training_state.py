"""The state of a training run in one file: weights, moments and how many steps are done, so that a run goes on exactly."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from .checkpoints import check_tensors, read_tensors, write_tensors
from .configs import require_types
from .errors import InputError, require
from .files import exists
from .moving_meshes import MovingMeshes
from .muon import Muon
from .sft_network import SFTNetwork

STATE = "state.safetensors"


@dataclass(frozen=True)
class Learning:
    """All that the next step depends on: weights, nodes that learn, and the optimizers' moments."""

    network: SFTNetwork
    of_weights: list[torch.optim.Optimizer]
    moving: MovingMeshes | None

    @property
    def modules(self) -> dict[str, nn.Module]:
        return {"network": self.network, **({} if self.moving is None else {"meshes": self.moving})}

    @property
    def optimizers(self) -> list[torch.optim.Optimizer]:
        return self.of_weights + ([] if self.moving is None else [self.moving.optimizer])

    def tensors(self) -> dict[str, Tensor]:
        tensors = {f"{kind}.{name}": t for kind, module in self.modules.items() for name, t in module.state_dict().items()}
        for which, optimizer in enumerate(self.optimizers):
            for number, state in optimizer.state_dict()["state"].items():
                tensors |= {f"optimizer.{which}.{number}.{name}": value for name, value in state.items()}
        return tensors

    def shapes(self, present: Collection[str]) -> dict[str, torch.Size]:
        """Of all tensors; `present` has the moments that are there, for a parameter that never had a gradient has none."""
        shapes = {f"{kind}.{name}": t.shape for kind, module in self.modules.items() for name, t in module.state_dict().items()}
        for which, optimizer in enumerate(self.optimizers):
            moments = ["momentum_buffer"] if isinstance(optimizer, Muon) else ["exp_avg", "exp_avg_sq", "step"]
            for number, parameter in enumerate(optimizer.param_groups[0]["params"]):
                names = {f"optimizer.{which}.{number}.{m}": torch.Size() if m == "step" else parameter.shape for m in moments}
                shapes |= {name: shape for name, shape in names.items() if name in present}
        return shapes

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        for kind, module in self.modules.items():
            module.load_state_dict({n.removeprefix(f"{kind}."): t for n, t in tensors.items() if n.startswith(f"{kind}.")})
        moments_of: list[dict[int, dict[str, Tensor]]] = [{} for _ in self.optimizers]
        for name, tensor in tensors.items():
            if name.startswith("optimizer."):
                _, which, number, moment = name.split(".")
                moments_of[int(which)].setdefault(int(number), {})[moment] = tensor
        for optimizer, moments in zip(self.optimizers, moments_of, strict=True):
            optimizer.load_state_dict(optimizer.state_dict() | {"state": moments})


@dataclass(frozen=True)
class _Header:
    """What a training state says of itself."""

    step: int
    seconds: float
    training: dict[str, Any]
    tensors: list[str]

    @classmethod
    def read(cls, header: dict[str, Any], path: Path) -> _Header:
        try:
            found = cls(**{name: header[name] for name in ("step", "seconds", "training", "tensors")})
            require_types(found)
            require(0 <= found.step <= found.training["steps"], "more steps are done than the run has")
        except (KeyError, TypeError, InputError):
            raise InputError(f"{path}: the training state is damaged; delete it to start again") from None
        return found


def save_state(learning: Learning, folder: Path, settings: Mapping[str, Any], done: int, seconds: float) -> None:
    """Write the state after so many steps; `settings` are those of the training, as plain data."""
    tensors = learning.tensors()
    header = {"step": done, "seconds": seconds, "training": settings, "tensors": sorted(tensors)}
    write_tensors(folder / STATE, tensors, "training state", header)


def resume(learning: Learning, folder: Path, settings: Mapping[str, Any]) -> tuple[int, float]:
    """Take up the state in the folder: how many steps are done and how many seconds they took."""
    path = folder / STATE
    if not exists(path):
        return 0, 0.0
    tensors, header = read_tensors(path, "training state")
    state = _Header.read(header, path)
    changed = sorted(name for name, value in settings.items() if value != state.training.get(name))
    require(
        not changed,
        f"{folder} holds a run with other training settings ({', '.join(changed)}); repeat them or train into another folder",
    )
    shapes = learning.shapes(state.tensors)
    require(set(state.tensors) == set(shapes), f"{path}: the training state is of another network; train into another folder")
    check_tensors(shapes, tensors, path)
    learning.load(tensors)
    return state.step, state.seconds
