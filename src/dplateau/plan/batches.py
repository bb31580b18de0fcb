"""How each step chooses its records. Sampler and accountant read the same object."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from dplateau._validate import positive, probability, whole
from dplateau.errors import PlanError
from dplateau.plan.hits import HitLaw
from dplateau.plan.parts import Part
from dplateau.plan.subsets import draw_size, in_lots, size_law, uniform_subset

Rows = slice | NDArray[np.int64]

ADD_OR_REMOVE_ONE = "add_or_remove_one"
REPLACE_ONE = "replace_one"
REPLACE_SPECIAL = "replace_special"
RELATIONS = (REPLACE_ONE, ADD_OR_REMOVE_ONE, REPLACE_SPECIAL)


def relation_name(relation: object) -> str:
    """A neighbouring relation by its name; dp_accounting's ``NeighboringRelation`` is understood.

    Examples
    --------
    >>> import dp_accounting
    >>> relation_name(dp_accounting.NeighboringRelation.REPLACE_ONE)
    'replace_one'
    """
    if isinstance(relation, Enum) and type(relation).__name__ == "NeighboringRelation":
        relation = relation.name.lower()
    if relation not in RELATIONS:
        raise PlanError(
            f"neighboring_relation must be one of {list(RELATIONS)}; found {relation!r}."
        )
    return str(relation)


class Batches(Part, family="batches"):
    """A rule that gives every step its batch.

    A kind states its `batch_size`, its law of `hits`, the `sizes` a batch can have, and how it is
    drawn: `draw` where every step is drawn for itself, else `draws`.
    """

    relations: ClassVar[tuple[str, ...]] = RELATIONS
    relation_way_out: ClassVar[str] = ""
    max_overflow: float = 0.0
    vouched: ClassVar[bool] = False  # draws are distinct rows by construction: nobody need look

    def __init_subclass__(cls, **rest: Any) -> None:
        super().__init_subclass__(**rest)
        if "vouched" not in vars(cls):  # like `compiled`: a subclass may draw otherwise
            cls.vouched = False

    # -- what the accountant reads --------------------------------------------------------------

    def batch_size(self, records: int) -> float:
        """The public number ``b`` that every sum of gradients is divided by."""
        raise TypeError(f"{type(self).__name__} states no batch size")

    def hits(self, records: int) -> HitLaw:
        """At which steps a given record takes part, and what that says of the others."""
        raise TypeError(f"{type(self).__name__} states no law of hits")

    def sizes(self, records: int) -> tuple[int, int]:
        """The fewest and the most records that a batch can have."""
        raise TypeError(f"{type(self).__name__} states no sizes of its batches")

    def inclusion_probability(self, records: int) -> float:
        """The chance ``q`` that a given record takes part in a given step (1 if certain)."""
        return self.batch_size(records) / records

    def per_epoch(self, records: int) -> int:
        """Steps in one pass over the data (``l``), rounded up."""
        return math.ceil(records / self.batch_size(records))

    def period(self, records: int) -> int | None:
        """Steps from one hit of a record to its next where both are certain; None: random."""
        return self.hits(records).period

    def chance_to_fill(self, cap: float, records: int) -> float:
        """An upper bound on the chance that all records but one make a batch of ``cap`` or more.

        Given all earlier batches; where the law of hits has an ``epoch``, without regard to them.
        """
        return 0.0 if cap > self.sizes(records)[1] else 1.0

    def least_cap(self, records: int) -> int:
        """The smallest cap that is filled with no more than the chance ``max_overflow``."""
        low, high = math.floor(self.batch_size(records)), records + 1
        while high - low > 1:
            middle = (low + high) // 2
            if self.chance_to_fill(middle, records) > self.max_overflow:
                low = middle
            else:
                high = middle
        return high

    @classmethod
    def of_size(cls, size: float | None) -> Self:
        """The kind with so many records per batch, as a command line or an estimator names it."""
        if size is None:
            raise PlanError(f"{cls.kind} batches need a batch size; found none.")
        return cls(size)  # type: ignore[call-arg]

    def resized(self, size: float) -> Batches:
        """The same kind with batches of another size."""
        raise PlanError(
            f"{self.kind} batches have no batch size to vary. Compare along iterations, diameter "
            "or step_size."
        )

    def last_row(self, iterations: int, records: int) -> int:
        """The row that the last step uses for certain if any is, else any row: they are alike."""
        return records - 1

    def check(self, records: int) -> None:
        """Refuse a batch that the data cannot fill."""
        size = self.batch_size(records)
        if size > records:
            raise PlanError(
                f"batch larger than the data: {type(self).__name__} wants {size:g} of {records} "
                f"records. Use a batch size of at most {records}, or FullBatch()."
            )

    # -- what the trainer reads -----------------------------------------------------------------

    def draw(self, step: int, present: int, records: int, stream: np.random.Generator) -> Rows:
        """The rows of one step, uncapped.

        Parameters
        ----------
        step : int
            The step's number, from 0.
        present : int
            Rows of the data: ``records``, or under ``add_or_remove_one`` as many or fewer.
        records : int
            The plan's public number of records.
        stream : numpy Generator
            The batches' own stream of random numbers.
        """
        raise TypeError(f"{type(self).__name__} states no draw")

    def draws(
        self, present: int, records: int, stream: np.random.Generator, start: int = 0
    ) -> Iterator[Rows]:
        """The rows of step ``start`` and of every later one, without end."""
        for step in itertools.count(start):
            yield self.draw(step, present, records, stream)

    def resumable(self, step: int, records: int) -> bool:
        """Whether `draws` may start at this step: a run is interrupted there, or before."""
        epoch = self.hits(records).epoch
        return epoch is None or step % epoch == 0


@dataclass(frozen=True)
class FullBatch(Batches):
    """Every step uses every record (Noisy-GD).

    Examples
    --------
    >>> FullBatch().batch_size(1000)
    1000
    """

    kind: ClassVar[str] = "full"
    vouched: ClassVar[bool] = True
    compiled: ClassVar[str | None] = "contiguous"

    @classmethod
    def of_size(cls, size: float | None) -> FullBatch:
        if size is not None:
            raise PlanError("full batches have no batch size: leave it out.")
        return cls()

    def batch_size(self, records: int) -> int:
        return records

    def hits(self, records: int) -> HitLaw:
        return HitLaw(chance=1.0, period=1)

    def sizes(self, records: int) -> tuple[int, int]:
        return records, records

    def draw(self, step: int, present: int, records: int, stream: np.random.Generator) -> Rows:
        return slice(0, present)


@dataclass(frozen=True)
class WholeSize(Batches):
    """Batches whose public size is a whole number of records."""

    size: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", whole(f"{type(self).__name__} size", self.size))

    def batch_size(self, records: int) -> int:
        return self.size

    def resized(self, size: float) -> Batches:
        return dataclasses.replace(self, size=round(size))


@dataclass(frozen=True)
class Cyclic(WholeSize):
    """Fixed consecutive slices of ``size`` records, in the same order every epoch (Noisy-CGD).

    Adding a record would shift every later slice, so ``add_or_remove_one`` is refused.

    Examples
    --------
    >>> Cyclic(300).per_epoch(1000)
    4
    """

    kind: ClassVar[str] = "cyclic"
    vouched: ClassVar[bool] = True
    compiled: ClassVar[str | None] = "contiguous"
    relations: ClassVar[tuple[str, ...]] = (REPLACE_ONE, REPLACE_SPECIAL)
    relation_way_out: ClassVar[str] = (
        "Adding or removing a record would shift every later batch: use 'replace_one', "
        "'replace_special' (the record is zeroed out), or Poisson batches."
    )

    def hits(self, records: int) -> HitLaw:
        return HitLaw(chance=1.0, period=self.per_epoch(records))

    def sizes(self, records: int) -> tuple[int, int]:
        return records % self.size or self.size, self.size

    def draw(self, step: int, present: int, records: int, stream: np.random.Generator) -> Rows:
        start = step % self.per_epoch(records) * self.size
        return slice(start, min(start + self.size, present))

    def last_row(self, iterations: int, records: int) -> int:
        last_batch = (iterations - 1) % self.per_epoch(records)
        return min((last_batch + 1) * self.size, records) - 1


@dataclass(frozen=True)
class FixedSize(WholeSize):
    """A fresh uniform subset of exactly ``size`` records at every step.

    Examples
    --------
    >>> FixedSize(100).inclusion_probability(1000)
    0.1
    """

    kind: ClassVar[str] = "fixed"
    vouched: ClassVar[bool] = True
    compiled: ClassVar[str | None] = "subset"
    relations: ClassVar[tuple[str, ...]] = (REPLACE_ONE, REPLACE_SPECIAL)
    relation_way_out: ClassVar[str] = (
        "A subset of exact size changes its law when a record is added: use 'replace_one', "
        "'replace_special' (priced as replace_one), or Poisson batches."
    )

    def hits(self, records: int) -> HitLaw:
        return HitLaw(
            chance=self.inclusion_probability(records), independent=True, exact=True, exchanged=True
        )

    def sizes(self, records: int) -> tuple[int, int]:
        return self.size, self.size

    def draw(self, step: int, present: int, records: int, stream: np.random.Generator) -> Rows:
        return uniform_subset(present, min(self.size, present), stream)


@dataclass(frozen=True)
class Poisson(Batches):
    """Every record joins every step by its own coin, ``size`` of them on average.

    Where the iterates are hidden, a draw larger than the plan's ``batch_cap`` is thinned to the
    cap, so that every step contracts (theory, section 1). ``max_overflow`` is the largest chance
    of that event that the plan accepts.

    Examples
    --------
    >>> Poisson(600).inclusion_probability(60_000)
    0.01
    """

    size: float
    max_overflow: float = 0.01
    kind: ClassVar[str] = "poisson"
    vouched: ClassVar[bool] = True
    compiled: ClassVar[str | None] = "poisson"

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", positive("Poisson size", self.size))
        object.__setattr__(
            self,
            "max_overflow",
            probability("Poisson max_overflow", self.max_overflow, closed=True),
        )

    def batch_size(self, records: int) -> float:
        return self.size

    def resized(self, size: float) -> Batches:
        return dataclasses.replace(self, size=size)

    def hits(self, records: int) -> HitLaw:
        chance = min(self.inclusion_probability(records), 1.0)
        return HitLaw(chance=chance, independent=True, exact=True)

    def sizes(self, records: int) -> tuple[int, int]:
        return 0, records

    def chance_to_fill(self, cap: float, records: int) -> float:
        return binomial_tail(cap, records - 1, min(self.inclusion_probability(records), 1.0))

    def draw(self, step: int, present: int, records: int, stream: np.random.Generator) -> Rows:
        # Independent coins: their number is binomial, and given it every subset is as likely.
        law = size_law(present, min(self.inclusion_probability(records), 1.0))
        return uniform_subset(present, draw_size(law, stream), stream)


@dataclass(frozen=True)
class RandomAllocation(WholeSize):
    """Every epoch each record goes to one of the epoch's batches by lot ("balls in bins").

    An epoch has ``l = ceil(records / size)`` batches and runs all of them, so it reads every record
    once. Records are allocated uniformly and independently of each other and of other epochs, hence
    batches vary in size, ``records / l <= size`` of them on average; sums are divided by ``size``.
    A last epoch may be cut short: a record then takes part once or not at all.

    The cap and ``max_overflow`` are those of `Poisson`.

    Examples
    --------
    >>> RandomAllocation(300).per_epoch(1000), RandomAllocation(300).inclusion_probability(1000)
    (4, 0.25)
    """

    max_overflow: float = 0.01
    kind: ClassVar[str] = "allocation"
    vouched: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(
            self,
            "max_overflow",
            probability("RandomAllocation max_overflow", self.max_overflow, closed=True),
        )

    def inclusion_probability(self, records: int) -> float:
        return 1 / self.per_epoch(records)

    def hits(self, records: int) -> HitLaw:
        return HitLaw(chance=1.0, epoch=self.per_epoch(records))

    def sizes(self, records: int) -> tuple[int, int]:
        return 0, records

    def chance_to_fill(self, cap: float, records: int) -> float:
        return binomial_tail(cap, records - 1, self.inclusion_probability(records))

    def draws(
        self, present: int, records: int, stream: np.random.Generator, start: int = 0
    ) -> Iterator[Rows]:
        batches = self.per_epoch(records)
        if not self.resumable(start, records):
            raise PlanError(
                f"step {start} lies within an epoch of {batches} batches, whose allocation is not "
                "kept. Start at the first step of an epoch."
            )
        while True:
            yield from in_lots(present, batches, stream)


def binomial_tail(least: float, coins: int, chance: float) -> float:
    """The chance that ``least >= 1`` or more of so many coins show heads, rounded up.

    By the incomplete beta function, which takes counts of any size (scipy's binomial tails wrap at
    32 bits) and is right to twelve digits.
    """
    from scipy.special import betainc  # not needed to write a plan down, and slow to load

    if least > coins:
        return 0.0
    return min(1.0, float(betainc(least, coins - least + 1, chance)) * (1 + 1e-10))


KINDS: dict[str, type[Batches]] = Batches.kinds
