"""Optimised meshes (paper sections 3.4, 4.1 and A.4): what moving, placing and growing nodes gains on houses never trained on.

`<out>/<model>.json` has the trials of one model on every house, one after another, made only where they are missing;
`summary.json`, `table.md` and the figures are made from the files that are there.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..adaptation import AdaptationConfig, AdaptedMesh, adapt_mesh, mean_errors
from ..checkpoints import Checkpoint
from ..data.houses import POISSON_SQUARE, UNIT_SQUARE, Houses
from ..data.poisson import solved
from ..data.random_houses import HouseDistribution, draw_houses
from ..errors import InputError, require
from ..files import exists, read_json, replaced
from ..mesh_growth import GrowthConfig, grow_mesh, mesh_for_inputs
from ..mesh_quality import inspect_mesh
from ..meshes import Mesh, scattered_mesh
from ..network import GraphElementNetwork
from ..samples import SFTBatch
from ..tasks.poisson_square import TASK, load_meshed_checkpoint, mesh_for

GIVEN = 16
"""So many scenarios of a house adapt its meshes, the others judge."""

NUM_GENERATED, GENERATED_SEED = 10, 21
SIZES, INPUT_SIZES = (2, 3, 4, 5, 6, 7), (4, 5, 6, 7)
MARGIN = 0.8
"""Meshes grow to so much of the error of an even one on the given scenarios: others err a little more."""

STABLE_SIZES, NUM_STABLE, NUM_SEEDS = (5, 10, 15), 6, 3
"""Meshes that begin with scattered nodes: sizes, houses and seeds."""


@dataclass(frozen=True)
class Trial:
    """One mesh of one house: where it began, and its errors on the judging scenarios before and after; the positions of its nodes
    and of those of the coarser meshes behind it."""

    start: str
    resolution: int
    nodes: int
    before: float
    after: float
    seconds: float
    valid: bool
    smallest_angle: float
    positions: list[list[float]]
    coarser: list[list[list[float]]]


@dataclass(frozen=True)
class Work:
    """Which houses, how many of them have trials with scattered nodes, how nodes move, and how meshes grow."""

    num_houses: int | None = None
    num_generated: int = NUM_GENERATED
    num_stable: int = NUM_STABLE
    adaptation: AdaptationConfig = AdaptationConfig()
    growth: GrowthConfig = GrowthConfig()


TEST_HOUSE = "house"
"""Begins the names of test houses."""

CLAIMS = ("model", "weights", "work", "contents")
"""What trials must have in common to be in one file."""

QUICK = Work(3, 1, 1, AdaptationConfig(steps=20), GrowthConfig(changes=6))


def houses_of(data: Path | None, work: Work) -> dict[str, Houses]:
    """Houses that no shipped model was trained on, one by one: those of the test split at `data`, and generated ones."""
    generated = solved(draw_houses(work.num_generated, np.random.default_rng(GENERATED_SEED), HouseDistribution()))
    found = {} if data is None else _one_by_one(TEST_HOUSE, TASK.load(data, "test"))
    return dict(list(found.items())[: work.num_houses]) | _one_by_one("generated", generated)


def _one_by_one(kind: str, houses: Houses) -> dict[str, Houses]:
    return {f"{kind} {number}": houses.selected([number]) for number in houses.numbers}


def carry_out(
    path: Path, source: str, houses: dict[str, Houses], work: Work, progress: Callable[[str], None] = lambda _: None
) -> None:
    """Do the trials of every house that are not in the file of a model yet; the file is complete after each house."""
    loaded, _ = load_meshed_checkpoint(source)
    claims = {"model": source, "weights": _digest(loaded), "work": asdict(work), "contents": _contents(houses)}
    done = read_results(path) if exists(path) else claims | {"houses": {}}
    wrong = [name for name, value in claims.items() if done[name] != value]
    require(not wrong, f"{path} has trials of other {', '.join(wrong)}; move it away, or choose another --out")
    for number, (name, house) in enumerate(houses.items()):
        if name not in done["houses"]:
            trials = trials_of(loaded, house, work, number, lambda text, name=name: progress(f"{name}, {text}"))
            done["houses"][name] = [asdict(trial) for trial in trials]
            done["threads"] = torch.get_num_threads()
            with replaced(path) as temporary:
                temporary.write_text(json.dumps(done) + "\n")


def _digest(loaded: Checkpoint) -> str:
    """Short for the weights."""
    weights = b"".join(tensor.cpu().numpy().tobytes() for tensor in loaded.network.state_dict().values())
    return hashlib.sha256(weights).hexdigest()[:16]


def _contents(houses: dict[str, Houses]) -> dict[str, str]:
    """Short for the heaters and temperatures of every house."""
    found = {}
    for name, house in houses.items():
        (only,) = house.houses
        parts = (np.ascontiguousarray(a, dtype=np.float32).tobytes() for a in (only.rectangles, only.powers, only.temperatures))
        found[name] = hashlib.sha256(b"".join(parts)).hexdigest()[:16]
    return found


def read_results(path: Path) -> dict[str, Any]:
    """The trials of a model, as they were written."""
    found = read_json(path, "trials saved by `graphelements reproduce optimised-meshes`")
    try:
        for trials in found["houses"].values():
            [Trial(**trial) for trial in trials]
        return {name: found[name] for name in CLAIMS} | {"houses": found["houses"], "threads": found.get("threads")}
    except (KeyError, TypeError, AttributeError):
        raise InputError(f"{path} has no trials of `graphelements reproduce optimised-meshes`; move it away") from None


def contents_of(data: Path, subset: str) -> dict[str, str]:
    """Short for what is in the test houses at `data`, by the names that trials have for them."""
    return _contents(_one_by_one(TEST_HOUSE, TASK.load(data, subset)))


def all_results(folder: Path, houses: dict[str, Houses], work: Work) -> dict[str, dict[str, Any]]:
    """The trials of all models in a folder, by the name of the model; all of these houses and this work."""
    results = {path.stem: read_results(path) for path in sorted(folder.glob("*.json")) if path.stem != "summary"}
    expected = {"work": asdict(work), "contents": _contents(houses)}
    for model, found in results.items():
        wrong = [name for name, value in expected.items() if found[name] != value]
        require(not wrong, f"{folder / model}.json has trials of other {', '.join(wrong)}; move it away")
    return {model: found for model, found in results.items() if len(found["houses"]) == len(houses)}


def trials_of(
    loaded: Checkpoint, house: Houses, work: Work, number: int, progress: Callable[[str], None] = lambda _: None
) -> Iterator[Trial]:
    """All trials of one house."""
    network = loaded.network
    assert isinstance(network, GraphElementNetwork)
    given, judging = (_scenarios(house, some) for some in (range(GIVEN), range(GIVEN, house.num_scenarios)))

    def trial(start: str, resolution: int, mesh: Mesh, adapt: Callable[[Mesh], Iterator[AdaptedMesh]] | None) -> Trial:
        progress(f"{start} {resolution}x{resolution}")
        started, best = time.perf_counter(), mesh
        for step in adapt(mesh) if adapt is not None else ():
            best = step.best
        seconds, reports = time.perf_counter() - started, [inspect_mesh(level) for level in best.nest]
        valid = all(told.pieces == 1 and told.closest_nodes > 0 and told.smallest_angle > 0 for told in reports)
        before, after = mean_errors(network, [mesh, best], judging)
        finest, *coarser = (np.round(level.positions.double().numpy(), 5).tolist() for level in best.nest)
        angle = min(told.smallest_angle for told in reports)
        return Trial(start, resolution, best.num_nodes, before, after, seconds, valid, angle, finest, coarser)

    def moved(mesh: Mesh) -> Iterator[AdaptedMesh]:
        return adapt_mesh(network, mesh, given, work.adaptation)

    def grown(mesh: Mesh) -> Iterator[AdaptedMesh]:
        even, last = mesh_for(loaded, 7), given.selected(range(GIVEN - GIVEN // 4, GIVEN))
        tolerance = MARGIN * max(mean_errors(network, [even], some)[0] for some in (given, last))
        growth = replace(work.growth, num_nodes=even.num_nodes, tolerance=tolerance)
        return grow_mesh(network, mesh, given, growth, work.adaptation)

    for size in SIZES:
        yield trial("even", size, mesh_for(loaded, size), moved)
    for size in INPUT_SIZES:
        half = mesh_for(loaded, round(size / 2**0.5))
        yield trial("inputs", size, mesh_for_inputs(POISSON_SQUARE, half, given, size**2), None)
    yield trial("grown", 3, mesh_for(loaded, 3), grown)
    for size in _scattered_sizes(number, work):
        for seed in range(NUM_SEEDS):
            nodes = scattered_mesh(UNIT_SQUARE, size**2, torch.Generator().manual_seed(seed))
            ratio = loaded.mesh.nesting_ratio
            yield trial(f"scattered {seed}", size, nodes.nested(ratio) if loaded.mesh.nested else nodes, moved)


def _scattered_sizes(number: int, work: Work) -> Sequence[int]:
    sizes = set(STABLE_SIZES if number < work.num_stable else ()) | set(SIZES if number == 0 else ())
    return sorted(sizes)


def _scenarios(house: Houses, numbers: Sequence[int]) -> SFTBatch:
    return house.batch(np.zeros(len(numbers), int), np.array(numbers))
