"""Which meshes the items of a training step run on."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import cache

import numpy as np
import torch

from ..meshes import Mesh
from ..random_meshes import random_mesh
from ..topology import delaunay_edges, multiscale_edges
from ..unions import MeshUnion, union
from .task import RunConfig

POOL = 64  # mixes that are made once and drawn from: each is a graph whose tables are built once
LARGE_ITEMS = 6  # times fewer items in a step on large meshes


def mesh_mix(
    mesh_of: Callable[[int], Mesh], config: RunConfig, num_items: int, seed: int
) -> Callable[[np.random.Generator], MeshUnion]:
    """A function that draws the meshes of a step: one resolution for all items, or a mix as `config.batches` describes it."""
    sizes = config.batches
    connect = multiscale_edges(config.mesh.scale_ratio) if config.mesh.edges == "multiscale" else delaunay_edges

    @cache
    def grid(resolution: int, ratio: float) -> Mesh:
        mesh = mesh_of(resolution)
        return mesh.nested(ratio) if config.mesh.nested else mesh

    @cache
    def shared(resolution: int) -> MeshUnion:
        return union(grid(resolution, sizes.nesting_ratios[0]), num_items)

    @cache
    def mixed(number: int) -> MeshUnion:
        rng = np.random.default_rng((seed, number, 1))  # a stream of its own, beside those of the steps
        large = number < round(sizes.large_share * POOL)
        resolutions, items = (sizes.resolutions, num_items)
        if large:
            resolutions, items = sizes.large_resolutions, max(1, num_items // LARGE_ITEMS)
        meshes = []
        for resolution in rng.choice(resolutions, min(sizes.meshes, items)):
            generator = None
            if rng.random() < sizes.random_meshes:
                generator = torch.Generator().manual_seed(int(rng.integers(2**31)))
            ratio = float(rng.choice(sizes.nesting_ratios))
            mesh = grid(int(resolution), ratio)
            if generator is not None:
                mesh = replace(random_mesh(mesh.space, mesh.num_nodes, generator, connect), coarser=mesh.coarser)
            meshes.append(mesh)
        return union((meshes * math.ceil(items / len(meshes)))[:items])

    def draw(rng: np.random.Generator) -> MeshUnion:
        if sizes.meshes == len(sizes.nesting_ratios) == 1 and sizes.random_meshes == sizes.large_share == 0:
            return shared(int(rng.choice(sizes.resolutions)))
        return mixed(int(rng.integers(POOL)))

    return draw
