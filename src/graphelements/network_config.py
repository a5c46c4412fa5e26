"""The sizes and options of a network, and the named configurations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from .configs import require_types
from .errors import require

Sees = Literal["value", "position", "offset"]
SampleSees = Literal["value", "cell", "patch", "box"]
LIKENESS = {"cell": 0.0, "patch": 0.3, "box": 0.0}
"""What a difference of values counts for among the fellows that judge a cell: see `sample_cells`."""
MOST_OCTAVES = 16  # periods down to a 30,000th of the space


@dataclass(frozen=True)
class NetworkConfig:
    """The sizes and options of a network; the defaults are the paper's, appendix A.2 to the letter.

    `encoder_sees` and `decoder_sees`: "value" (paper), "position" (the point's coordinates besides, as in the released code) or
    "offset" (the offset to each touched node in units of its spacing, and the logarithm of the spacing).
    With "offset", the reader rho between nodes and decoder has the hidden sizes of the encoders.
    `samples_see`: "value" (paper), or "cell": the size and shape of the cell around the sample, and the value times the cell's
    volume, besides; "patch": the same with cells judged among samples of like values; "box": the same with samples of equal
    values made one, see `sample_boxes`. `relative` makes exact what the functions
    declare (`scales`, `shifts`): the network sees an item's values relative to their own level and size.
    `num_octaves`: above 0, all encoders see where a sample is, as coordinates and so many octaves of sines and cosines of them
    (`place_features`), and so do decoders that see a query's place: small differences of place can then matter.
    `nodes_see` and `edges_see` add a node's place and spacing, and an edge's offset, length and level, to message passing.
    `rounds` is T: a number, or "diameter" for the hop diameter of each item's mesh, 2(k-1) on a k x k grid with one diagonal a
    cell.
    `passes`: above 1, samples are written again, each with what is read at its own place: what all samples together have said
    there. That lets them be weighed against each other, as residuals are in iterative solvers.
    `reads`: on nested meshes, queries read the "finest" mesh, or "all" of them, blended by shares that the network gives.
    `cautious`: with `reads` "all", a mesh that is finer than any in training has the less say the finer it is, in proportion to
    its spacing, and leaves the more to the coarser ones behind it. The network keeps the finest spacing it has learned on.
    `gated`: encoders and the reader that see offsets are `GatedPerceptron`s: what is linear in values, or states, stays so;
    octaves count among the values.
    `linear`: answers are linear in the values of all samples together, for any weights: encoders, messages, readers, ears and
    decoders multiply what is linear in values by factors that depend on places and cells alone, as the matrices of finite
    elements do. There is no norm then, nothing is added to states, values are scaled and not centred, and messages are averaged:
    `aggregation`, `message_size` and `node_hidden` do not apply.
    `fitted`: smooth fields are fitted to the samples of every function first (see `fitting`); nodes and decoders see them.
    `num_heard`: a query hears so many of the nearest samples of every function directly, besides what it reads from nodes (see
    `hearing`), or of those functions that `hears` names, with `ear_layers` further layers for every pair of query and sample.
    `decoder_layers`: 0 for decoders that are perceptrons (paper); above, so many residual layers of the width `decoder_hidden`
    says, once for all meshes of a nest, that see the query's place besides if nodes see theirs.
    """

    latent_size: int = 32
    message_size: int = 16
    edge_hidden: int = 48
    node_hidden: int = 64
    encoder_hidden: tuple[int, ...] = (48,)
    decoder_hidden: tuple[int, ...] = (32,)
    decoder_layers: int = 0
    samples_see: SampleSees = "value"
    relative: bool = False
    num_octaves: int = 0
    encoder_sees: Sees = "value"
    decoder_sees: Sees = "value"
    nodes_see: Literal["nothing", "spacing", "place"] = "nothing"
    edges_see: Literal["nothing", "offset"] = "nothing"
    representation: Literal["soft_nearest", "multilinear", "barycentric", "nearest_nodes"] = "soft_nearest"
    sharpness: float = 1.0
    learn_sharpness: bool = False
    num_touched: int = 4
    gated: bool = False
    linear: bool = False
    num_heard: int = 0
    hears: tuple[str, ...] = ()
    ear_layers: int = 0
    fitted: bool = False
    rounds: int | Literal["diameter"] = "diameter"
    passes: int = 1
    reads: Literal["finest", "all"] = "finest"
    cautious: bool = False
    residual: bool = False
    norm: Literal["none", "layer"] = "none"
    aggregation: Literal["sum", "mean"] = "sum"
    integration: Literal["sum", "area"] = "sum"

    def __post_init__(self) -> None:
        require_types(self)
        for name in ("latent_size", "message_size", "edge_hidden", "node_hidden"):
            require(getattr(self, name) > 0, f"{name} must be positive; got {getattr(self, name)}")
        require(self.ear_layers >= 0, f"ear_layers must be 0 or more; got {self.ear_layers}")
        require(self.passes > 0, f"passes must be 1 or more; got {self.passes}")
        require(0 <= self.num_octaves <= MOST_OCTAVES, f"num_octaves must be 0 to {MOST_OCTAVES}; got {self.num_octaves}")
        require(self.num_touched > 1, f"num_touched must be 2 or more, or weights jump between nodes; got {self.num_touched}")
        require(
            self.num_heard == 0 or (self.num_heard > 0 and len(self.encoder_hidden) > 0),
            f"num_heard must be 0 or more, with hidden layers in encoders; got {self.num_heard} and {self.encoder_hidden}",
        )
        require(
            not self.gated or (self.encoder_sees == "offset" and len(self.encoder_hidden) == 1),
            "gated networks have encoders of one hidden layer that see offsets; "
            f"got {self.encoder_hidden} and {self.encoder_sees}",
        )
        require(
            not self.linear or (self.gated and self.residual and self.norm == "none" and self.decoder_layers > 0),
            "linear networks are gated and residual, have no norm, and have layers in decoders; "
            "set network.gated=true, network.residual=true, network.norm=none and network.decoder_layers=2",
        )
        require(
            not self.linear or self.rounds == 0 or (self.edges_see, self.nodes_see) != ("nothing", "nothing"),
            "messages of linear networks depend on edges: set network.edges_see=offset, or network.rounds=0",
        )
        require(
            not self.cautious or self.reads == "all",
            "cautious networks leave what is read to coarser meshes; set network.reads=all, or network.cautious=false",
        )
        require(
            self.num_heard > 0 or (self.hears == () and self.ear_layers == 0),
            "hears and ear_layers are for networks that hear samples; set network.num_heard",
        )
        require(
            self.decoder_layers == 0 or (self.decoder_layers > 0 and len(self.decoder_hidden) == 1),
            "decoder_layers must be 0 or more, with one width in decoder_hidden; "
            f"got {self.decoder_layers} and {self.decoder_hidden}",
        )
        require(min((*self.encoder_hidden, *self.decoder_hidden, 1)) > 0, "hidden sizes must be positive")
        require(self.rounds == "diameter" or self.rounds >= 0, f"rounds must be 0 or more, or 'diameter'; got {self.rounds}")

    @property
    def samples_see_place(self) -> bool:
        """Whether encoders see where a sample is, beside what representations make of it."""
        return self.num_octaves > 0 or self.encoder_sees == "position"

    @property
    def decoders_see_place(self) -> bool:
        """Whether decoders see where a query is, beside what it has gathered."""
        return self.decoder_sees == "position" or (self.decoder_layers > 0 and self.nodes_see == "place")


@dataclass(frozen=True)
class AttentionConfig:
    """The sizes of the attention baseline: a pre-norm transformer over an item's samples, read by queries.

    `num_octaves`: of the places of samples and queries (`place_features`); 0 shows the coordinates alone. `hidden_size` is that
    of the perceptron in every layer. `samples_see` and `relative`: as in `NetworkConfig`.
    """

    latent_size: int = 128
    hidden_size: int = 256
    num_heads: int = 4
    num_self_layers: int = 2
    num_cross_layers: int = 2
    num_octaves: int = 5
    samples_see: SampleSees = "value"
    relative: bool = False
    kind: Literal["attention"] = "attention"

    def __post_init__(self) -> None:
        require_types(self)
        for name in ("latent_size", "hidden_size", "num_heads"):
            require(getattr(self, name) > 0, f"{name} must be positive; got {getattr(self, name)}")
        require(
            self.latent_size % self.num_heads == 0,
            f"latent_size must be a multiple of num_heads; got {self.latent_size} and {self.num_heads}",
        )
        for name, least, most in (("num_self_layers", 0, 100), ("num_cross_layers", 1, 100), ("num_octaves", 0, MOST_OCTAVES)):
            require(least <= getattr(self, name) <= most, f"{name} must be {least} to {most}; got {getattr(self, name)}")


AnyNetworkConfig = NetworkConfig | AttentionConfig
"""What `build_network` takes; plain data without a `kind` are a `NetworkConfig`."""

PAPER = NetworkConfig()
"""Appendix A.2 to the letter: these are the defaults."""

DEFAULT = NetworkConfig(
    samples_see="cell",
    relative=True,
    encoder_sees="offset",
    decoder_sees="offset",
    nodes_see="place",
    edges_see="offset",
    representation="nearest_nodes",
    sharpness=3.0,
    num_heard=12,
    rounds=2,
    decoder_hidden=(64,),
    decoder_layers=2,
    reads="all",
    residual=True,
    norm="layer",
)
"""Ours: local coordinates, a few rounds on each of nested meshes, and queries that hear the nearest samples directly."""

NEURAL_PROCESS = NetworkConfig(
    latent_size=128,
    encoder_hidden=(128, 128, 128),
    decoder_hidden=(128, 128, 128, 128),
    encoder_sees="position",
    decoder_sees="position",
    rounds=0,
)
"""The baseline: on one node and without rounds a GEN is a neural process; deeper and wider nets make up for the missing graph."""

ATTENTION = AttentionConfig()
"""The other baseline: queries attend over the samples; no nodes, no mesh."""
