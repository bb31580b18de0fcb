"""When a run ends: by its plan, by the clock, or by Ctrl-C. Never by anything in the data."""

from __future__ import annotations

import contextlib
import math
import numbers
import re
import signal
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from datetime import datetime
from types import FrameType

from dplateau.errors import PlanError, StoppedEarlyWarning
from dplateau.plan.plan import Plan
from dplateau.plan.schedules import Explicit

_UNITS = {"h": 3600.0, "m": 60.0, "s": 1.0}
_AMOUNT = re.compile(r"(\d+(?:\.\d*)?)\s*([hms])")
_SECONDS = re.compile(r"\d+(?:\.\d*)?")


def seconds(budget: float | str) -> float:
    """A time budget in seconds, from a number or words such as ``"10m"`` or ``"1h30m"``.

    Examples
    --------
    >>> seconds("1h30m"), seconds("5")
    (5400.0, 5.0)
    """
    found = 0.0
    if isinstance(budget, str):
        text = budget.strip().lower()
        text = f"{text}s" if _SECONDS.fullmatch(text) else text
        parts = _AMOUNT.findall(text)
        if parts and not _AMOUNT.sub("", text).strip():
            found = sum(float(amount) * _UNITS[unit] for amount, unit in parts)
    elif isinstance(budget, numbers.Real) and not isinstance(budget, bool):
        found = float(budget)
    if found > 0:
        return found
    raise PlanError(
        f"time_budget must be a positive number of seconds, or words like '10m' or '1h30m'; "
        f"found {budget!r}."
    )


class Clock:
    """The deadline of a run, and whether the user asked it to end."""

    def __init__(self, time_budget: float | str | None, stop_at: datetime | None) -> None:
        limits = [] if time_budget is None else [time.time() + seconds(time_budget)]
        if stop_at is not None:
            if not isinstance(stop_at, datetime):
                raise PlanError(f"stop_at must be a datetime; found {stop_at!r}.")
            limits.append(stop_at.timestamp())
        self.deadline = min(limits, default=math.inf)
        self.interrupted = False

    @property
    def left(self) -> float:
        """Seconds until the deadline, 0 once the run is to end."""
        return 0.0 if self.interrupted else max(self.deadline - time.time(), 0.0)

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        """Take Ctrl-C as "end the run properly"; a second one interrupts at once.

        Only the main thread receives signals; elsewhere this does nothing.
        """
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def end(signum: int, frame: FrameType | None) -> None:
            if self.interrupted:
                raise KeyboardInterrupt
            self.interrupted = True

        before = signal.signal(signal.SIGINT, end)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)


def check_ends(plan: Plan, clock: Clock) -> None:
    """Refuse a run that nothing would end: infinite, no deadline, nobody to press Ctrl-C."""
    if plan.iterations == math.inf and clock.deadline == math.inf and not _attended():
        raise PlanError(
            "the plan has infinitely many iterations and nothing ends this run. Give time_budget "
            "or stop_at, or a finite number of iterations (at a terminal, Ctrl-C ends it too)."
        )


def _attended() -> bool:
    if threading.current_thread() is not threading.main_thread():
        return False
    return hasattr(sys, "ps1") or (sys.stdin is not None and sys.stdin.isatty())


def time_tells_sizes(plan: Plan) -> bool:
    """Whether a step takes longer the more records its batch happens to have.

    A run that is cut by the clock would then have a number of steps that depends on its own
    batches, which no theorem covers (docs/theory.md#section-6).
    """
    least, most = plan.batches.sizes(plan.records)
    return not plan.hits.deterministic and least < most


def earliest_end(plan: Plan) -> int:
    """The first iteration after which the run may end early and still be the plan it is.

    The cap of a Poisson batch follows from the plan's largest step; a run cut before that step
    would be accounted with another cap than it used.
    """
    if isinstance(plan.step_size, Explicit) and plan.batch_cap < math.inf:
        return int(plan.step_size.values(0, int(plan.iterations)).argmax()) + 1
    return 1


def warn_of_early_end(plan: Plan, steps: int) -> None:
    """Say that Ctrl-C cut a finite plan short; an infinite one has no other end to miss."""
    if steps < plan.iterations < math.inf:
        warnings.warn(
            f"stopped by Ctrl-C after {steps:,} of {plan.iterations:,} steps; weights and "
            f"guarantee are those of {steps:,} steps. (Pressed twice, Ctrl-C interrupts and "
            "releases nothing.)",
            StoppedEarlyWarning,
            stacklevel=4,
        )


class Pace:
    """How many steps to run before looking at the clock again: about a tenth of a second's."""

    def __init__(self, period: float = 0.1, most: int = 1 << 30) -> None:
        self.period = period
        self.most = most
        self.size = 1

    def steps(self, left: float) -> int:
        """The next chunk, shorter if little time is ``left``."""
        if left < self.period:
            return max(int(self.size * left / self.period), 1)
        return self.size

    def record(self, steps: int, elapsed: float) -> None:
        """Learn from a chunk: aim at the period, growing at most eightfold."""
        aim = steps * self.period / max(elapsed, 1e-7)
        self.size = max(min(int(aim), 8 * steps, self.most), 1)
