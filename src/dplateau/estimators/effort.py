"""What a plan costs in time, and how small batches may be before they cost privacy.

Rules of thumb, used to choose only: the noise of a chosen plan is found by the accountant, and its
time is announced for an ordinary machine unless this one's pace was measured.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from dplateau.plan.batches import REPLACE_ONE, Batches, FullBatch, Poisson, RandomAllocation
from dplateau.plan.hits import HitLaw

ANNOUNCED = 60.0  # seconds on one ordinary core that a plan may take unless told otherwise
VALUE = 0.5  # what e times as much training must gain, in units of 1 / sqrt(records)
LEAST_BATCH = 256
_BLOCKS = 2.5  # hidden iterates: hits are hidden as if batches were this many times as large
_HIDES = 0.6  # noise multiplier from which on they are
_ONE_BY_ONE = 0.12  # what the last epoch's hit costs under random allocation
_NOISE = 1e-8  # seconds of one normal number
_SAMPLED, _PATTERNS = 3.0, 8.0  # seconds that accounting for sampled batches takes
COMPOSED = 0.015  # how much more noise than without sampling composition may ask for


class Pace(NamedTuple):
    """Seconds of a step without rows, of one product of a feature and a weight, and of a row."""

    step: float
    product: float
    row: float = 0.0
    drawn: float = 4e-7  # of finding a row, where batches are drawn

    def of_step(self, batches: Batches, records: int, weights: int) -> float:
        """Seconds of one step."""
        drawn = 0.0 if batches.period(records) == 1 else self.drawn
        row = self.row + self.product * weights + drawn
        return self.step + _NOISE * weights + batches.batch_size(records) * row


ORDINARY = Pace(step=4e-5, product=4e-10, row=1e-7)


def sizes(records: int, *, from_disk: bool) -> list[Batches]:
    """The batches to choose among: all records, or halves of halves of them.

    Examples
    --------
    >>> [each.batch_size(1000) for each in sizes(1000, from_disk=False)]
    [1000, 500.0, 250.0]
    """
    kind = RandomAllocation if from_disk else Poisson
    found: list[Batches] = [FullBatch()]
    size = records // 2
    while size >= min(LEAST_BATCH, records // 4) > 0:
        found.append(kind.of_size(size))
        size //= 2
    return found


def excess_noise(hits: HitLaw, plain: float, relation: str, *, hidden: bool) -> float:
    """Noise that a budget asks for, relative to that of steps with all records.

    Parameters
    ----------
    hits : HitLaw
        At which steps a record takes part.
    plain : float
        The noise multiplier that would do if sampling made every step cheaper in proportion.
    relation : str
        The neighbouring relation.
    hidden : bool
        Whether only the last iterate is shown.

    Examples
    --------
    >>> hits = Poisson(500).hits(10_000)
    >>> shown = excess_noise(hits, 1.2, "add_or_remove_one", hidden=False)
    >>> hidden = excess_noise(hits, 1.2, "add_or_remove_one", hidden=True)
    >>> round(shown, 2), round(hidden, 2)
    (1.15, 1.03)
    """
    if hits.period == 1:
        return 1.0
    hit = 2.0 if relation == REPLACE_ONE else 1.0
    if hits.epoch is not None:
        return 1 + _ONE_BY_ONE * hit / plain**2 if hidden else math.inf
    if hidden and plain >= _HIDES:
        plain *= _BLOCKS
    # Composition of many steps: their chi-square divergences add up, exp(1/z**2) - 1 of one that
    # comes or goes, and 4 sinh(1/z**2) of one that is replaced.
    x = plain**-2
    return 1 / (plain * math.sqrt(math.asinh(x) if relation == REPLACE_ONE else math.log1p(x)))


def accounting_seconds(hits: HitLaw, plain: float, relation: str, *, hidden: bool) -> float:
    """What finding the noise takes: next to nothing where steps are not sampled afresh."""
    if not hits.independent:
        return 0.0
    shown = excess_noise(hits, plain, relation, hidden=False)
    return _PATTERNS if hidden and shown > 1 + COMPOSED else _SAMPLED


def price(seconds: float, records: int) -> float:
    """What time costs, in units of what there is to learn: `VALUE` for e times as much of it.

    What so many records cannot tell from chance is not worth waiting for. Up to a second the price
    grows with the time itself, so that small tables are done at once.
    """
    return VALUE / math.sqrt(records) * math.log1p(seconds)
