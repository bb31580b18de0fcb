"""The processors that this process may use, and its one pool of threads."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor

_LOCK = threading.Lock()
_POOLS: dict[int, ThreadPoolExecutor] = {}


def processors() -> int:
    """How many processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def pool() -> ThreadPoolExecutor:
    """This process's threads (a forked child cannot use its parent's)."""
    with _LOCK:
        if os.getpid() not in _POOLS:
            _POOLS.clear()
            _POOLS[os.getpid()] = ThreadPoolExecutor(processors(), "dplateau")
        return _POOLS[os.getpid()]
