"""What a sample stands for: the cell around it, judged by its nearest fellows, samples of the same function and item.

Samples are a quadrature of their function: a value counts for as much as the space around it that has no other sample. With
its cell, a sample can say so, and a network does not have to guess from sums how densely a function was sampled.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import no_type_check

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import pad

from .edge_kernels import run
from .neighbours import nearest
from .samples import FunctionSamples
from .spaces import Space

THINNEST = 1e-3  # of the unit of length: cells of samples along a line, or at one place, are this thick


@dataclass(frozen=True, eq=False)
class Cells:
    """`log_sizes`: of the root mean square offset to the fellows along each axis, in units of the space; on a sphere, whose
    axes mean nothing to a sample, along any of its two directions.

    `shapes`: how the offsets along every two axes go together, and on which side of the sample its fellows are, from -1 to 1; of
    boxes, how wide they are.
    """

    log_sizes: Float[Tensor, "samples dim"]
    shapes: Float[Tensor, "samples shapes"]


def num_shapes(dim: int, boxes: bool = False) -> int:
    """How many numbers `shapes` has, of cells or of boxes."""
    return dim if boxes else dim * (dim - 1) // 2 + dim


def sample_boxes(
    functions: Sequence[FunctionSamples], num_items: int, space: Space, compiled: bool = False
) -> tuple[list[FunctionSamples], list[Cells]]:
    """Samples of equal values made one, such as those of one heater: a sample in the middle of the box around them, and this box
    as its cell. `shapes` are its widths.

    Where two boxes of an item overlap, one covers the other, and what they share has been counted twice: it is a further box,
    with the negative value of the one that is covered there. Which one that is, samples in it tell; if they disagree, both are by
    their shares, and by halves if there are none. A sample that has no equal stays where it is and has a cell among its nearest
    fellows, as in `sample_cells`, and a box without width.
    """
    merged, found = [], []
    for samples in functions:
        box = _equals(samples)
        num, rows = torch.bincount(box), box[:, None].expand_as(samples.points)
        like = samples.points.new_zeros(len(num), samples.points.shape[-1])
        low = like.scatter_reduce(0, rows, samples.points, "amin", include_self=False)
        high = like.scatter_reduce(0, rows, samples.points, "amax", include_self=False)
        one_of = torch.zeros_like(num).scatter_(0, box, torch.arange(len(box), device=box.device))
        values, items = samples.values[one_of], samples.items[one_of]
        first, second = _overlaps(low, high, items, THINNEST * space.unit_length)
        shared = torch.maximum(low[first], low[second]), torch.minimum(high[first], high[second])
        slack = 1e-6 * space.unit_length
        votes = [_members_inside(samples.points, box, of, shared[0] - slack, shared[1] + slack) for of in (first, second)]
        covered = torch.where(votes[0] + votes[1] == 0, 0.5, votes[1] / (votes[0] + votes[1]).clamp(min=1))[:, None]
        low, high = torch.cat([low, shared[0]]), torch.cat([high, shared[1]])
        values = torch.cat([values, torch.lerp(-values[second], -values[first], covered.to(values))])
        wide = (high - low) / space.unit_length
        cells = Cells(wide.clamp(min=THINNEST).log(), wide)
        lonely = torch.nonzero(num == 1)[:, 0]
        if len(lonely) > 0:
            (alone,) = sample_cells([samples], num_items, space, compiled)
            cells = Cells(cells.log_sizes.index_copy(0, lonely, alone.log_sizes[one_of[lonely]]), wide)
        merged.append(FunctionSamples((low + high) / 2, values, torch.cat([items, items[first]])))
        found.append(cells)
    return merged, found


def _equals(samples: FunctionSamples) -> Int[Tensor, " samples"]:
    """A number for each sample that samples of the same item and values have in common; numbers of an item follow each other."""
    box = torch.unique(samples.items, return_inverse=True)[1]
    for values in samples.values.unbind(-1):  # one after the other: many times faster than unique rows
        alike = torch.unique(values, return_inverse=True)[1]
        box = torch.unique(box * len(alike) + alike, return_inverse=True)[1]
    return box


def _overlaps(
    low: Float[Tensor, "boxes dim"], high: Float[Tensor, "boxes dim"], items: Int[Tensor, " boxes"], least: float
) -> tuple[Int[Tensor, " pairs"], Int[Tensor, " pairs"]]:
    """All pairs of boxes of one item that share more than `least` along every axis; boxes of an item follow each other."""
    wide = torch.nonzero((high - low > least).all(-1))[:, 0]
    counts = torch.bincount(items[wide])
    later = (counts.cumsum(0)[items[wide]] - torch.arange(len(wide), device=wide.device)) - 1
    first = torch.repeat_interleave(later)
    second = first + 1 + _ranks(later)
    first, second = wide[first], wide[second]
    kept = (torch.minimum(high[first], high[second]) - torch.maximum(low[first], low[second]) > least).all(-1)
    return first[kept], second[kept]


def _members_inside(
    points: Float[Tensor, "samples dim"],
    box: Int[Tensor, " samples"],
    of: Int[Tensor, " pairs"],
    low: Float[Tensor, "pairs dim"],
    high: Float[Tensor, "pairs dim"],
) -> Int[Tensor, " pairs"]:
    """How many samples of the box `of` lie between `low` and `high`."""
    counts = torch.bincount(box)
    starts = counts.cumsum(0) - counts
    pair = torch.repeat_interleave(counts[of])
    member = points[box.argsort()[starts[of][pair] + _ranks(counts[of])]]
    inside = ((member >= low[pair]) & (member <= high[pair])).all(-1)
    return torch.zeros_like(of).index_add(0, pair, inside.to(of))


def _ranks(counts: Int[Tensor, " groups"]) -> Int[Tensor, " rows"]:
    """0, 1, ... within each of groups of so many rows, one group after the other."""
    starts = torch.repeat_interleave(counts.cumsum(0) - counts, counts)
    return torch.arange(len(starts), device=counts.device) - starts


def sample_cells(
    functions: Sequence[FunctionSamples], num_items: int, space: Space, compiled: bool = False, likeness: float = 0.0
) -> list[Cells]:
    """The cells of the samples of every function, from one search for all.

    A cell is judged by as many fellows as a place of a grid has along its axes, 2 dim, or those that there are; a sample alone
    has a cell of size 1. With `likeness`, fellows are near in place and value: a difference of one between values counts as so
    many units of length, so that what stands close by but is another thing, such as the next heater, does not make a cell small.
    """
    if len(functions) == 0:
        return []
    groups = torch.cat([samples.items + number * num_items for number, samples in enumerate(functions)])
    order = groups.argsort(stable=True)
    groups, sites = groups[order], torch.cat([samples.points for samples in functions])[order]
    counts = torch.bincount(groups, minlength=len(functions) * num_items)
    num = 2 * space.intrinsic_dim + 1  # the sample itself is found, too
    places = sites
    if likeness > 0:
        channels = max(samples.values.shape[-1] for samples in functions)
        values = torch.cat([pad(samples.values, (0, channels - samples.values.shape[-1])) for samples in functions])[order]
        places = torch.cat([sites, likeness * space.unit_length * values], -1)
    found = nearest(places, groups, places, counts.cumsum(0) - counts, counts.tolist(), num, compiled)
    back, sizes = order.argsort(), [len(samples.points) for samples in functions]
    log_sizes, shapes = (rows[back].split(sizes) for rows in run(_cells, sites, found, space, compiled=compiled))
    return [Cells(*cells) for cells in zip(log_sizes, shapes, strict=True)]


@no_type_check  # the compiler cannot see through the shape checks of the tests
def _cells(
    sites: Float[Tensor, "samples dim"], found: Int[Tensor, "samples near"], space: Space
) -> tuple[Float[Tensor, "samples dim"], Float[Tensor, "samples shapes"]]:
    own = torch.arange(len(sites), device=sites.device)[:, None]
    fellow = torch.where((found >= 0) & (found != own), 1.0, 0.0).to(sites)[..., None]
    here = sites[:, None].expand(*found.shape, sites.shape[-1])
    offsets = fellow * space.offset(sites[found.clamp(min=0)], here) / space.unit_length
    num = fellow.sum(1)
    squares = offsets.square().sum(1)
    if space.intrinsic_dim < sites.shape[-1]:
        squares = (squares.sum(-1, keepdim=True) / space.intrinsic_dim).expand_as(squares)
    sizes = torch.where(num == 0, 1.0, squares / num.clamp(min=1) + THINNEST**2).sqrt()
    scaled = offsets / sizes[:, None]
    together = [(scaled[..., i] * scaled[..., j]).sum(1, keepdim=True) for i, j in combinations(range(sites.shape[-1]), 2)]
    return sizes.log(), torch.cat([*together, scaled.sum(1)], -1) / num.clamp(min=1)
