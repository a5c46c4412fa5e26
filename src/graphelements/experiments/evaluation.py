"""An evaluation as a file: the scores of a checkpoint and of the references, each house's included."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from ..checkpoints import load_checkpoint
from ..configs import with_settings
from ..errors import require
from ..files import replaced, require_writable
from ..mesh_files import load_mesh
from ..spaces import Sphere
from ..tasks import get_task
from ..tasks.task import method_of
from .rotations import rotation_spread


def save_evaluation(
    out: Path,
    checkpoint: str,
    data: Path,
    houses: str,
    resolutions: tuple[int, ...] | None = None,
    progress: Callable[[str], None] = lambda _: None,
    mesh: Path | None = None,
    layout: str | None = None,
    num_rotations: int = 0,
) -> dict[str, Any]:
    """Score a checkpoint on some houses, and on the mesh in a file besides; write the evaluation to `out` and return it.

    `resolutions`: those of the task if not given, 1, 2 and 4 of icosahedra; `layout`: that of the meshes, if not of training;
    `num_rotations`: on a sphere, how much predictions differ over so many.
    Paths are written as they were given.
    """
    loaded = load_checkpoint(checkpoint)
    require(loaded.task is not None, f"{checkpoint} belongs to no task of this library; score it with graphelements.item_errors")
    task = get_task(str(loaded.task))
    if layout is not None:
        kind = method_of(loaded.network)
        require(kind == "gen", f"{checkpoint} runs on no mesh: it is of the kind {kind}; leave out the layout")
        loaded = replace(loaded, mesh=with_settings(loaded.mesh, [f"layout={layout}"]))
    resolutions = resolutions or ((1, 2, 4) if loaded.mesh.layout == "icosahedron" else task.resolutions)
    require(num_rotations == 0 or isinstance(task.sft.space, Sphere), f"rotations are for tasks on a sphere; got {task.name}")
    require(num_rotations != 1, "a deviation needs two rotations or more; got 1")
    require_writable(out)
    found, given = task.load(data, houses), None if mesh is None else load_mesh(mesh)
    scores = task.evaluate(loaded, found, resolutions, progress, given)
    evaluation = {"task": task.name, "checkpoint": checkpoint, "data": str(data), "houses": houses}
    evaluation |= {} if mesh is None else {"mesh": str(mesh)}
    evaluation |= {"contents": task.describe(found), "training": loaded.training}
    evaluation |= {"results": [asdict(score) for score in scores]}
    if layout is not None:
        evaluation["layout"] = layout
    if num_rotations:
        meshes = [given] if given is not None else [task.mesh(loaded.mesh, k) for k in resolutions]
        evaluation["rotations"] = []
        for each in meshes if method_of(loaded.network) == "gen" else [task.mesh(loaded.mesh, 1)]:
            progress(f"{num_rotations} rotations on {each.num_nodes} nodes")
            turned = rotation_spread(loaded.network, each, found, num_rotations)
            evaluation["rotations"].append(asdict(turned) | {"ratio": turned.ratio, "num_rotations": num_rotations})
    with replaced(out) as temporary:
        temporary.write_text(json.dumps(evaluation, indent=1) + "\n")
    return evaluation
