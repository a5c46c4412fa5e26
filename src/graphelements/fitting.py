"""Fields through samples: on the nodes of a mesh the likeliest smooth field that agrees with samples, and how well it is known.

    u = argmin of sum over i of (s_i - sum over l of b_l(x_i) u_l)^2 / noise + u' Q u,    Q ~ (k^2 C + G) C^-1 (k^2 C + G)

with b the barycentric weights of cells, C the areas of nodes and G their stiffness: u' G u is the integral of |grad u|^2. Q is
the precision of a Matern field whose values are alike over distances of 1 / k (Lindgren et al. 2011), scaled so that without
samples the variance at nodes is one in the mean. Every field is also given under the condition that its integral over the mesh
is zero, as that of a Laplacian on a sphere is: with a the areas, P = (B'B / noise + Q)^-1 and p = P a, that is u - p (a'u / a'p),
with p^2 / a'p less variance. Samples are then not summed up at nodes but weighed against each other, as in
kriging: this writing is the inverse of reading.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from weakref import WeakKeyDictionary

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import pad

from .cell_representations import Barycentric
from .errors import require
from .meshes import Mesh
from .samples import FunctionSamples
from .unions import MeshUnion, union

RANGES = (1.0, 0.25)
"""1 / k, in units of the space."""
NOISE = 0.003
"""Variance of samples around the field, of that of the field."""
MOST_NODES = 512
"""Fields on finer meshes are fitted on the finest of the coarser ones behind them that has no more nodes."""
SMALLEST = 0.01
"""Of the mean area on a mesh: what is smaller counts as this, so that nodes may coincide or have no cell."""
AT_ONCE = 2**23
"""Numbers in the matrices that are solved together."""
BARYCENTRIC = Barycentric()

Prior = tuple[Float[Tensor, "_nodes 1"], list[Float[Tensor, "_nodes _nodes"]]]
"""The areas of nodes, and Q of every range."""
_KEPT: WeakKeyDictionary[Mesh, Prior] = WeakKeyDictionary()
"""Those of meshes that do not move, as long as they are in use."""


def num_fitted(channels: Sequence[int]) -> tuple[int, int]:
    """How many numbers are known of functions of so many channels at every node, and how many of them, which come first, are
    values of fields: of each range all channels, as they are and with an integral of zero; the others are the variances that are
    left."""
    num_values = 2 * len(RANGES) * sum(channels)
    return num_values + 2 * len(RANGES) * len(channels), num_values


@dataclass(frozen=True, eq=False)
class Fields:
    """What was fitted, at the nodes of meshes. Between nodes, variances are a little less than `at` says."""

    mesh: MeshUnion
    numbers: Float[Tensor, "nodes fitted"]
    num_values: int

    def at(self, points: Float[Tensor, "points dim"], items: Int[Tensor, " points"]) -> Float[Tensor, "points fitted"]:
        """The fields at points of items."""
        return BARYCENTRIC(points, items, self.mesh).gather(self.numbers)


def fit_fields(inputs: Mapping[str, FunctionSamples], channels: Mapping[str, int], mesh: MeshUnion) -> Fields:
    """The fields of one function after another, through the first `channels` of their samples' values.

    A function that is not given is known nowhere: its fields are 0, and their variance is about 1.
    """
    if any(part.num_nodes > MOST_NODES for part in mesh.parts):
        mesh = union(mesh.per_item([_coarse(part) for part in mesh.parts]))
    priors = [_prior(part) for part in mesh.parts]
    values, variances = zip(*(_fitted(mesh, priors, inputs.get(name), num) for name, num in channels.items()), strict=True)
    return Fields(mesh, torch.cat([*values, *variances], -1), num_fitted(list(channels.values()))[1])


def _coarse(mesh: Mesh) -> Mesh:
    while mesh.num_nodes > MOST_NODES:
        require(
            mesh.coarser is not None,
            f"fields are fitted on meshes of at most {MOST_NODES} nodes; got {mesh.num_nodes}, nest the mesh by mesh.nested() or "
            "mesh.nested=true, or use a coarser one",
        )
        assert mesh.coarser is not None
        mesh = mesh.coarser
    return mesh


def _fitted(
    mesh: MeshUnion, priors: list[Prior], samples: FunctionSamples | None, channels: int
) -> tuple[Float[Tensor, "nodes values"], Float[Tensor, "nodes ranges"]]:
    """The fields of one function, and their variances.

    Items are solved for together, as memory allows, each with as many nodes as the largest mesh has: those that it has not have
    no area, and know of no others.
    """
    samples = samples or FunctionSamples(mesh.positions[:0], mesh.positions.new_zeros(0, channels), mesh.items[:0])
    coupling = BARYCENTRIC(samples.points, samples.items, mesh)
    nodes = coupling.nodes - mesh.starts[samples.items][:, None]
    weights = coupling.weights.double() / math.sqrt(NOISE)
    given = samples.values[:, None, :channels].double() / math.sqrt(NOISE)
    products, sums = weights[:, :, None] * weights[:, None, :], weights[:, :, None] * given
    most, solutions = max(part.num_nodes for part in mesh.parts), []
    for items in torch.arange(mesh.num_items, device=mesh.items.device).split(max(1, AT_ONCE // most**2)):
        rows = (samples.items >= items[0]) & (samples.items <= items[-1])
        own, here = (samples.items[rows] - items[0])[:, None], nodes[rows]
        normal, right = (weights.new_zeros(len(items), most, width) for width in (most, channels))
        normal = normal.index_put((own[:, :, None], here[:, :, None], here[:, None, :]), products[rows], accumulate=True)
        right = right.index_put((own, here), sums[rows], accumulate=True)
        areas, precisions = _padded(priors, [mesh.part_of_item[item] for item in items.tolist()], most)
        found, left = [], []
        for precision in precisions:
            factors = torch.linalg.cholesky(normal + precision)
            solved, of_areas = torch.cholesky_solve(torch.cat([right, areas], -1), factors).split([channels, 1], -1)
            total, variances = areas.mT @ of_areas, _variances(factors)[..., None]
            found += [solved, solved - of_areas * (areas.mT @ solved / total)]
            left += [variances, (variances - of_areas.square() / total).clamp(min=0)]
        solutions.append(torch.cat([*found, *left], -1))
    place = torch.arange(mesh.num_nodes, device=mesh.items.device) - mesh.starts[mesh.items]
    values = torch.cat(solutions)[mesh.items, place].to(mesh.positions)
    fields, variances = values.tensor_split([num_fitted([channels])[1]], -1)
    return fields, variances


def _padded(
    priors: list[Prior], parts: list[int], most: int
) -> tuple[Float[Tensor, "items most 1"], list[Float[Tensor, "items most most"]]]:
    """The priors of items that use these parts."""
    distinct = sorted(set(parts))
    of_item = torch.tensor([distinct.index(part) for part in parts], device=priors[0][0].device)
    areas = torch.stack([pad(own, (0, 0, 0, most - len(own))) for own, _ in (priors[part] for part in distinct)])
    precisions = []
    for number in range(len(RANGES)):
        own = [priors[part][1][number] for part in distinct]
        ones = [torch.eye(most - len(each), dtype=each.dtype, device=each.device) for each in own]
        precisions.append(torch.stack([torch.block_diag(*pair) for pair in zip(own, ones, strict=True)])[of_item])
    return areas[of_item], precisions


def _prior(mesh: Mesh) -> Prior:
    """On the nodes of a mesh, with P1 elements on its triangles; nodes of none know nothing of each other."""
    if mesh in _KEPT:
        return _KEPT[mesh]
    areas = union(mesh, 1).areas.double()
    areas = areas.clamp(min=SMALLEST * float(areas.detach().mean()))
    stiffness = torch.diag(torch.zeros_like(areas))
    if mesh.cells is not None and mesh.cells.shape[1] == 3 and len(mesh.cells):
        a, b, c = (mesh.positions[mesh.cells] / mesh.space.unit_length).double().unbind(1)
        opposite = torch.stack([c - b, a - c, b - a], 1)  # triangles, corners, dim
        products = opposite @ opposite.mT
        squared = products[:, 0, 0] * products[:, 1, 1] - products[:, 0, 1].square()  # twice the area, squared
        doubled = squared.clamp(min=SMALLEST**2 * float(squared.detach().mean())).sqrt()
        ends = mesh.cells[:, :, None].expand(products.shape), mesh.cells[:, None, :].expand(products.shape)
        stiffness = stiffness.index_put(ends, products / (2 * doubled[:, None, None]), accumulate=True)
    found = []
    for length in RANGES:
        root = torch.diag(areas) / length**2 + stiffness
        precision = root @ (root / areas[:, None])
        found.append(precision * _variances(torch.linalg.cholesky(precision)).mean())
    prior = areas[:, None], found
    if not mesh.positions.requires_grad:
        _KEPT[mesh] = prior
    return prior


def _variances(factors: Float[Tensor, "*items nodes nodes"]) -> Float[Tensor, "*items nodes"]:
    """At the nodes, of the precision that these are the Cholesky factors of."""
    return torch.cholesky_inverse(factors).diagonal(dim1=-2, dim2=-1)
