"""What samples of equal values stand for together: the box around them.

Of a function that has pieces of one value each, such as heaters, samples are not a quadrature: all samples of a piece say the
same, and what they say together is where the piece is.
"""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from .errors import require
from .neighbours import nearest, places_in_groups
from .sample_cells import THINNEST, Cells, sample_cells
from .samples import FunctionSamples
from .spaces import Space

ON_SIDE = 1e-6  # of the unit of length: samples so near to a box are in it


def sample_boxes(samples: FunctionSamples, num_items: int, space: Space, compiled: bool = False) -> tuple[FunctionSamples, Cells]:
    """A function's samples of equal values made one, in the middle of the box around them, and these boxes as cells.

    Samples of one item and value are one piece if neighbours lead from each to all others, as from those of one heater to each
    other (`_pieces`). Where two boxes of an item overlap, one covers the other, and what they share is counted twice: it is a
    further box, with the negative value of the one that is covered there. Samples in it tell which one that is; if they disagree,
    both are by their shares, and by halves if there are none. That is not exact where three boxes overlap, nor where a whole side
    of a piece is covered, so that its box is too small. A sample that has no equal stays where it is; its cell is that among its
    nearest fellows, as in `sample_cells`, its box has no width.
    """
    piece = _pieces(samples, compiled)
    counts, rows = torch.bincount(piece), piece[:, None].expand_as(samples.points)
    like = samples.points.new_zeros(len(counts), samples.points.shape[-1])
    low = like.scatter_reduce(0, rows, samples.points, "amin", include_self=False)
    high = like.scatter_reduce(0, rows, samples.points, "amax", include_self=False)
    member = torch.zeros_like(counts).scatter_(0, piece, torch.arange(len(piece), device=piece.device))  # any one of each
    values, items = samples.values[member], samples.items[member]

    first, second = _overlaps(low, high, items, THINNEST * space.unit_length)
    require(
        len(first) <= len(samples.points),
        f"boxes of samples are for functions with pieces of one value; got {len(samples.points)} samples, and boxes around those "
        f"of equal values that overlap {len(first)} times: set network.samples_see=cell",
    )
    least, most = torch.maximum(low[first], low[second]), torch.minimum(high[first], high[second])
    near = ON_SIDE * space.unit_length
    of_first, of_second = (_inside(samples.points, piece, of, least - near, most + near) for of in (first, second))
    told = of_first + of_second
    covered = torch.where(told > 0, of_second / told.clamp(min=1), 0.5).to(values)[:, None]  # how much of the first one
    low, high = torch.cat([low, least]), torch.cat([high, most])
    values = torch.cat([values, torch.lerp(-values[second], -values[first], covered)])

    widths = (high - low) / space.unit_length
    log_sizes = widths.clamp(min=THINNEST).log()
    alone = torch.nonzero(counts == 1)[:, 0]
    if len(alone) > 0:
        (cells,) = sample_cells([samples], num_items, space, compiled)
        log_sizes = log_sizes.index_copy(0, alone, cells.log_sizes[member[alone]])
    return FunctionSamples((low + high) / 2, values, torch.cat([items, items[first]])), Cells(log_sizes, widths)


def _pieces(samples: FunctionSamples, compiled: bool) -> Int[Tensor, " samples"]:
    """The number of each sample's piece; those of an item follow each other.

    Every sample is joined to as many of the nearest of its item and value as a place of a grid has along its axes, 2 dim.
    """
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    alike = torch.unique(samples.items, return_inverse=True)[1]
    for values in samples.values.unbind(-1):  # one after the other: many times faster than unique rows
        level = torch.unique(values, return_inverse=True)[1]
        alike = torch.unique(alike * len(level) + level, return_inverse=True)[1]
    num, dim = samples.points.shape
    counts = torch.bincount(alike)
    if num == 0 or int(counts.max()) <= 2 * dim + 1:  # all are joined
        return alike
    order = alike.argsort(stable=True)
    points, groups = samples.points[order], alike[order]
    found = nearest(points, groups, points, counts.cumsum(0) - counts, counts.tolist(), 2 * dim + 1, compiled).cpu().numpy()
    rows, columns = np.nonzero(found >= 0)
    graph = coo_array((np.ones(len(rows), bool), (rows, found[rows, columns])), (num, num))
    parts = torch.as_tensor(connected_components(graph, directed=False)[1], dtype=torch.long, device=alike.device)
    return torch.unique(groups * num + parts, return_inverse=True)[1][order.argsort()]


def _overlaps(
    low: Float[Tensor, "boxes dim"], high: Float[Tensor, "boxes dim"], items: Int[Tensor, " boxes"], least: float
) -> tuple[Int[Tensor, " pairs"], Int[Tensor, " pairs"]]:
    """All pairs of boxes of one item that share more than `least` along every axis; boxes of an item follow each other."""
    boxes = torch.nonzero((high - low > least).all(-1))[:, 0]
    ends = torch.bincount(items[boxes]).cumsum(0)[items[boxes]]
    later = ends - torch.arange(len(boxes), device=boxes.device) - 1  # how many of the same item come after each
    first = torch.repeat_interleave(later)
    first, second = boxes[first], boxes[first + 1 + places_in_groups(later)]
    kept = (torch.minimum(high[first], high[second]) - torch.maximum(low[first], low[second]) > least).all(-1)
    return first[kept], second[kept]


def _inside(
    points: Float[Tensor, "samples dim"],
    piece: Int[Tensor, " samples"],
    of: Int[Tensor, " boxes"],
    low: Float[Tensor, "boxes dim"],
    high: Float[Tensor, "boxes dim"],
) -> Int[Tensor, " boxes"]:
    """How many samples of the piece `of` lie in each box."""
    counts = torch.bincount(piece)
    starts = (counts.cumsum(0) - counts)[of]
    box = torch.repeat_interleave(counts[of])
    members = points[piece.argsort()[starts[box] + places_in_groups(counts[of])]]
    inside = ((members >= low[box]) & (members <= high[box])).all(-1)
    return torch.zeros_like(of).index_add(0, box, inside.to(of))
