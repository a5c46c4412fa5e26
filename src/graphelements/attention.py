"""The attention baseline: a pre-norm transformer over the samples of an item, to which queries attend. It has no nodes."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from .functions import SFT
from .network_config import AttentionConfig
from .perceptron import Perceptron
from .samples import FunctionSamples, Queries, SFTBatch
from .sft_network import Meshes, SFTNetwork, place_channels, place_features, seen_channels
from .spaces import Space


class AttentionLayer(nn.Module):
    """Rows take up what they attend to, then a perceptron: x + attention(norm(x)), then x + perceptron(norm(x))."""

    def __init__(self, latent_size: int, hidden_size: int, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.norm, self.perceptron_norm = nn.LayerNorm(latent_size), nn.LayerNorm(latent_size)
        self.ask = nn.Linear(latent_size, latent_size)
        self.tell = nn.Linear(latent_size, 2 * latent_size)
        self.merge = nn.Linear(latent_size, latent_size)
        self.perceptron = Perceptron((latent_size, hidden_size, latent_size))

    def forward(
        self,
        rows: Float[Tensor, "items rows latent"],
        known: Bool[Tensor, "items samples"],
        tokens: Float[Tensor, "items samples latent"] | None = None,
    ) -> Float[Tensor, "items rows latent"]:
        """Rows after they attended to the known tokens, or to each other if none are given."""
        normed = self.norm(rows)
        keys, values = self.tell(normed if tokens is None else tokens).chunk(2, -1)
        heads = (part.unflatten(-1, (self.num_heads, -1)).transpose(1, 2) for part in (self.ask(normed), keys, values))
        found = scaled_dot_product_attention(*heads, attn_mask=known[:, None, None])  # items, heads, rows, latent / heads
        rows = rows + self.merge(found.transpose(1, 2).flatten(-2))
        return rows + self.perceptron(self.perceptron_norm(rows))


class AttentionNetwork(SFTNetwork):
    """Samples attend to each other, then queries to samples, never to each other.

    Of the meshes it takes nothing but their space.
    """

    def __init__(
        self,
        sft: SFT,
        config: AttentionConfig,
        encoders: nn.ModuleDict,
        self_layers: nn.ModuleList,
        askers: nn.ModuleDict,
        cross_layers: nn.ModuleList,
        decoders: nn.ModuleDict,
    ) -> None:
        super().__init__(sft, config)
        self.config: AttentionConfig = config
        self.start = nn.Parameter(torch.zeros(config.latent_size))  # every item has this token, so that none has nothing to see
        self.encoders = encoders
        self.self_layers, self.samples_norm = self_layers, nn.LayerNorm(config.latent_size)
        self.askers = askers
        self.cross_layers, self.queries_norm = cross_layers, nn.LayerNorm(config.latent_size)
        self.decoders = decoders

    def forward(self, batch: SFTBatch, meshes: Meshes) -> dict[str, Float[Tensor, "_queries _channels"]]:
        space = self.meshes(meshes, batch.num_items).space
        inputs, frame = self.seen(batch, space)
        tokens, known = self.write(inputs, batch.num_items, space)
        outputs = {name: self.read(name, queries, tokens, known, space) for name, queries in batch.queries.items()}
        return {name: self.restored(name, output, batch.queries[name].items, frame) for name, output in outputs.items()}

    def write(
        self, inputs: Mapping[str, FunctionSamples], num_items: int, space: Space
    ) -> tuple[Float[Tensor, "items samples latent"], Bool[Tensor, "items samples"]]:
        """The tokens of every item's samples, padded to the most samples of an item, and which of them are no padding."""
        codes = [self.start.expand(num_items, self.config.latent_size)]
        items = [torch.arange(num_items, device=self.start.device)]
        for name, samples in inputs.items():
            codes.append(self.encoders[name](torch.cat([samples.values, self.place(samples.points, space)], -1)))
            items.append(samples.items)
        tokens, places = padded(torch.cat(codes), torch.cat(items), num_items)
        known = torch.zeros(tokens.shape[:2], dtype=torch.bool, device=places.device)
        known = known.flatten().index_fill(0, places, True).reshape(known.shape)
        for layer in self.self_layers:
            tokens = layer(tokens, known)
        return self.samples_norm(tokens), known

    def read(
        self,
        name: str,
        queries: Queries,
        tokens: Float[Tensor, "items samples latent"],
        known: Bool[Tensor, "items samples"],
        space: Space,
    ) -> Float[Tensor, "queries channels"]:
        """Decoder outputs of one function at any number of queries, in network units."""
        # an answer for the whole space is asked for with a learned token: the image of one constant
        asked = [tokens.new_ones(len(queries), 1) if queries.points is None else self.place(queries.points, space)]
        if queries.conditions is not None:
            asked.append(queries.conditions)
        rows, places = padded(self.askers[name](torch.cat(asked, -1)), queries.items, len(tokens))
        for layer in self.cross_layers:
            rows = layer(rows, known, tokens)
        return self.decoders[name](self.queries_norm(rows.flatten(0, 1)[places]))

    @torch.no_grad()
    def predict(self, batch: SFTBatch, meshes: Meshes, chunk: int = 2**14) -> dict[str, Float[Tensor, "_queries _channels"]]:
        """Answers in original units; of every item so many queries are read at once that there are at most `chunk` in all."""
        self.validate(batch, meshes)
        space, size = self.meshes(meshes, batch.num_items).space, max(1, chunk // batch.num_items)
        inputs, frame = self.seen(batch, space)
        tokens, known = self.write(inputs, batch.num_items, space)
        answers = {}
        for name, queries in batch.queries.items():
            piece = ranks(queries.items, batch.num_items) // size
            order = piece.argsort(stable=True)
            pieces = order.split(torch.bincount(piece, minlength=1).tolist())
            found = [self.read(name, queries.mapped(lambda t, p=p: t[p]), tokens, known, space) for p in pieces]
            outputs = torch.cat(found)[order.argsort()]
            answers[name] = self.answer(name, self.restored(name, outputs, queries.items, frame))
        return answers

    def place(self, points: Float[Tensor, "n dim"], space: Space) -> Float[Tensor, "n features"]:
        return place_features(points, space, self.config.num_octaves)


def ranks(items: Int[Tensor, " rows"], num_items: int) -> Int[Tensor, " rows"]:
    """How many rows of the same item stand before each row."""
    order = items.argsort(stable=True)
    counts = torch.bincount(items, minlength=num_items)
    starts = counts.cumsum(0) - counts
    return torch.empty_like(order).index_copy(0, order, torch.arange(len(items), device=items.device) - starts[items[order]])


def padded(
    rows: Float[Tensor, "rows latent"], items: Int[Tensor, " rows"], num_items: int
) -> tuple[Float[Tensor, "items most latent"], Int[Tensor, " rows"]]:
    """Rows in a table of (items, most rows of an item), filled up with zeros, and where each stands in the flattened table."""
    rank = ranks(items, num_items)
    most = int(rank.max()) + 1 if len(rank) else 0
    places = items * most + rank
    table = rows.new_zeros(num_items * most, rows.shape[-1]).index_copy(0, places, rows)
    return table.reshape(num_items, most, rows.shape[-1]), places


def build_attention(sft: SFT, config: AttentionConfig) -> AttentionNetwork:
    """The network of a config, its weights drawn from torch's global generator."""
    latent, hidden, dim = config.latent_size, config.hidden_size, sft.space.dim
    place = place_channels(dim, config.num_octaves)
    encoders = {f.name: Perceptron((seen_channels(f, config, dim) + place, latent, latent)) for f in sft.inputs}
    askers = {f.name: Perceptron(((1 if f.integrated else place) + f.conditions, latent, latent)) for f in sft.outputs}
    return AttentionNetwork(
        sft,
        config,
        nn.ModuleDict(encoders),
        nn.ModuleList(AttentionLayer(latent, hidden, config.num_heads) for _ in range(config.num_self_layers)),
        nn.ModuleDict(askers),
        nn.ModuleList(AttentionLayer(latent, hidden, config.num_heads) for _ in range(config.num_cross_layers)),
        nn.ModuleDict({f.name: Perceptron((latent, latent, f.channels)) for f in sft.outputs}),
    )
