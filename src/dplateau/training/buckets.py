"""People on a cluster: whoever holds one of a person's rows holds them all.

Partitions are cut by rows, and a person's may lie in several. Every worker therefore reads all of
them, one after the other, and keeps the rows of *its* people: those whose identifier falls into its
bucket, by a hash keyed with a secret of the run. Nobody sends rows to anybody, no name of a task
depends on a person, and a worker that is lost is replaced as any other: its bucket is a pure
function of the partitions, the secret and a number.
"""

from __future__ import annotations

import hashlib
import numbers
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from dplateau.errors import DataError
from dplateau.training.sources import dense_from_table
from dplateau.training.targets import which_exist

Array = NDArray[Any]

_EXACT = 2.0**53  # up to which floats are whole numbers


@dataclass(frozen=True)
class Bucket:
    """The rows of some people, out of all partitions.

    Called, it gives the rows with, for each, the number (in the whole table) of its person's first
    row: that names the person from here on, and keeps the order of a table in one place.

    Parameters
    ----------
    loaders : tuple of callables
        Of all partitions, in order.
    number, count : int
        Which bucket, of how many.
    secret : bytes
        Of the run.
    """

    loaders: tuple[Callable[[], Any], ...]
    number: int
    count: int
    secret: bytes

    def __call__(self) -> Any:
        kept, first, kinds, before = [], dict[Any, int](), set[str](), 0
        for loader in self.loaders:
            part = loader()
            owners = np.asarray(part.groups)
            rows = _rows(part.X)
            if owners.ndim != 1 or len(owners) != rows or len(np.asarray(part.y)) != rows:
                raise DataError(
                    "X, y and groups are cut differently: a partition holds more rows of one of "
                    "them. Cut them alike."
                )
            if rows:
                kinds.add("numbers" if owners.dtype.kind in "iufb" else "others")
            if len(kinds) > 1:
                raise DataError(
                    "groups differ in their types between partitions, so that one person could "
                    "count as two. Convert them to one type, such as text."
                )
            mine, whose = self._mine(owners, first, before)
            before += rows
            kept.append(_taken(part, mine, whose))
        return _joined(kept)

    def _mine(
        self, owners: Array, first: dict[Any, int], before: int
    ) -> tuple[Array, NDArray[np.int64]]:
        """Which rows are of this bucket, and the first row of whoever each is of."""
        known = np.flatnonzero(which_exist(owners))
        values = owners[known].tolist()
        mine, whose = [], []
        for row, owner in zip(known.tolist(), values, strict=True):
            if owner not in first and self._bucket(owner) != self.number:
                continue
            mine.append(row)
            whose.append(first.setdefault(owner, before + row))
        return np.array(mine, np.int64), np.array(whose, np.int64)

    def _bucket(self, owner: Any) -> int:
        """Where a person belongs: what is equal in Python belongs together."""
        if isinstance(owner, str):
            name = f"text {owner}"
        elif isinstance(owner, numbers.Number):
            if isinstance(owner, float) and abs(owner) >= _EXACT:
                raise DataError(
                    "groups hold numbers so large that floats do not tell them apart. Store them "
                    "as whole numbers, or as text."
                )
            name = f"number {hash(owner)}"  # 1, 1.0 and True have one hash, in every process
        else:
            raise DataError(
                "groups must hold identifiers, such as numbers or text; found objects that are "
                "none."
            )
        digest = hashlib.blake2b(name.encode(), key=self.secret, digest_size=8).digest()
        return int.from_bytes(digest) % self.count


def _rows(X: Any) -> int:
    return int(X.shape[0]) if hasattr(X, "shape") else len(X)


def _taken(part: Any, rows: Array, whose: NDArray[np.int64]) -> Any:
    """Some rows of a partition; columns keep their names and types."""
    X = part.X
    if hasattr(X, "iloc"):
        X = X.iloc[rows]
    elif scipy.sparse.issparse(X):
        X = scipy.sparse.csr_array(X)[rows]
    else:
        X = (X if isinstance(X, np.ndarray) else dense_from_table(X))[rows]
    weights = None if part.weights is None else np.asarray(part.weights)[rows]
    return part._replace(X=X, y=np.asarray(part.y)[rows], weights=weights, groups=whose)


def _joined(parts: list[Any]) -> Any:
    """The parts of a bucket, as one partition; their columns must be alike."""
    if len(parts) == 1:
        return parts[0]
    columns = {(tuple(getattr(part.X, "columns", ())), part.X.shape[1]) for part in parts}
    if len(columns) > 1:
        raise DataError("partitions differ in their columns. Write them alike.")
    X: Any
    if hasattr(parts[0].X, "iloc"):
        import pandas as pd

        X = pd.concat([part.X for part in parts])
    elif scipy.sparse.issparse(parts[0].X):
        X = scipy.sparse.vstack([part.X for part in parts], format="csr")
    else:
        X = np.concatenate([part.X for part in parts])
    weights = None
    if parts[0].weights is not None:
        weights = np.concatenate([part.weights for part in parts])
    y, groups = (
        np.concatenate([getattr(part, name) for part in parts]) for name in ("y", "groups")
    )
    return parts[0]._replace(X=X, y=y, weights=weights, groups=groups)
