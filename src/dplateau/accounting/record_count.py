"""The privacy profile of a private upper bound on the number of records (theory, section 13).

Under ``add_or_remove_one`` the number of records is itself private, yet a plan divides by it. Where
no public bound is stated, a little of the budget buys one: the count plus noise that is never
negative. Here is what that costs; `dplateau.training.count` draws it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from dplateau._validate import positive, probability

EPSILON_SHARE = 0.02  # of the budget; the noise then has a deviation of 71/epsilon records
DELTA_SHARE = 0.01
EPSILON_BESIDE_NOISE = 0.02  # where the noise multiplier is given, so that no budget is known

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

    @classmethod
    def within(cls, epsilon: float | None, delta: float) -> PrivateCount:
        """The count that a budget pays for; ``epsilon=None`` where the noise is given instead."""
        share = EPSILON_BESIDE_NOISE
        if epsilon is not None:
            share = EPSILON_SHARE * positive("epsilon", epsilon)
        return cls(share, DELTA_SHARE * probability("delta", delta))

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
