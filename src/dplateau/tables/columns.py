"""The kinds of column a public schema can describe, and how each turns cells into features.

Every kind maps one cell to a vector of norm at most 1, whatever the cell holds: what cannot be read
counts as missing, so no record can raise an error or stretch the features.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dplateau.errors import PlanError, whole

Array = NDArray[np.float64]

_TRUE = {"true", "t", "yes", "y", "1"}
_FALSE = {"false", "f", "no", "n", "0"}
_EPOCH = datetime.date(1970, 1, 1)


@dataclass(frozen=True, kw_only=True)
class Column:
    """One column of a table and the public facts about it."""

    name: str
    missing: bool = True
    kind: ClassVar[str]

    @property
    def features(self) -> list[str]:
        """The features of a cell that holds a value."""
        raise TypeError(f"{type(self).__name__} states no features")

    @property
    def feature_names(self) -> list[str]:
        """All features, with the indicator of missing values where there is one."""
        return [*self.features, *([f"{self.name}=(missing)"] if self.missing else [])]

    @property
    def square_norm(self) -> float:
        """The largest squared norm of one cell's features."""
        return 1.0

    @property
    def constant_norm(self) -> bool:
        """Whether all values have features of the same norm, 1: where the kind says so."""
        return False

    def values(self, cells: Iterable[Any]) -> tuple[Array, NDArray[np.bool_]]:
        """The features of every cell, and which cells held no value."""
        raise TypeError(f"{type(self).__name__} states no values")

    def targets(self, cells: Iterable[Any]) -> NDArray[Any]:
        """The cells as something to predict: numbers, or labels."""
        raise PlanError(
            f"column {self.name!r} is a {self.kind}, which cannot be predicted. "
            "Choose a number, category or boolean."
        )

    def encode(self, cells: Iterable[Any]) -> Array:
        """The features of every cell, shape ``(cells, features)``."""
        encoded, absent = self.values(cells)
        encoded[absent] = 0.0
        return np.hstack([encoded, absent[:, None].astype(float)]) if self.missing else encoded


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
    kind: ClassVar[str] = "number"

    def __post_init__(self) -> None:
        bounds = _as_bounds(self.name, self.bounds, float)
        object.__setattr__(self, "bounds", bounds)
        if self.bins is not None:
            bins = whole(f"bins of column {self.name!r}", self.bins, least=2)
            object.__setattr__(self, "bins", bins)

    @property
    def features(self) -> list[str]:
        if self.bins is None:
            return [self.name]
        return [f"{self.name}#{k}" for k in range(1, self.bins + 1)]

    @property
    def constant_norm(self) -> bool:
        return self.bins is not None

    def values(self, cells: Iterable[Any]) -> tuple[Array, NDArray[np.bool_]]:
        low, high = self.bounds
        numbers = as_numbers(cells)
        absent = np.isnan(numbers)
        offset = np.clip(np.where(absent, low, numbers), low, high) - low
        share = np.log1p(offset) / math.log1p(high - low) if self.log else offset / (high - low)
        if self.bins is None:
            return (2.0 * share - 1.0)[:, None], absent
        position = np.minimum((share * self.bins).astype(int), self.bins - 1)
        return np.eye(self.bins)[position], absent

    def targets(self, cells: Iterable[Any]) -> Array:
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
        days = _as_bounds(self.name, self.bounds, lambda day: float(_as_day(day)))
        object.__setattr__(self, "_days", days)

    @property
    def features(self) -> list[str]:
        return [self.name]

    def values(self, cells: Iterable[Any]) -> tuple[Array, NDArray[np.bool_]]:
        low, high = self._days  # type: ignore[attr-defined]
        days = np.array([_as_day(cell) for cell in listed(cells)], dtype=float)
        absent = np.isnan(days)
        share = (np.clip(np.where(absent, low, days), low, high) - low) / (high - low)
        return (2.0 * share - 1.0)[:, None], absent


