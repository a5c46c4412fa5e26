"""Checkpoints: one safetensors file whose header holds, as JSON, all that rebuilds the network. Never a pickle."""

from __future__ import annotations

import json
import platform
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ._version import __version__
from .building import build_network
from .configs import from_plain, to_plain
from .errors import InputError, require
from .files import exists, replaced
from .functions import SFT
from .meshes import MeshConfig
from .network_config import AnyNetworkConfig
from .sft_network import SFTNetwork

FORMAT = 1
SHIPPED = Path(__file__).parent / "models"


@dataclass(frozen=True)
class Checkpoint:
    """A network with what is needed to use it again: how its meshes are built, its task, how it was trained."""

    network: SFTNetwork
    mesh: MeshConfig = MeshConfig()
    task: str | None = None
    training: dict[str, Any] = field(default_factory=dict)


def save(checkpoint: Checkpoint | SFTNetwork, path: Path | str) -> None:
    """Write a checkpoint or a bare network to `path`, replacing what was there only when complete."""
    if isinstance(checkpoint, SFTNetwork):
        checkpoint = Checkpoint(checkpoint)
    network = checkpoint.network
    header = {
        "sft": to_plain(network.sft),
        "network": to_plain(network.config),
        "mesh": to_plain(checkpoint.mesh),
        "task": checkpoint.task,
        "training": checkpoint.training,
        "versions": {"graphelements": __version__, "torch": torch.__version__, "python": platform.python_version()},
    }
    write_tensors(path, network.state_dict(), "checkpoint", header)


def load(source: Path | str) -> SFTNetwork:
    """The network of a checkpoint file, or of a shipped model by its name; ready to predict."""
    return load_checkpoint(source).network


def load_checkpoint(source: Path | str) -> Checkpoint:
    """The checkpoint in a file, or a shipped one by its name."""
    path = Path(source)
    if not exists(path) and not path.suffix and len(path.parts) == 1:
        shipped = sorted(p.stem for p in SHIPPED.glob("*.safetensors"))
        require(
            path.name in shipped,
            f"no checkpoint file and no shipped model is called {source}; "
            f"shipped models: {', '.join(shipped) or 'none in this version'}",
        )
        path = SHIPPED / f"{source}.safetensors"
    tensors, header = read_tensors(path, "checkpoint")
    try:
        plain = {name: header[name] for name in ("sft", "network", "mesh")}
    except KeyError as error:
        raise InputError(f"{path}: the checkpoint's header has no {error.args[0]!r}; it is damaged, save it again") from None
    sft = from_plain(SFT, plain["sft"], f"{path}: sft")
    config = from_plain(AnyNetworkConfig, plain["network"], f"{path}: network")
    mesh = from_plain(MeshConfig, plain["mesh"], f"{path}: mesh")
    task, training = header.get("task"), header.get("training") or {}
    require(task is None or isinstance(task, str), f"{path}: task must be a name; got {task!r}")
    require(isinstance(training, dict), f"{path}: training must be a dictionary; got {training!r}")
    try:
        with torch.device("meta"):  # a damaged header costs no memory: shapes are compared first
            network = build_network(sft, config)
    except (InputError, RuntimeError) as error:
        raise InputError(f"{path}: network: {str(error).splitlines()[0]}") from None
    check_tensors({name: tensor.shape for name, tensor in network.state_dict().items()}, tensors, path)
    network.load_state_dict({name: tensor.clone() for name, tensor in tensors.items()}, assign=True)  # keeps their precision
    return Checkpoint(network.eval(), mesh, task, training)


def check_tensors(shapes: dict[str, torch.Size], tensors: dict[str, Tensor], path: Path) -> None:
    """Check that there are exactly the tensors of these names and shapes, all finite."""
    wrong = sorted(set(shapes) ^ set(tensors))
    require(
        not wrong,
        f"{path}: tensors and configuration disagree, first at {wrong[0] if wrong else ''}; of another version, or damaged",
    )
    for name, tensor in tensors.items():
        shape = tuple(shapes[name])
        require(tuple(tensor.shape) == shape, f"{path}: {name} must have shape {shape}; got {tuple(tensor.shape)}")
        require(
            bool(tensor.isfinite().all()),
            f"{path}: {name} has NaN or infinite numbers; the training diverged or the file is damaged",
        )


def write_tensors(path: Path | str, tensors: dict[str, Tensor], kind: str, header: dict[str, Any]) -> None:
    """Tensors and a JSON header in one safetensors file of ours."""
    from safetensors.torch import save_file

    metadata = {"format": "pt", "graphelements": json.dumps({"kind": kind, "format": FORMAT, **header})}
    with replaced(path) as temporary:
        save_file({name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}, temporary, metadata)


def read_tensors(path: Path | str, kind: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Tensors and header of a safetensors file of ours, or one clear line about what is wrong with it."""
    from safetensors import SafetensorError, safe_open

    path = Path(path)
    require(exists(path), f"{path} does not exist; give the path of a {kind} or the name of a shipped model")
    require(path.is_file(), f"{path} is a directory; give the .safetensors file in it")
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, ValueError) as error:
        raise InputError(
            f"{path} is not a readable safetensors file ({str(error).splitlines()[0]}); pickled .pt or .pth files are never read"
        ) from None
    require(
        "graphelements" in metadata,
        f"{path} is a safetensors file, but not one of graphelements: its header has no configuration",
    )
    try:
        header = json.loads(metadata["graphelements"])
    except (json.JSONDecodeError, RecursionError):
        raise InputError(f"{path}: the header is not valid JSON; the file is damaged") from None
    require(isinstance(header, dict) and header.get("kind") == kind, f"{path} is not a {kind} of graphelements")
    require(
        isinstance(header.get("format"), int) and header["format"] <= FORMAT,
        f"{path} has format {header.get('format')}, this version reads up to {FORMAT}; update graphelements",
    )
    return tensors, header
