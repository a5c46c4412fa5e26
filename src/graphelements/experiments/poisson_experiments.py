"""The experiments of the Poisson problem: which curves each one has, and what is compared with what."""

from __future__ import annotations

from .experiment import Curve, Experiment, Trials, tuning

SIZES = (2, 3, 4, 5, 6, 7)
LARGER = (8, 10, 12, 16, 24, 32)

OPTIMISED_MESHES = "optimised-meshes"
"""The experiment that optimises the meshes of trained networks; `poisson-square` draws its curve beside its own."""

TO_16X16 = ("batches.large_share=0.15",)
"""`default` with meshes of 8x8 to 16x16 nodes in training."""

LABELS = (("fem", "finite elements"), ("mean", "mean temperature"))

POISSON_SQUARE = Experiment(
    "poisson-square",
    "poisson-square",
    (
        Curve("paper", "paper, soft nearest", "paper"),
        Curve("paper-grid", "paper, barycentric", "paper-grid"),
        Curve("default", "default (ours)", "default", resolutions=SIZES + LARGER),
        Curve("near", "ours, near samples heard", "near", resolutions=SIZES + LARGER, in_quick=False),
        Curve("nodes", "ours, nodes alone", "nodes", resolutions=SIZES + LARGER, in_quick=False),
        Curve("small", "ours, small", "small", resolutions=SIZES + LARGER, in_quick=False),
        Curve("np", "neural process", "np"),
        Curve("np-tuned", "neural process, tuned", "np-tuned"),
        Curve("attention", "attention", "attention"),
        Curve(
            "default-incautious", "default, not cautious", "default", ("network.cautious=false",), SIZES + LARGER, in_quick=False
        ),
        Curve("default-to-16x16", "default, trained up to 16x16", "default", TO_16X16, SIZES + LARGER, in_quick=False),
    ),
    against=(*(("default", other) for other in ("np", "np-tuned", "attention", "fem", "near")), ("near", "fem")),
    labels=LABELS,
    beyond=SIZES[-1],
)

POISSON_ABLATION = Experiment(
    "poisson-ablation",
    "poisson-square",
    (
        Curve("paper-grid", "one model for all meshes", "paper-grid"),
        *(Curve(f"only-{k}x{k}", "one model per mesh", "paper-grid", (f"batches.resolutions={k}",), (k,)) for k in SIZES),
        Curve("up-to-5x5", "trained up to 5x5", "paper-grid", ("batches.resolutions=2,3,4,5",), (*SIZES, 8)),
        Curve("paper", "soft nearest neighbour", "paper"),
        Curve("np", "neural process", "np"),
        Curve(
            "np-deep",
            "neural process, twice as deep",
            "np",
            (f"network.encoder_hidden={','.join(6 * ['128'])}", f"network.decoder_hidden={','.join(8 * ['128'])}"),
        ),
    ),
    against=(
        *((f"only-{k}x{k}", "paper-grid") for k in SIZES),
        ("up-to-5x5", "paper-grid"),
        ("paper", "paper-grid"),
        ("np-deep", "np"),
    ),
    labels=LABELS,
)

