"""The Poisson problem on the square (paper section 4.1): houses, presets, meshes, scores and references."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..checkpoints import Checkpoint, load_checkpoint
from ..data.house_files import load_houses, save_houses
from ..data.houses import MAX_HEATERS, POISSON_SQUARE, UNIT_SQUARE, Houses, Scenario, encode
from ..data.poisson import TRUTH_RESOLUTION, p1_temperatures, solved
from ..data.random_houses import HouseDistribution, draw_houses
from ..errors import require
from ..meshes import Mesh, MeshConfig, build_grid
from ..moving_meshes import MovingMeshes
from ..network import GraphElementNetwork
from ..network_config import DEFAULT, NEURAL_PROCESS, PAPER, NetworkConfig
from ..samples import Queries, SFTBatch
from ..sft_network import SFTNetwork
from ..training import BatchOf, TrainingConfig, item_errors
from ..unions import MeshUnion, union
from .house_symmetries import transformed
from .mesh_mixes import mesh_mix
from .rivals import tuned_rivals
from .task import BatchConfig, RunConfig, Score, Symmetry, Task, meshed_network, method_of, parse_numbers, score, split_numbers

HELD_OUT = (
    17, 20, 26, 40, 41, 57, 62, 65, 75, 76, 89, 90, 92, 97, 102, 104, 116, 126, 128, 131,
    137, 149, 152, 157, 158, 169, 170, 186, 198, 200, 202, 203, 207, 214, 222, 226, 227, 236, 239, 247,
)  # fmt: skip
"""The 40 of the authors' 200 houses that are never trained on: np.random.default_rng(2019).choice(numbers, 40, replace=False)."""

MAX_RESOLUTION = 1000

SYMMETRIES: tuple[Symmetry, ...] = ("square", "sign", "scale", "shift")

NEAR = RunConfig(  # queries hear the nearest samples, and know of others by nodes
    replace(DEFAULT, samples_see="patch"),  # heaters are pieces of one value
    MeshConfig(nested=True, nesting_ratio=1.5),
    BatchConfig(
        items=48,
        scenarios=1,
        queries=48,
        meshes=8,
        random_meshes=0.5,
        large_resolutions=tuple(range(8, 17)),
        large_share=0.15,
        nesting_ratios=(2.0, 2.0, 1.5),
        symmetries=SYMMETRIES,
    ),
    TrainingConfig(steps=9000, learning_rate=8e-3, optimizer="muon", validate_every=3000),
)
OURS = replace(  # the problem is linear; queries hear all heaters, and up to six overlaps of two
    NEAR,
    network=replace(
        DEFAULT,
        samples_see="box",
        gated=True,
        linear=True,
        norm="none",
        num_heard=2 * MAX_HEATERS,
        hears=("heaters",),
        ear_layers=2,
        cautious=True,
    ),
    mesh=replace(NEAR.mesh, nesting_ratio=3.0),
    batches=replace(NEAR.batches, nesting_ratios=(3.0, 3.0, 2.0), large_share=0.0),
    training=replace(NEAR.training, steps=6000, validate_every=2000),
)
SMALL = replace(  # for speed: narrow, and on grids, where nothing is searched for
    OURS,
    network=replace(
        OURS.network,
        latent_size=16,
        edge_hidden=16,
        encoder_hidden=(16,),
        decoder_hidden=(16,),
        decoder_layers=1,
        ear_layers=1,
        representation="multilinear",
        reads="finest",
        cautious=False,
    ),
    mesh=MeshConfig(),
    batches=replace(NEAR.batches, random_meshes=0.0, nesting_ratios=(2.0,)),
)

PRESETS = {
    "default": OURS,
    "near": NEAR,
    "nodes": replace(NEAR, network=replace(NEAR.network, num_heard=0)),  # samples reach queries by nodes alone
    "small": SMALL,
    "paper": RunConfig(PAPER, training=TrainingConfig(steps=4000)),
    "paper-grid": RunConfig(replace(PAPER, representation="multilinear"), training=TrainingConfig(steps=4000)),
    "paper-moving": RunConfig(  # A.4: every house has two meshes of each size, whose nodes learn
        replace(PAPER, representation="barycentric"),
        batches=BatchConfig(moving_starts=2),
        training=TrainingConfig(steps=4000, compile="off"),
    ),
    "np": RunConfig(
        NEURAL_PROCESS, batches=BatchConfig(resolutions=(1,)), training=TrainingConfig(steps=4500, learning_rate=1e-3)
    ),
    **tuned_rivals(SYMMETRIES, np_training=(20000, 5000), attention_training=(15000, 5000), samples_see="box"),
}


