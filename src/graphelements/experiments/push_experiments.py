"""The experiment on pushes: which curves it has, and what is compared with what."""

from __future__ import annotations

from .experiment import Curve, Experiment

SIZES = (1, 2, 3, 4)
PUSHING_LOGS = "pushing-logs"
"""The name of the check of the simulator against real pushes, which trains nothing."""

PUSHING = Experiment(
    "pushing",
    "pushing",
    (
        Curve("paper", "paper", "paper", resolutions=SIZES),
        Curve("default", "default (ours)", "default", resolutions=SIZES),
        Curve("np", "neural process", "np"),
        Curve("np-tuned", "neural process, tuned", "np-tuned"),
        Curve("attention", "attention", "attention"),
        Curve("no-picture", "default, without the picture", "no-picture", resolutions=SIZES),
        Curve("examples", "attention, 50 examples instead of the picture", "examples"),
    ),
    against=(
        ("default", "np-tuned"),
        ("default", "attention"),
        ("default", "no-picture"),
        ("default", "examples"),
        ("default", "paper"),
        ("paper", "np"),
    ),
    labels=(("still", "no motion"), ("noise", "measured motion (noise)")),
    items="objects",
    also=(("-measured", "against measured motion"),),
)
