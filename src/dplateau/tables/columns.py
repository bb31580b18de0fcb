"""The kinds of column a public schema can describe, and how each turns cells into features.

Every kind maps one cell to at most one feature that is not zero, of size at most 1, whatever the
cell holds: what cannot be read counts as missing, so no record can raise an error or stretch the
features.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dplateau._validate import is_sign, whole
from dplateau.errors import PlanError
from dplateau.tables.cells import (
    as_label,
    as_numbers,
    day_of,
    forms,
    is_missing,
    mapped,
    sign_of,
)

Array = NDArray[np.float64]
Flags = NDArray[np.bool_]

NONE = -1  # the place of a cell that no feature stands for
MOST_BINS = 10_000


class Entries(NamedTuple):
    """The one feature of every cell: where it stands (`NONE`: nowhere), and its value."""

    place: NDArray[np.intp]
    value: Array


class Reading(NamedTuple):
    """What became of every cell when it was read: for the owner of the table only."""

    missing: Flags
    unreadable: Flags
    clipped: Flags
    unknown: Flags


@dataclass(frozen=True, kw_only=True)
class Column:
    """One column of a table and the public facts about it."""

    name: str
    missing: bool = True
    monotonic: Any = 0  # 1: larger values only raise what is predicted; -1: they only lower it
    kind: ClassVar[str]

    def __post_init__(self) -> None:
        self._check_direction("monotonic", self.monotonic)

    def _check_direction(self, what: str, direction: Any) -> None:
        if not is_sign(direction):
            raise PlanError(
                f"{what} of column {self.name!r} must be 1 (larger values only raise what is "
                f"predicted), -1 (they only lower it) or 0 (not known); found {direction!r:.40}."
            )

    @property
    def features(self) -> list[str]:
        """The features of a cell that holds a value."""
        raise TypeError(f"{type(self).__name__} states no features")

    @property
    def feature_names(self) -> list[str]:
        """All features, with the indicator of missing values where there is one."""
        return [*self.features, *([f"{self.name}=(missing)"] if self.missing else [])]

    @property
    def known_signs(self) -> list[int]:
        """Of the weights of `features`: 1, -1, or 0 where a sign is not known."""
        return [int(self.monotonic)] * len(self.features)

    @property
    def signs(self) -> list[int]:
        """The same for all features: nothing is known of missing values."""
        return [*self.known_signs, *([0] if self.missing else [])]

    @property
    def square_norm(self) -> float:
        """The largest squared norm of one cell's features."""
        return 1.0

    @property
    def constant_norm(self) -> bool:
        """Whether all values have features of the same norm, 1: where the kind says so."""
        return False

    def values(self, cells: Any) -> tuple[Entries, Flags]:
        """The feature of every cell, and which cells held no value that can be read."""
        raise TypeError(f"{type(self).__name__} states no values")

    def reading(self, cells: Any) -> Reading:
        """Which cells are missing, unreadable, out of bounds or of an unknown category."""
        missing = mapped(cells, is_missing, bool)
        nothing = np.zeros(len(missing), dtype=bool)
        _, absent = self.values(cells)
        return Reading(missing, absent & ~missing, nothing, nothing)

    def targets(self, cells: Any) -> NDArray[Any]:
        """The cells as something to predict: numbers, or labels; NaN or None where missing."""
        raise PlanError(
            f"column {self.name!r} is a {self.kind}, which cannot be predicted. "
            "Choose a number, category or boolean."
        )

    def entries(self, cells: Any) -> Entries:
        """The feature of every cell, the indicator of missing values included."""
        (place, value), absent = self.values(cells)
        indicator = len(self.features) if self.missing else NONE
        return Entries(
            np.where(absent, indicator, place),
            np.where(absent, float(self.missing), value),
        )

    def encode(self, cells: Any) -> Array:
        """The features of every cell, shape ``(cells, features)``."""
        place, value = self.entries(cells)
        encoded = np.zeros((len(place), len(self.feature_names)))
        held = np.flatnonzero(place != NONE)
        encoded[held, place[held]] = value[held]
        return encoded