class PoissonSquare(Task[Houses]):
    """Heaters and border temperature -> temperature anywhere in a square house."""

    name = "poisson-square"
    sft = POISSON_SQUARE
    presets: Mapping[str, RunConfig] = PRESETS
    symmetries = SYMMETRIES

    def generate(self, path: Path, num: int, seed: int, source: Path | None = None) -> Iterator[int]:
        self.refuse(source)
        distribution = HouseDistribution()
        houses = draw_houses(num, np.random.default_rng(seed), distribution)
        done = []
        for number in houses.numbers:
            done += solved(houses.selected([number])).houses
            yield len(done)
        save_houses(
            path, Houses(tuple(done)), {"seed": seed, "distribution": asdict(distribution), "truth_resolution": TRUTH_RESOLUTION}
        )

    def load(self, path: Path, subset: str = "all") -> Houses:
        houses = load_houses(path)
        require(houses.houses[0].temperatures is not None, f"{path} has no temperatures; generate it again")
        if subset == "all":
            return houses
        if subset in ("train", "test"):
            held_out = self.held_out(houses)
            chosen = [n for n in houses.numbers if (n in held_out) == (subset == "test")]
            require(len(chosen) > 0, f"{path} has no house of the {subset} split; use --houses all or numbers")
            return houses.selected(chosen)
        return houses.selected(parse_numbers(subset))

    def held_out(self, data: Houses) -> list[int]:
        return [number for number in data.numbers if number in HELD_OUT]

    def describe(self, data: Houses) -> dict[str, Any]:
        temperatures = np.concatenate([np.ravel(house.temperatures) for house in data.houses if house.temperatures is not None])
        heaters = [len(house.rectangles) for house in data.houses]
        return {
            "houses": len(data),
            "numbers": f"{min(data.numbers)} to {max(data.numbers)}",
            "scenarios a house": data.num_scenarios,
            "queries a scenario": data.num_queries,
            "heaters a house": ", ".join(f"{heaters.count(n)} with {n}" for n in sorted(set(heaters))),
            "powers": f"{min(h.powers.min() for h in data.houses):.2f} to {max(h.powers.max() for h in data.houses):.2f}",
            "temperatures": f"mean {temperatures.mean():.4f}, variance {temperatures.var():.4f}, "
            f"{temperatures.min():.2f} to {temperatures.max():.2f}",
        }

    def split(self, data: Houses, fraction: float, seed: int) -> tuple[Houses, Houses | None]:
        kept, held_out = split_numbers(data.numbers, fraction, seed)
        return (data.selected(kept), data.selected(held_out)) if held_out else (data, None)

    def moving_meshes(self, data: Houses, config: RunConfig, seed: int) -> MovingMeshes | None:
        sizes, mesh = config.batches, config.mesh
        if sizes.moving_starts == 0:
            return None
        kind = type(config.network).__name__
        passes = isinstance(config.network, NetworkConfig) and config.network.rounds != 0
        require(passes, f"nodes learn where networks pass messages, which this {kind} does not; leave out batches.moving_starts")
        require(mesh.edges == "delaunay", f"meshes that move have delaunay edges; got mesh.edges={mesh.edges}")
        others = sizes.random_meshes or sizes.large_share
        require(not others, "houses have meshes that move and no others; set batches.random_meshes and batches.large_share to 0")
        square = "square" in sizes.symmetries
        require(not square, "meshes of a house do not turn with it; leave square out of batches.symmetries")
        nodes, ratio = [k**UNIT_SQUARE.dim for k in sizes.resolutions], mesh.nesting_ratio if mesh.nested else None
        return MovingMeshes(UNIT_SQUARE, len(data), nodes, sizes.moving_starts, sizes.moving_rate, ratio, seed)

    def batch_of(self, data: Houses, config: RunConfig, seed: int, moving: MovingMeshes | None = None) -> BatchOf:
        sizes = self.checked(config).batches
        num_houses, num_scenarios = min(sizes.items, len(data)), min(sizes.scenarios, data.num_scenarios)
        num_queries = min(sizes.queries, data.num_queries)
        draw_meshes = mesh_mix(lambda resolution: self.mesh(config.mesh, resolution), config, num_houses * num_scenarios, seed)

        def batch(step: int) -> tuple[SFTBatch, MeshUnion]:
            rng = np.random.default_rng((seed, step))
            meshes = draw_meshes(rng) if moving is None else None
            num_items = num_houses * num_scenarios if meshes is None else meshes.num_items
            houses = rng.permutation(len(data))[:num_houses].repeat(num_scenarios)
            scenarios = rng.random((num_houses, data.num_scenarios)).argsort(1)[:, :num_scenarios].ravel()
            queries = rng.random((num_items, data.num_queries)).argsort(1)[:, :num_queries]
            items = slice(None) if num_items == len(houses) else rng.permutation(len(houses))[:num_items]
            drawn = data.batch(houses[items], scenarios[items], queries)
            if moving is not None:
                chosen = rng.choice(sizes.resolutions, num_items), rng.integers(sizes.moving_starts, size=num_items)
                own = zip(houses, *chosen, strict=True)
                meshes = union([moving.mesh(int(house), int(k) ** UNIT_SQUARE.dim, int(start)) for house, k, start in own])
            assert meshes is not None
            return (transformed(drawn, sizes.symmetries, rng) if sizes.symmetries else drawn), meshes

        return batch

    def all_of(self, data: Houses) -> list[SFTBatch]:
        houses, scenarios = np.divmod(np.arange(len(data) * data.num_scenarios), data.num_scenarios)
        pieces = np.array_split(np.arange(len(houses)), math.ceil(len(houses) / 512))  # bounds the memory
        return [data.batch(houses[piece], scenarios[piece]) for piece in pieces]

    def validator(self, data: Houses, config: RunConfig) -> Callable[[SFTNetwork], Mapping[str, float]]:
        resolutions = (*config.batches.resolutions, *config.batches.large_resolutions[-1:])
        meshes = {f"{k}x{k}": self.mesh(config.mesh, k) for k in resolutions}
        return lambda network: {name: float(house_errors(network, mesh, data)[0].mean()) for name, mesh in meshes.items()}

    def mesh(self, config: MeshConfig, resolution: int) -> Mesh:
        require(1 <= resolution <= MAX_RESOLUTION, f"the resolution must be 1 to {MAX_RESOLUTION}; got {resolution}")
        return build_grid(config, UNIT_SQUARE, resolution)

    def evaluate(
        self,
        checkpoint: Checkpoint,
        data: Houses,
        resolutions: tuple[int, ...],
        progress: Callable[[str], None] = lambda _: None,
        mesh: Mesh | None = None,
    ) -> list[Score]:
        network = checkpoint.network
        method = method_of(network)
        scores = []
        if mesh is not None:
            require(method == "gen", f"a network of the kind {method} runs on no mesh; leave the mesh out")
            progress(f"{method} on {mesh.num_nodes} nodes")
            scores.append(score(method, 0, mesh.num_nodes, *house_errors(network, mesh, data)))
        for resolution in resolutions if method == "gen" else (1,):
            progress(f"{method} {resolution}x{resolution}")
            scores.append(
                score(method, resolution, resolution**2, *house_errors(network, self.mesh(checkpoint.mesh, resolution), data))
            )
        for resolution in resolutions:
            if resolution > 1:
                progress(f"fem {resolution}x{resolution}")
                p1_temperatures(data.houses[0], resolution)  # factorise before the clock starts
                started = time.perf_counter()
                errors = np.array([np.mean((p1_temperatures(h, resolution) - h.temperatures) ** 2) for h in data.houses])
                seconds = (time.perf_counter() - started) / (len(data) * data.num_scenarios)
                scores.append(score("fem", resolution, resolution**2, errors, seconds))
        truths = np.stack([np.asarray(house.temperatures) for house in data.houses])
        scores.append(score("mean", 0, 0, ((truths - truths.mean()) ** 2).mean((1, 2)), 0.0))
        return scores


