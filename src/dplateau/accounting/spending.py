"""The budget of one release: what of it is spent, and what a private row count leaves of it.

What a count leaves is stated in docs/theory.md#section-13.
"""

from __future__ import annotations

from dataclasses import dataclass

from dplateau._validate import positive, probability
from dplateau.accounting.record_count import PrivateCount, RecordCount, ladder
from dplateau.accounting.rounding import provable


@dataclass(frozen=True)
class PrivacyBudget:
    """An epsilon and a delta to keep to.

    Parameters
    ----------
    epsilon : float, optional
        None where the noise is given instead, so that the epsilon follows from it.
    delta : float
        In (0, 1).

    Examples
    --------
    >>> budget = PrivacyBudget.of(1.0, 1e-6)
    >>> budget.after(PrivateCount(0.02, 1e-8)).epsilon < 0.98
    True
    """

    epsilon: float | None
    delta: float

    @classmethod
    def of(cls, epsilon: float | None, delta: float | None) -> PrivacyBudget:
        """What is spent of a stated budget: of epsilon no more than a program can prove.

        Examples
        --------
        >>> PrivacyBudget.of(1e3, 1e-6)
        PrivacyBudget(epsilon=24.0, delta=1e-06)
        >>> PrivacyBudget.of(1.0, 0.0)
        Traceback (most recent call last):
        ...
        dplateau.errors.PlanError: delta must lie in (0, 1); found 0.0. Choose one far below one \
        over the number of records, such as 1e-6: the bounds here need one.
        """
        spent = None if epsilon is None else provable(positive("epsilon", epsilon))
        small = probability(
            "delta",
            delta,
            way_out="Choose one far below one over the number of records, such as 1e-6: the bounds "
            "here need one.",
        )
        return cls(spent, small)

    @property
    def counts(self) -> tuple[PrivateCount, ...]:
        """The row counts that it may buy, one after the other until one is sharp."""
        return ladder(self.epsilon, self.delta)

    def after(self, count: RecordCount | None) -> PrivacyBudget:
        """What a row count leaves of it for all that follows."""
        if count is None:
            return self
        left = None if self.epsilon is None else count.epsilon_left(self.epsilon)
        return PrivacyBudget(left, count.delta_left(self.delta))
