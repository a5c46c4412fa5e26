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

from .compilation import run
from .neighbours import nearest
from .samples import FunctionSamples
from .spaces import Space

THINNEST = 1e-3  # of the unit of length: cells of samples along a line, or at one place, are this thick


@dataclass(frozen=True, eq=False)
class Cells:
    """`log_sizes`: of the root mean square offset to the fellows along each axis, in units of the space; on a sphere, whose
    axes mean nothing to a sample, along any of its two directions. Of boxes (`sample_boxes`): of their widths.

    `shapes`: how the offsets along every two axes go together, and on which side of the sample its fellows are, from -1 to 1. Of
    boxes: their widths, in units of the space.
    """

    log_sizes: Float[Tensor, "samples dim"]
    shapes: Float[Tensor, "samples shapes"]


def num_shapes(dim: int, boxes: bool = False) -> int:
    """How many numbers `shapes` has, of cells or of boxes."""
    return dim if boxes else dim * (dim - 1) // 2 + dim


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