PLAIN = ("network.linear=false", "network.gated=false", "network.norm=layer")  # as in `near`
EVERY = "network.num_heard=54"  # 9 samples of each of at most 6 heaters
DENSE = ("network.representation=soft_nearest", "network.sharpness=8")
POSITIONS = ("network.encoder_sees=position", "network.decoder_sees=position")
MULTISCALE = ("mesh.nested=false", "mesh.edges=multiscale", "network.rounds=6")
ONE_HOUSE = (
    "batches.items=1",
    "batches.scenarios=32",
    "batches.queries=256",
    "batches.meshes=1",
)  # as the released code
CHANGES: dict[str, dict[str, tuple[str, ...]]] = {
    "default": {
        "no message passing": ("network.rounds=0",),
        "queries hear no samples": ("network.num_heard=0", "network.hears=", "network.ear_layers=0"),
        "queries hear 2 samples": ("network.num_heard=2",),
        "ears without further layers": ("network.ear_layers=0",),
        "not linear": PLAIN,
        "not linear, no norm": (*PLAIN, "network.norm=none"),
        "not linear, no offsets, positions": (*PLAIN, *POSITIONS),
        "samples as they are, all heard": ("network.samples_see=patch", EVERY),
        "values without cells, all heard": ("network.samples_see=value", EVERY),
        "absolute values": ("network.relative=false",),
        "4 rounds": ("network.rounds=4",),
        "dense soft nearest": DENSE,
        "no coarser meshes": ("mesh.nested=false",),
        "edges over several scales instead": MULTISCALE,
        "one mesh a step": ("batches.meshes=1",),
        "one house a step": ONE_HOUSE,
        "grids only": ("batches.random_meshes=0",),
        "up to 16x16 in training": TO_16X16,
        "not cautious": ("network.cautious=false",),
        "no augmentation": ("batches.symmetries=",),
        "wider": ("network.latent_size=48", "network.edge_hidden=64", "network.encoder_hidden=96", "network.decoder_hidden=96"),
        "Adam": ("training.optimizer=adam", "training.learning_rate=0.003"),
    },
    "nodes": {
        "no message passing": ("network.rounds=0",),
        "4 rounds": ("network.rounds=4",),
        "cells by place alone": ("network.samples_see=cell",),
        "no coarser meshes": ("mesh.nested=false",),
        "queries read the finest mesh": ("network.reads=finest",),
        "edges over several scales instead": MULTISCALE,
        "no offsets, positions": POSITIONS,
        "dense soft nearest": DENSE,
        "one mesh a step": ("batches.meshes=1",),
        "one house a step": ONE_HOUSE,
        "grids only": ("batches.random_meshes=0",),
        "nothing above 7x7": ("batches.large_share=0",),
        "no augmentation": ("batches.symmetries=",),
        "no norm": ("network.norm=none",),
        "wider": ("network.latent_size=48", "network.message_size=24", "network.edge_hidden=64", "network.node_hidden=96"),
    },
}
"""Changes of two presets, one a line: of `default`, and of `nodes`, in which everything goes by the mesh."""

JUDGED_AT = {"default": (4, 7, 16, 32), "nodes": (4, 7, 16)}
QUICK_LABELS = ("unchanged", "no message passing", "no augmentation")


def _curve(preset: str, label: str, settings: tuple[str, ...] = ()) -> Curve:
    name = f"{preset} {label}".lower().replace(",", "").replace(" ", "-")
    return Curve(name, f"{preset}: {label}", preset, settings, JUDGED_AT[preset], label in QUICK_LABELS)


UNCHANGED = {preset: _curve(preset, "unchanged") for preset in CHANGES}
CHANGED = {preset: [_curve(preset, *change) for change in changes.items()] for preset, changes in CHANGES.items()}

DEFAULT_ABLATION = Experiment(
    "default-ablation",
    "poisson-square",
    tuple(curve for preset in CHANGES for curve in (UNCHANGED[preset], *CHANGED[preset])),
    against=tuple((curve.name, UNCHANGED[preset].name) for preset, curves in CHANGED.items() for curve in curves),
    num_seeds=1,
    baselines=tuple(curve.name for curve in UNCHANGED.values()),
    settings=("training.steps=3000",),  # about 10 minutes of `nodes` on one thread
    judged_by="validation",
    labels=LABELS,
)

POISSON_TUNING = tuning(  # one to six minutes a trial on a thread
    "poisson-tuning",
    POISSON_SQUARE,
    (
        Trials(
            "default",
            1200,
            (0.008, 0.004, 0.016),
            {
                "wider": CHANGES["default"]["wider"],
                "deeper": ("network.decoder_layers=4", "network.ear_layers=3"),
            },
        ),
        Trials(
            "np-tuned",
            4000,
            (0.004, 0.002, 0.008),
            {
                "wider": (
                    "network.latent_size=192",
                    "network.encoder_hidden=192,192,192",
                    "network.decoder_hidden=192,192,192,192",
                ),
                "deeper": (
                    f"network.encoder_hidden={','.join(5 * ['128'])}",
                    f"network.decoder_hidden={','.join(6 * ['128'])}",
                ),
            },
        ),
        Trials(
            "attention",
            3000,
            (0.006, 0.003, 0.012),
            {
                "wider": ("network.latent_size=128", "network.hidden_size=256"),
                "deeper": ("network.num_self_layers=3", "network.num_cross_layers=3"),
            },
        ),
    ),
    SIZES[-1],
)
