"""Items of any SFT in numbered groups, in memory and in files: what tasks without a format of their own train on.

A group (a house, say) is what is held out as a whole; its items are its scenarios. The file is one `.npz` without pickles:
`manifest`, `groups` (items), and of every function `<name>.points`, `<name>.values` or `<name>.targets`, and `<name>.counts`, how
many rows each item has.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from ..errors import require
from ..functions import SFT
from ..samples import FunctionSamples, Queries, SFTBatch
from .archives import opened, real_numbers, save_archive
from .houses import some


@dataclass(frozen=True, eq=False)
class SampledFields:
    """All items as one batch, rows in the order of items, and the number of the group of each."""

    items: SFTBatch
    groups: Int[Tensor, " items"]

    def __post_init__(self) -> None:
        require(
            len(self.groups) == self.items.num_items,
            f"every item needs a group; got {len(self.groups)} groups and {self.items.num_items} items",
        )
        for name, rows in (*self.items.inputs.items(), *self.items.queries.items()):
            require(bool((rows.items.diff() >= 0).all()), f"the rows of {name!r} must be in the order of their items; sort them")

    def __len__(self) -> int:
        return len(self.numbers)

    @cached_property
    def numbers(self) -> tuple[int, ...]:
        """The groups."""
        return tuple(self.groups.unique().tolist())

    @cached_property
    def members(self) -> dict[int, Int[Tensor, " _members"]]:
        """Which items each group has."""
        return {number: torch.nonzero(self.groups == number)[:, 0] for number in self.numbers}

    def selected(self, numbers: Collection[int]) -> SampledFields:
        """The groups of these numbers, in this order."""
        missing = [number for number in numbers if number not in self.members]
        require(not missing, f"there are {len(self)} groups, {some(self.numbers)}; not among them: {some(missing)}")
        chosen = torch.cat([self.members[number] for number in numbers])
        return SampledFields(self.batch(chosen), self.groups[chosen])

    @property
    def num_items(self) -> int:
        return self.items.num_items

    def batch(self, chosen: Int[Tensor, " chosen"], num_queries: int | None = None, seed: int | None = None) -> SFTBatch:
        """These items, renumbered in this order; of each all queries, or so many of them drawn at random."""
        inputs, queries, targets = {}, {}, {}
        for name, samples in self.items.inputs.items():
            rows, items = _rows(self._counts[name], chosen)
            inputs[name] = FunctionSamples(samples.points[rows], samples.values[rows], items)
        for name, asked in self.items.queries.items():
            rows, items = _rows(self._counts[name], chosen)
            if num_queries is not None:
                rows, items = _drawn(rows, items, num_queries, torch.Generator().manual_seed(seed or 0))
            points, conditions = (None if t is None else t[rows] for t in (asked.points, asked.conditions))
            queries[name] = Queries(points, conditions, items)
            if name in self.items.targets:
                targets[name] = self.items.targets[name][rows]
        return SFTBatch(inputs, queries, targets, len(chosen))

    def each(self) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Of every item in double precision: places and values of its one input function, and places of its queries."""
        ((given, samples),) = self.items.inputs.items()
        ((asked, queries),) = self.items.queries.items()
        assert queries.points is not None
        rows = (samples.points, samples.values[:, 0]), (queries.points,)
        counts = (self._counts[name].tolist() for name in (given, asked))
        pieces = [part.double().split(sizes) for parts, sizes in zip(rows, counts, strict=True) for part in parts]
        for points, values, there in zip(*pieces, strict=True):
            yield points.numpy(), values.numpy(), there.numpy()

    @cached_property
    def _counts(self) -> dict[str, Int[Tensor, " items"]]:
        functions = {**self.items.inputs, **self.items.queries}
        return {name: torch.bincount(rows.items, minlength=self.items.num_items) for name, rows in functions.items()}


