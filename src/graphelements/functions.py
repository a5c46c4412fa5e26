"""Spatial function transformations: which functions go in and come out, and what is known of them (paper sections 3.1, 3.2)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from .errors import InputError, choose, require
from .samples import SFTBatch
from .spaces import Box, Space, Sphere

LOSSES = ("squared_error", "cross_entropy")
LARGEST = 1e15
"""Values are no larger than this: the squares of what is larger soon leave single precision."""


@dataclass(frozen=True)
class InputFunction:
    """f_i : X -> I_i, described by samples with `channels` numbers each. `scales` and `shifts`: see `SFT`."""

    name: str
    channels: int = 1
    scales: bool = False
    shifts: bool = False

    def __post_init__(self) -> None:
        require(self.channels > 0, f"input function {self.name!r} needs at least one channel; got {self.channels}")


@dataclass(frozen=True)
class OutputFunction:
    """g_j : X -> O_j, a field; or, with `integrated`, one answer for the whole space (paper section 4.2).

    `loss` is the distance in O_j. `conditions` counts the numbers that a query hands to the decoder besides its place.
    `scales` and `shifts`: see `SFT`.
    """

    name: str
    channels: int = 1
    integrated: bool = False
    loss: str = "squared_error"
    conditions: int = 0
    scales: bool = False
    shifts: bool = False

    def __post_init__(self) -> None:
        require(self.channels > 0, f"output function {self.name!r} needs at least one channel; got {self.channels}")
        require(self.conditions >= 0, f"output function {self.name!r}: conditions must be 0 or more; got {self.conditions}")
        choose(f"the loss of output function {self.name!r}", self.loss, LOSSES)
        require(
            self.loss == "squared_error" or not (self.scales or self.shifts),
            f"output function {self.name!r} has the loss {self.loss}: its answers can neither scale nor shift",
        )


@dataclass(frozen=True)
class SFT:
    """A spatial function transformation: the space, the input functions, the output functions.

    Functions can declare what is known of the transformation. With all functions that `scales` times one positive number, what
    was true is true again; and so with one constant added to all functions that `shifts`. A linear problem scales in all its
    functions, a temperature that follows that of its border shifts with it. Networks with `relative` make it exact.
    """

    space: Box | Sphere
    inputs: tuple[InputFunction, ...]
    outputs: tuple[OutputFunction, ...]

    def __post_init__(self) -> None:
        for name in ("inputs", "outputs"):
            functions = getattr(self, name)
            require(isinstance(functions, (tuple, list)), f"the {name} of an SFT are a tuple of functions; got {functions!r}")
            object.__setattr__(self, name, tuple(functions))
        require(len(self.inputs) > 0, "an SFT needs at least one input function; got none")
        require(len(self.outputs) > 0, "an SFT needs at least one output function; got none")
        for known in ("scales", "shifts"):
            marked = [[f for f in functions if getattr(f, known)] for functions in (self.inputs, self.outputs)]
            require(
                len(marked[0]) > 0 or len(marked[1]) == 0,
                f"an output that {known} needs an input that {known} with it; mark one, or unmark {[f.name for f in marked[1]]}",
            )
        shifting = [f for functions in (self.inputs, self.outputs) for f in functions if f.shifts]
        require(
            len({f.scales for f in shifting}) < 2,
            f"functions that shift together scale all or none; got {[f.name for f in shifting if f.scales]} that scale "
            f"and {[f.name for f in shifting if not f.scales]} that do not",
        )
        channels = {f.channels for f in shifting}
        require(len(channels) < 2, f"functions that shift together need equally many channels; got {sorted(channels)}")
        taken = nn.ModuleDict()  # functions name parts of the network
        for functions in (self.inputs, self.outputs):
            names = [f.name for f in functions]
            require(len(set(names)) == len(names), f"the functions of an SFT need different names; got {names}")
            for name in names:
                require(name.isidentifier(), f"a function's name must be a Python identifier; got {name!r}")
                require(not hasattr(taken, name), f"torch modules use this name themselves, choose another name; got {name!r}")

    def validate(self, batch: SFTBatch, dtype: torch.dtype = torch.float32, space: Space | None = None) -> None:
        """Check names, channels, types, sizes and places of a batch once, at the boundary; raise `InputError` if wrong.

        Places must lie in `space`, which is this SFT's if not given.
        """
        space = space or self.space
        for tensor in batch.tensors():
            require(tensor.dtype == dtype, f"the numbers of a batch must be {dtype}; got {tensor.dtype}, convert them")
        unknown = set(batch.inputs) - {f.name for f in self.inputs}
        require(not unknown, f"input functions are {[f.name for f in self.inputs]}; got {sorted(unknown)} besides")
        unknown = (set(batch.queries) | set(batch.targets)) - {f.name for f in self.outputs}
        require(not unknown, f"output functions are {[f.name for f in self.outputs]}; got {sorted(unknown)} besides")
        for function in self.inputs:
            if function.name in batch.inputs:
                samples = batch.inputs[function.name]
                self._check(function.name, "values", samples.values, function.channels)
                self._check_places(function.name, samples.points, space)
                self._check_items(function.name, samples.items, batch.num_items)
        for function in self.outputs:
            if function.name in batch.queries:
                queries = batch.queries[function.name]
                require(
                    function.integrated == (queries.points is None),
                    f"output {function.name!r} is "
                    + ("integrated: its queries have no points" if function.integrated else "a field: its queries need points"),
                )
                if queries.points is not None:
                    self._check_places(function.name, queries.points, space)
                self._check_items(function.name, queries.items, batch.num_items)
                given = 0 if queries.conditions is None else queries.conditions.shape[-1]
                require(
                    given == function.conditions,
                    f"queries of {function.name!r} need {function.conditions} conditions; got {given}",
                )
                if queries.conditions is not None:
                    self._check(function.name, "conditions", queries.conditions, given)
            if function.name in batch.targets:
                targets = batch.targets[function.name]
                self._check(function.name, "targets", targets, function.channels)
                if function.loss == "cross_entropy":
                    simplex = (targets >= 0).all() & ((targets.sum(-1) - 1).abs() < 1e-3).all()
                    require(bool(simplex), f"targets of {function.name!r} must be probabilities: not negative, rows sum to 1")

    def _check(self, name: str, what: str, values: Tensor, channels: int) -> None:
        require(values.shape[-1] == channels, f"{what} of {name!r} need {channels} channels; got {values.shape[-1]}")
        low, high = torch.stack(values.detach().aminmax()).tolist() if values.numel() else (0.0, 0.0)
        require(
            math.isfinite(low) and math.isfinite(high),
            f"{what} of {name!r} must be finite; found NaN or infinity, remove those rows",
        )
        require(
            low >= -LARGEST and high <= LARGEST,
            f"{what} of {name!r} must be {LARGEST:g} at most, whatever their sign; got {low:g} to {high:g}, use larger units",
        )

    def _check_items(self, name: str, items: Tensor, num_items: int) -> None:
        lowest, highest = items.aminmax() if len(items) else (0, 0)
        require(
            int(lowest) >= 0 and int(highest) < num_items,
            f"items of {name!r} must be 0 to {num_items - 1}, because the batch has num_items = {num_items}; found others",
        )

    def _check_places(self, name: str, points: Tensor, space: Space) -> None:
        require(
            points.shape[-1] == space.dim,
            f"points of {name!r} need {space.dim} coordinates; got {points.shape[-1]}",
        )
        if isinstance(space, Box) and space.surely_contains(points):
            return
        inside = space.contains(points)
        if bool(inside.all()):  # NaN and infinity do not
            return
        require(bool(points.isfinite().all()), f"points of {name!r} must be finite; found NaN or infinity, remove those rows")
        outside = points[~inside]
        raise InputError(
            f"points of {name!r} must lie in the space; {len(outside)} of {len(points)} do not, "
            f"the first at {outside[:1].tolist()}; enlarge the space or remove them"
        )
