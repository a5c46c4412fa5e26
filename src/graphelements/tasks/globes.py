"""Pictures of the sphere from afar: meshes, stations and fields on the half that one sees."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from ..meshes import Mesh

if TYPE_CHECKING:
    from matplotlib.axes import Axes

VIEW = (25.0, 20.0)  # latitude and longitude of the eye, in degrees


class Globe:
    """A sphere in axes, seen from the latitude and longitude of `view`."""

    def __init__(self, axes: Axes, view: tuple[float, float] = VIEW, radius: float = 1.0) -> None:
        from matplotlib.patches import Circle

        latitude, longitude = np.radians(view)
        self.axes, self.radius = axes, radius
        east = np.array([-np.sin(longitude), np.cos(longitude), 0.0])
        towards = np.array([np.cos(latitude) * np.cos(longitude), np.cos(latitude) * np.sin(longitude), np.sin(latitude)])
        self.frame = np.stack([east, np.cross(towards, east), towards])
        axes.add_patch(Circle((0, 0), 1.0, facecolor="#f4f4f4", edgecolor="#777777", linewidth=0.8, zorder=0))
        axes.set(xlim=(-1.05, 1.05), ylim=(-1.05, 1.05), aspect="equal")
        axes.axis("off")

    def seen(self, points: Float[np.ndarray, "n 3"]) -> Float[np.ndarray, "n 3"]:
        """To the right, up, and towards the eye: above 0 on the half that one sees."""
        return np.asarray(points, dtype=float) / self.radius @ self.frame.T

    def draw_field(
        self, field: Callable[[Float[np.ndarray, "n 3"]], Float[np.ndarray, " n"]], pixels: int = 200, **style: Any
    ) -> Any:
        """Colours of a function of points (n, 3) of the sphere."""
        line = np.linspace(-1, 1, pixels)
        x, y = np.meshgrid(line, line)
        inside = x**2 + y**2 <= 1
        towards = np.sqrt(np.clip(1 - x**2 - y**2, 0, None))
        points = np.stack([x, y, towards], -1)[inside] @ self.frame
        shown = np.full(x.shape, np.nan)
        shown[inside] = field(self.radius * points / np.linalg.norm(points, axis=1, keepdims=True))
        return self.axes.imshow(shown, origin="lower", extent=(-1, 1, -1, 1), zorder=1, **style)

    def draw_points(self, points: Float[np.ndarray, "n 3"], **style: Any) -> Any:
        """Those of the points that one sees; an array in the style has a row for each point."""
        places = self.seen(points)
        chosen = places[:, 2] > 0
        style = {name: value[chosen] if isinstance(value, np.ndarray) else value for name, value in style.items()}
        return self.axes.scatter(places[chosen, 0], places[chosen, 1], zorder=3, **style)

    def draw_mesh(self, mesh: Mesh, **style: Any) -> None:
        """Nodes, and edges along great circles, fainter behind."""
        from matplotlib.collections import LineCollection

        positions = mesh.positions.detach().double().numpy() / self.radius
        pairs = np.stack([mesh.senders.numpy(), mesh.receivers.numpy()], 1)
        ends = positions[pairs[pairs[:, 0] < pairs[:, 1]]]
        shares = np.linspace(0, 1, 13)[:, None, None]
        along = (1 - shares) * ends[:, 0] + shares * ends[:, 1]  # of opposite nodes there is none
        lengths = np.linalg.norm(along, axis=-1, keepdims=True)
        paths = (along / np.maximum(lengths, 1e-6)).transpose(1, 0, 2)[(lengths > 1e-3).all((0, 2))]
        pieces = np.stack([paths[:, :-1], paths[:, 1:]], 2).reshape(-1, 2, 3) @ self.frame.T
        for behind in (True, False):
            chosen = pieces[(pieces[:, :, 2].mean(1) < 0) == behind][:, :, :2]
            lines = LineCollection(list(chosen), colors=style.get("color", "#0072B2"), linewidths=0.9, zorder=2)
            lines.set_alpha(0.15 if behind else 0.9)
            self.axes.add_collection(lines)
        self.draw_points(mesh.positions.detach().double().numpy(), s=14, color=style.get("color", "#0072B2"))
