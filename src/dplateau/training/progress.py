"""The progress display: steps, rate and time left. Nothing that was computed from data."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from typing import Any

Report = Callable[[float], object]


class Progress:
    """A line on the terminal, or nothing at all if not ``wanted``."""

    def __init__(self, wanted: bool, iterations: float, done: int) -> None:
        self._bar: Any = None
        self._task: Any = None
        if wanted:
            total = None if iterations == math.inf else int(iterations)
            self._bar = _bar()
            self._task = self._bar.add_task("training", total=total, completed=done)

    def __enter__(self) -> Progress:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(self, *trouble: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def show(self, step: int) -> None:
        """Move the bar to ``step``."""
        if self._bar is not None:
            self._bar.update(self._task, completed=step)


def preparing(wanted: bool) -> contextlib.AbstractContextManager[None]:
    """Say why nothing moves yet: the first run on a new kind of data compiles its loops."""
    return waiting(wanted, "preparing (the first run on a new kind of data compiles code, once)")


@contextlib.contextmanager
def waiting(wanted: bool, what: str) -> Iterator[None]:
    """Say what is going on while nothing can be counted."""
    if not wanted:
        yield
        return
    from rich.console import Console

    with Console().status(what):
        yield


@contextlib.contextmanager
def passing(wanted: bool, what: str) -> Iterator[Report]:
    """A line that shows how much of a table is done: tell it the share."""
    if not wanted:
        yield unsaid
        return
    from rich import progress

    bar = progress.Progress(
        progress.TextColumn("{task.description}"),
        progress.BarColumn(),
        progress.TaskProgressColumn(),
        progress.TimeRemainingColumn(),
        transient=True,
    )
    with bar:
        task = bar.add_task(what, total=1.0)
        yield lambda share: bar.update(task, completed=min(share, 1.0))


def unsaid(share: float) -> None:
    """Tell nobody."""


def _bar() -> Any:
    from rich import progress

    class Rate(progress.ProgressColumn):
        def render(self, task: progress.Task) -> str:
            return f"{task.speed:,.0f} steps/s" if task.speed else ""

    return progress.Progress(
        progress.TextColumn("{task.description}"),
        progress.BarColumn(),
        progress.MofNCompleteColumn(),
        Rate(),
        progress.TimeRemainingColumn(),
        transient=True,
    )