@dataclass(frozen=True, kw_only=True)
class Number(Column):
    """A quantity between public bounds, as one feature in [-1, 1] or as one-hot bins.

    Examples
    --------
    >>> Number(name="age", bounds=(0, 100), missing=False).encode([0, 75, 1e9, "?"]).ravel()
    array([-1. ,  0.5,  1. ,  0. ])
    """

    bounds: tuple[float, float]
    log: bool = False
    bins: int | None = None
    declared: tuple[float, float] | None = None  # the bounds before a private scaling, to be signed
    kind: ClassVar[str] = "number"

    def __post_init__(self) -> None:
        super().__post_init__()
        bounds = _as_bounds(self.name, self.bounds, float)
        object.__setattr__(self, "bounds", bounds)
        if self.bins is not None:
            bins = whole(f"bins of column {self.name!r}", self.bins, least=2)
            if bins > MOST_BINS:
                raise PlanError(
                    f"bins of column {self.name!r} must be at most {MOST_BINS:,}; found {bins:,}. "
                    "Each bin is a weight to learn, with noise on it: a few dozen serve well."
                )
            object.__setattr__(self, "bins", bins)
            if self.monotonic:
                raise PlanError(
                    f"column {self.name!r} has bins and a direction (monotonic): the signs of "
                    "single bins' weights do not make what is predicted rise. Leave one of them "
                    "out."
                )

    @property
    def features(self) -> list[str]:
        if self.bins is None:
            return [self.name]
        return [f"{self.name}#{k}" for k in range(1, self.bins + 1)]

    @property
    def constant_norm(self) -> bool:
        return self.bins is not None

    def values(self, cells: Any) -> tuple[Entries, Flags]:
        low, high = self.bounds
        numbers = as_numbers(cells)
        absent = np.isnan(numbers)
        offset = np.clip(np.where(absent, low, numbers), low, high) - low
        share = np.log1p(offset) / math.log1p(high - low) if self.log else offset / (high - low)
        if self.bins is None:
            return Entries(np.zeros(len(share), dtype=np.intp), 2.0 * share - 1.0), absent
        place = np.minimum((share * self.bins).astype(np.intp), self.bins - 1)
        return Entries(place, np.ones(len(share))), absent

    def reading(self, cells: Any) -> Reading:
        numbers, (low, high) = as_numbers(cells), self.bounds
        outside = (numbers < low) | (numbers > high)
        return super().reading(cells)._replace(clipped=outside)

    def targets(self, cells: Any) -> Array:
        return as_numbers(cells)


@dataclass(frozen=True, kw_only=True)
class Date(Column):
    """A day between two public dates, as one feature in [-1, 1].

    Examples
    --------
    >>> Date(name="day", bounds=("2000-01-01", "2000-01-03"), missing=False).encode(
    ...     ["2000-01-02", "2031-01-01T12:00:00", "soon"]).ravel()
    array([0., 1., 0.])
    """

    bounds: tuple[str, str]
    kind: ClassVar[str] = "date"

    def __post_init__(self) -> None:
        super().__post_init__()
        _ = self._days

    @property
    def _days(self) -> tuple[float, float]:
        return _as_bounds(self.name, self.bounds, day_of, "two dates such as '2020-12-31'")

    @property
    def features(self) -> list[str]:
        return [self.name]

    def values(self, cells: Any) -> tuple[Entries, Flags]:
        low, high = self._days
        days = mapped(cells, day_of, np.float64)
        absent = np.isnan(days)
        share = (np.clip(np.where(absent, low, days), low, high) - low) / (high - low)
        return Entries(np.zeros(len(share), dtype=np.intp), 2.0 * share - 1.0), absent

    def reading(self, cells: Any) -> Reading:
        days, (low, high) = mapped(cells, day_of, np.float64), self._days
        return super().reading(cells)._replace(clipped=(days < low) | (days > high))


