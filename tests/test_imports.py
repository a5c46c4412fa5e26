"""Public names, and what importing the package costs."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

import graphelements


@pytest.mark.parametrize("name", graphelements.__all__)
def test_every_public_name_resolves(name: str) -> None:
    value = getattr(graphelements, name)
    assert value is not None
    assert name in dir(graphelements)
    home = getattr(value, "__module__", None)
    assert home is None or not home.startswith("graphelements") or getattr(sys.modules[home], name) is value


def test_type_checkers_see_the_public_names_and_no_others() -> None:
    tree = ast.parse(Path(graphelements.__file__).read_text())
    (block,) = (node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING")
    seen = {
        (alias.asname or alias.name, node.module)
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert seen == set(graphelements._HOME_OF.items())
    assert {name for name, _ in seen} == set(graphelements.__all__) - {"__version__"}
    assert len(graphelements.__all__) == len(set(graphelements.__all__))


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="'Grid'"):
        graphelements.Grid  # noqa: B018


def loaded_by(module: str) -> set[str]:
    """The top-level modules that a fresh interpreter has after an import."""
    program = f"import json, sys, {module}; print(json.dumps([name.partition('.')[0] for name in sys.modules]))"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return set(json.loads(ended.stdout))


HEAVY = {"matplotlib", "skfem", "lightning_fabric", "fastapi", "uvicorn", "tensorboard", "torch_geometric", "meshio"}


def test_importing_the_package_loads_no_library() -> None:
    assert not loaded_by("graphelements") & (HEAVY | {"torch", "numpy", "scipy", "safetensors", "typer", "rich", "pydantic"})


def test_importing_the_network_loads_neither_figures_nor_solvers_nor_servers() -> None:
    loaded = loaded_by("graphelements.network")
    assert "torch" in loaded
    assert not loaded & HEAVY
