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
from jaxtyping import Float, Int
from torch import Tensor, nn

from .edge_kernels import run
from .errors import require
from .neighbours import nearest, places_in_groups
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
        points: Float[Tensor, "points dim"],
        items: Int[Tensor, " points"],
        samples: FunctionSamples,
        sizes: Float[Tensor, "samples dim"],
        num_items: int,
        num_heard: int,
        space: Space,
        compiled: bool = False,
    ) -> Float[Tensor, "points hidden"]:
        """h at points of items; `samples` as encoders see them, `sizes` are those of their cells, in units of the space."""
        if len(samples.points) == 0:
            return points.new_zeros(len(points), self.base.out_features)
        order = samples.items.argsort(stable=True)
        sites, values, sizes = samples.points[order], samples.values[order], sizes[order]
        counts = torch.bincount(samples.items, minlength=num_items)
        starts, per_item = counts.cumsum(0) - counts, counts.tolist()
        base = self.base(torch.cat([values[:, self.num_linear :], space.coordinates(sites)], -1))
        gate = self.gate(values[:, : self.gate.in_features])
        learned = torch.is_grad_enabled() and any(each.requires_grad for each in (points, sites, sizes))
        fused = compiled and not learned
        if max(per_item) <= num_heard and (self.layers or not fused):  # all are heard in full
            num_own = counts[items]
            rows = torch.repeat_interleave(num_own)
            heard = starts[items][rows] + places_in_groups(num_own)
            local = run(pair_features, points[rows], sites[heard], sizes[heard], space, compiled=fused)
            return self._sums(base, gate, local, rows, heard, len(points))
        found = nearest(points, items, sites, starts, per_item, num_heard + 1, compiled)
        near, fades, local = run(near_features, points, found, sites, sizes, space, compiled=fused)
        if not self.layers and fused:
            return GatedRead.apply(base, gate, near, fades, local, self.local.weight.T.contiguous())
        rows, columns = torch.nonzero(fades > 0, as_tuple=True)  # pairs of points and samples that count
        pairs = local[rows, columns], rows, near[rows, columns], len(points), fades[rows, columns]
        return self._sums(base, gate, *pairs)

    def _sums(
        self,
        base: Float[Tensor, "samples hidden"],
        gate: Float[Tensor, "samples hidden"],
        local: Float[Tensor, "pairs local"],
        rows: Int[Tensor, " pairs"],
        heard: Int[Tensor, " pairs"],
        num: int,
        fades: Float[Tensor, " pairs"] | None = None,
    ) -> Float[Tensor, "num hidden"]:
        """h of `num` points from pairs of the point in `rows` and the sample that is `heard`."""
        terms = (base[heard] + self.local(local)).relu()
        for layer in self.layers:
            terms = terms + layer(terms).relu()
        terms = terms * gate[heard]
        terms = terms if fades is None else terms * fades[:, None]
        return terms.new_zeros(num, terms.shape[-1]).index_add(0, rows, terms)


class Ears(nn.ModuleDict):
    """An ear for every function, by name; none where queries hear nothing."""

    def forward(
        self,
        queries: Queries,
        inputs: Mapping[str, FunctionSamples],
        sizes_of: Callable[[str, FunctionSamples], Tensor],
        num_items: int,
        num_heard: int,
        space: Space,
        compiled: bool = False,
    ) -> Float[Tensor, "queries heard"]:
        """What queries at points hear of one function after another; of those that are not given, zeros.

        `sizes_of`: the sizes of the cells of a function's samples, in units of the space.
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
            here = (queries.points, queries.items, samples, sizes_of(name, samples), num_items)
            parts.append(ear(*here, num_heard, space, compiled))
        return torch.cat(parts, -1)


@no_type_check  # the compiler cannot see through the shape checks of the tests
def near_features(
    points: Float[Tensor, "points dim"],
    found: Int[Tensor, "points near"],
    sites: Float[Tensor, "samples dim"],
    sizes: Float[Tensor, "samples dim"],
    space: Space,
) -> tuple[Int[Tensor, "points heard"], Float[Tensor, "points heard"], Float[Tensor, "points heard local"]]:
    """Which samples each point hears, how much, and where they are, from the nearest samples and one more (-1: none)."""
    missing, rows = found < 0, found.clamp(min=0)
    here = points[:, None].expand(*rows.shape, points.shape[-1])
    offsets = space.offset(here, sites[rows]) / space.unit_length
    squares = offsets.square().sum(-1)
    beyond = torch.where(missing[:, -1:], torch.inf, squares[:, -1:].clamp(min=1e-12))
    fades = torch.where(missing, 0.0, (1 - squares.clamp(min=1e-12) / beyond).clamp(min=0).square())[:, :-1]
    rows = rows[:, :-1]
    return rows, fades, offset_features(offsets[:, :-1], sizes[rows])


@no_type_check
def pair_features(
    points: Float[Tensor, "pairs dim"], sites: Float[Tensor, "pairs dim"], sizes: Float[Tensor, "pairs dim"], space: Space
) -> Float[Tensor, "pairs local"]:
    """The `offset_features` of pairs of points and samples."""
    return offset_features(space.offset(points, sites) / space.unit_length, sizes)


@no_type_check
def offset_features(offsets: Float[Tensor, "*pairs dim"], sizes: Float[Tensor, "*pairs dim"]) -> Float[Tensor, "*pairs local"]:
    """Where samples are, seen from points: the offset in units of the space; along each axis the same in units of the cell,
    o / sqrt(o^2 + size^2), from -1 to 1; and the logarithm of the distance in these units."""
    scaled = offsets / sizes
    directions = scaled * (1 + scaled.square()).rsqrt()
    distances = 0.5 * (1 + scaled.square().sum(-1, keepdim=True)).log()
    return torch.cat([offsets, directions, distances], -1)
