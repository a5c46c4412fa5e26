"""Random meshes: inside the space, of the size asked for, and of many kinds."""

from __future__ import annotations

import pytest
import torch
from cases import SPACES, seeded

from graphelements.errors import InputError
from graphelements.random_meshes import random_mesh
from graphelements.spaces import Box


@pytest.mark.parametrize("space", SPACES)
@pytest.mark.parametrize("num_nodes", [1, 2, 9, 30])
def test_random_meshes_lie_in_the_space_and_have_about_as_many_nodes(space, num_nodes):
    for seed in range(12):
        mesh = random_mesh(SPACES[space], num_nodes, seeded(seed))
        side = round(num_nodes ** (1 / mesh.space.dim))
        assert mesh.num_nodes in (num_nodes, side**mesh.space.dim)
        assert bool(mesh.space.contains(mesh.positions).all())


def test_the_same_generator_gives_the_same_mesh():
    first, second = random_mesh(Box(), 30, seeded(4)), random_mesh(Box(), 30, seeded(4))
    assert torch.equal(first.positions, second.positions)


def test_they_are_of_many_kinds_from_even_to_graded():
    ratios = []
    for seed in range(60):
        mesh = random_mesh(Box(), 49, seeded(seed))
        lengths = (mesh.positions[mesh.senders] - mesh.positions[mesh.receivers]).norm(dim=-1)
        ratios.append(float(lengths.quantile(0.95) / lengths.quantile(0.05)))
    assert min(ratios) < 2
    assert max(ratios) > 6


def test_no_nodes_are_refused():
    with pytest.raises(InputError, match="at least one node"):
        random_mesh(Box(), 0, seeded(0))
