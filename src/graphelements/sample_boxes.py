"""What samples of equal values stand for together: the box around them.

Of a function that has pieces of one value each, such as heaters, samples are not a quadrature: all samples of a piece say the
same, and what they say together is where the piece is.
"""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from .errors import require
from .neighbours import nearest
from .sample_cells import THINNEST, Cells, sample_cells
from .samples import FunctionSamples
from .spaces import Space

MOST_PAIRS = 2**21  # of samples that are looked at before a search
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
    if len(samples.points) == 0:
        return samples, Cells(samples.points, samples.points)
    order, starts = _pieces(samples, compiled)
    counts, device = np.diff(starts, append=len(order)), samples.points.device
    piece = np.empty_like(order)
    piece[order] = np.arange(len(counts)).repeat(counts)
    rows = torch.as_tensor(piece, device=device)[:, None].expand_as(samples.points)
    like = samples.points.new_zeros(len(counts), samples.points.shape[-1])
    low = like.scatter_reduce(0, rows, samples.points, "amin", include_self=False)
    high = like.scatter_reduce(0, rows, samples.points, "amax", include_self=False)
    member = torch.as_tensor(order[starts], device=device)  # any one of each
    values, items = samples.values[member], samples.items[member]

    pairs = _overlaps(_array(low), _array(high), _array(items), THINNEST * space.unit_length)
    require(
        pairs.shape[1] <= len(order),
        f"boxes of samples are for functions with pieces of one value; got {len(order)} samples, and boxes around those "
        f"of equal values that overlap {pairs.shape[1]} times: set network.samples_see=cell",
    )
    if pairs.shape[1] > 0:
        first, second = torch.as_tensor(pairs, device=device)
        least, most = torch.maximum(low[first], low[second]), torch.minimum(high[first], high[second])
        near, places = ON_SIDE * space.unit_length, _array(samples.points)[order]
        told = np.stack([_num_inside(places, starts[of], counts[of], _array(least - near), _array(most + near)) for of in pairs])
        covered = np.where(told.any(0), told[1] / told.sum(0).clip(1), 0.5)  # how much of the first one
        low, high = torch.cat([low, least]), torch.cat([high, most])
        weight = torch.as_tensor(covered).to(values)[:, None]
        values = torch.cat([values, torch.lerp(-values[second], -values[first], weight)])
        items = torch.cat([items, items[first]])

    widths = (high - low) / space.unit_length
    log_sizes = widths.clamp(min=THINNEST).log()
    alone = np.flatnonzero(counts == 1)
    if len(alone) > 0:
        (cells,) = sample_cells([samples], num_items, space, compiled)
        alone = torch.as_tensor(alone, device=device)
        log_sizes = log_sizes.index_copy(0, alone, cells.log_sizes[member[alone]])
    return FunctionSamples((low + high) / 2, values, items), Cells(log_sizes, widths)


def _array(rows: Tensor) -> np.ndarray:
    return rows.detach().cpu().numpy()


def _places(counts: np.ndarray) -> np.ndarray:
    """0, 1, ... within each of groups of so many rows, one group after the other."""
    return np.arange(counts.sum()) - (counts.cumsum() - counts).repeat(counts)


def _pieces(samples: FunctionSamples, compiled: bool) -> tuple[np.ndarray, np.ndarray]:
    """The samples in the order of items, values and pieces, and where in it each piece begins.

    Every sample is joined to as many of the nearest of its item and value as a place of a grid has along its axes, 2 dim.
    """
    items, columns = _array(samples.items), _array(samples.values).T
    order = np.lexsort((*columns[::-1], items))
    starts = _changes(items[order], *columns[:, order])
    counts, joined = np.diff(starts, append=len(order)), 2 * samples.points.shape[1] + 1  # a sample and those it is joined to
    unsure = np.flatnonzero(counts >= 2 * joined)  # there is room for two pieces
    points = samples.points.detach()[torch.as_tensor(order, device=samples.points.device)]
    if len(unsure) > 0:
        unsure = unsure[~_in_order(points, starts[unsure], counts[unsure], joined)]
    if len(unsure) == 0:
        return order, starts
    rows, parts = starts[unsure].repeat(counts[unsure]) + _places(counts[unsure]), np.zeros_like(order)
    parts[rows] = _connected(points[torch.as_tensor(rows, device=points.device)], counts[unsure], joined, compiled)
    groups = np.arange(len(counts)).repeat(counts)
    by_part = np.lexsort((parts, groups))
    return order[by_part], _changes(groups[by_part], parts[by_part])


