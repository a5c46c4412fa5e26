"""The nearest sites of every point, within its own item."""

from __future__ import annotations

from typing import NamedTuple, no_type_check

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from .compilation import run

DENSE_SITES = 128
TIES = 8  # among so many more than asked for the tree looks for equally near ones


def nearest(
    points: Float[Tensor, "points dim"],
    point_items: Int[Tensor, " points"],
    sites: Float[Tensor, "sites dim"],
    starts: Int[Tensor, " items"],
    counts: list[int],
    num: int,
    compiled: bool = False,
) -> Int[Tensor, "points num"]:
    """Indices of the `num` nearest sites (by straight distance) of each point, nearest first, of equally near ones the first;
    -1 where its item has fewer.

    The sites of item i are the rows from `starts[i]`, `counts[i]` of them. Small items are searched on the device by a table of
    distances, large ones by one k-d tree in which items lie far apart along an extra axis.
    """
    points, sites = points.detach(), sites.detach()
    most = max(counts)
    if most > DENSE_SITES:
        return _tree_search(points, point_items, sites, counts, num)
    columns = torch.arange(most, device=points.device)
    rows = starts[:, None] + columns  # items, most
    filled = columns < torch.tensor(counts, device=points.device)[:, None]
    tables = torch.where(filled, sites.T[:, rows.clamp(max=len(sites) - 1)], torch.inf)  # dim, items, most
    kept = min(num, most)
    near, slots = _smallest(run(_squared_distances, points, point_items, tables, compiled=compiled), kept)
    found = torch.where(near < torch.inf, starts[point_items][:, None] + slots, -1)
    return torch.nn.functional.pad(found, (0, num - kept), value=-1)


@no_type_check  # the compiler cannot see through the shape checks of the tests
def _squared_distances(
    points: Float[Tensor, "points dim"], items: Int[Tensor, " points"], tables: Float[Tensor, "dim items most"]
) -> Float[Tensor, "points most"]:
    squared = 0.0
    for x, table in zip(points.unbind(-1), tables.unbind(0), strict=True):  # by coordinate: much faster than one sum over them
        squared = squared + (x[:, None] - table[items]).square()
    return squared


def _smallest(distances: Float[Tensor, "points most"], num: int) -> tuple[Float[Tensor, "points num"], Int[Tensor, "points num"]]:
    """The smallest of every row and their columns; of equals the first, where `topk` takes any, by the width of its table."""
    if distances.dtype != torch.float32:
        near, slots = distances.sort(stable=True)
        return near[:, :num], slots[:, :num]
    columns = torch.arange(distances.shape[1], device=distances.device)
    keys = (distances.view(torch.int32).long() << 32) + columns  # bits of floats that are not negative are ordered as they are
    slots = keys.topk(num, largest=False).values & 0xFFFFFFFF
    return distances.gather(1, slots), slots


def _tree_search(
    points: Float[Tensor, "points dim"],
    point_items: Int[Tensor, " points"],
    sites: Float[Tensor, "sites dim"],
    counts: list[int],
    num: int,
) -> Int[Tensor, "points num"]:
    from scipy.spatial import KDTree

    site_items = torch.arange(len(counts), device=sites.device).repeat_interleave(torch.tensor(counts, device=sites.device))
    if len(sites) == 0 or len(points) == 0:
        return torch.full((len(points), num), -1, device=points.device)
    reach = 4.0 * float((sites.max(0).values - sites.min(0).values).norm() + (points - sites[0]).norm(dim=-1).max() + 1.0)
    lifted = [
        torch.cat([x.double(), i.double()[:, None] * reach], -1).cpu().numpy()
        for x, i in ((points, point_items), (sites, site_items))
    ]
    _, found = KDTree(lifted[1]).query(lifted[0], k=np.arange(1, num + TIES + 1), workers=-1)  # type: ignore[arg-type]
    found = torch.as_tensor(found, dtype=torch.long, device=points.device)
    rows = found.clamp(max=len(sites) - 1)
    missing = (found >= len(sites)) | (site_items[rows] != point_items[:, None])
    found, order = torch.where(missing, len(sites), found).sort()  # of equally near ones the first, as in a table of distances
    squared = sum((points[:, None, axis] - sites[:, axis][rows.gather(1, order)]).square() for axis in range(points.shape[1]))
    squared = torch.where(found == len(sites), torch.inf, squared)
    near, slots = _smallest(squared, num)
    return torch.where(near < torch.inf, found.gather(1, slots), -1)


class ByItem(NamedTuple):
    """Which rows every item has: those in `order` from its start on, `counts` of them. Where no item has more than are asked for,
    a `table` of them besides, -1 in its empty slots."""

    order: Int[Tensor, " rows"]
    starts: Int[Tensor, " items"]
    counts: Int[Tensor, " items"]
    table: Int[Tensor, "items most"] | None

    @staticmethod
    def of(items: Int[Tensor, " rows"], num_items: int, most_in_table: int) -> ByItem:
        """From the item of every row."""
        order, counts = items.argsort(stable=True), torch.bincount(items, minlength=num_items)
        starts, most, table = counts.cumsum(0) - counts, int(counts.max()), None
        if 0 < most <= most_in_table:
            slots = torch.arange(most, device=items.device)
            rows = order[(starts[:, None] + slots).clamp(max=len(order) - 1)]
            table = torch.where(slots < counts[:, None], rows, -1)
        return ByItem(order, starts, counts, table)