@dataclass(frozen=True, kw_only=True)
class Category(Column):
    """One of a public list of values, one-hot; any other value is "other".

    Examples
    --------
    >>> Category(name="job", categories=("clerk", "nurse")).encode(["nurse", "spy", None])
    array([[0., 1., 0., 0.],
           [0., 0., 1., 0.],
           [0., 0., 0., 1.]])
    """

    categories: tuple[str, ...]
    other: bool = True
    kind: ClassVar[str] = "category"
    _position: dict[str, int] = field(init=False, repr=False, compare=False, default_factory=dict)

    def __post_init__(self) -> None:
        if isinstance(self.categories, str) or not isinstance(self.categories, Iterable):
            raise PlanError(f"categories of column {self.name!r} must be a list.")
        names = tuple(as_label(value) for value in self.categories)
        if not names or len(set(names)) != len(names):
            raise PlanError(
                f"categories of column {self.name!r} must be a non-empty list of distinct values; "
                f"found {list(names)!r}. Copy them from the codebook, or set the type to 'ignore'."
            )
        object.__setattr__(self, "categories", names)
        self._position.update({name: k for k, name in enumerate(names)})

    @property
    def features(self) -> list[str]:
        names = [f"{self.name}={value}" for value in self.categories]
        return [*names, f"{self.name}=(other)"] if self.other else names

    @property
    def constant_norm(self) -> bool:
        return True

    def values(self, cells: Iterable[Any]) -> tuple[Array, NDArray[np.bool_]]:
        known, unknown = len(self.categories), -1
        labels = [as_label(cell) for cell in listed(cells)]
        codes = np.array([self._position.get(label, unknown) for label in labels], dtype=int)
        absent = np.array([label == "" for label in labels], dtype=bool)
        absent &= codes == unknown
        one_hot = np.vstack([np.eye(known, len(self.features)), np.zeros(len(self.features))])
        if self.other:
            one_hot[known, known] = 1.0
        return one_hot[np.where(codes == unknown, known, codes)], absent

    def targets(self, cells: Iterable[Any]) -> NDArray[Any]:
        return np.array([as_label(cell) for cell in listed(cells)], dtype=object)


@dataclass(frozen=True, kw_only=True)
class Boolean(Column):
    """Yes or no, as one feature -1 or 1.

    Examples
    --------
    >>> Boolean(name="member", missing=False).encode([True, "no", None]).ravel()
    array([ 1., -1.,  0.])
    """

    kind: ClassVar[str] = "boolean"

    @property
    def features(self) -> list[str]:
        return [self.name]

    @property
    def constant_norm(self) -> bool:
        return True

    def values(self, cells: Iterable[Any]) -> tuple[Array, NDArray[np.bool_]]:
        signs = np.array([_sign(cell) for cell in listed(cells)], dtype=float)
        return signs[:, None], signs == 0

    def targets(self, cells: Iterable[Any]) -> NDArray[Any]:
        words = {1.0: "true", -1.0: "false", 0.0: ""}
        return np.array([words[_sign(cell)] for cell in listed(cells)], dtype=object)


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


def as_label(cell: Any) -> str:
    """A cell as the text it is compared by; missing values as the empty text.

    Examples
    --------
    >>> as_label(3.0), as_label(" a "), as_label(None), as_label(float("nan"))
    ('3', 'a', '', '')
    """
    if cell is None or cell != cell:  # NaN and NaT differ from themselves
        return ""
    if isinstance(cell, (bool, np.bool_)):
        return "true" if cell else "false"
    if isinstance(cell, (float, np.floating)) and float(cell).is_integer():
        return str(int(cell))
    return str(cell).strip()


def listed(cells: Any) -> list[Any]:
    """The cells as Python objects, from arrow, pandas, numpy or any sequence."""
    for method in ("to_pylist", "tolist"):
        if hasattr(cells, method):
            return list(getattr(cells, method)())
    return list(cells)


def as_numbers(cells: Any) -> Array:
    """Floats, NaN where a cell is not one; infinities are kept, to be clipped."""
    objects = listed(cells)
    try:
        return np.array([math.nan if cell is None else cell for cell in objects], dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        return np.array([_as_number(cell) for cell in objects], dtype=np.float64)


def _as_number(cell: Any) -> float:
    try:
        return float(cell)
    except OverflowError:
        return math.inf if cell > 0 else -math.inf
    except (TypeError, ValueError):
        return math.nan


def _sign(cell: Any) -> float:
    """1 for yes, -1 for no, 0 for neither."""
    label = as_label(cell).lower()
    return float(label in _TRUE) - float(label in _FALSE)


def _as_day(cell: Any) -> float:
    """Days since 1970, NaN where a cell is no date."""
    if isinstance(cell, datetime.datetime):
        cell = cell.date() if cell == cell else None
    elif isinstance(cell, str):
        try:
            cell = datetime.date.fromisoformat(cell.strip()[:10])
        except ValueError:
            cell = None
    return float((cell - _EPOCH).days) if isinstance(cell, datetime.date) else math.nan


def _as_bounds(name: str, bounds: Any, read: Callable[[Any], float]) -> tuple[float, float]:
    try:
        low, high = (read(bound) for bound in bounds)
    except (TypeError, ValueError):
        low = high = math.nan
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise PlanError(
            f"bounds of column {name!r} must be two values, the lower one first; found {bounds!r}. "
            "State what is publicly known to contain (nearly) all values; the rest is clipped."
        )
    return low, high
