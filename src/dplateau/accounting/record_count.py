"""The privacy profile of a private upper bound on the number of records (theory, section 13).

Under ``add_or_remove_one`` the number of records is itself private, yet a plan divides by it. Where
no public bound is stated, a little of the budget buys one: the count plus noise that is never
negative. A coarse one comes first, and sharper ones are bought only where it does not do, so that
the share shrinks as records and budget grow. Here is what they cost; `dplateau.training.count`
draws them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from dplateau._validate import positive, probability

# Of epsilon and of delta, for one count after the other until one is sharp; the noise of the last
# has a deviation of 71/epsilon records.
LADDER = ((0.0005, 0.001), (0.004, 0.002), (0.02, 0.007))
SHARP = 0.2  # half width, as a share of the likely number, up to which a count does
BESIDE_NOISE = (0.02, 0.01)  # epsilon, share of delta, where noise is given and so no epsilon is

_ROUNDING = 1e-9  # far above the error of the logarithms below, far below anything that matters
_JUST_BELOW = 1 - 2.0**-50  # parts of a budget must not exceed it by their rounding


@dataclass(frozen=True)
class PrivateCount:
    """The count ``n + m + Z``, ``Z`` two-sided geometric truncated to ``-m..m``.

    Parameters
    ----------
    epsilon, delta : float
        What the count may cost when one record is added or removed.

    Guarantee
    ---------
    With ``P(Z = k)`` proportional to ``exp(-epsilon * abs(k))`` and ``m`` the `half_width`, the
    result is at least ``n``, at most ``n + 2m``, and ``(epsilon, delta)``-differentially private
    under ``add_or_remove_one``: for counts ``n`` and ``n + 1`` the probabilities of every value
    that both can give differ by a factor of ``exp(epsilon)``, and either count gives exactly one
    value that the other cannot, with probability ``P(Z = m) <= delta``.

    Examples
    --------
    >>> PrivateCount(0.02, 1e-7).half_width
    576
    """

    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", positive("epsilon", self.epsilon))
        object.__setattr__(self, "delta", probability("delta", self.delta))

    @property
    def half_width(self) -> int:
        """``m``: the least with ``P(Z = m) <= delta``."""
        allowed = math.log(self.delta) - _ROUNDING
        high = 1
        while self._log_end(high) > allowed:
            high *= 2
        low = high // 2
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if self._log_end(middle) <= allowed else (middle, high)
        return high

    def _log_end(self, m: int) -> float:
        """Logarithm of ``P(Z = m) = r^m (1 - r) / (1 - r + 2r (1 - r^m))``, ``r = e^-epsilon``."""
        r, gap = math.exp(-self.epsilon), -math.expm1(-self.epsilon)
        return (
            math.log(gap) - self.epsilon * m - math.log(gap - 2 * r * math.expm1(-self.epsilon * m))
        )

    def epsilon_left(self, epsilon: float) -> float:
        """What a budget leaves for training (basic composition)."""
        return (epsilon - self.epsilon) * _JUST_BELOW

    def delta_left(self, delta: float) -> float:
        """The delta that is left for training."""
        return (delta - self.delta) * _JUST_BELOW

    def likely_records(self, counted: int) -> int:
        """The middle of the counts that a result stands for: its best guess, at least 1."""
        return max(counted - self.half_width, 1)

    @property
    def together(self) -> PrivateCount:
        """The count itself; of several, one of the same price."""
        return self

    def is_sharp(self, counted: int) -> bool:
        """Whether a result says all that a plan needs to know."""
        return self.half_width <= SHARP * self.likely_records(counted)


@dataclass(frozen=True)
class SeveralCounts:
    """Counts bought one after the other, each because the one before it was not sharp.

    See docs/theory.md#section-13.

    Parameters
    ----------
    counts : tuple of PrivateCount
        All that were bought, the sharpest last.

    Guarantee
    ---------
    Whether another count is bought, and all that follows, is a function of those before it. As
    every way to go on spends no more than what is left of the budget, what they cost adds up
    (theory, section 13).

    Examples
    --------
    >>> SeveralCounts((PrivateCount(0.001, 1e-9), PrivateCount(0.02, 1e-8))).epsilon
    0.021
    """

    counts: tuple[PrivateCount, ...]

    @property
    def epsilon(self) -> float:
        """What all of them cost."""
        return math.fsum(each.epsilon for each in self.counts)

    @property
    def delta(self) -> float:
        """What all of them cost."""
        return math.fsum(each.delta for each in self.counts)

    @property
    def together(self) -> PrivateCount:
        """One count of the same price."""
        return PrivateCount(self.epsilon, self.delta)

    @property
    def half_width(self) -> int:
        """Of the last."""
        return self.counts[-1].half_width

    def epsilon_left(self, epsilon: float) -> float:
        """What a budget leaves for training."""
        return (epsilon - self.epsilon) * _JUST_BELOW

    def delta_left(self, delta: float) -> float:
        """The delta that is left for training."""
        return (delta - self.delta) * _JUST_BELOW

    def likely_records(self, counted: int) -> int:
        """The best guess from the last count's result."""
        return self.counts[-1].likely_records(counted)


RecordCount: TypeAlias = PrivateCount | SeveralCounts


def ladder(epsilon: float | None, delta: float) -> tuple[PrivateCount, ...]:
    """The counts that a budget may buy, coarse ones first (docs/theory.md#section-13).

    A single one where the noise is given, so that there is no epsilon to take shares of.

    Examples
    --------
    >>> [count.epsilon for count in ladder(1.0, 1e-5)]
    [0.0005, 0.004, 0.02]
    """
    delta = probability("delta", delta)
    if epsilon is None:
        price, part = BESIDE_NOISE
        return (PrivateCount(price, part * delta),)
    epsilon = positive("epsilon", epsilon)
    return tuple(PrivateCount(share * epsilon, part * delta) for share, part in LADDER)


def until_sharp(
    counts: Sequence[PrivateCount], draw: Callable[[PrivateCount], int]
) -> tuple[RecordCount, int]:
    """The counts that were bought, and the last one's result (docs/theory.md#section-13).

    Parameters
    ----------
    counts : sequence of PrivateCount
        What may be bought, in this order.
    draw : callable
        A count's result; asked only for those that are bought.

    Examples
    --------
    >>> for records in (10**4, 10**6):  # as if there were no noise
    ...     bought, _ = until_sharp(ladder(1.0, 1e-5), lambda count: records + count.half_width)
    ...     print(bought.epsilon)
    0.0245
    0.0005
    """
    bought: list[PrivateCount] = []
    for count in counts:
        bought.append(count)
        counted = draw(count)
        if count.is_sharp(counted):
            break
    return (count if len(bought) == 1 else SeveralCounts(tuple(bought))), counted
