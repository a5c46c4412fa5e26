"""Small evaluations as files, with errors that are easy to reckon with."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from graphelements.experiments.experiment import Experiment

NUM_HOUSES = 4


def score(method: str, resolution: int, mean: float) -> dict[str, Any]:
    """A score whose houses lie around the mean."""
    errors = [mean * (0.8 + 0.4 * house / (NUM_HOUSES - 1)) for house in range(NUM_HOUSES)]
    timed = {"nodes": resolution**2, "seconds_per_scenario": 1e-4 * resolution**2, "mse_std": 0.0}
    return {"method": method, "resolution": resolution, "mse_mean": mean, "mse_of_item": errors, **timed}


def write_evaluation(
    path: Path,
    seed: int,
    errors: dict[int, float],
    method: str = "gen",
    references: Sequence[str] = ("fem", "mean"),
    **batches: Any,
) -> Path:
    """A saved evaluation: these errors, and those of references beside them: of finite elements on meshes, of others once."""
    training = {
        "seed": seed,
        "seconds": 100.0 + seed,
        "threads": 1,
        "num_weights": 13537,
        "training": {"steps": 4000},
        "batches": {"resolutions": [2, 3, 4, 5, 6, 7], **batches},
    }
    results = [score(method, k, error) for k, error in errors.items()]
    sizes = [k for k in errors if k > 1] or [2, 7]
    for number, reference in enumerate(references):
        results += [score("fem", k, 1 / k**2) for k in sizes] if reference == "fem" else [score(reference, 0, 0.66 / 2**number)]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"contents": {"houses": NUM_HOUSES}, "training": training, "results": results}))
    return path


def write_all(folder: Path, experiment: Experiment, num_seeds: int = 2) -> dict[str, list[Path]]:
    """Evaluations of every curve: the error of curve number c at resolution k with seed s is (1 + c)(1 + s / 10) / k."""
    paths: dict[str, list[Path]] = {}
    for number, curve in enumerate(experiment.curves, start=1):
        free = {"np": "np", "np-tuned": "np", "attention": "attention"}.get(curve.preset)
        for seed in range(num_seeds):
            errors = {k: number * (1 + seed / 10) / k for k in ((1,) if free else curve.resolutions)}
            path = folder / f"{curve.name}-{seed}.json"
            paths.setdefault(curve.name, []).append(write_evaluation(path, seed, errors, free or "gen", dict(experiment.labels)))
    return paths
