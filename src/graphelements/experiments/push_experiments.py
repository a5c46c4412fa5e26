"""The experiment on pushes: which curves it has, and what is compared with what."""

from __future__ import annotations

from .experiment import Curve, Experiment

SIZES = (1, 2, 3, 4)
PUSHING_LOGS, PUSHING_PIXELS = "pushing-logs", "pushing-pixels"
"""Names of what trains nothing: the check of the simulator against real pushes, and what the pixels leave open. `pushing` draws
the latter beside its own results."""
OBSERVER = "ideal observer of the pixels"


def _longer(steps: int) -> tuple[str, ...]:
    return f"training.steps={steps}", f"training.validate_every={steps // 4}"


PUSHING = Experiment(
    "pushing",
    "pushing",
    (
        Curve("paper", "paper", "paper", resolutions=SIZES),
        Curve("default", "default (ours)", "default", resolutions=SIZES[-1:]),
        Curve("mixed", "ours, one model for all sizes", "mixed", resolutions=SIZES),
        Curve("summed", "ours, states summed", "summed", resolutions=SIZES[-1:]),
        Curve("default-long", "ours, three times as long", "default", _longer(5400), SIZES[-1:]),
        Curve("np", "neural process", "np"),
        Curve("np-tuned", "neural process, tuned", "np-tuned"),
        Curve("np-tuned-long", "neural process, tuned, three times as long", "np-tuned", _longer(6300)),
        Curve("attention", "attention", "attention"),
        Curve("attention-long", "attention, three times as long", "attention", _longer(9600)),
        Curve("no-picture", "ours, without the picture", "no-picture", resolutions=SIZES[-1:]),
        Curve("examples", "attention, 50 examples instead of the picture", "examples"),
    ),
    against=(
        ("default", "np-tuned"),
        ("default-long", "np-tuned-long"),
        ("default-long", "attention-long"),
        ("default", "attention"),
        ("default", "mixed"),
        ("default", "summed"),
        ("summed", "np-tuned"),
        ("default", "no-picture"),
        ("default", "examples"),
        ("default", "paper"),
        ("paper", "np"),
    ),
    labels=(("still", "no motion"), ("noise", "measured motion (noise)")),
    items="objects",
    also=(("-measured", "against measured motion"),),
)
