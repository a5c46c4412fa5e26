"""Pushes of objects and what they do, as sampled functions: the picture, the push, other pushes of the object -> its motion."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import cache, cached_property

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, Shaped, UInt8
from torch import Tensor

from ..errors import choose, require
from ..functions import SFT, InputFunction, OutputFunction
from ..samples import FunctionSamples, Queries, SFTBatch
from ..spaces import Box
from .houses import some
from .push_objects import CLASSES, VIEW, PushObject

FARTHEST = 0.12  # m, along x and y, from the middle of the object to where a tip starts
PICTURE = Box((-VIEW, -VIEW), (VIEW, VIEW))
"""The space: the picture. Tips start outside of it; a push stands at the nearest point of the picture, its values say where."""
TRAVEL = 0.05  # m, the length of a push (Omnipush)
MOTION_SCALE = (0.0155, 0.0155, 0.2152)
"""The units of errors, in m, m and rad: deviations of the motions in Omnipush. Those of dx and dy, 15.37 and 15.63 mm,
are made one so that turned motions have the same errors."""
NUM_PIXELS, NUM_EXAMPLES = 64, 50
ACROSS = 144  # pixels along a side of the picture, of about a millimetre each
STRATA = math.isqrt(NUM_PIXELS)  # one pixel is drawn in each of 8 x 8 squares of the picture
_LINE = VIEW * ((2 * torch.arange(ACROSS) + 1) / ACROSS - 1)
PLACES = torch.stack([axis.flatten() for axis in torch.meshgrid(_LINE, _LINE, indexing="xy")], -1)
"""Where the pixels of a picture are: x, y in m, row by row from below."""

PUSHING = SFT(
    PICTURE,
    (
        InputFunction("pixels", len(CLASSES)),
        InputFunction("blank", len(CLASSES)),
        InputFunction("push", 4),
        InputFunction("examples", 7),
    ),
    (OutputFunction("motion", 3, integrated=True),),
)
"""The picture, a class at each place, or one that shows nothing; the push (x, y, dx, dy) at the place where it starts; pushes of
the same object with what they did (dx, dy, dtheta); and the motion of the object, in units of `MOTION_SCALE`."""
PICTURES = ("pixels", "blank")
NUM_CONDITIONS = 5


def sft_given(inputs: Collection[str], integrated: bool = False) -> SFT:
    """What a network learns that is given these functions.

    Where the push is none of them the query tells it, so that an object is seen once and asked for any number of pushes: the
    motion is then a field, read at the middle of the tip's way or `integrated`. The query's conditions are x and y where
    the tip starts in units of the picture, its direction, and its arm about the middle.
    """
    for name in inputs:
        choose("an input of pushing", name, [f.name for f in PUSHING.inputs])
    (motion,) = PUSHING.outputs
    told = "push" in inputs
    return SFT(
        PICTURE,
        tuple(f for f in PUSHING.inputs if f.name in inputs),
        (replace(motion, integrated=told or integrated, conditions=0 if told else NUM_CONDITIONS),),
    )


PUSHING_TOLD = sft_given(("pixels", "push"))
"""The paper's: the push is an input function beside the picture."""


