"""What a point hears of the samples near it: the near field, beside what it reads from nodes.

Nodes carry what acts over distances; what is close to a query, and finer than the mesh, it hears from the samples themselves, as
particle-mesh codes split a force. Of each function a point hears its K nearest samples,

    h(x) = sum over samples i of f_i(x) g(s_i) relu(a(s_i, x_i) + C o_i(x)),    f_i(x) = (1 - (d_i / R)^2)^2,

with o the offset in several units (`offset_features`) and R the distance of the next nearest sample, where f fades to zero, so
that h is continuous. The factor g lets what is linear in the samples' values stay linear.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import no_type_check

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn.functional import embedding

from .compilation import rows_of, run
from .errors import require
from .neighbours import ByItem, nearest
from .point_kernels import GatedRead
from .samples import FunctionSamples, Queries
from .spaces import Space


class Ear(nn.Module):
    """The a, g and C of one function's samples; with `num_linear` above 0 what is heard is linear in so many of their first
    numbers, which g alone sees then."""

    def __init__(self, channels: int, dim: int, hidden_size: int, num_linear: int = 0, num_layers: int = 0) -> None:
        super().__init__()
        self.channels, self.num_linear = channels, num_linear
        self.base = nn.Linear(channels - num_linear + dim, hidden_size)
        self.gate = nn.Linear(num_linear or channels, hidden_size, bias=num_linear == 0)
        self.local = nn.Linear(2 * dim + 1, hidden_size, bias=False)
        self.layers = nn.ModuleList(nn.Linear(hidden_size, hidden_size) for _ in range(num_layers))

    def forward(
        self,
        queries: Queries,
        samples: FunctionSamples,
        sizes: Float[Tensor, "samples dim"],
        by_item: ByItem,
        num_heard: int,
        space: Space,
        compiled: bool = False,
    ) -> Float[Tensor, "points hidden"]:
        """h at the points of queries; `samples` as encoders see them, `sizes` are those of their cells, in units of the space."""
        points, items = queries.points, queries.items
        assert points is not None
        if len(samples.points) == 0:
            return points.new_zeros(len(points), self.base.out_features)
        sites, values = samples.points, samples.values
        base = self.base(torch.cat([values[:, self.num_linear :], space.coordinates(sites)], -1))
        gate = self.gate(values[:, : self.gate.in_features])
        learned = torch.is_grad_enabled() and any(each.requires_grad for each in (points, sites, sizes))
        fused = compiled and not learned
        if by_item.table is not None:  # all are heard in full
            if queries.num_per_item is not None:
                blocks = points.unflatten(0, (len(by_item.counts), queries.num_per_item))
                return self._hear_in_blocks(blocks, base, gate, samples, sizes, space, fused)
            near = by_item.table.mT[:, items]
            fades = (near >= 0).to(points)
            near = near.clamp(min=0)
        else:
            near, fades = _nearest(points, items, sites, by_item, num_heard, space, compiled, fused)
        if self.layers or not fused:  # by pairs of points and samples, those alone that count
            columns, rows = torch.nonzero(fades > 0, as_tuple=True)
            heard = near[columns, rows]
            pairs = rows_of(points, rows), rows_of(sites, heard), rows_of(sizes, heard)
            local = run(pair_features, *pairs, space, compiled=fused)
            terms = self._terms(rows_of(base, heard) + local @ self.local.weight.T) * rows_of(gate, heard)
            terms = terms if by_item.table is not None else terms * fades[columns, rows, None]
            return terms.new_zeros(len(points), terms.shape[-1]).index_add(0, rows, terms)
        local = run(_table_features, points, near, sites, sizes, space, compiled=fused)
        tables = (each.transpose(0, 1).contiguous() for each in (near, fades, local))  # else gradients would be copied
        return GatedRead.apply(base, gate, *tables, self.local.weight.T.contiguous())

    def _hear_in_blocks(
        self,
        blocks: Float[Tensor, "items num_per_item dim"],
        base: Float[Tensor, "samples hidden"],
        gate: Float[Tensor, "samples hidden"],
        samples: FunctionSamples,
        sizes: Float[Tensor, "samples dim"],
        space: Space,
        fused: bool,
    ) -> Float[Tensor, "points hidden"]:
        """h where every sample is heard by all points of its item, and items have equally many: points alone are gathered."""
        here = blocks[samples.items]  # samples, num_per_item, dim
        there, sizes = (rows[:, None].expand_as(here) for rows in (samples.points, sizes))
        local = run(pair_features, here, there, sizes, space, compiled=fused)
        terms = self._terms(local @ self.local.weight.T + base[:, None]) * gate[:, None]
        return terms.new_zeros(len(blocks), *terms.shape[1:]).index_add(0, samples.items, terms).flatten(0, 1)

    def _terms(self, sums: Float[Tensor, "*pairs hidden"]) -> Float[Tensor, "*pairs hidden"]:
        """relu(a + C o), and what further layers make of it."""
        terms = sums.relu()
        for layer in self.layers:
            terms = terms + layer(terms).relu()
        return terms


class Ears(nn.ModuleDict):
    """An ear for every function, by name; none where queries hear nothing."""

    def forward(
        self,
        queries: Queries,
        inputs: Mapping[str, FunctionSamples],
        sizes_of: Callable[[str, FunctionSamples], Tensor],
        by_item: Mapping[str, ByItem],
        num_heard: int,
        space: Space,
        compiled: bool = False,
    ) -> Float[Tensor, "queries heard"]:
        """What queries at points hear of one function after another; of those that are not given, zeros.

        `sizes_of`: the sizes of the cells of a function's samples, in units of the space. `by_item`: which samples of it
        every item has.
        """
        assert queries.points is not None
        parts = []
        for name, ear in self.items():
            assert isinstance(ear, Ear)
            if name not in inputs:
                parts.append(queries.points.new_zeros(len(queries), ear.base.out_features))
                continue
            samples, least = inputs[name], ear.channels
            require(
                samples.values.shape[-1] == least,
                f"queries hear samples as they were last written, with {least} numbers for one of {name!r}; "
                f"got {samples.values.shape[-1]}, give `read` the inputs as `absorb` gives them",
            )
            here = (queries, samples, sizes_of(name, samples), by_item[name])
            parts.append(ear(*here, num_heard, space, compiled))
        return torch.cat(parts, -1)


def _nearest(
    points: Float[Tensor, "points dim"],
    items: Int[Tensor, " points"],
    sites: Float[Tensor, "samples dim"],
    by_item: ByItem,
    num_heard: int,
    space: Space,
    compiled: bool,
    fused: bool,
) -> tuple[Int[Tensor, "heard points"], Float[Tensor, "heard points"]]:
    """The nearest samples of each point, and how much each is heard."""
    order, starts, counts, _ = by_item
    found = nearest(points, items, sites[order], starts, counts.tolist(), num_heard + 1, compiled)
    rows = order[found.mT.clamp(min=0)]
    return rows[:-1], run(_fades, points, rows, found.mT < 0, sites, space, compiled=fused)


@no_type_check  # the compiler cannot see through the shape checks of the tests
def _fades(
    points: Float[Tensor, "points dim"],
    rows: Int[Tensor, "near points"],
    missing: Bool[Tensor, "near points"],
    sites: Float[Tensor, "samples dim"],
    space: Space,
) -> Float[Tensor, "heard points"]:
    """f of the nearest samples and one more, which may be missing."""
    there = sites[rows]
    squares = (space.offset(points.expand_as(there), there) / space.unit_length).square().sum(-1).clamp(min=1e-12)
    beyond = torch.where(missing[-1], torch.inf, squares[-1])
    return torch.where(missing, 0.0, (1 - squares / beyond).clamp(min=0).square())[:-1]


@no_type_check
def _table_features(
    points: Float[Tensor, "points dim"],
    near: Int[Tensor, "heard points"],
    sites: Float[Tensor, "samples dim"],
    sizes: Float[Tensor, "samples dim"],
    space: Space,
) -> Float[Tensor, "heard points local"]:
    """The `offset_features` of every point and the samples it hears."""
    there, sizes = embedding(near, torch.cat([sites, sizes], -1)).chunk(2, -1)
    return offset_features(space.offset(points.expand_as(there), there) / space.unit_length, sizes)


@no_type_check
def pair_features(
    points: Float[Tensor, "*pairs dim"], sites: Float[Tensor, "*pairs dim"], sizes: Float[Tensor, "*pairs dim"], space: Space
) -> Float[Tensor, "*pairs local"]:
    """The `offset_features` of pairs of points and samples."""
    return offset_features(space.offset(points, sites) / space.unit_length, sizes)


@no_type_check
def offset_features(offsets: Float[Tensor, "*pairs dim"], sizes: Float[Tensor, "*pairs dim"]) -> Float[Tensor, "*pairs local"]:
    """Where samples are, seen from points: the offset in units of the space; along each axis the same in units of the cell,
    o / sqrt(o^2 + size^2), from -1 to 1; and the logarithm of the distance in these units. Pairs are last in memory: compiled
    loops run along them."""
    offsets = offsets.unbind(-1)
    scaled = [offset / size for offset, size in zip(offsets, sizes.unbind(-1), strict=True)]
    squares = [axis.square() for axis in scaled]
    directions = [axis * (1 + square).rsqrt() for axis, square in zip(scaled, squares, strict=True)]
    return torch.stack([*offsets, *directions, 0.5 * (1 + sum(squares)).log()]).movedim(0, -1)
