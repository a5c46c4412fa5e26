"""An evaluation as a file: the scores of a checkpoint and of the references, each house's included."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ..checkpoints import load_checkpoint
from ..errors import require
from ..files import replaced, require_writable
from ..mesh_files import load_mesh
from ..tasks import get_task


def save_evaluation(
    out: Path,
    checkpoint: str,
    data: Path,
    houses: str,
    resolutions: tuple[int, ...],
    progress: Callable[[str], None] = lambda _: None,
    mesh: Path | None = None,
) -> dict[str, Any]:
    """Score a checkpoint on some houses, and on the mesh in a file besides; write the evaluation to `out` and return it.

    Paths are written as they were given.
    """
    loaded = load_checkpoint(checkpoint)
    require(loaded.task is not None, f"{checkpoint} belongs to no task of this library; score it with graphelements.item_errors")
    task = get_task(str(loaded.task))
    require_writable(out)
    found, given = task.load(data, houses), None if mesh is None else load_mesh(mesh)
    scores = task.evaluate(loaded, found, resolutions, progress, given)
    evaluation = {"task": task.name, "checkpoint": checkpoint, "data": str(data), "houses": houses}
    evaluation |= {} if mesh is None else {"mesh": str(mesh)}
    evaluation |= {"contents": task.describe(found), "training": loaded.training}
    evaluation |= {"results": [asdict(score) for score in scores]}
    with replaced(out) as temporary:
        temporary.write_text(json.dumps(evaluation, indent=1) + "\n")
    return evaluation
