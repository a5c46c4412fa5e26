"""Meshes whose nodes learn with the weights: for every problem instance some meshes of its own (paper sections 3.4 and A.4)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

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
        self.space = space
        self.like: dict[int, Mesh] = {}
        self.nodes = nn.ParameterDict()
        for size in dict.fromkeys(sizes):
            for instance, start in product(range(num_instances), range(num_starts)):
                mesh = scattered_mesh(space, size, generator)
                self.nodes[_name(instance, size, start)] = nn.Parameter(mesh.positions)
                if size not in self.like:
                    self.like[size] = mesh if nesting_ratio is None else mesh.nested(nesting_ratio)
        self.optimizer = torch.optim.Adam(self.parameters(), lr=learning_rate * space.unit_length)
        self._asked: dict[str, Mesh] = {}
        self.register_load_state_dict_post_hook(lambda *_: self._asked.clear())

    def mesh(self, instance: int, size: int, start: int) -> Mesh:
        """One of the meshes of an instance; gradients reach its nodes."""
        name = _name(instance, size, start)
        if name not in self._asked:
            self._asked[name] = self.like[size].moved(self.nodes[name])
        return self._asked[name]

    @torch.no_grad()
    def step(self) -> None:
        """Move the nodes of the meshes that were asked for; all others have no gradient, and Adam leaves them out."""
        before = {name: self.nodes[name].clone() for name in self._asked}
        self.optimizer.step()
        self.optimizer.zero_grad()
        for name, mesh in self._asked.items():
            nodes = self.nodes[name]
            nodes.copy_(kept_apart(before[name], self.space.project(nodes), least_distance(mesh)))
        self._asked.clear()


def _name(instance: int, size: int, start: int) -> str:
    return f"{size} nodes, {instance}, {start}"


def least_distance(mesh: Mesh, closest: float = CLOSEST) -> float:
    """How far apart the nodes of a mesh stay: a share of the spacing of an even mesh."""
    return closest * (mesh.space.measure / mesh.num_nodes) ** (1 / mesh.space.intrinsic_dim)


def kept_apart(before: Float[Tensor, "nodes dim"], after: Float[Tensor, "nodes dim"], least: float) -> Float[Tensor, "nodes dim"]:
    """Nodes after a step, but those that would come closer than `least` to another stay where they were.

    Where some were closer before, that distance is the least: none is held for where it began. In the end all could stay, so
    nodes never meet.
    """
    least = min(least, _closest(before))
    stays = torch.zeros(len(after), dtype=torch.bool, device=after.device)
    while True:
        positions = torch.where(stays[:, None], before, after)
        close = _close(positions, least) & ~stays
        if not bool(close.any()):
            return positions
        stays = stays | close


def _closest(positions: Float[Tensor, "nodes dim"]) -> float:
    from scipy.spatial import KDTree

    points = positions.detach().cpu().double().numpy()
    return float(KDTree(points).query(points, k=2)[0][:, 1].min())  # infinite for a node alone


def _close(positions: Float[Tensor, "nodes dim"], least: float) -> Bool[Tensor, " nodes"]:
    """Which nodes have another one nearer than `least`, by straight distance."""
    from scipy.spatial import KDTree

    close = torch.zeros(len(positions), dtype=torch.bool)
    pairs = KDTree(positions.detach().cpu().double().numpy()).query_pairs(least, output_type="ndarray")
    close[torch.as_tensor(pairs.ravel(), dtype=torch.long)] = True
    return close.to(positions.device)
