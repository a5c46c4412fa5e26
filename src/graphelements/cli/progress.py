"""A progress bar with loss and estimate for training, and Ctrl-C as a wish to stop."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

if TYPE_CHECKING:
    from ..training import Report


@contextmanager
def stop_asked() -> Iterator[Callable[[], bool]]:
    """Yields a function that says whether Ctrl-C was pressed, so that a step can end well; a second time stops at once."""
    asked = False

    def ask_to_stop(*_: object) -> None:
        nonlocal asked
        if asked:
            raise KeyboardInterrupt
        asked = True

    before = signal.signal(signal.SIGINT, ask_to_stop)
    try:
        yield lambda: asked
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def training_progress(steps: int, shown: bool = True, name: str = "training") -> Iterator[Callable[[Report], None]]:
    """Yields a function that shows a report."""
    columns = (
        "[progress.description]{task.description}",
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("loss {task.fields[loss]:.4f}"),
    )
    console = Console(stderr=True)
    with Progress(*columns, TimeElapsedColumn(), TimeRemainingColumn(), console=console, disable=not shown) as progress:
        bar = progress.add_task(name, total=steps, loss=float("nan"))
        smooth = None

        def show(report: Report) -> None:
            nonlocal smooth
            smooth = report.loss if smooth is None else 0.95 * smooth + 0.05 * report.loss
            progress.update(bar, completed=report.step, loss=smooth)
            if report.validation and shown:
                errors = "  ".join(f"{name} {value:.4f}" for name, value in report.validation.items())
                progress.console.print(f"step {report.step}: validation MSE  {errors}", highlight=False)

        try:
            yield show
        except BaseException:
            progress.live.transient = True  # what went wrong is one line, without a bar above it
            progress.live.stop()
            progress.disable = True
            raise
