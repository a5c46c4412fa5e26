"""Meshes whose nodes learn with the weights: for every problem instance some meshes of its own (paper sections 3.4 and A.4)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from .errors import require
from .meshes import Mesh, scattered_mesh
from .spaces import Space

CLOSEST = 0.2  # of the spacing of an even mesh stays between nodes


class MovingMeshes(nn.Module):
    """`num_starts` meshes of every size for every instance of a problem; sizes are numbers of nodes.

    Nodes begin as a scrambled Halton sequence. `step` moves those of the meshes that were asked for since the last one, by Adam
    with a learning rate of their own, keeps them in the space and apart; edges are made anew with every mesh.
    """

    def __init__(
        self,
        space: Space,
        num_instances: int,
        sizes: Sequence[int],
        num_starts: int = 2,
        learning_rate: float = 3e-4,
        nesting_ratio: float | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__()
        require(num_instances > 0 and num_starts > 0, f"meshes need instances and starts; got {num_instances} and {num_starts}")
        generator = torch.Generator().manual_seed(seed)
        self.space, self.num_starts = space, num_starts
        self.like: dict[int, Mesh] = {}
        self.tables = nn.ModuleDict()
        for size in dict.fromkeys(sizes):
            meshes = [scattered_mesh(space, size, generator) for _ in range(num_instances * num_starts)]
            rows = torch.stack([mesh.positions.flatten() for mesh in meshes])
            self.tables[str(size)] = nn.Embedding.from_pretrained(rows, freeze=False, sparse=True)
            self.like[size] = meshes[0] if nesting_ratio is None else meshes[0].nested(nesting_ratio)
        self.optimizer = torch.optim.SparseAdam(list(self.parameters()), lr=learning_rate * space.unit_length)
        self._asked: dict[tuple[int, int], Mesh] = {}
        self.register_load_state_dict_post_hook(lambda *_: self._asked.clear())

    def mesh(self, instance: int, size: int, start: int) -> Mesh:
        """One of the meshes of an instance; gradients reach its row of the table."""
        key = size, instance * self.num_starts + start
        if key not in self._asked:
            table = self.tables[str(size)]
            row = table(torch.tensor(key[1], device=table.weight.device))  # type: ignore[union-attr]
            self._asked[key] = self.like[size].moved(row.reshape(size, -1))
        return self._asked[key]

    @torch.no_grad()
    def step(self) -> None:
        """Move the nodes of the meshes that were asked for."""
        self.optimizer.step()
        self.optimizer.zero_grad()
        for (size, row), mesh in self._asked.items():
            weight: Tensor = self.tables[str(size)].weight  # type: ignore[assignment]
            after = self.space.project(weight[row].reshape(size, -1))
            weight[row] = kept_apart(mesh.positions.detach(), after, least_distance(mesh)).flatten()
        self._asked.clear()


def least_distance(mesh: Mesh, closest: float = CLOSEST) -> float:
    """How far apart the nodes of a mesh stay: a share of the spacing of an even mesh."""
    return closest * (mesh.space.measure / mesh.num_nodes) ** (1 / mesh.space.intrinsic_dim)


def kept_apart(before: Float[Tensor, "nodes dim"], after: Float[Tensor, "nodes dim"], least: float) -> Float[Tensor, "nodes dim"]:
    """Nodes after a step, but those that would come closer than `least` to another stay where they were.

    Nodes that were apart are apart: in the end, all could stay. Distinct nodes have a valid Delaunay triangulation.
    """
    stays = torch.zeros(len(after), dtype=torch.bool, device=after.device)
    while True:
        positions = torch.where(stays[:, None], before, after)
        close = _close(positions, least) & ~stays
        if not bool(close.any()):
            return positions
        stays = stays | close


def _close(positions: Float[Tensor, "nodes dim"], least: float) -> Bool[Tensor, " nodes"]:
    """Which nodes have another one nearer than `least`, by straight distance."""
    from scipy.spatial import KDTree

    close = torch.zeros(len(positions), dtype=torch.bool)
    pairs = KDTree(positions.detach().cpu().double().numpy()).query_pairs(least, output_type="ndarray")
    close[torch.as_tensor(pairs.ravel(), dtype=torch.long)] = True
    return close.to(positions.device)