def _connected(points: Float[Tensor, "samples dim"], counts: np.ndarray, joined: int, compiled: bool) -> np.ndarray:
    """The number of the piece of every sample, for groups of so many that stand one after the other."""
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import connected_components

    groups, num = torch.as_tensor(np.arange(len(counts)).repeat(counts), device=points.device), len(points)
    starts = torch.as_tensor(counts.cumsum() - counts, device=points.device)
    found = _array(nearest(points, groups, points, starts, counts.tolist(), joined, compiled))
    found = np.where(found < 0, np.arange(num)[:, None], found)
    graph = csr_array((np.ones(found.size, bool), found.ravel(), np.arange(0, found.size + 1, joined)), (num, num))
    return connected_components(graph, directed=False)[1]


def _changes(*columns: np.ndarray) -> np.ndarray:
    """Where in sorted columns a row differs from the one before; the first one does."""
    return np.flatnonzero(np.any([np.diff(column, prepend=np.nan) != 0 for column in columns], axis=0))


def _in_order(points: Float[Tensor, "samples dim"], starts: np.ndarray, counts: np.ndarray, joined: int) -> np.ndarray:
    """Which of these groups are one piece because each sample but the first is joined to one before it.

    That is so where samples are listed along a line or row by row, and a look at it spares a search. None of them where
    there are too many pairs for a look.
    """
    if len(counts) * counts.max() ** 2 > MOST_PAIRS:
        return np.zeros(len(counts), bool)
    columns, squared = np.arange(counts.max()), 0.0
    missing, rows = columns >= counts[:, None], (starts[:, None] + columns).clip(max=len(points) - 1)
    for places in _array(points).T:
        table = np.where(missing, np.inf, places[rows]).astype(places.dtype)
        with np.errstate(invalid="ignore"):  # of two that are missing
            offsets = table[:, :, None] - table[:, None]
        squared = squared + np.square(offsets, out=offsets)
    nearest_before = np.where(columns < columns[:, None], squared, np.inf).min(-1, keepdims=True)
    ranks = np.count_nonzero(squared <= nearest_before, axis=-1)  # how many are no farther than the nearest one before, with it
    return ((ranks <= joined) | missing)[:, 1:].all(-1)


def _overlaps(low: np.ndarray, high: np.ndarray, items: np.ndarray, least: float) -> np.ndarray:
    """All pairs of boxes of one item that share more than `least` along every axis, in two rows; boxes are in order of items."""
    boxes = np.flatnonzero((high - low > least).all(-1))
    ends = np.searchsorted(items[boxes], items[boxes], side="right")
    later = ends - np.arange(len(boxes)) - 1  # how many of the same item come after each
    first = np.arange(len(boxes)).repeat(later)
    pairs = boxes[np.stack([first, first + 1 + _places(later)])]
    shared = np.minimum(*high[pairs]) - np.maximum(*low[pairs])
    return pairs[:, (shared > least).all(-1)]


def _num_inside(points: np.ndarray, starts: np.ndarray, counts: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """How many of the `counts` points from `starts` on lie in each box."""
    box = np.arange(len(counts)).repeat(counts)
    rows = starts[box] + _places(counts)
    inside = ((points[rows] >= low[box]) & (points[rows] <= high[box])).all(-1)
    return np.bincount(box[inside], minlength=len(counts))
