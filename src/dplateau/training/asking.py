"""What a look asks of all records at once: sums, each a pure function of rows and public numbers.

Every record contributes whole multiples of a question's ``unit``, a power of two, and the multiples
are added up as whole numbers. So the sum is the same in whatever order, and in however many parts
it is taken: in pieces of a table on disk, or by the workers of a cluster, each over its own rows.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from dplateau.accounting.looks import CLIPPED, LEVELS
from dplateau.training.partitions import Part
from dplateau.training.persons import by_person
from dplateau.training.sources import release_pages
from dplateau.training.targets import Encoded, which_exist

Array = NDArray[np.float64]
Whole = NDArray[np.int64]

_FINE = 2.0**-20  # what contributions of at most 1 are rounded to; a piece's sum of them is exact
_PIECE = 1 << 20  # values that are looked at together


class Question(Protocol):
    """A sum over records."""

    def of(self, part: Part) -> NDArray[Any]:
        """The sum over some of the records; those of all parts are added up."""


class Asked(Protocol):
    """Records that can be asked: here, or on the workers of a cluster."""

    def total(self, question: Question) -> NDArray[Any]:
        """The sum over all records."""


class Exact(ABC):
    """A sum of whole multiples of a ``unit``."""

    unit: ClassVar[float] = 1.0

    @abstractmethod
    def of(self, part: Part) -> Whole:
        """How many units some of the records contribute."""

    def answered(self, records: Asked) -> Array:
        """The sum over all records."""
        return np.asarray(records.total(self) * self.unit)


class Here:
    """Records of this process, those of them that a look sees."""

    def __init__(self, X: Any, y: Any = None, groups: Any = None) -> None:
        self._rows = looked_at(Part(X, y, None, groups))

    def total(self, question: Question) -> NDArray[Any]:
        return question.of(Part(self._rows, None))


def asked(records: Any) -> Asked:
    """Rows, or columns one by one, as records that can be asked."""
    return records if hasattr(records, "total") else Here(records)


def looked_at(part: Part) -> Any:
    """The rows that a look sees: of every person the first, and none without a target."""
    X, exist = part.X, None
    if part.y is not None and not isinstance(part.y, Encoded):
        exist = which_exist(np.asarray(part.y))
    if part.groups is not None:
        order, pointers = by_person(part.groups, X.shape[0])
        first = order[pointers[:-1]]
        return X[first if exist is None else first[exist[first]]]
    return X if exist is None or exist.all() else X[exist]


@dataclass(frozen=True, eq=False)
class Places(Exact):
    """How many values of every column are in each of ``2**LEVELS`` bins between its bounds."""

    low: Array
    high: Array

    def of(self, part: Part) -> Whole:
        found = np.zeros((len(self.low), 2**LEVELS), np.int64)
        for columns in _columns(part, self.low, self.high):
            for counts, held in zip(found, columns, strict=True):
                counts += _binned(held)
        return found


@dataclass(frozen=True, eq=False)
class Spreads(Exact):
    """Sums of ``(v, v**2 - 1/2)`` in every column, ``v`` in [-1, 1] between a window's ends.

    Ends are in units of the column's bounds.
    """

    low: Array
    high: Array
    left: Array
    right: Array
    unit: ClassVar[float] = _FINE

    def of(self, part: Part) -> Whole:
        found = np.zeros((len(self.low), 2), np.int64)
        ends = list(zip(self.left.tolist(), self.right.tolist(), strict=True))
        for columns in _columns(part, self.low, self.high):
            for sums, (left, right), held in zip(found, ends, columns, strict=True):
                v = np.clip(2 * (held - left) / (right - left) - 1, -1.0, 1.0)
                v = np.rint(v / _FINE)
                sums += np.array([v.sum(), np.rint(v * v * _FINE - 0.5 / _FINE).sum()], np.int64)
        return found


@dataclass(frozen=True, eq=False)
class Products(Exact):
    """The matrix of second moments of rows ``(1, v)``, centred and scaled column by column.

    Rows are clipped to `CLIPPED` of the longest possible; one that is not finite counts nothing.
    """

    centre: Array
    half: Array
    unit: ClassVar[float] = 2.0**-24  # of entries that are multiples of 2**-12

    def of(self, part: Part) -> Whole:
        columns = len(self.centre)
        sums = np.zeros((columns + 1, columns + 1), np.int64)
        longest = CLIPPED * math.sqrt(columns)
        for piece in _rows(looked_at(part), columns):
            with np.errstate(over="ignore", invalid="ignore"):
                piece = (piece - self.centre) / self.half
                piece = piece[np.isfinite(piece).all(axis=1)]
                shrink = np.minimum(1.0, longest / np.maximum(_norms(piece), 1e-300))
            entries = np.trunc(piece * shrink[:, None] * 2.0**12)
            entries = np.column_stack([np.full(len(piece), 2.0**12), entries])
            sums += (entries.T @ entries).astype(np.int64)
        return sums


@dataclass(frozen=True)
class Lengths(Exact):
    """How many rows are in each of ``2**LEVELS`` bins of their norm, between 0 and ``longest``."""

    longest: float

    def of(self, part: Part) -> Whole:
        found = np.zeros(2**LEVELS, np.int64)
        for _, norms in _with_norms(looked_at(part), self.longest):
            norms = np.clip(norms, 0.0, 1.0)
            found += _binned(norms[np.isfinite(norms)])
        return found


@dataclass(frozen=True)
class Means(Exact):
    """The sum of ``(v, |v|**2 - 1/2)`` over rows ``v``, in units of ``reach * longest``.

    Longer ones are scaled down to norm 1. Sparse rows have no mean, which would not be sparse.
    """

    longest: float
    reach: float
    unit: ClassVar[float] = _FINE

    def of(self, part: Part) -> Whole:
        rows = looked_at(part)
        sums = np.zeros(rows.shape[1] + 1, np.int64)
        for piece, norms in _with_norms(rows, self.longest):
            held = np.isfinite(norms)
            shrink = 1 / np.maximum(norms[held], self.reach)
            if not scipy.sparse.issparse(rows):  # cut towards 0
                entries = np.trunc(piece[held] * shrink[:, None] / _FINE)
                sums[:-1] += entries.sum(axis=0).astype(np.int64)
            squares = (norms[held] * shrink) ** 2 - 0.5
            sums[-1] += int(np.rint(squares / _FINE).sum())
        return sums


def _columns(part: Part, low: Array, high: Array) -> Iterator[Iterator[Array]]:
    """Pieces of rows: of every column where its values lie between its bounds, those there are."""
    for piece in _rows(looked_at(part), len(low)):
        shares = np.ascontiguousarray(((np.clip(piece, low, high) - low) / (high - low)).T)
        yield (column[np.isfinite(column)] for column in shares)


def _binned(shares: Array) -> NDArray[np.int64]:
    bins = 2**LEVELS
    place = np.minimum((shares * bins).astype(np.intp), bins - 1)
    return np.bincount(place, minlength=bins)


def _rows(X: Any, columns: int) -> Iterator[Array]:
    """Pieces of rows in double precision, each row behind the other."""
    size = max(_PIECE // max(columns, 1), 1)
    for first in range(0, len(X) if isinstance(X, np.ndarray) else len(X[0]), size):
        if isinstance(X, np.ndarray):
            yield np.array(X[first : first + size], dtype=np.float64, order="C")
        else:
            yield np.column_stack([np.asarray(c[first : first + size], np.float64) for c in X])
        release_pages(X if isinstance(X, np.ndarray) else tuple(X))


def _with_norms(rows: Any, longest: float) -> Iterator[tuple[Any, Array]]:
    """Pieces of rows in double precision and units of ``longest``, with their norms.

    Norms are not finite where a value is not. Squares of the rows as they came might underflow, and
    a row whose norm is taken for 0 would not be clipped.
    """
    size = max(_PIECE // max(rows.shape[1], 1), 1)
    for first in range(0, rows.shape[0], size):
        with np.errstate(over="ignore", invalid="ignore"):
            if scipy.sparse.issparse(rows):
                piece = rows[first : first + size].astype(np.float64) / longest
                squares = np.asarray(piece.multiply(piece).sum(axis=1), dtype=np.float64)
                yield piece, np.sqrt(squares.ravel())
            else:
                piece = np.array(rows[first : first + size], np.float64, order="C") / longest
                yield piece, _norms(piece)
                release_pages(rows)


def _norms(piece: Array) -> Array:
    """Norms of rows that lie behind each other: one's does not depend on the others'."""
    return np.asarray(np.sqrt((piece * piece).sum(axis=1)))