@dataclass(frozen=True, eq=False)
class Pushes:
    """Pushes and measured motions of numbered objects. All in the frame of the object before the push, in m, m and rad.

    `pushes`: x and y of the tip, and the angle of its way; `exact`: motions without noise, where they are known; `held_out`:
    which objects are of the test split; `sft`: what batches give and ask; `without_noise`: targets are exact.
    """

    keys: tuple[str, ...]
    numbers: tuple[int, ...]
    held_out: Bool[np.ndarray, " objects"]
    objects: Int[np.ndarray, " pushes"]
    pushes: Float[np.ndarray, "pushes 3"]
    motions: Float[np.ndarray, "pushes 3"]
    exact: Float[np.ndarray, "pushes 3"] | None = None
    sft: SFT = PUSHING_TOLD
    without_noise: bool = False

    def __post_init__(self) -> None:
        require(len(self.pushes) > 0, "pushes are needed; got none")
        places = torch.as_tensor(self.pushes[:, :2])
        bad = torch.nonzero((places.abs() > FARTHEST).any(1))[:, 0].tolist()
        require(
            not bad,
            f"tips start within {FARTHEST} m of the middle of the object, along x and y; push {bad[:1]} does not",
        )
        present = np.unique(self.objects)
        require(bool((np.diff(self.objects) >= 0).all()), "pushes must be in the order of their objects; sort them")
        told = {len(self.keys), len(self.numbers), len(self.held_out), len(present), int(present[-1]) + 1}
        require(len(told) == 1, "every object needs a key, a number, a split and at least one push; got others")
        require(self.exact is not None or not self.without_noise, "these motions were measured: none are known without noise")

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def num_items(self) -> int:
        return len(self.pushes)

    @cached_property
    def members(self) -> dict[int, Int[Tensor, " _members"]]:
        """Which pushes every object has."""
        return {n: torch.as_tensor(np.flatnonzero(self.objects == row)) for row, n in enumerate(self.numbers)}

    def selected(self, numbers: Collection[int]) -> Pushes:
        """The objects of these numbers, in this order."""
        missing = [number for number in numbers if number not in self.members]
        require(not missing, f"there are {len(self)} objects, {some(self.numbers)}; not among them: {some(missing)}")
        rows = [self.numbers.index(number) for number in numbers]
        chosen = np.concatenate([self.members[number].numpy() for number in numbers])
        return replace(
            self,
            keys=tuple(self.keys[row] for row in rows),
            numbers=tuple(numbers),
            held_out=self.held_out[rows],
            objects=np.repeat(np.arange(len(rows)), [len(self.members[number]) for number in numbers]),
            pushes=self.pushes[chosen],
            motions=self.motions[chosen],
            exact=None if self.exact is None else self.exact[chosen],
        )

    def giving(self, sft: SFT) -> Pushes:
        """The same with batches for this SFT, one of `sft_given`."""
        return replace(self, sft=sft)

    def batch(self, chosen: Int[Tensor, " chosen"], num_queries: int | None = None, seed: int | None = None) -> SFTBatch:
        """These pushes, renumbered in this order, each an item. Pixels and examples are drawn with the `seed`; without one, every
        push has its own for good. With a seed, and where the push is no input, an item asks for `num_queries` pushes of its
        object, itself and others that are not among its examples."""
        targets = self._exact if self.without_noise else self._told[:, 4:]
        given, rows, told = {}, chosen[:, None], self.sft.outputs[0].conditions == 0
        for name in (f.name for f in self.sft.inputs):
            drawn = self.drawn(name, chosen, seed)
            seen = None
            if name in PICTURES:
                seen = self._pictures[torch.as_tensor(self.objects)[chosen, None], drawn] * (name == "pixels")
            given[name] = _samples(drawn, self._told if name == "examples" else self._told[:, :4], seen)
        if seed is not None and num_queries is not None and not told:
            others = self._draw_others(chosen, torch.Generator().manual_seed(seed))
            shown = given["examples"].points.shape[0] // len(chosen) if "examples" in given else 0
            rows = torch.cat([rows, others[:, shown : shown + num_queries - 1]], 1)
        items = torch.arange(len(chosen)).repeat_interleave(rows.shape[1])
        asked = asked_for(self._told[rows.flatten()], items, self.sft)
        return SFTBatch(given, {"motion": asked}, {"motion": targets[rows.flatten()]}, len(chosen))

    def drawn(self, name: str, chosen: Int[Tensor, " chosen"], seed: int | None) -> Int[Tensor, "chosen drawn"]:
        """Which pixels, or which pushes, items are given; without a seed what a generator of each object's own has drawn."""
        if name == "push":
            return chosen[:, None]
        draw = _draw_pixels if name in PICTURES else self._draw_examples
        if seed is not None:
            return draw(chosen, torch.Generator().manual_seed(seed))
        if name not in self._kept:
            each = [draw(rows, torch.Generator().manual_seed(number)) for number, rows in self.members.items()]
            fewest = min(drawn.shape[1] for drawn in each)
            self._kept[name] = torch.cat([drawn[:, :fewest] for drawn in each])
        return self._kept[name][chosen]

    @cached_property
    def _kept(self) -> dict[str, Int[Tensor, "pushes drawn"]]:
        return {}

    def _draw_examples(self, chosen: Int[Tensor, " chosen"], generator: torch.Generator) -> Int[Tensor, "chosen examples"]:
        return self._draw_others(chosen, generator)[:, :NUM_EXAMPLES]

    def _draw_others(self, chosen: Int[Tensor, " chosen"], generator: torch.Generator) -> Int[Tensor, "chosen others"]:
        """Other pushes of the same object in random order, as many as each of these objects has."""
        counts = torch.as_tensor(np.bincount(self.objects))
        objects = torch.as_tensor(self.objects)[chosen]
        starts = (counts.cumsum(0) - counts)[objects]
        others = counts[objects] - 1
        keys = torch.rand(len(chosen), int(others.max()), generator=generator)
        keys = torch.where(torch.arange(keys.shape[1]) < others[:, None], keys, 2.0)
        ranks = keys.argsort(1)[:, : int(others.min())]
        return (starts + ranks.T + (chosen - starts <= ranks.T)).T

    @cached_property
    def _pictures(self) -> UInt8[Tensor, "objects pixels"]:
        return torch.stack([torch.as_tensor(picture_of(key)) for key in self.keys])

    @cached_property
    def _told(self) -> Float[Tensor, "pushes 7"]:
        """Every push and what it did, as examples have it."""
        return torch.cat([_told(self.pushes), torch.as_tensor(self.motions / MOTION_SCALE, dtype=torch.float32)], -1)

    @cached_property
    def _exact(self) -> Float[Tensor, "pushes 3"]:
        return torch.as_tensor(self.exact / np.array(MOTION_SCALE), dtype=torch.float32)


