"""Which rows belong to whom, and how much each row weighs (theory, section 18)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dplateau.errors import DataError, PlanError
from dplateau.plan.units import PERSON

Array = NDArray[np.float64]
Index = NDArray[np.int64]

NO_POINTERS: Index = np.zeros(0, np.int64)


def by_person(groups: Any, rows: int) -> tuple[Index, Index]:
    """The rows in an order that has each person's together, and where each person's begin.

    Persons stand in the order in which they first occur. A row without an owner (None, NaN) is left
    out: whose guarantee it would touch is not known.

    Examples
    --------
    >>> order, pointers = by_person(["b", "a", "b", None], 4)
    >>> order.tolist(), pointers.tolist()
    ([0, 2, 1], [0, 2, 3])
    """
    owners = np.asarray(groups)
    if owners.ndim != 1 or len(owners) != rows:
        raise DataError(
            "groups must be flat and name the person of each row of X. Compare their lengths."
        )
    places: dict[Any, int] = {}
    codes = np.empty(rows, np.int64)
    try:
        for k, owner in enumerate(owners.tolist()):
            known = owner is not None and owner == owner  # NaN and NaT differ from themselves
            codes[k] = places.setdefault(owner, len(places)) if known else -1
    except TypeError:
        raise DataError(
            "groups must hold identifiers, such as numbers or text; found objects that are none."
        ) from None
    order = np.argsort(codes, kind="stable")[int(np.sum(codes < 0)) :]
    counts = np.bincount(codes[codes >= 0], minlength=len(places))
    return order, np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)


def people_in(groups: Any) -> int:
    """How many persons the rows belong to."""
    return by_person(groups, len(groups))[1].size - 1


def row_weights(sample_weight: Any, rows: int, largest: float = 1.0) -> Array:
    """Weights over a public maximum, one per row; one that is not a number counts nothing."""
    try:
        found = np.array(sample_weight, dtype=np.float64)
    except (TypeError, ValueError):
        raise DataError("sample_weight must hold numbers in [0, 1].") from None
    if found.ndim == 0:
        found = np.full(rows, float(found))
    if found.ndim != 1:
        raise DataError("Sample weights must be 1D array or scalar.")
    if len(found) != rows:
        raise DataError(
            "sample_weight must hold one weight for each row of X. Compare their lengths."
        )
    found /= largest  # in place, as there may be many
    np.nan_to_num(found, copy=False, nan=0.0, posinf=np.inf, neginf=-np.inf)
    if found.size and (found.min() < 0 or found.max() > 1):
        raise DataError(
            f"sample_weight must lie in [0, {largest:g}]: a larger weight would change the model "
            "by more than the guarantee allows for one record. Divide all weights by a public "
            "maximum (never by the largest that occurs), or state it: largest_weight=."
        )
    return found


def check_unit(unit: str, groups: Any) -> None:
    """Refuse persons without a plan for persons, and the other way round."""
    if (unit == PERSON) != (groups is not None):
        raise PlanError(
            "the plan's unit is a person: say whose each row is with groups=."
            if unit == PERSON
            else "groups= makes the unit a person, and the plan's is a record. Account a plan with "
            "unit='person', whose records is the number of people."
        )


def rows_of(pointers: Index, units: slice | Index) -> slice | Index:
    """The rows of some persons, where rows are in the order of persons.

    Examples
    --------
    >>> rows_of(np.array([0, 2, 3, 7]), np.array([0, 2])).tolist()
    [0, 1, 3, 4, 5, 6]
    """
    if isinstance(units, slice):
        return slice(int(pointers[units.start]), int(pointers[units.stop]))
    starts, counts = pointers[units], np.diff(pointers)[units]
    within = np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)
    return np.asarray(np.repeat(starts, counts) + within, dtype=np.int64)
