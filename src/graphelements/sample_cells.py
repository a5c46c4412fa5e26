"""What a sample stands for: the cell around it, judged by its nearest fellows, the samples of the same function and item.

Samples are a quadrature of their function: a value counts for as much as the space around it that has no other sample. With
its cell, a sample can say so, and a network does not have to guess from sums how densely a function was sampled.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

import torch
from jaxtyping import Float, Int
from torch import Tensor

from .neighbours import nearest
from .spaces import Space

FELLOWS = 4
THINNEST = 1e-3  # of the unit of length: cells of samples along a line, or at one place, are this thick


@dataclass(frozen=True, eq=False)
class Cells:
    """`log_sizes`: of the root mean square offset to the fellows along each axis, in units of the space.

    `shapes`: how the offsets along every two axes go together, and on which side of the sample its fellows are; from -1 to 1.
    """

    log_sizes: Float[Tensor, "samples dim"]
    shapes: Float[Tensor, "samples shapes"]


def num_shapes(dim: int) -> int:
    """How many numbers `shapes` has."""
    return dim * (dim - 1) // 2 + dim


def sample_cells(points: Float[Tensor, "samples dim"], items: Int[Tensor, " samples"], num_items: int, space: Space) -> Cells:
    """The cell of every sample, from its nearest `FELLOWS`, or as many as there are; a sample alone has a cell of size 1."""
    order = items.argsort(stable=True)
    counts = torch.bincount(items, minlength=num_items)
    sites = points[order]
    found = nearest(sites, items[order], sites, counts.cumsum(0) - counts, counts.tolist(), FELLOWS + 1)
    own = torch.arange(len(order), device=order.device)[:, None]
    fellow = ((found >= 0) & (found != own)).to(points)[..., None]
    offsets = fellow * space.offset(sites[found.clamp(min=0)], sites[:, None].expand(-1, FELLOWS + 1, -1)) / space.unit_length
    num = fellow.sum(1)
    alone = num == 0
    squares = offsets.square().sum(1) / num.clamp(min=1)
    sizes = torch.where(alone, 1.0, squares + THINNEST**2).sqrt()
    scaled = offsets / sizes[:, None]
    together = [(scaled[..., i] * scaled[..., j]).sum(1, keepdim=True) for i, j in combinations(range(points.shape[-1]), 2)]
    shapes = torch.cat([*together, scaled.sum(1)], -1) / num.clamp(min=1)
    back = order.argsort()
    return Cells(sizes.log()[back], shapes[back])