@dataclass(frozen=True, kw_only=True)
class Category(Column):
    """One of a public list of values, one-hot; any other value is "other".

    Values are compared as what they are: ``1``, ``1.0`` and ``01`` are one number, ``True`` and
    ``true`` one truth value, a day is the same with and without a midnight. Where the list itself
    tells two spellings apart (``"1"`` and ``"01"``), so does the comparison.

    Examples
    --------
    >>> Category(name="job", categories=("clerk", "nurse")).encode(["nurse", "spy", None])
    array([[0., 1., 0., 0.],
           [0., 0., 1., 0.],
           [0., 0., 0., 1.]])
    >>> Category(name="ward", categories=(1, 2), missing=False).encode(["2.0", "01"])
    array([[0., 1., 0.],
           [1., 0., 0.]])
    """

    categories: tuple[str, ...]
    other: bool = True
    kind: ClassVar[str] = "category"
    _places: dict[Hashable, int] = field(
        init=False, repr=False, compare=False, default_factory=dict
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.categories, str) or not isinstance(self.categories, Iterable):
            raise PlanError(f"categories of column {self.name!r} must be a list.")
        declared = list(self.categories)
        names = tuple(as_label(value) for value in declared)
        if not names or len(set(names)) != len(names):
            raise PlanError(
                f"categories of column {self.name!r} must be a non-empty list of distinct values; "
                f"found {list(names)!r}. Copy them from the codebook, or set the type to 'ignore'."
            )
        object.__setattr__(self, "categories", names)
        self._places.update(_places(declared, names))

        self._check_directions()

    def _check_direction(self, what: str, direction: Any) -> None:
        """Categories have no order: what is known is known of single ones."""
        if not direction or isinstance(direction, Mapping):
            return
        raise PlanError(
            f"{what} of column {self.name!r} must say which categories only raise (1) or only "
            f"lower (-1) what is predicted, such as {{{self.categories[0]!r}: 1}}; found "
            f"{direction!r:.40}."
        )

    def _check_directions(self) -> None:
        for value, direction in (self.monotonic or {}).items():
            if as_label(value) not in self.categories:
                raise PlanError(
                    f"monotonic of column {self.name!r} names {value!r}, which is not among its "
                    "categories."
                )
            super()._check_direction(f"monotonic[{value!r}]", direction)

    @property
    def features(self) -> list[str]:
        names = [f"{self.name}={value}" for value in self.categories]
        return [*names, f"{self.name}=(other)"] if self.other else names

    @property
    def known_signs(self) -> list[int]:
        stated = {as_label(value): int(sign) for value, sign in (self.monotonic or {}).items()}
        signs = [stated.get(value, 0) for value in self.categories]
        return [*signs, 0] if self.other else signs

    @property
    def constant_norm(self) -> bool:
        return True

    def _place(self, cell: Any) -> int:
        """Which category a cell is, or `NONE`."""
        return next((self._places[f] for f in forms(cell) if f in self._places), NONE)

    def values(self, cells: Any) -> tuple[Entries, Flags]:
        places = mapped(cells, self._place, np.intp)
        unknown = places == NONE
        absent = mapped(cells, is_missing, bool) & unknown
        elsewhere = len(self.categories) if self.other else NONE
        found = np.where(unknown, elsewhere, places)
        return Entries(found, (found != NONE).astype(np.float64)), absent

    def reading(self, cells: Any) -> Reading:
        missing = mapped(cells, is_missing, bool)
        places = mapped(cells, self._place, np.intp)
        nothing = np.zeros(len(missing), dtype=bool)
        return Reading(missing & (places == NONE), nothing, nothing, ~missing & (places == NONE))

    def targets(self, cells: Any) -> NDArray[Any]:
        def label(cell: Any) -> str | None:
            place = self._place(cell)
            if place != NONE:
                return self.categories[place]
            return None if is_missing(cell) else as_label(cell)

        return mapped(cells, label, object)


