"""Targets as the loops read them: encoded, with a mark where there is none."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dplateau.errors import DataError
from dplateau.plan.loss import Loss

NO_LABEL = -128  # the target of a record that has none, where targets are positions of labels


@dataclass(frozen=True, eq=False)
class Encoded:
    """Targets that are encoded already, by `encode`, and lie in scratch space.

    Attributes
    ----------
    values : ndarray
        One per record.
    scratch : Path
        The directory where more of the table may be put.
    """

    values: NDArray[Any]
    scratch: Path

    def __len__(self) -> int:
        return len(self.values)


def read_only(array: NDArray[Any]) -> NDArray[Any]:
    view = np.asarray(array).view()
    view.flags.writeable = False
    return view


def as_targets(loss: Loss, y: Any, records: int, late: bool) -> NDArray[Any]:
    """Encoded targets, not finite where a record has none; encoded in pieces to spare memory.

    Those of many records (``late``) are a byte each where they are labels, else left as they are.
    """
    if isinstance(y, Encoded):
        values = y.values
        if not late and values.dtype == np.int8:
            values = np.where(values == NO_LABEL, math.nan, values)
        return read_only(values)
    y = np.asarray(y)
    if y.ndim != 1 or len(y) != records:
        # How many there are of either is not said: the number of records may be private.
        raise DataError("y must be flat, with one entry per row of X. Compare len(y) and len(X).")
    if not loss.labels:
        y = _as_numbers(loss, y)
        if late and type(loss).encode_targets is Loss.encode_targets and y.dtype.itemsize <= 8:
            return read_only(y.astype(np.float32) if y.dtype.itemsize < 4 else y)
    targets = np.empty(records, _kept_as(loss) if late else np.float64)
    for lower in range(0, records, 1 << 20):
        piece = y[lower : lower + (1 << 20)]
        targets[lower : lower + len(piece)] = encode(loss, piece, targets.dtype)
    return read_only(targets)


def _kept_as(loss: Loss) -> Any:
    return np.int8 if 0 < len(loss.labels) < -NO_LABEL else np.float64


def encode(loss: Loss, y: NDArray[Any], dtype: Any = None) -> NDArray[Any]:
    """Targets as the loss takes them, and as many records keep them: labels in a byte.

    Examples
    --------
    >>> from dplateau import Logistic
    >>> encode(Logistic(), np.array([0.0, 1.0, np.nan])).tolist()
    [-1, 1, -128]
    """
    dtype = np.dtype(_kept_as(loss) if dtype is None else dtype)
    present = which_exist(y)
    found = np.full(len(y), NO_LABEL if dtype == np.int8 else math.nan, dtype)
    found[present] = loss.encode_targets(y[present])
    return found


def _as_numbers(loss: Loss, y: NDArray[Any]) -> NDArray[Any]:
    if y.dtype.kind in "fiub":
        return y
    try:
        return y.astype(np.float64)
    except (TypeError, ValueError):  # whose words would quote a record
        raise DataError(
            f"{type(loss).__name__} needs numbers as targets; found dtype {y.dtype}."
        ) from None


def which_exist(y: NDArray[Any]) -> NDArray[np.bool_]:
    """Which targets exist: finite, and no None, NaN or NA."""
    if y.dtype.kind == "f":
        return np.asarray(np.isfinite(y))
    if y.dtype.kind == "O":
        equal = [value is not None and value == value for value in y]
        return np.array([isinstance(found, (bool, np.bool_)) and found for found in equal], bool)
    return np.ones(len(y), dtype=bool)
