"""Batches that numpy draws, laid out in memory for the compiled loop: one pass an epoch.

It serves random allocation and every batch kind that is defined outside this package.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from dplateau.training.native.kernels import Motion
from dplateau.training.team import Rows

_AT_ONCE = 1 << 20  # records that are laid out before the loop goes on


def laid_out(motion: Motion, first: int, batches: Iterator[Rows], most: int) -> tuple[Motion, int]:
    """The motion with the next batches, at most so many, and how many they are."""
    drawn: list[NDArray[np.int64]] = []
    held = 0
    while len(drawn) < most and held < _AT_ONCE:
        rows = next(batches)
        if isinstance(rows, slice):
            rows = np.arange(rows.start, rows.stop, dtype=np.int64)
        drawn.append(rows)
        held += rows.size
    sizes = [rows.size for rows in drawn]
    order = np.concatenate([np.empty(0, np.int64), *drawn])
    cuts = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    room = max(sizes, default=0)
    return motion._replace(size=room, first=first, order=order, cuts=cuts), len(drawn)
