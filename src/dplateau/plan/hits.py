"""The law of a record's hits: at which steps it takes part, and what that says of the others.

Theorems ask for properties of this law, never for the class of the batches, so a batch kind of the
user's own is covered by every theorem whose hypotheses its law states.
"""

from __future__ import annotations

from dataclasses import dataclass

from dplateau._validate import probability, whole
from dplateau.errors import PlanError


@dataclass(frozen=True, kw_only=True)
class HitLaw:
    """At which steps one record takes part.

    Parameters
    ----------
    chance : float
        Largest chance of a hit at any step, given the record's earlier hits and the batches of all
        other records (1 where a hit can be foreseen).
    period : int, optional
        The record takes part in exactly one step out of so many, always the same ones, and every
        batch of the others is fixed as well. None: batches are random.
    independent : bool
        Random batches are drawn afresh at every step, independently of all others.
    exact : bool
        The chance is that of every step and record, to the digit, and every record has a coin (or a
        subset) like any other: lower bounds may rely on it. False: it is an upper bound.
    exchanged : bool
        A hit takes the place of another record: the batch is a uniform subset of exact size. False:
        the record's hits are independent of the batches of the others, which they leave as they
        are (until a cap thins them).
    epoch : int, optional
        The record takes part in exactly one step of each run of so many, counted from the first:
        once an epoch, uniformly, and independently of other epochs.

    Examples
    --------
    >>> HitLaw(chance=1.0, period=1).deterministic
    True
    """

    chance: float
    period: int | None = None
    independent: bool = False
    exact: bool = False
    exchanged: bool = False
    epoch: int | None = None

    def __post_init__(self) -> None:
        chance = probability("HitLaw chance", self.chance, closed=True)
        object.__setattr__(self, "chance", chance)
        for name in ("period", "epoch"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, whole(f"HitLaw {name}", getattr(self, name)))
        if self.period is not None and (self.independent or self.exchanged or self.epoch):
            raise PlanError(
                "a HitLaw with a period has no randomness: leave out independent, exchanged and "
                "epoch."
            )
        if self.exchanged and not self.independent:
            raise PlanError(
                "no theorem covers exchanged hits that are not independent from step to step "
                "(shuffled batches of fixed size). Draw a fresh subset at every step, or let the "
                "hits leave the other records alone."
            )

    @property
    def deterministic(self) -> bool:
        """Whether all batches are fixed in advance."""
        return self.period is not None

    def most_hits(self, steps: int) -> int:
        """The most hits that so many steps, from an epoch's first on, can have."""
        return -(-steps // (self.period or self.epoch or 1))