def _rows(counts: Int[Tensor, " items"], chosen: Int[Tensor, " chosen"]) -> tuple[Int[Tensor, " rows"], Int[Tensor, " rows"]]:
    """The rows of the chosen items, one item after the other, and the new item of each."""
    of_chosen = counts[chosen]
    items = torch.arange(len(chosen)).repeat_interleave(of_chosen)
    within = torch.arange(len(items)) - (of_chosen.cumsum(0) - of_chosen)[items]
    return (counts.cumsum(0) - counts)[chosen][items] + within, items


def _drawn(
    rows: Int[Tensor, " rows"], items: Int[Tensor, " rows"], num: int, generator: torch.Generator
) -> tuple[Int[Tensor, " drawn"], Int[Tensor, " drawn"]]:
    """At most `num` random rows of every item."""
    shuffled = torch.randperm(len(rows), generator=generator)
    shuffled = shuffled[items[shuffled].argsort(stable=True)]  # in the order of items again, at random within each
    counts = torch.bincount(items)
    kept = shuffled[torch.arange(len(rows)) - (counts.cumsum(0) - counts)[items] < num]
    return rows[kept], items[kept]


def save_fields(path: str | Path, fields: SampledFields, manifest: Mapping[str, Any] | None = None) -> None:
    """Write fields with points, values and targets to one `.npz`, all or nothing; `manifest` says how they were made."""
    arrays = {"groups": fields.groups.numpy()}
    for name, samples in fields.items.inputs.items():
        arrays |= {f"{name}.points": samples.points.numpy(), f"{name}.values": samples.values.numpy()}
    for name, asked in fields.items.queries.items():
        require(asked.points is not None and asked.conditions is None, f"queries of {name!r} are saved with points alone")
        assert asked.points is not None
        arrays |= {f"{name}.points": asked.points.numpy(), f"{name}.targets": fields.items.targets[name].numpy()}
    arrays |= {f"{name}.counts": counts.numpy() for name, counts in fields._counts.items()}
    counts = {"groups": len(fields), "items": fields.items.num_items}
    save_archive(Path(path), "fields", arrays, {**(manifest or {}), "counts": counts})


def load_fields(path: str | Path, sft: SFT) -> SampledFields:
    """The fields in a file, checked against the functions of an SFT."""
    with opened(path := Path(path), "fields") as archive:

        def array(name: str, ndim: int) -> Tensor:
            require(name in archive.files, f"a file of fields of this task has {name}; it is missing, is it of another task?")
            found = real_numbers(name, archive[name])
            require(found.ndim == ndim and len(found) > 0, f"{name} must have {ndim} axes and rows; got shape {found.shape}")
            return torch.as_tensor(found, dtype=torch.float32)

        def whole(name: str, least: int = 0) -> Tensor:
            numbers = array(name, 1)
            fits = (numbers >= least) & (numbers < 2**24) & (numbers % 1 == 0)
            wrong = numbers[~fits][:1].tolist()
            require(not wrong, f"{name} must be whole numbers from {least} to {2**24 - 1}; got {wrong}, make the file again")
            return numbers.long()

        def rows(name: str, kind: str) -> tuple[Tensor, Tensor, Tensor]:
            counts = whole(f"{name}.counts", 1 if kind == "targets" else 0)  # without queries there is nothing to score
            points, values = array(f"{name}.points", 2), array(f"{name}.{kind}", 2)
            fits = len(counts) == len(groups) and len(points) == len(values) == int(counts.sum())
            require(fits, f"{name} needs counts of every item, and as many points and {kind} as they say; it has others")
            return points, values, torch.arange(len(groups)).repeat_interleave(counts)

        groups = whole("groups")
        inputs = {f.name: FunctionSamples(*rows(f.name, "values")) for f in sft.inputs}
        asked = {f.name: rows(f.name, "targets") for f in sft.outputs}
        queries = {name: Queries(points, items=items) for name, (points, _, items) in asked.items()}
        batch = SFTBatch(inputs, queries, {name: targets for name, (_, targets, _) in asked.items()}, len(groups))
        sft.validate(batch)
        return SampledFields(batch, groups)
