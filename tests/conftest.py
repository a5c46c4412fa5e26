"""Fixtures for all tests."""

from __future__ import annotations

import os
from collections.abc import Iterator

import jaxtyping
import pytest
import torch

os.environ["OMP_NUM_THREADS"] = "1"  # for the commands that tests start: they run beside other tests


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> None:
    """Small tensors are faster on one thread, and sums come out the same on every machine."""
    torch.set_num_threads(1)


@pytest.fixture
def double() -> Iterator[None]:
    """Numbers made inside the test have double precision."""
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.fixture
def unchecked() -> Iterator[None]:
    """Values of wrong types and shapes reach the code as they do in use, where annotations are not checked."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo):
    """`make verify` runs everything: there, a skip is a failure."""
    report = yield
    if report.skipped and os.environ.get("GRAPHELEMENTS_VERIFY") and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"skipped under GRAPHELEMENTS_VERIFY: {item.nodeid}: {report.longrepr}"
    return report
