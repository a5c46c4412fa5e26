"""Objects of the Omnipush kind: four sides around a square base, some with weights; their outline, picture and load.

A key such as "1a2B3c4a" reads around the object: a shape from 1 to 4 and a weight for each side. Omnipush (Bauza et al.,
"Omnipush: accurate, diverse, real-world dataset of pushing dynamics with RGBD images", 2019) publishes keys, but no drawings with
measures: what is not known is assumed here, each number in one place.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import product

import numpy as np
from jaxtyping import Float, Int

from ..errors import require
from .quasi_static import FINE, Outline, Support, spread

BASE = 0.035  # m, half the width of the square base and of a side. Assumed
REACH = 0.06  # m, from the middle to the end of a side. Objects are 0.115 to 0.135 m across (camera calibration of Omnipush)
DENT = 0.012  # m, depth of the dent of a concave side. Assumed
CONCAVE, RECTANGULAR, CIRCULAR, TRIANGULAR = "1", "2", "3", "4"
# 1 and 3 are seen in videos of Omnipush; 2 and 4 are the other two in an order that is inferred: only 2 has a second place
# for a weight, and no 4 has a weight
WEIGHTS = {"a": 0.0, "b": 0.06, "c": 0.15}  # kg. Named in the literature on Omnipush, not in its files
WEIGHT_RADIUS = 0.0125  # m. Assumed
MOUNT, SECOND_MOUNT = 0.035, 0.0475  # m from the middle; a capital letter is the second. Assumed
DENSITY = 20.0  # kg of an object without weights on a square metre of its footprint, about 0.2 kg in all. Assumed
PATCH = 0.006  # m, the side of the patches that bear the load
ARC = 16  # pieces of an arc

VIEW = 0.07  # m, half the side of the picture from above
CLASSES = ("nothing", "object", "light weight", "heavy weight")


@dataclass(frozen=True)
class PushObject:
    """The object of a key: side 0 of it faces along x, the next ones follow counter-clockwise (assumed)."""

    key: str

    def __post_init__(self) -> None:
        require(
            isinstance(self.key, str) and len(self.key) == 8 and all(map(_is_side, self.sides)),
            "the key of an object has four sides, each a shape from 1 to 4 and a weight, a, b or c "
            f"(B or C: at the second place, of shape 2 alone; none but a on shape 4), such as 1a2B3c4a; got {self.key!r}",
        )

    @property
    def sides(self) -> tuple[str, ...]:
        return tuple(self.key[start : start + 2] for start in range(0, len(self.key), 2))

    @property
    def name(self) -> str:
        """The same for all keys of the same object: the first in order of those read from another side."""
        return min(self.key[start:] + self.key[:start] for start in range(0, 8, 2))

    @cached_property
    def outline(self) -> Outline:
        return Outline(np.concatenate([_turned(_profile(side[0]), turns) for turns, side in enumerate(self.sides)]))

    @property
    def weights(self) -> list[tuple[float, Float[np.ndarray, " 2"]]]:
        """Mass and place of every weight."""
        found = []
        for turns, (_, letter) in enumerate(self.sides):
            place = np.array([[SECOND_MOUNT if letter.isupper() else MOUNT, 0.0]])
            found.append((WEIGHTS[letter.lower()], _turned(place, turns)[0]))
        return [(mass, place) for mass, place in found if mass > 0]

    def classes(self, points: Float[np.ndarray, "n 2"]) -> Int[np.ndarray, " n"]:
        """What a picture from above shows at points: 0 to 3, see `CLASSES`."""
        seen = self.outline.contains(points).astype(int)
        for mass, place in self.weights:
            seen[((points - place) ** 2).sum(1) < WEIGHT_RADIUS**2] = 2 if mass == WEIGHTS["b"] else 3
        return seen

    def support(self, patch: float = PATCH) -> Support:
        """Its own load spread evenly over its footprint, that of every weight over the disc below it."""

        def loads(points: Float[np.ndarray, "n 2"]) -> Float[np.ndarray, " n"]:
            found = DENSITY * (patch / FINE) ** 2 * self.outline.contains(points)
            for mass, place in self.weights:
                below = ((points - place) ** 2).sum(1) < WEIGHT_RADIUS**2
                found = found + mass * below / below.sum()
            return found

        return spread(loads, REACH, patch)


def random_keys(num: int, rng: np.random.Generator) -> list[str]:
    """Keys of so many different objects."""
    plain = [side for side in SIDES if side.endswith("a")]
    most = len({PushObject("".join(key)).name for key in product(SIDES, repeat=4)}) if num > 1000 else num
    require(num <= most, f"there are {most} different objects; got {num}, ask for fewer")
    names: dict[str, None] = {}
    while len(names) < num:
        # weights on about a third of the sides
        key = "".join(rng.choice(SIDES if rng.random() < 0.5 else plain) for _ in range(4))
        names[PushObject(key).name] = None
    return list(names)


def _is_side(side: str) -> bool:
    shape, letter = side[0], side[1:]
    if shape not in (CONCAVE, RECTANGULAR, CIRCULAR, TRIANGULAR) or letter.lower() not in WEIGHTS or letter == "A":
        return False
    return letter == "a" or (shape != TRIANGULAR and (letter.islower() or shape == RECTANGULAR))


def _profile(shape: str) -> Float[np.ndarray, "corners 2"]:
    """The corners of the side that faces along x, without the last one, which is the first of the next side."""
    start = [(BASE, -BASE)]
    if shape == CIRCULAR:
        corners = _arc((BASE, BASE), REACH - BASE)[:-1]
    elif shape == TRIANGULAR:
        corners = [*start, (REACH, 0.0)]
    elif shape == RECTANGULAR:
        corners = [*start, (REACH, -BASE), (REACH, BASE)]
    else:
        corners = [*start, *_arc((REACH, BASE), -DENT)]
    return np.array(corners)


def _arc(end: tuple[float, float], rise: float) -> list[tuple[float, float]]:
    """Points of the arc of a circle from (x, -y) to (x, y) that rises by so much in the middle."""
    x, y = end
    radius = (y**2 + rise**2) / (2 * rise)
    angles = np.linspace(-1, 1, ARC + 1) * np.arcsin(y / radius)
    return [(x + rise - radius * (1 - np.cos(angle)), radius * np.sin(angle)) for angle in angles]


def _turned(points: Float[np.ndarray, "n 2"], turns: int) -> Float[np.ndarray, "n 2"]:
    for _ in range(turns):
        points = np.stack([-points[:, 1], points[:, 0]], -1)
    return points


SIDES = tuple(shape + letter for shape in "1234" for letter in "abcBC" if _is_side(shape + letter))
"""All sides that an object can have."""
