"""Tasks: an SFT made concrete, with data, default meshes, presets, a metric and baselines."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from ..errors import choose

if TYPE_CHECKING:
    from .task import Task

TASKS = {
    "poisson-square": "Heat in square houses: heaters and border temperature -> temperature anywhere (paper section 4.1)",
    "poisson-sphere": "The Poisson problem on a sphere: the Laplacian at scattered points -> the solution anywhere (paper A.3)",
    "pushing": "Objects pushed by a robot: a picture from above and the push -> how the object moves (paper section 4.2)",
    "scattered-sphere": "Stations on a sphere, dense on land and sparse at sea: a field measured there -> the field anywhere",
}
"""Name and summary of every task; each is the `TASK` of the module of its name."""


def get_task(name: str) -> Task:
    """The task of a name."""
    choose("the task", name, TASKS)
    return import_module(f".{name.replace('-', '_')}", __name__).TASK