TASK = PoissonSquare()


def house_errors(network: SFTNetwork, mesh: Mesh, data: Houses) -> tuple[np.ndarray, float]:
    """The mean squared error of every house, and the seconds a scenario takes when the scenarios of a house are one batch."""
    scenarios = np.arange(data.num_scenarios)
    batches = [data.batch(np.full(len(scenarios), house), scenarios) for house in range(len(data))]
    meshes = union(mesh, len(scenarios))
    item_errors(network, batches[0], meshes)  # warm up caches before the clock starts
    started = time.perf_counter()
    errors = [float(item_errors(network, batch, meshes)["temperature"].mean()) for batch in batches]
    return np.array(errors), (time.perf_counter() - started) / (len(batches) * len(scenarios))


def load_house_checkpoint(source: str) -> Checkpoint:
    """The checkpoint of a network for houses, from a file or by the name of a shipped one."""
    loaded = load_checkpoint(source)
    require(loaded.task == TASK.name, f"{source} was trained for {loaded.task or 'no task'}, not for {TASK.name}")
    return loaded


def load_meshed_checkpoint(source: str) -> tuple[Checkpoint, GraphElementNetwork]:
    """The same of a network whose meshes can adapt, and that network."""
    loaded = load_house_checkpoint(source)
    return loaded, meshed_network(loaded, source)


def predict_scenario(network: SFTNetwork, scenario: Scenario, mesh: Mesh, points: np.ndarray) -> np.ndarray:
    """Temperatures of a scenario at any points of the house."""
    batch = SFTBatch(encode(scenario), {"temperature": Queries(torch.as_tensor(points, dtype=torch.float32))})
    return network.predict(batch, mesh)["temperature"][:, 0].numpy()


def mesh_for(checkpoint: Checkpoint, resolution: int) -> Mesh:
    """The mesh of a resolution that a checkpoint's network runs on; the baselines have one node whatever the resolution."""
    return TASK.mesh(checkpoint.mesh, resolution if method_of(checkpoint.network) == "gen" else 1)
