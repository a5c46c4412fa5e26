"""The experiment on pushes: which curves it has, and what is compared with what."""

from __future__ import annotations

from .experiment import Curve, Experiment

SIZES = (1, 2, 3, 4)
PUSHING_LOGS, PUSHING_PIXELS = "pushing-logs", "pushing-pixels"
"""Names of what trains nothing: the check of the simulator against real pushes, and what the pixels leave open. `pushing` draws
the latter beside its own results."""
OBSERVERS = {
    "sides": "ideal observer of the pixels",
    "weights": "ideal observer, knows which weights come together",
    "objects": "ideal observer, knows by heart which objects training had",
}
"""What `pushing` calls the observers of `pushing-pixels`."""
OBSERVED = ("np-tuned", "np-tuned-long", "default-long")
"""The curves that are compared with them."""


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

THIRD = {"default": 600, "np-tuned": 700, "attention": 1100}
"""About a third of the steps of each preset: two to three minutes on a thread."""
VARIANTS: dict[str, dict[str, tuple[str, ...]]] = {
    "default": {
        "unchanged": (),
        "half the rate": ("training.learning_rate=0.0025",),
        "twice the rate": ("training.learning_rate=0.01",),
        "wider": ("network.latent_size=192", "network.encoder_hidden=288", "network.decoder_hidden=288"),
        "deeper decoders": ("network.decoder_layers=6",),
    },
    "np-tuned": {
        "unchanged": (),
        "half the rate": ("training.learning_rate=0.002",),
        "twice the rate": ("training.learning_rate=0.008",),
        "wider": ("network.latent_size=288", "network.encoder_hidden=288,288", "network.decoder_hidden=288"),
        "deeper decoders": ("network.decoder_layers=6",),
    },
    "attention": {
        "unchanged": (),
        "half the rate": ("training.learning_rate=0.003",),
        "twice the rate": ("training.learning_rate=0.012",),
        "wider": ("network.latent_size=96", "network.hidden_size=192"),
        "deeper": ("network.num_self_layers=3", "network.num_cross_layers=3"),
    },
}
"""The same five trials for ours and for each of its rivals: two rates, more width, more depth."""


def _trial(preset: str, change: str) -> str:
    return f"{preset}-{change.replace(' ', '-')}"


PUSHING_TUNING = Experiment(
    "pushing-tuning",
    "pushing",
    tuple(
        Curve(
            _trial(preset, change),
            f"{preset}, {change}",
            preset,
            (f"training.steps={steps}", f"training.validate_every={steps}", *VARIANTS[preset][change]),
            SIZES[-1:],
        )
        for preset, steps in THIRD.items()
        for change in VARIANTS[preset]
    ),
    against=tuple(
        (_trial(preset, change), _trial(preset, "unchanged"))
        for preset in VARIANTS
        for change in VARIANTS[preset]
        if change != "unchanged"
    ),
    num_seeds=1,
    judged_by="validation",
    labels=PUSHING.labels,
    items=PUSHING.items,
    also=PUSHING.also,
)
