"""The experiment on pushes: which curves it has, and what is compared with what."""

from __future__ import annotations

from .experiment import Curve, Experiment, Trials, tuning

SIZES = (1, 2, 3, 4)
PUSHING_LOGS, PUSHING_PIXELS = "pushing-logs", "pushing-pixels"
"""Names of what trains nothing: the check of the simulator against real pushes, and what the pixels leave open. `pushing` draws
the latter beside its own results."""
OBSERVERS = {
    "sides": "ideal observer of the pixels",
    "weights": "ideal observer, knows weights",
    "directions": "ideal observer, knows weights and directions",
    "objects": "ideal observer, knows all objects of training",
}
"""What `pushing` calls the observers of `pushing-pixels`."""
OBSERVED = ("np-tuned", "attention", "default")
"""The curves that are compared with them."""

PUSHING = Experiment(
    "pushing",
    "pushing",
    (
        Curve("paper", "paper", "paper", resolutions=SIZES),
        Curve("default", "default (ours)", "default", resolutions=SIZES[-1:]),
        Curve("mixed", "ours, one model for all sizes", "mixed", resolutions=SIZES),
        Curve("summed", "ours, states summed", "summed", resolutions=SIZES[-1:]),
        Curve("np", "neural process", "np"),
        Curve("np-tuned", "neural process, tuned", "np-tuned"),
        Curve("attention", "attention", "attention"),
        Curve("no-picture", "ours, without the picture", "no-picture", resolutions=SIZES[-1:]),
        Curve("examples", "attention, 50 examples instead of the picture", "examples"),
    ),
    against=(
        ("default", "np-tuned"),
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

NOT_TURNED = {"objects not turned": ("batches.symmetries=",)}

PUSHING_TUNING = tuning(  # two minutes a trial on a thread
    "pushing-tuning",
    PUSHING,
    (
        Trials(
            "default",
            600,
            (0.005, 0.0025, 0.01, 0.02),
            {
                "wider": ("network.latent_size=192", "network.encoder_hidden=288", "network.decoder_hidden=288"),
                "deeper": ("network.decoder_layers=6",),
                **NOT_TURNED,
            },
        ),
        Trials(
            "np-tuned",
            700,
            (0.004, 0.002, 0.008, 0.016),
            {
                "wider": ("network.latent_size=288", "network.encoder_hidden=288,288", "network.decoder_hidden=288"),
                "deeper": ("network.decoder_layers=6",),
                **NOT_TURNED,
            },
        ),
        Trials(
            "attention",
            1100,
            (0.006, 0.003, 0.012, 0.024),
            {
                "wider": ("network.latent_size=96", "network.hidden_size=192"),
                "wider, rate 0.012": ("network.latent_size=96", "network.hidden_size=192", "training.learning_rate=0.012"),
                "deeper": ("network.num_self_layers=3", "network.num_cross_layers=3"),
                **NOT_TURNED,
            },
            always=("network.latent_size=64", "network.hidden_size=128"),  # the preset has changed because of these trials
        ),
    ),
    SIZES[-1],
)