@cache
def picture_of(key: str) -> UInt8[np.ndarray, " pixels"]:
    """The class of every pixel of an object's picture, row by row from below: where they are is in `PLACES`."""
    return PushObject(key).classes(PLACES.double().numpy()).astype(np.uint8)


def push_batch(sft: SFT, picture: UInt8[np.ndarray, " pixels"], pushes: Float[np.ndarray, "n 3"], seed: int = 0) -> SFTBatch:
    """Questions for the motions of one object: its picture, always the same pixels of it, and n pushes."""
    names = [f.name for f in sft.inputs]
    told, num_items = _told(pushes), len(pushes) if "push" in names else 1
    pixels = _draw_pixels(torch.zeros(1), torch.Generator().manual_seed(seed)).expand(num_items, -1)
    seen = torch.as_tensor(picture)[pixels]
    made = {
        "pixels": _samples(pixels, told, seen),
        "blank": _samples(pixels, told, torch.zeros_like(seen)),
        "push": _samples(torch.arange(len(pushes))[:, None], told),
    }
    items = torch.arange(len(pushes)) % num_items
    return SFTBatch({name: made[name] for name in names}, {"motion": asked_for(told, items, sft)}, {}, num_items)


def _told(pushes: Float[np.ndarray, "n 3"]) -> Float[Tensor, "n 4"]:
    """x, y, dx, dy of pushes."""
    x, y, angle = pushes.T
    return torch.as_tensor(np.stack([x, y, TRAVEL * np.cos(angle), TRAVEL * np.sin(angle)], -1), dtype=torch.float32)


def asked_for(told: Float[Tensor, "n _"], items: Int[Tensor, " n"], sft: SFT) -> Queries:
    """The queries for the motions of pushes."""
    (motion,) = sft.outputs
    if motion.conditions == 0:
        return Queries(items=items)
    (x, y), (u, v) = told[:, :2].T / VIEW, told[:, 2:4].T / TRAVEL
    midway = None if motion.integrated else PICTURE.project(told[:, :2] + told[:, 2:4] / 2)
    return Queries(midway, torch.stack([x, y, u, v, x * v - y * u], -1), items)


def _draw_pixels(chosen: Shaped[Tensor, " chosen"], generator: torch.Generator) -> Int[Tensor, "chosen pixels"]:
    """A pixel in each of 8 x 8 squares of the picture."""
    within = torch.randint(ACROSS // STRATA, (len(chosen), STRATA, STRATA, 2), generator=generator)
    first = torch.arange(STRATA) * (ACROSS // STRATA)
    rows, columns = first[:, None] + within[..., 0], first + within[..., 1]
    return (rows * ACROSS + columns).flatten(1)


def _samples(
    drawn: Int[Tensor, "items drawn"], told: Float[Tensor, "pushes _"], seen: UInt8[Tensor, "items drawn"] | None = None
) -> FunctionSamples:
    """Drawn pixels with the classes that are `seen` there; or drawn pushes with what is told of each."""
    rows, items = drawn.flatten(), torch.arange(len(drawn)).repeat_interleave(drawn.shape[1])
    if seen is None:
        return FunctionSamples(PICTURE.project(told[rows, :2]), told[rows], items)
    return FunctionSamples(PLACES[rows], torch.nn.functional.one_hot(seen.flatten().long(), len(CLASSES)).float(), items)
