"""Pushing under friction: closed forms, symmetry, the direction of forces, convergence."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from graphelements.data.push_objects import PushObject
from graphelements.data.quasi_static import (
    EllipsoidFriction,
    Friction,
    Outline,
    PatchFriction,
    Support,
    Tip,
    least_dissipation,
    moved_at_contact,
    pushed,
)
from graphelements.errors import InputError

SQUARE = Outline(0.05 * np.array([[-1.0, -1.0], [1.0, -1.0], [1.0, 1.0], [-1.0, 1.0]]))
TIP = Tip(radius=0.005, travel=0.05, grip=0.3)


def even(inside: np.ndarray, places: np.ndarray, size: float) -> Support:
    kept = places[inside]
    return Support(kept, np.full(len(kept), 1 / len(kept)), np.full(len(kept), size))


def disc(num: int) -> Support:
    """A disc of radius 1 under an even load."""
    line = (2 * np.arange(num) + 1) / num - 1
    places = np.stack(np.meshgrid(line, line), -1).reshape(-1, 2)
    return even((places**2).sum(1) < 1, places, 2 / num)


def rod(num: int) -> Support:
    """A rod from -1 to 1 along x under an even load, thin against its patches."""
    line = (2 * np.arange(num) + 1) / num - 1
    return Support(np.stack([line, np.zeros(num)], -1), np.full(num, 1 / num), np.full(num, 1e-6))


def square(num: int = 20) -> Support:
    line = 0.05 * ((2 * np.arange(num) + 1) / num - 1)
    places = np.stack(np.meshgrid(line, line), -1).reshape(-1, 2)
    return even(np.full(len(places), True), places, 0.1 / num)


def twists(num: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(num, 3))


class TestTheLimitSurface:
    def test_of_an_even_disc_is_that_of_the_closed_form(self) -> None:
        """About its middle the mean lever is 2/3 of the radius, about its rim 32 / (9 pi); a translation is as long as it is."""
        found = PatchFriction(disc(200)).dissipation(np.array([[3.0, 4.0, 0.0], [0.0, 0.0, 1.0], [0.0, 1.0, 1.0]]))
        assert found == pytest.approx([5.0, 2 / 3, 32 / (9 * np.pi)], rel=5e-4)

    @pytest.mark.parametrize("speed", [0.0, 0.3, 0.9, 1.0, 2.5])
    def test_of_an_even_rod_is_that_of_the_closed_form(self, speed: float) -> None:
        """Across: the mean of |v + w x|; along: that of sqrt(v^2 + w^2 x^2)."""
        friction = PatchFriction(rod(2001))
        across = speed if speed >= 1 else (1 + speed**2) / 2
        assert friction.dissipation(np.array([[0.0, speed, 1.0]])) == pytest.approx([across], rel=1e-3)
        along = (np.sqrt(1 + speed**2) + (speed**2 * np.arcsinh(1 / speed) if speed else 0.0)) / 2
        assert friction.dissipation(np.array([[speed, 0.0, 1.0]])) == pytest.approx([along], rel=1e-3)

    @pytest.mark.parametrize("speed", [0.0, 0.3, 0.9])
    def test_of_a_rod_has_the_limit_curve_of_force_and_moment(self, speed: float) -> None:
        """Turning about the point -v of itself, the rod is held by the force v across and the moment (1 - v^2) / 2."""
        (wrench,) = PatchFriction(rod(2001)).wrenches(np.array([[0.0, speed, 1.0]]))
        assert wrench == pytest.approx([0.0, speed, (1 - speed**2) / 2], abs=1e-3)

    @pytest.mark.parametrize("distance", [0.5, 1.0, 2.0])
    def test_of_a_disc_has_the_limit_curve_of_force_and_moment(self, distance: float) -> None:
        """Turning about a point at a distance from the middle; the integrals in polar coordinates."""
        radii, angles = ((np.arange(n) + 0.5) / n for n in (400, 800))
        r, phi = np.meshgrid(radii, 2 * np.pi * angles)
        x, y = r * np.cos(phi), r * np.sin(phi)
        vx, vy = -y, x + distance
        speeds, areas = np.hypot(vx, vy), r / r.sum()
        expected = [0.0, (areas * vy / speeds).sum(), (areas * (x * vy - y * vx) / speeds).sum()]
        (wrench,) = PatchFriction(disc(200)).wrenches(np.array([[0.0, distance, 1.0]]))
        assert wrench == pytest.approx(expected, abs=1e-3)

    @pytest.mark.parametrize("kind", [PatchFriction, EllipsoidFriction])
    def test_has_the_wrench_of_a_twist_as_the_gradient_of_what_it_dissipates(self, kind: type[Friction]) -> None:
        friction, at = kind(PushObject("1a2B3c4a").support()), twists(6)  # type: ignore[call-arg]
        _, wrench, bent, above = friction.derivatives(at)
        for axis in range(3):
            step = 1e-5 * np.eye(3)[axis]
            slope = (friction.dissipation(at + step) - friction.dissipation(at - step)) / 2e-5
            assert slope == pytest.approx(wrench[:, axis], abs=1e-7)
            bend = (friction.wrenches(at + step) - friction.wrenches(at - step)) / 2e-5
            assert bend == pytest.approx(bent[:, axis], abs=1e-5)
        assert np.linalg.eigvalsh(bent).min() > -1e-9  # convex
        assert np.linalg.eigvalsh(above - bent).min() > -1e-9  # and below the quadratic

    def test_is_met_by_the_ellipsoid_in_translations_and_turns(self) -> None:
        support = PushObject("2a1c3a4a").support()
        x, y = support.centre
        about_centre = np.array([[1.0, 0.0, 0.0], [0.6, 0.8, 0.0], [y, -x, 1.0]])
        exact, ellipsoid = (kind(support).dissipation(about_centre) for kind in (PatchFriction, EllipsoidFriction))
        assert ellipsoid == pytest.approx(exact, rel=1e-9)

    def test_converges_with_finer_patches(self) -> None:
        errors = []
        at = twists(30, 3) * [0.05, 0.05, 1.0]
        exact = PatchFriction(PushObject("1a2B3c4a").support(0.0015)).dissipation(at)
        for patch in (0.024, 0.012, 0.006):
            found = PatchFriction(PushObject("1a2B3c4a").support(patch)).dissipation(at)
            errors.append(np.abs(found / exact - 1).max())
        assert errors[2] < 0.5 * errors[1] < 0.5**2 * errors[0]
        assert errors[2] < 0.001


def test_the_least_dissipation_is_that_of_a_search_through_all_twists() -> None:
    friction = PatchFriction(square())
    start, along = twists(5, 1) * [0.01, 0.01, 0.1], np.random.default_rng(2).normal(size=(5, 3, 1)) * [[0.05], [0.05], [1.0]]
    found = friction.dissipation(least_dissipation(friction, start, along))
    grid = np.linspace(-3, 3, 20001)
    for row in range(5):
        tried = friction.dissipation(start[row] + grid[:, None] * along[row, :, 0])
        assert found[row] <= tried.min() * (1 + 1e-9)
        assert found[row] == pytest.approx(tried.min(), rel=1e-4)


class TestAContact:
    @staticmethod
    def contacts(num: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        rng = np.random.default_rng(5)
        contacts = np.stack([np.full(num, -0.05), rng.uniform(-0.05, 0.05, num)], -1)
        normals = np.tile([1.0, 0.0], (num, 1))
        angles = rng.uniform(-1.4, 1.4, num)
        return contacts, normals, 1e-3 * np.stack([np.cos(angles), np.sin(angles)], -1)

    @pytest.mark.parametrize("kind", [PatchFriction, EllipsoidFriction])
    def test_never_takes_power_from_the_object_and_stays_in_the_friction_cone(self, kind: type[Friction]) -> None:
        friction = kind(square())  # type: ignore[call-arg]
        contacts, normals, moves = self.contacts(300)
        found, forces, slides = moved_at_contact(friction, contacts, normals, moves, 0.3)
        at_contact = found[:, :2] + found[:, 2:] * np.stack([-contacts[:, 1], contacts[:, 0]], -1)
        power = (forces * at_contact).sum(1)
        assert power.min() > 0
        assert power == pytest.approx(friction.dissipation(found), rel=1e-5)  # all of it goes into the floor
        assert np.abs(forces[:, 1]).max() <= 0.3 * forces[:, 0].max() * (1 + 1e-6)
        assert (np.abs(forces[:, 1]) <= 0.3 * forces[:, 0] * (1 + 1e-5)).all()
        assert at_contact[:, 0] == pytest.approx(moves[:, 0], rel=1e-6)  # along the normal the object gives way
        assert at_contact[~slides] == pytest.approx(moves[~slides], rel=1e-6)
        assert 0.1 < slides.mean() < 0.9
        slip = moves[slides, 1] - at_contact[slides, 1]
        assert (slip * forces[slides, 1] > 0).all()  # the tip drags the object the way it slides

    def test_through_the_centre_of_friction_moves_the_object_without_a_turn(self) -> None:
        for key in ("2a2a2a2a", "1a2B3c4a", "3a1c4a2a"):
            made = PushObject(key)
            friction, centre = PatchFriction(made.support()), made.support().centre
            angles = np.linspace(0, 2 * np.pi, 17)
            ahead = np.stack([np.cos(angles), np.sin(angles)], -1)
            found, forces, slides = moved_at_contact(friction, centre - 0.06 * ahead, ahead, 1e-3 * ahead, 0.3)
            assert np.abs(found[:, 2]).max() < 1e-6
            assert found[:, :2] == pytest.approx(1e-3 * ahead, abs=1e-9)
            assert not slides.any()
            assert forces == pytest.approx(ahead, abs=1e-5)


class TestAPush:
    def test_through_the_middle_of_a_square_pushes_it_straight_on(self) -> None:
        motion = pushed(PatchFriction(square()), SQUARE, TIP, np.array([[-0.06, 0.0]]), np.array([0.0]))
        assert motion == pytest.approx(np.array([[0.045, 0.0, 0.0]]), abs=1e-9)

    def test_that_misses_leaves_the_object_where_it_is(self) -> None:
        motion = pushed(PatchFriction(square()), SQUARE, TIP, np.array([[-0.06, 0.056], [-0.2, 0.0]]), np.zeros(2))
        assert (motion == 0).all()

    def test_of_a_mirrored_object_mirrors_the_motion(self) -> None:
        made, mirrored = PushObject("1a2b3c4a"), PushObject("1a4a3c2b")  # read the other way round
        starts = np.random.default_rng(0).uniform(-1, 1, (40, 2)) * 0.02 + [0.085, 0.0]
        angles = np.random.default_rng(1).uniform(-0.8, 0.8, 40) + np.pi
        motion = pushed(PatchFriction(made.support()), made.outline, TIP, starts, angles)
        flip = np.array([1.0, -1.0])
        other = pushed(PatchFriction(mirrored.support()), mirrored.outline, TIP, starts * flip, -angles)
        assert np.abs(motion[:, 2]).max() > 0.2
        close = np.abs(other * [1.0, -1.0, -1.0] - motion).max(1) < 1e-4
        assert close.mean() > 0.9  # a tip that runs into a corner goes either way

    def test_of_a_turned_object_turns_the_motion(self) -> None:
        made, turned = PushObject("1a2b3c4a"), PushObject("4a1a2b3c")  # a quarter to the left
        starts = np.random.default_rng(0).uniform(-1, 1, (40, 2)) * 0.02 + [0.085, 0.0]
        angles = np.random.default_rng(1).uniform(-0.8, 0.8, 40) + np.pi
        motion = pushed(PatchFriction(made.support()), made.outline, TIP, starts, angles)
        quarter = np.array([[0.0, -1.0], [1.0, 0.0]])
        other = pushed(PatchFriction(turned.support()), turned.outline, TIP, starts @ quarter.T, angles + np.pi / 2)
        expected = np.concatenate([motion[:, :2] @ quarter.T, motion[:, 2:]], 1)
        assert (np.abs(other - expected).max(1) < 1e-4).mean() > 0.9

    def test_converges_with_more_steps(self) -> None:
        made = PushObject("3a3b3a3a")
        friction, rng = PatchFriction(made.support()), np.random.default_rng(4)
        starts, angles = rng.uniform(-1, 1, (40, 2)) * 0.03 + [0.085, 0.0], rng.uniform(-0.4, 0.4, 40) + np.pi
        exact = pushed(friction, made.outline, replace(TIP, num_steps=800), starts, angles)
        errors = [
            np.abs(pushed(friction, made.outline, replace(TIP, num_steps=n), starts, angles) - exact).mean()
            for n in (25, 50, 100)
        ]
        assert errors[2] < 0.7 * errors[1] < 0.7**2 * errors[0]
        assert errors[1] < 1e-3


def test_an_outline_says_what_is_inside_and_how_far_its_border_is() -> None:
    points = np.array([[0.0, 0.0], [0.04, 0.0], [0.06, 0.0], [0.08, 0.09]])
    nearest, distances = SQUARE.nearest(points)
    assert SQUARE.contains(points).tolist() == [True, True, False, False]
    assert distances == pytest.approx([-0.05, -0.01, 0.01, 0.05])
    assert nearest[1:] == pytest.approx(np.array([[0.05, 0.0], [0.05, 0.0], [0.05, 0.05]]))


@pytest.mark.parametrize("shares", [[0.5, 0.6], [-0.5, 1.5]])
def test_shares_of_a_load_that_are_none_are_refused(shares: list[float]) -> None:
    with pytest.raises(InputError, match="sum to 1"):
        Support(np.zeros((2, 2)), np.array(shares), np.ones(2))