@dataclass(frozen=True, kw_only=True)
class Boolean(Column):
    """Yes or no, as one feature -1 or 1.

    Examples
    --------
    >>> Boolean(name="member", missing=False).encode([True, "no", None, "1.0"]).ravel()
    array([ 1., -1.,  0.,  1.])
    """

    kind: ClassVar[str] = "boolean"

    @property
    def features(self) -> list[str]:
        return [self.name]

    @property
    def constant_norm(self) -> bool:
        return True

    def values(self, cells: Any) -> tuple[Entries, Flags]:
        signs = mapped(cells, sign_of, np.float64)
        return Entries(np.zeros(len(signs), dtype=np.intp), signs), signs == 0

    def targets(self, cells: Any) -> NDArray[Any]:
        words = {1.0: "true", -1.0: "false"}
        return mapped(
            cells,
            lambda cell: words.get(sign_of(cell), None if is_missing(cell) else as_label(cell)),
            object,
        )


KINDS: dict[str, type[Column]] = {cls.kind: cls for cls in (Number, Category, Boolean, Date)}


def column_from_dict(name: str, facts: Mapping[str, Any]) -> Column:
    """A column from its entry in a schema; a missing or unknown fact is refused by name."""
    if not isinstance(facts, Mapping) or facts.get("type") not in KINDS:
        found = facts.get("type") if isinstance(facts, Mapping) else facts
        raise PlanError(
            f"column {name!r} has type {found!r}; known are {[*sorted(KINDS), 'ignore']}."
        )
    cls = KINDS[facts["type"]]
    rest = {key: value for key, value in facts.items() if key != "type"}
    allowed = {f for f in cls.__dataclass_fields__ if not f.startswith("_")} - {"name", "kind"}
    unknown = sorted(rest.keys() - allowed)
    if unknown:
        raise PlanError(
            f"column {name!r} of type {cls.kind} does not know {unknown[0]!r}; "
            f"allowed are {sorted(allowed)}."
        )
    for fact in ("bounds", "categories"):
        if fact in allowed and not rest.get(fact):
            raise PlanError(
                f"column {name!r} of type {cls.kind} needs {fact!r}: a public fact, never read "
                "off the table. Fill it in from a codebook, or set the type to 'ignore'."
            )
    return cls(name=name, **rest)


def _places(declared: list[Any], names: tuple[str, ...]) -> dict[Hashable, int]:
    """Which category every form stands for; a value that two of them share stands for neither."""
    found: dict[Hashable, int] = {}
    shared: set[Hashable] = set()
    for k, value in enumerate(declared):
        for form in forms(value):
            truth = isinstance(form, tuple) and form[0] == "truth"
            if truth and names[k].lower() not in ("true", "false"):
                continue  # "n" need not mean no
            if form in found and form not in names:
                shared.add(form)
            found.setdefault(form, k)
    spelled = {name: k for k, name in enumerate(names)}
    return {form: k for form, k in found.items() if form not in shared} | spelled


def _as_bounds(
    name: str, bounds: Any, read: Callable[[Any], float], what: str = "two finite values"
) -> tuple[float, float]:
    try:
        low, high = (read(bound) for bound in bounds)
    except (TypeError, ValueError, OverflowError):  # a whole number may be beyond all floats
        low = high = math.nan
    if not (math.isfinite(low) and math.isfinite(high - low) and low < high):
        found = f"{bounds!r}"
        raise PlanError(
            f"bounds of column {name!r} must be {what}, the lower one first; found "
            f"{found if len(found) < 100 else found[:60] + '...'}. State what is "
            "publicly known to contain (nearly) all values; the rest is clipped."
        )
    return low, high


__all__ = [
    "KINDS",
    "NONE",
    "Boolean",
    "Category",
    "Column",
    "Date",
    "Entries",
    "Number",
    "Reading",
    "column_from_dict",
]
