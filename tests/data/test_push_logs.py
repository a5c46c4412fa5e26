"""The simulator against real pushes of a block on known supports."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest
from real_data import PUSHING_LOGS, needs_pushing_logs

from graphelements.data.push_logs import read_logs
from graphelements.errors import InputError
from graphelements.experiments.push_validation import METHODS, draw, table_of, validated


@needs_pushing_logs
def test_real_pushes_end_where_the_simulator_says() -> None:
    """Mean over five supports: 1.44 mm and 1.47 degrees, where no motion is off by 7.8 mm and 5.8 degrees."""
    summary, logs, answers = validated(PUSHING_LOGS)
    errors = {m: np.mean([[row["mm"], row["degrees"]] for row in summary["rows"] if row["method"] == m], 0) for m in METHODS}
    assert len(logs) == 5
    assert sum(len(log.motions) for log in logs) == 250
    assert errors["simulator"] == pytest.approx([1.44, 1.47], abs=0.02)
    assert errors["simulator"][0] < 0.8 * errors["ellipsoid"][0]
    assert errors["still"] == pytest.approx([7.82, 5.77], abs=0.02)
    assert "1.44 mm" in table_of(summary)
    assert len(draw(logs, answers).axes) == 2


@needs_pushing_logs
def test_the_support_matters() -> None:
    """The log whose load is most gathered is predicted three times worse with the support of the most spread one."""
    from graphelements.data.push_logs import FINGER
    from graphelements.data.quasi_static import PatchFriction, pushed

    logs = {log.name[:5]: log for log in read_logs(PUSHING_LOGS)}
    log, spread = logs["30_63"], logs["10_13"]

    def error(support) -> float:
        found = pushed(PatchFriction(support), log.outline, FINGER, log.starts, log.angles)
        return float(np.hypot(*(found - log.motions)[:, :2].T).mean())

    assert error(spread.support) > 3 * error(log.support)


def test_what_is_no_log_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="has no logs"):
        read_logs(tmp_path)
    (tmp_path / "bad.json.gz").write_bytes(gzip.compress(b'{"name": "x", "object": {"com_mm": [1]}}'))
    with pytest.raises(InputError, match=r"bad\.json\.gz"):
        read_logs(tmp_path)
    (tmp_path / "bad.json.gz").write_bytes(b"no gzip")
    with pytest.raises(InputError, match=r"bad\.json\.gz"):
        read_logs(tmp_path)


@needs_pushing_logs
def test_the_load_is_centred_as_the_mass_is() -> None:
    for log in read_logs(PUSHING_LOGS):
        assert np.abs(log.support.centre).max() < 2e-4, log.name


@needs_pushing_logs
@pytest.mark.parametrize("damage", [{"pushes": []}, {"pushes": [{}]}, {"object": 3}])
def test_a_damaged_log_is_refused_in_one_line(tmp_path: Path, damage: dict) -> None:
    import json

    first = sorted(PUSHING_LOGS.glob("*.json.gz"))[0]
    with gzip.open(first, "rt") as file:
        log = json.load(file) | damage
    with gzip.open(tmp_path / "bad.json.gz", "wt") as file:
        json.dump(log, file)
    with pytest.raises(InputError, match=r"bad\.json\.gz"):
        read_logs(tmp_path)
