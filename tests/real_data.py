"""Where real data are: in $GRAPHELEMENTS_DATA, or in ../shared/data beside the repository."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

import pytest

from graphelements.data.house_files import load_houses
from graphelements.data.houses import Houses

DEFAULT = Path(__file__).resolve().parents[2] / "shared" / "data"
DATA = Path(os.environ.get("GRAPHELEMENTS_DATA", DEFAULT))
DIRECTORY = DATA / "poisson_houses"
ERA_INTERIM = DATA / "sphere" / "eraint_uvz.nc"
OMNIPUSH_SPLIT = DATA / "omnipush" / "split.json"
PUSHING_LOGS = DATA / "pushing_logs"

needs_real_houses = pytest.mark.skipif(
    not DIRECTORY.is_dir(), reason=f"the authors' houses are not in {DIRECTORY}; set GRAPHELEMENTS_DATA"
)
needs_era_interim = pytest.mark.skipif(
    not ERA_INTERIM.is_file(), reason=f"ERA-Interim's fields are not in {ERA_INTERIM}; set GRAPHELEMENTS_DATA"
)
needs_omnipush_split = pytest.mark.skipif(
    not OMNIPUSH_SPLIT.is_file(), reason=f"the split of Omnipush is not in {OMNIPUSH_SPLIT}; set GRAPHELEMENTS_DATA"
)
needs_pushing_logs = pytest.mark.skipif(
    not PUSHING_LOGS.is_dir(), reason=f"logs of real pushes are not in {PUSHING_LOGS}; set GRAPHELEMENTS_DATA"
)


@cache
def real_houses() -> Houses:
    return load_houses(DIRECTORY)
