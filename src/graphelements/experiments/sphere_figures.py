"""The figures of the experiments on the sphere, drawn from a summary."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ..spaces import Sphere
from ..sphere_meshes import icosahedral_mesh, sphere_mesh
from ..tasks.globes import Globe
from .curve_figures import FAINT, draw_line, finish, label_ends, new_figure
from .sphere_experiments import ICOSAHEDRA, LARGER, SIZES
from .summaries import Summary

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ..meshes import Mesh

HIDDEN = 1e-8  # references below this are exact, and would only squeeze the others


def draw_latitudes(summary: Summary) -> Figure:
    """The paper's figure: the mesh of order 5 on the sphere, and the error against the order."""
    return _draw(summary, (*SIZES, *LARGER), sphere_mesh(Sphere(), 5), "the mesh of order 5, 26 nodes", "order of the mesh")


def draw_icosahedra(summary: Summary) -> Figure:
    """The icosahedral mesh of 162 nodes, and the error against the pieces of each edge."""
    mesh = icosahedral_mesh(Sphere(), 2)
    return _draw(summary, ICOSAHEDRA, mesh, "an icosahedron, edges in 4: 162 nodes", "pieces of each edge")


def _draw(summary: Summary, sizes: tuple[int, ...], mesh: Mesh, title: str, name: str) -> Figure:
    figure, (left, right) = new_figure(2, (11.0, 4.6), summary)
    Globe(left).draw_mesh(mesh)
    left.set_title(title, fontsize=10)
    labels = [draw_line(right, line, sizes) for line in summary["lines"]]
    for label, errors in summary["references"].items():
        value = errors["0"]["mean"]
        if value > HIDDEN:
            right.axhline(value, color=FAINT, linewidth=0.9, linestyle="-" if label == "mean" else (0, (4, 2)))
            labels.append((value, label, FAINT))
    finish(right, sizes, "mean squared error", names=[str(size) for size in sizes])
    right.set_xlabel(name)
    label_ends(right, labels)
    return figure


FIGURES: dict[str, dict[str, Callable[[Summary], Figure | None]]] = {
    "poisson-sphere": {"errors.png": draw_latitudes},
    "scattered-sphere": {"errors.png": draw_icosahedra},
}
