"""Graph Element Networks: learn maps between functions on a space from scattered samples, on any mesh.

Public names in the order of the pipeline; they are imported when first used, so that importing the package is cheap.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from ._version import __version__

if TYPE_CHECKING:
    from .adaptation import AdaptationConfig, AdaptedMesh, adapt_mesh
    from .attention import AttentionNetwork
    from .building import build_network, num_weights
    from .cell_representations import Barycentric, Multilinear
    from .checkpoints import Checkpoint, load, load_checkpoint, save
    from .errors import InputError
    from .functions import SFT, InputFunction, OutputFunction
    from .mesh_files import load_mesh, save_mesh
    from .mesh_growth import GrowthConfig, grow_mesh, mesh_for_inputs
    from .mesh_quality import MeshReport, inspect_mesh
    from .meshes import Mesh, MeshConfig, grid_mesh, mesh_at, scattered_mesh
    from .network import GraphElementNetwork
    from .network_config import ATTENTION, DEFAULT, NEURAL_PROCESS, PAPER, AttentionConfig, NetworkConfig
    from .random_meshes import random_mesh
    from .representations import Coupling, NearestNodes, Representation, SoftNearest
    from .samples import FunctionSamples, Queries, SFTBatch, collate
    from .sft_network import SFTNetwork
    from .spaces import Box, Space, Sphere
    from .sphere_meshes import icosahedral_mesh, sphere_mesh
    from .tasks import get_task
    from .tasks.globes import Globe
    from .topology import Edges, delaunay_edges, grid_edges, hop_diameter, multiscale_edges, radius_edges
    from .training import Report, TrainingConfig, fit, item_errors
    from .unions import MeshUnion, union

_HOMES = {
    "errors": ("InputError",),
    "spaces": ("Space", "Box", "Sphere"),
    "samples": ("FunctionSamples", "Queries", "SFTBatch", "collate"),
    "functions": ("InputFunction", "OutputFunction", "SFT"),
    "topology": ("Edges", "grid_edges", "delaunay_edges", "radius_edges", "multiscale_edges", "hop_diameter"),
    "meshes": ("Mesh", "MeshConfig", "grid_mesh", "scattered_mesh", "mesh_at"),
    "sphere_meshes": ("sphere_mesh", "icosahedral_mesh"),
    "unions": ("MeshUnion", "union"),
    "mesh_quality": ("inspect_mesh", "MeshReport"),
    "random_meshes": ("random_mesh",),
    "representations": ("Representation", "Coupling", "SoftNearest", "NearestNodes"),
    "cell_representations": ("Multilinear", "Barycentric"),
    "network_config": ("NetworkConfig", "AttentionConfig", "PAPER", "DEFAULT", "NEURAL_PROCESS", "ATTENTION"),
    "sft_network": ("SFTNetwork",),
    "attention": ("AttentionNetwork",),
    "network": ("GraphElementNetwork",),
    "building": ("build_network", "num_weights"),
    "training": ("fit", "TrainingConfig", "Report", "item_errors"),
    "mesh_files": ("save_mesh", "load_mesh"),
    "adaptation": ("adapt_mesh", "AdaptationConfig", "AdaptedMesh"),
    "mesh_growth": ("mesh_for_inputs", "grow_mesh", "GrowthConfig"),
    "checkpoints": ("save", "load", "Checkpoint", "load_checkpoint"),
    "tasks": ("get_task",),
    "tasks.globes": ("Globe",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = list(_HOME_OF)  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> object:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'graphelements' has no attribute {name!r}")
    globals()[name] = value = getattr(import_module(f".{_HOME_OF[name]}", __name__), name)
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
