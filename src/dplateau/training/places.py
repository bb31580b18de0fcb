"""Which worker holds which record, and where among its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dplateau.training.team import Rows

Index = NDArray[np.int64]


class Places(Protocol):
    """Where every record (or person) lies, in the order in which batches count them."""

    def __len__(self) -> int: ...

    def routed(self, asks: Rows) -> dict[int, Rows]:
        """What every share is asked for, counted from its first; shares with nothing are absent."""


class OneByOne:
    """Shares whose records follow each other.

    Examples
    --------
    >>> OneByOne([3, 2]).routed(np.array([4, 0, 1]))
    {0: array([0, 1]), 1: array([1])}
    """

    def __init__(self, sizes: Sequence[int]) -> None:
        self._starts = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)

    def __len__(self) -> int:
        return int(self._starts[-1])

    def routed(self, asks: Rows) -> dict[int, Rows]:
        """A slice stays one."""
        starts = self._starts
        if isinstance(asks, slice):
            low = np.maximum(starts[:-1], asks.start) - starts[:-1]
            high = np.minimum(starts[1:], asks.stop) - starts[:-1]
            asked = np.flatnonzero(low < high).tolist()
            return {k: slice(int(low[k]), int(high[k])) for k in asked}
        owner = np.searchsorted(starts, asks, side="right") - 1
        return {k: asks[part] - starts[k] for k, part in _by_share(owner, len(starts) - 1).items()}


class InTurns:
    """Shares whose members are mixed: everybody has a number, and they stand by it.

    Examples
    --------
    >>> InTurns([np.array([0, 5]), np.array([3])]).routed(np.array([1, 2]))
    {0: array([1]), 1: array([0])}
    """

    def __init__(self, members: Sequence[Index]) -> None:
        order = np.argsort(np.concatenate(members), kind="stable")
        self._sizes = [each.size for each in members]
        owner = np.repeat(np.arange(len(members), dtype=np.int32), self._sizes)
        self._owner = owner[order]
        self._place = np.concatenate([np.arange(size) for size in self._sizes])[order]

    def __len__(self) -> int:
        return int(self._owner.size)

    def routed(self, asks: Rows) -> dict[int, Rows]:
        """All of them are a slice of every share."""
        if isinstance(asks, slice) and asks.stop - asks.start == len(self):
            return {k: slice(0, size) for k, size in enumerate(self._sizes) if size}
        owner, place = self._owner[asks], self._place[asks]
        return {k: place[part] for k, part in _by_share(owner, len(self._sizes)).items()}


def _by_share(owner: NDArray[np.integer[Any]], count: int) -> dict[int, Index]:
    """Which of the asks each share answers."""
    order = np.argsort(owner, kind="stable")
    cuts = np.searchsorted(owner[order], np.arange(count + 1))
    return {int(k): order[cuts[k] : cuts[k + 1]] for k in np.flatnonzero(np.diff(cuts))}
