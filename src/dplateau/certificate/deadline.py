"""A limit to the time that somebody else's plan may cost us."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType

_AGAIN = 0.2  # seconds: an exception that was raised where nobody could pass it on is raised anew


class OutOfTime(BaseException):
    """The time is used up. No `Exception`, which something on the way might take for its own."""


@contextlib.contextmanager
def deadline(seconds: float | None) -> Iterator[None]:
    """Raise `OutOfTime` in the block once so many seconds have passed.

    Only the main thread can be interrupted; elsewhere, and for None, there is no limit.

    Examples
    --------
    >>> try:
    ...     with deadline(0.01):
    ...         while True:
    ...             pass
    ... except OutOfTime:
    ...     print("stopped")
    stopped
    """
    if seconds is None or threading.current_thread() is not threading.main_thread():
        yield
        return

    def ring(number: int, frame: FrameType | None) -> None:
        raise OutOfTime

    before = signal.signal(signal.SIGALRM, ring)
    try:
        signal.setitimer(signal.ITIMER_REAL, max(seconds, 1e-3), _AGAIN)
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)
