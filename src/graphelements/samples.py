"""Samples of functions and questions to them, in flat batches.

The samples of all items stand one after another, each with the index of its item. It is literally the paper's set of (x, i, s);
items may have any number of samples of every function, none included.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from .errors import require


@dataclass(frozen=True, eq=False)
class FunctionSamples:
    """Samples (x, s) of one function; `items` says which item of the batch each belongs to (item 0 if not given)."""

    points: Float[Tensor, "samples dim"]
    values: Float[Tensor, "samples channels"]
    items: Int[Tensor, " samples"] = None  # type: ignore[assignment]

    def __post_init__(self) -> None:
        _require_tensors("samples", self.points, self.values, self.items)
        require(
            self.points.ndim == 2 and self.values.ndim == 2 and len(self.points) == len(self.values),
            "samples need a row of coordinates and a row of values each; "
            f"got shapes {tuple(self.points.shape)} and {tuple(self.values.shape)}",
        )
        if self.items is None:
            object.__setattr__(self, "items", torch.zeros(len(self.points), dtype=torch.long, device=self.points.device))
        _require_items("samples", self.items, len(self.points))

    def mapped(self, change: Callable[[Tensor], Tensor]) -> FunctionSamples:
        """The same change for points, values and items."""
        return FunctionSamples(change(self.points), change(self.values), change(self.items))


@dataclass(frozen=True, eq=False)
class Queries:
    """Where an output function is asked for, and under which conditions; without points, for the whole space.

    `num_per_item`: how many every item has, where that was `counted` and they are equally many, one item after the other.
    """

    points: Float[Tensor, "queries dim"] | None = None
    conditions: Float[Tensor, "queries conditions"] | None = None
    items: Int[Tensor, " queries"] = None  # type: ignore[assignment]
    num_per_item: int | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        _require_tensors("queries", self.points, self.conditions, self.items)
        given = [t for t in (self.points, self.conditions, self.items) if t is not None]
        num = len(given[0]) if given else 1
        if self.items is None:
            device = given[0].device if given else None
            object.__setattr__(self, "items", torch.zeros(num, dtype=torch.long, device=device))
        for name, rows in (("points", self.points), ("conditions", self.conditions)):
            require(
                rows is None or rows.ndim == 2,
                f"{name} of queries need a row each; got shape {tuple(getattr(rows, 'shape', ()))}",
            )
        require(
            all(len(t) == num for t in given),
            f"points, conditions and items of queries need the same length; got {[len(t) for t in given]}",
        )
        _require_items("queries", self.items, num)

    def __len__(self) -> int:
        return len(self.items)

    def counted(self, num_items: int) -> Queries:
        """The same with `num_per_item`, if all items have equally many."""
        same = replace(self)
        object.__setattr__(same, "num_per_item", count_per_item(self.items, num_items))
        return same

    def mapped(self, change: Callable[[Tensor], Tensor]) -> Queries:
        """The same change for points, conditions and items."""
        points = None if self.points is None else change(self.points)
        return Queries(points, None if self.conditions is None else change(self.conditions), change(self.items))

    def split(self, size: int) -> list[Queries]:
        """The queries in pieces of at most `size`, in order."""
        starts = range(0, max(len(self), 1), size)
        return [self.mapped(lambda rows, start=start: rows[start : start + size]) for start in starts]


def count_per_item(items: Int[Tensor, " rows"], num_items: int) -> int | None:
    """How many rows every item has, where all have equally many, one item after the other; else None."""
    num, rest = divmod(len(items), num_items)
    if rest or items.device.type == "meta":
        return None
    regular = torch.arange(num_items, dtype=items.dtype, device=items.device)[:, None].expand(num_items, num)
    return num if torch.equal(items.view(num_items, num), regular) else None


def _require_tensors(what: str, *given: Tensor | None) -> None:
    for tensor in given:
        kind = type(tensor).__name__
        require(
            tensor is None or isinstance(tensor, Tensor), f"{what} are torch tensors; got {kind}, convert with torch.as_tensor"
        )


def _require_items(what: str, items: Tensor, num: int) -> None:
    whole = not items.dtype.is_floating_point and items.dtype != torch.bool
    require(whole, f"items of {what} are whole numbers; got {items.dtype}, convert with .long()")
    require(items.shape == (num,), f"{what} need one item index each; leave items out for a single item")


@dataclass(frozen=True, eq=False)
class SFTBatch:
    """<D_inp, D_out> for `num_items` items: named input samples, named queries, and targets where they are known."""

    inputs: Mapping[str, FunctionSamples]
    queries: Mapping[str, Queries]
    targets: Mapping[str, Float[Tensor, "_queries _channels"]] = field(default_factory=dict)
    num_items: int = 1

    def __post_init__(self) -> None:
        require(self.num_items > 0, f"a batch needs at least one item; got {self.num_items}")
        for name, target in self.targets.items():
            _require_tensors(f"targets of {name!r}", target)
            require(target.ndim == 2, f"targets of {name!r} need a row of channels each; got shape {tuple(target.shape)}")
            require(name in self.queries, f"targets of {name!r} need queries of the same name; got {sorted(self.queries)}")
            require(
                len(target) == len(self.queries[name]),
                f"{name!r} needs one target per query; got {len(target)} targets and {len(self.queries[name])} queries",
            )

    def tensors(self) -> list[Tensor]:
        """All points, values, conditions and targets."""
        given = [t for s in self.inputs.values() for t in (s.points, s.values)]
        given += [t for q in self.queries.values() for t in (q.points, q.conditions) if t is not None]
        return [*given, *self.targets.values()]

    def to(self, device: torch.device | str) -> SFTBatch:
        """The batch on another device."""
        inputs = {name: samples.mapped(lambda t: t.to(device)) for name, samples in self.inputs.items()}
        queries = {name: query.mapped(lambda t: t.to(device)) for name, query in self.queries.items()}
        return SFTBatch(inputs, queries, {name: target.to(device) for name, target in self.targets.items()}, self.num_items)

    def selected(self, items: Sequence[int]) -> SFTBatch:
        """The batch of these items alone, renumbered in this order."""
        for item in items:
            require(0 <= item < self.num_items, f"items of this batch are 0 to {self.num_items - 1}; got {item}")
        require(len(set(items)) == len(items), f"every item can be selected once; got {list(items)}")
        number = torch.full((self.num_items,), -1)
        number[torch.as_tensor(items, dtype=torch.long)] = torch.arange(len(items))

        def kept(of: FunctionSamples | Queries) -> tuple[Tensor, dict[str, Tensor]]:
            new = number.to(of.items.device)[of.items]
            rows = torch.nonzero(new >= 0)[:, 0]
            return rows, {"items": new[rows]}

        inputs, queries, targets = {}, {}, {}
        for name, samples in self.inputs.items():
            rows, renumbered = kept(samples)
            inputs[name] = replace(samples.mapped(lambda t, rows=rows: t[rows]), **renumbered)
        for name, query in self.queries.items():
            rows, renumbered = kept(query)
            queries[name] = replace(query.mapped(lambda t, rows=rows: t[rows]), **renumbered)
            if name in self.targets:
                targets[name] = self.targets[name][rows]
        return SFTBatch(inputs, queries, targets, len(items))


def collate(batches: Sequence[SFTBatch]) -> SFTBatch:
    """The items of several batches in one, in order; a function that a batch does not have gives it no rows."""
    require(len(batches) > 0, "collate needs at least one batch; got none")
    starts = [0]
    for batch in batches:
        starts.append(starts[-1] + batch.num_items)

    def names(kind: str) -> list[str]:
        return list(dict.fromkeys(name for batch in batches for name in getattr(batch, kind)))

    def present(kind: str, name: str) -> list:
        return [(getattr(b, kind)[name], start) for b, start in zip(batches, starts, strict=False) if name in getattr(b, kind)]

    inputs = {
        name: FunctionSamples(
            torch.cat([s.points for s, _ in present("inputs", name)]),
            torch.cat([s.values for s, _ in present("inputs", name)]),
            torch.cat([s.items + start for s, start in present("inputs", name)]),
        )
        for name in names("inputs")
    }
    queries = {}
    for name in names("queries"):
        parts = present("queries", name)
        for kind in ("points", "conditions"):
            given = [getattr(q, kind) is not None for q, _ in parts]
            require(all(given) or not any(given), f"either all or no items have {kind} in their queries of {name!r}")
        first = parts[0][0]
        queries[name] = Queries(
            None if first.points is None else torch.cat([q.points for q, _ in parts]),
            None if first.conditions is None else torch.cat([q.conditions for q, _ in parts]),
            torch.cat([q.items + start for q, start in parts]),
        )
    targets = {name: torch.cat([t for t, _ in present("targets", name)]) for name in names("targets")}
    return SFTBatch(inputs, queries, targets, starts[-1])
