"""Quasi-static planar pushing: how an object slides on a floor while a round tip moves through a part of its outline.

Inertia is left out, so friction decides. The object moves with the twist V = (vx, vy, w) that dissipates least under what the
contact demands (the minimum power principle: Peshkin and Sanderson, "Minimization of energy in quasi-static manipulation",
1989), and the friction wrench is the gradient of the dissipation D(V), the normal of the limit surface (Goyal, Ruina and
Papadopoulos, "Planar sliding with dry friction", Wear 143, 1991). Forces are in units of the friction of the whole object, so
neither its mass nor the friction of the floor matters, only how its load is spread. Lengths in metres, angles in radians.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Bool, Float

from ..errors import require

MOST_ITERATIONS = 60
TOLERANCE = 1e-12  # of the dissipation, what another step would still gain
FINE = 8  # points along a patch that say how much of it bears a load
TYPICAL = 0.05  # metres, the size of an object: where a search begins, no more

Twists = Float[np.ndarray, "n 3"]


@dataclass(frozen=True, eq=False)
class Support:
    """Where an object stands on the floor: patches, the share of the load that each bears, and the side of each square patch."""

    places: Float[np.ndarray, "patches 2"]
    shares: Float[np.ndarray, " patches"]
    sizes: Float[np.ndarray, " patches"]

    def __post_init__(self) -> None:
        require(len(self.places) > 0, "a support needs at least one patch; got none")
        require(
            len(self.places) == len(self.shares) == len(self.sizes),
            f"every patch needs a place, a share and a size; got {len(self.places)}, {len(self.shares)} and {len(self.sizes)}",
        )
        fits = bool((self.shares >= 0).all()) and abs(float(self.shares.sum()) - 1) < 1e-6 and bool((self.sizes > 0).all())
        require(fits, "shares of the load must be 0 or more and sum to 1, sizes positive; got others")

    @property
    def centre(self) -> Float[np.ndarray, " 2"]:
        """The centre of the load, that of friction for translations."""
        return self.shares @ self.places


def spread(loads: Callable[[np.ndarray], np.ndarray], reach: float, patch: float) -> Support:
    """A load within `reach` of the origin along x and y in square patches; `loads` says it at points, `FINE` along a patch."""
    num = 2 * math.ceil(reach / patch + 1)
    fine = (np.arange(num * FINE) + 0.5) / FINE - num / 2
    points = patch * np.stack(np.meshgrid(fine, fine), -1).reshape(-1, 2)
    found = loads(points).astype(float)
    moments = np.stack([found, *(found * axis for axis in points.T)])
    totals, *firsts = moments.reshape(3, num, FINE, num, FINE).sum((2, 4)).reshape(3, -1)
    borne = totals > 0
    places = np.stack(firsts, -1)[borne] / totals[borne, None]  # the middle of the load of a patch
    return Support(places, totals[borne] / totals.sum(), np.full(int(borne.sum()), patch))


class Friction(ABC):
    """The dissipation D(V) of an object that moves with the twist V: convex, and twice as large for twice the twist."""

    @abstractmethod
    def derivatives(self, twists: Twists) -> tuple[Float[np.ndarray, " n"], Twists, np.ndarray, np.ndarray]:
        """D, its gradient (the wrench that keeps this motion up), its Hessian, and the matrix of a quadratic above D:
        that of D(V) + (x'Mx - V'MV) / 2, which touches D at V."""

    def dissipation(self, twists: Twists) -> Float[np.ndarray, " n"]:
        return self.derivatives(np.atleast_2d(np.asarray(twists, dtype=float)))[0]

    def wrenches(self, twists: Twists) -> Twists:
        """The force and the moment about the origin that move the object so: a point of the limit surface."""
        return self.derivatives(np.atleast_2d(np.asarray(twists, dtype=float)))[1]


class PatchFriction(Friction):
    """The integral over the support: D(V) = sum of shares p_i sqrt(|v + w x r_i|^2 + w^2 s_i^2 / 12).

    The second term is what a square patch of side s_i adds to its middle, in second order: D stays smooth where the object turns
    about a patch. All sums are products with moments of the patches.
    """

    def __init__(self, support: Support) -> None:
        x, y = support.places.T
        self.shares = support.shares
        self.moments = np.stack([np.ones_like(x), x, y, x**2 + y**2 + support.sizes**2 / 12])
        rows, columns = np.triu_indices(4)
        self.pairs, self.where = self.moments[rows] * self.moments[columns], np.zeros((4, 4), dtype=int)
        self.where[rows, columns] = self.where[columns, rows] = np.arange(len(rows))

    def derivatives(self, twists: Twists) -> tuple[Float[np.ndarray, " n"], Twists, np.ndarray, np.ndarray]:
        vx, vy, w = twists.T
        squares = np.stack([vx**2 + vy**2, 2 * w * vy, -2 * w * vx, w**2], -1) @ self.moments
        least = 1e-18 * (vx**2 + vy**2 + w**2 * self.moments[3].max())
        squares = np.maximum(squares, least[:, None] + 1e-300)  # rounding, where the object turns about a tiny patch
        inverse = self.shares / np.sqrt(squares)
        m0, m1, m2, m3 = (inverse @ self.moments.T).T
        zero = np.zeros_like(m0)
        above = np.stack([m0, zero, -m2, zero, m0, m1, -m2, m1, m3], -1).reshape(-1, 3, 3)
        wrench = np.einsum("nij,nj->ni", above, twists)
        # the velocity of a patch, as a twist sees it, is a matrix times its moments
        speeds = np.stack([vx, zero, -w, zero, vy, w, zero, zero, zero, vy, -vx, w], -1).reshape(-1, 3, 4)
        spread = ((inverse / squares) @ self.pairs.T)[:, self.where]
        return (wrench * twists).sum(-1), wrench, above - speeds @ spread @ speeds.transpose(0, 2, 1), above


class EllipsoidFriction(Friction):
    """The ellipsoidal limit surface (Lee and Cutkosky, "Fixture planning with friction", 1991), much faster: the ellipsoid
    through the force of all translations and the moment of the turn about the centre of the load."""

    def __init__(self, support: Support) -> None:
        x, y = support.centre
        offsets = support.places - support.centre
        radius = float(support.shares @ np.sqrt((offsets**2).sum(1) + support.sizes**2 / 12))
        at_centre = np.array([[1.0, 0.0, -y], [0.0, 1.0, x], [0.0, 0.0, radius]])
        self.matrix = at_centre.T @ at_centre

    def derivatives(self, twists: Twists) -> tuple[Float[np.ndarray, " n"], Twists, np.ndarray, np.ndarray]:
        mapped = twists @ self.matrix
        dissipation = np.sqrt(np.maximum((mapped * twists).sum(-1), 1e-300))
        wrench = mapped / dissipation[:, None]
        above = self.matrix / dissipation[:, None, None]
        return dissipation, wrench, above - wrench[:, :, None] * wrench[:, None] / dissipation[:, None, None], above


def least_dissipation(friction: Friction, start: Twists, directions: Float[np.ndarray, "n 3 k"]) -> Twists:
    """Of all twists start + directions y those of the least dissipation.

    Newton's method; where its step dissipates more, the minimum of the quadratic above D instead, which never does.
    """
    twists, lowest, sure = start.astype(float), np.full(len(start), np.inf), np.zeros_like(start)
    rows = np.arange(len(start))
    tried = twists.copy()
    for _ in range(MOST_ITERATIONS):
        dissipation, wrench, bent, above = friction.derivatives(tried)
        along = directions[rows]
        better = dissipation <= lowest[rows]
        accepted = rows[better]
        twists[accepted], lowest[accepted] = tried[better], dissipation[better]
        newton, safe = (_step(matrix, along, wrench) for matrix in (bent, above))
        sure[accepted] = (tried + safe)[better]
        gain = -(newton * wrench).sum(-1)
        going = ~better | (gain > TOLERANCE * dissipation)
        again = rows[~better]
        if len(again):  # a sure step that did not help is at the minimum but for rounding
            stuck = (np.abs(sure[again] - tried[~better]) <= 1e-14 * np.abs(sure[again]).max(1, keepdims=True)).all(1)
            going[~better] = ~stuck
        tried = np.where(better[:, None], tried + newton, sure[rows])[going]
        rows = rows[going]
        if len(rows) == 0:
            break
    return twists


def _step(matrix: np.ndarray, along: np.ndarray, wrench: Twists) -> Twists:
    """To the minimum of a quadratic with this matrix and, here, this gradient, along some directions."""
    down = np.einsum("nik,ni->nk", along, wrench)
    inner = along.transpose(0, 2, 1) @ matrix @ along
    inner = inner + 1e-13 * np.eye(along.shape[2]) * np.trace(inner, axis1=1, axis2=2)[:, None, None]
    return -np.einsum("nik,nk->ni", along, np.linalg.solve(inner, down[:, :, None])[:, :, 0])


def moved_at_contact(
    friction: Friction,
    contacts: Float[np.ndarray, "n 2"],
    normals: Float[np.ndarray, "n 2"],
    moves: Float[np.ndarray, "n 2"],
    grip: float,
    hints: Twists | None = None,
) -> tuple[Twists, Float[np.ndarray, "n 2"], Bool[np.ndarray, " n"]]:
    """The twists of objects pushed at contact points by `moves`, the forces there, and where the tip slides along the object.

    `normals` point into the objects, `grip` is the coefficient of friction at the contact. If the tip sticks, the contact moves
    with it and the force lies in the friction cone; else the force is on the cone's edge, the tip slides along the object, and
    the contact moves by as much along the normal. `hints`: twists that are probably near, those of the step before.
    """
    hints = np.zeros((len(moves), 3)) if hints is None else hints
    cx, cy = contacts.T
    tangents = np.stack([-normals[:, 1], normals[:, 0]], -1)
    about_contact = np.stack([cy, -cx, np.ones_like(cx)], -1)
    start = np.concatenate([moves, np.zeros((len(moves), 1))], 1) + hints[:, 2:] * about_contact
    twists = least_dissipation(friction, start, about_contact[:, :, None])
    forces = friction.wrenches(twists)[:, :2] if len(twists) else np.zeros((0, 2))
    pressed, dragged = (forces * normals).sum(1), (forces * tangents).sum(1)
    slides = np.abs(dragged) > grip * pressed
    rows = np.flatnonzero(slides)
    if len(rows):
        edge = normals[rows] + grip * np.sign(dragged[rows])[:, None] * tangents[rows]
        fx, fy = edge.T
        moment = cx[rows] * fy - cy[rows] * fx
        wrench = np.stack([fx, fy, moment], -1)
        # one twist of unit power, and the two directions that keep the power
        helps = (hints[rows] * wrench).sum(1, keepdims=True) > 0
        start = np.where(helps, hints[rows], wrench / np.array([1.0, 1.0, TYPICAL**2]))
        start = start / (start * wrench).sum(1, keepdims=True)
        zero, squares = np.zeros_like(fx), fx**2 + fy**2
        across = np.stack([-fy, fx, zero], -1), np.stack([-fx * moment, -fy * moment, squares], -1)
        found = least_dissipation(friction, start, np.stack(across, -1))
        at_contact = found[:, :2] + found[:, 2:] * np.stack([-cy[rows], cx[rows]], -1)
        closing = np.maximum((at_contact * normals[rows]).sum(1), 1e-3)
        twists[rows] = found * ((moves[rows] * normals[rows]).sum(1) / closing)[:, None]
        forces[rows] = friction.wrenches(found)[:, :2]
    return twists, forces, slides


@dataclass(frozen=True, eq=False)
class Outline:
    """A polygon without holes, its corners in counter-clockwise order."""

    corners: Float[np.ndarray, "corners 2"]

    @cached_property
    def _sides(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        along = np.roll(self.corners, -1, 0) - self.corners
        return self.corners, along, (along**2).sum(1)

    def contains(self, points: Float[np.ndarray, "n 2"]) -> Bool[np.ndarray, " n"]:
        """Whether points lie inside: an odd number of sides is crossed on the way to the right."""
        (ax, ay), (dx, dy) = (part.T for part in self._sides[:2])
        x, y = points.T[:, :, None]
        crossed = (ay > y) != (ay + dy > y)
        with np.errstate(divide="ignore", invalid="ignore"):
            return (crossed & (x < ax + dx * (y - ay) / dy)).sum(1) % 2 == 1

    def nearest(self, points: Float[np.ndarray, "n 2"]) -> tuple[Float[np.ndarray, "n 2"], Float[np.ndarray, " n"]]:
        """The nearest points of the outline, and the distances to it, below 0 inside."""
        starts, along, squares = self._sides
        offsets = points[:, None] - starts
        shares = np.clip((offsets * along).sum(-1) / squares, 0.0, 1.0)
        apart = offsets - shares[:, :, None] * along
        distances = (apart**2).sum(-1)
        chosen = distances.argmin(1)
        rows = np.arange(len(points))
        signs = np.where(self.contains(points), -1.0, 1.0)
        return points - apart[rows, chosen], signs * np.sqrt(distances[rows, chosen])


@dataclass(frozen=True)
class Tip:
    """The round end of the pusher, how far it goes straight on, in how many steps, and its friction against objects."""

    radius: float
    travel: float
    grip: float
    num_steps: int = 50


def pushed(
    friction: Friction,
    outline: Outline,
    tip: Tip,
    starts: Float[np.ndarray, "n 2"],
    angles: Float[np.ndarray, " n"],
) -> Float[np.ndarray, "n 3"]:
    """How one object moves in each of n pushes: dx, dy of its origin and the angle by which it turns, in its first frame.

    Tips start at `starts` and go straight in the direction of `angles`; where one reaches into the outline, the object is moved
    out of its way along the normal of the nearest point, and along the tangent as friction at the contact says.
    """
    poses, before = np.zeros((len(starts), 3)), np.zeros((len(starts), 3))
    step = tip.travel / tip.num_steps * np.stack([np.cos(angles), np.sin(angles)], -1)
    reach = float(np.sqrt((outline.corners**2).sum(1).max())) + tip.radius
    for number in range(1, tip.num_steps + 1):
        seen = _turned(starts + number * step - poses[:, :2], -poses[:, 2])
        rows = np.flatnonzero((seen**2).sum(1) < reach**2)
        contacts, distances = outline.nearest(seen[rows])
        normals = (contacts - seen[rows]) / np.where(np.abs(distances) < 1e-12, 1e-12, distances)[:, None]
        moves = _turned(step[rows], -poses[rows, 2])
        closing = (moves * normals).sum(1)
        touching = (distances < tip.radius) & (closing > 0)
        rows, contacts, normals, moves = rows[touching], contacts[touching], normals[touching], moves[touching]
        if len(rows) == 0:
            continue
        depths, closing = tip.radius - distances[touching], closing[touching]
        # along the normal as far as the tip reaches in; sideways for the part of the step that it was in contact
        sideways = (moves - closing[:, None] * normals) * np.minimum(depths / closing, 1.0)[:, None]
        moves = depths[:, None] * normals + sideways
        before[rows] = twists = moved_at_contact(friction, contacts, normals, moves, tip.grip, before[rows])[0]
        poses[rows, :2] += _turned(twists[:, :2], poses[rows, 2] + twists[:, 2] / 2)
        poses[rows, 2] += twists[:, 2]
    return poses


def _turned(vectors: Float[np.ndarray, "n 2"], angles: Float[np.ndarray, " n"]) -> Float[np.ndarray, "n 2"]:
    cos, sin = np.cos(angles), np.sin(angles)
    x, y = vectors.T
    return np.stack([cos * x - sin * y, sin * x + cos * y], -1)
