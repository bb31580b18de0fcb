"""How each step chooses its records. Sampler and accountant read the same object."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

from scipy.special import bdtrc

from dplateau.errors import PlanError, positive, probability, whole

ADD_OR_REMOVE_ONE = "add_or_remove_one"
REPLACE_ONE = "replace_one"
REPLACE_SPECIAL = "replace_special"
RELATIONS = (REPLACE_ONE, ADD_OR_REMOVE_ONE, REPLACE_SPECIAL)


class Batches:
    """A rule that gives every step its batch."""

    kind: ClassVar[str]
    relations: ClassVar[tuple[str, ...]] = RELATIONS
    relation_way_out: ClassVar[str] = ""

    def batch_size(self, records: int) -> float:
        """The public number ``b`` that every sum of gradients is divided by."""
        raise TypeError(f"{type(self).__name__} states no batch size")

    def inclusion_probability(self, records: int) -> float:
        """The chance ``q`` that a given record takes part in a given step (1 if certain)."""
        return self.batch_size(records) / records

    def per_epoch(self, records: int) -> int:
        """Steps in one pass over the data (``l``), rounded up."""
        return math.ceil(records / self.batch_size(records))

    def check(self, records: int) -> None:
        """Refuse a batch that the data cannot fill."""
        size = self.batch_size(records)
        if size > records:
            raise PlanError(
                f"batch larger than the data: {type(self).__name__} wants {size:g} of {records} "
                f"records. Use a batch size of at most {records}, or FullBatch()."
            )

    def to_dict(self) -> dict[str, Any]:
        """The fields under their names, with the ``kind`` that `batches_from_dict` reads."""
        return {"kind": self.kind, **vars(self)}


@dataclass(frozen=True)
class FullBatch(Batches):
    """Every step uses every record (Noisy-GD).

    Examples
    --------
    >>> FullBatch().batch_size(1000)
    1000
    """

    kind: ClassVar[str] = "full"

    def batch_size(self, records: int) -> int:
        return records


@dataclass(frozen=True)
class Cyclic(Batches):
    """Fixed consecutive slices of ``size`` records, in the same order every epoch (Noisy-CGD).

    Adding a record would shift every later slice, so ``add_or_remove_one`` is refused.

    Examples
    --------
    >>> Cyclic(300).per_epoch(1000)
    4
    """

    size: int
    kind: ClassVar[str] = "cyclic"
    relations: ClassVar[tuple[str, ...]] = (REPLACE_ONE, REPLACE_SPECIAL)
    relation_way_out: ClassVar[str] = (
        "Adding or removing a record would shift every later batch: use 'replace_one', "
        "'replace_special' (the record is zeroed out), or Poisson batches."
    )

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", whole("Cyclic size", self.size))

    def batch_size(self, records: int) -> int:
        return self.size


@dataclass(frozen=True)
class FixedSize(Batches):
    """A fresh uniform subset of exactly ``size`` records at every step.

    Examples
    --------
    >>> FixedSize(100).inclusion_probability(1000)
    0.1
    """

    size: int
    kind: ClassVar[str] = "fixed"
    relations: ClassVar[tuple[str, ...]] = (REPLACE_ONE, REPLACE_SPECIAL)
    relation_way_out: ClassVar[str] = (
        "A subset of exact size changes its law when a record is added: use 'replace_one', "
        "'replace_special' (priced as replace_one), or Poisson batches."
    )

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", whole("FixedSize size", self.size))

    def batch_size(self, records: int) -> int:
        return self.size


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

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", positive("Poisson size", self.size))
        object.__setattr__(
            self,
            "max_overflow",
            probability("Poisson max_overflow", self.max_overflow, closed=True),
        )

    def batch_size(self, records: int) -> float:
        return self.size

    def chance_to_fill(self, cap: float, records: int) -> float:
        """The chance that all records but one draw ``cap`` or more of them."""
        if cap > records - 1:
            return 0.0
        return float(bdtrc(cap - 1, records - 1, min(self.inclusion_probability(records), 1.0)))

    def least_cap(self, records: int) -> int:
        """The smallest cap that is filled with no more than the chance ``max_overflow``."""
        low, high = math.floor(self.size), records + 1
        while high - low > 1:
            middle = (low + high) // 2
            if self.chance_to_fill(middle, records) > self.max_overflow:
                low = middle
            else:
                high = middle
        return high


KINDS: dict[str, type[Batches]] = {cls.kind: cls for cls in (FullBatch, Cyclic, FixedSize, Poisson)}


def batches_from_dict(fields: dict[str, Any]) -> Batches:
    """The inverse of `Batches.to_dict`."""
    rest = dict(fields)
    kind = rest.pop("kind", None)
    if kind not in KINDS:
        raise PlanError(f"unknown batches kind {kind!r}; known are {sorted(KINDS)}.")
    return KINDS[kind](**rest)
