"""The experiments on the sphere: which curves each one has, and what is compared with what."""

from __future__ import annotations

from .experiment import Curve, Experiment

SIZES = (2, 3, 4, 5, 6, 7)
LARGER = (8, 9, 10, 11, 12)
ICOSAHEDRA = (1, 2, 4)

POISSON_SPHERE = Experiment(
    "poisson-sphere",
    "poisson-sphere",
    (
        Curve("paper", "paper, soft nearest", "paper"),
        Curve("default", "default (ours)", "default", resolutions=SIZES + LARGER),
        Curve("np", "neural process", "np"),
        Curve("np-tuned", "neural process, tuned", "np-tuned"),
        Curve("attention", "attention", "attention"),
    ),
    against=(("default", "np"), ("default", "np-tuned"), ("default", "attention"), ("default", "harmonics")),
    labels=(("harmonics", "least squares in harmonics of degree 3"), ("mean", "mean")),
)

SCATTERED_SPHERE = Experiment(
    "scattered-sphere",
    "scattered-sphere",
    (
        Curve("default", "default (ours)", "default", resolutions=ICOSAHEDRA),
        Curve("np-tuned", "neural process, tuned", "np-tuned"),
        Curve("attention", "attention", "attention"),
    ),
    against=(("default", "np-tuned"), ("default", "attention"), ("default", "kriging"), ("default", "optimal")),
    labels=(
        ("harmonics", "least squares in harmonics, degree by leaving out"),
        ("harmonics-fixed", "least squares in harmonics, best degree"),
        ("kriging", "kriging, best length of correlation"),
        ("optimal", "optimal: knows how fields are distributed"),
        ("mean", "mean"),
    ),
)
