"""Where the authors' houses are: $GRAPHELEMENTS_DATA/poisson_houses, or ../shared/data beside the repository."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

import pytest

from graphelements.data.house_files import load_houses
from graphelements.data.houses import Houses

DEFAULT = Path(__file__).resolve().parents[2] / "shared" / "data"
DIRECTORY = Path(os.environ.get("GRAPHELEMENTS_DATA", DEFAULT)) / "poisson_houses"

needs_real_houses = pytest.mark.skipif(
    not DIRECTORY.is_dir(), reason=f"the authors' houses are not in {DIRECTORY}; set GRAPHELEMENTS_DATA"
)


@cache
def real_houses() -> Houses:
    return load_houses(DIRECTORY)
