"""Who sums a batch: the threads of this process, or the workers of a cluster.

A team owns records and adds up clipped gradients, nothing else. Batches and noise are drawn where
the loop runs, once a step, so that whoever sums, the steps are the same.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Rows = slice | NDArray[np.int64]


class Team(Protocol):
    """Sums of clipped gradients over records that it owns."""

    def __len__(self) -> int:
        """The records (or people) that batches are drawn from."""

    def sum(self, weights: Array, asks: Rows) -> Array:
        """The sum of the gradients of the records that are asked for, each once, at these weights.

        A pure function of records, weights and asks.
        """

    def rest(self) -> None:
        """Give back what need not be held between two stretches of steps."""
