"""From what users hold (arrays, tables, files) to the records of a run, without a copy.

The public facts (shape, row count, declared classes) are checked here and their violation is an
error. The content of a record never is: a row or target that is not finite contributes nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from dplateau.accounting.rounding import BLOCK, most_in_batch, rounding_share
from dplateau.errors import DataError, PlanError
from dplateau.plan.batches import ADD_OR_REMOVE_ONE
from dplateau.plan.checks import refuse_clipped_softmax, refuse_signs_of_many
from dplateau.plan.loss import Loss
from dplateau.plan.plan import Plan
from dplateau.training.partitions import refuse_elsewhere
from dplateau.training.persons import NO_POINTERS, by_person, check_unit, row_weights
from dplateau.training.scratch import gigabytes, memory_left
from dplateau.training.sources import (
    beside,
    dense_from_table,
    mapped_bytes,
    release_pages,
    rows_at,
    spool_parquet,
)
from dplateau.training.targets import NO_LABEL, Encoded, as_targets, read_only

_SCAN_BYTES = 1 << 24
MOST_KEPT = 1 << 23  # records up to which a factor, a norm and a float target of each are kept
RESIDENT_BYTES = 1 << 29  # how much of a memory map may be resident at once


@dataclass(frozen=True, eq=False)
class Records:
    """The data of a run as every engine reads them: bounded records, never changed.

    Attributes
    ----------
    rows : ndarray, or the three arrays of a CSR matrix
        The features as they were given, read-only.
    features : int
        Their number, the intercept's not counted.
    targets : ndarray
        `Loss.encode_targets` of every record; ``silent``, or not finite, where there is none.
    scale : ndarray
        The factor that bounds each row's norm; 0 for a record that contributes nothing. Empty
        where records are so many that factors and norms are found anew whenever a row is read.
    norms : ndarray
        The norm of each bounded row with the intercept's feature; empty unless gradients are
        clipped.
    within : float
        The norm that rows are bounded to.
    loss : Loss
        The loss that is trained.
    clip : float
        The bound on every gradient's norm, ``inf`` without one.
    weights : ndarray
        What each row's slope is multiplied by, at most 1; empty where nothing is.
    pointers : ndarray
        Where each person's rows begin, if persons are the unit; empty if rows are.
    scratch : Path
        Where layouts of a table on disk may be put, if that is known.
    """

    rows: Any
    features: int
    targets: NDArray[Any]
    scale: NDArray[np.float64]
    norms: NDArray[np.float64]
    within: float
    loss: Loss
    clip: float
    weights: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    pointers: NDArray[np.int64] = field(default_factory=lambda: NO_POINTERS)
    scratch: Path | None = None

    def __len__(self) -> int:
        return self.pointers.size - 1 if self.pointers.size else self.targets.size

    @property
    def silent(self) -> float:
        """The target of a record that has none."""
        return NO_LABEL if self.targets.dtype == np.int8 else math.nan

    def bounds(self, block: Any) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The factors of a block of rows, and their norms where gradients are clipped."""
        if self.scale.size or not self.targets.size:
            return self.scale[block], self.norms[block] if self.norms.size else self.norms
        with np.errstate(all="ignore"):
            length = _dense_norms(rows_at(self.rows, block))
        found = self.targets[block]
        return _bounded(self, length, (found != self.silent) & np.isfinite(found))

    @property
    def stored_per_record(self) -> float:
        """Features of a record, or the mean number of stored entries; of a person, of all rows."""
        if isinstance(self.rows, tuple):
            return float(len(self.rows[0]) / max(len(self), 1))
        return float(self.features * self.targets.size / max(len(self), 1))

    @property
    def weight_shape(self) -> tuple[int, ...]:
        """Shape of the weights that are trained on these records."""
        return weight_shape(self.loss, self.features)


def norm_bound(plan: Plan, loss: Loss) -> float:
    """The norm that feature rows are clipped to, so that the plan's constants hold."""
    if plan.loss is not None and loss != plan.loss:
        raise PlanError(
            f"the plan was made for {plan.loss!r}; asked to train {loss!r}. Pass the plan's own "
            "loss, or account a plan for this one."
        )
    if plan.strong_convexity > 0:
        raise PlanError(
            f"{type(loss).__name__} is not strongly convex by itself; the plan assumes "
            f"strong_convexity={plan.strong_convexity:g}. Use regularization instead."
        )
    refuse_signs_of_many(plan.domain, loss)
    if plan.hidden_state:
        refuse_clipped_softmax(loss)
    if plan.loss is not None:
        return math.inf if plan.data_norm is None else plan.data_norm
    return loss.largest_data_norm(plan.lipschitz, plan.smoothness)


def weight_shape(loss: Loss, features: int) -> tuple[int, ...]:
    """Shape of the weights: features (+ 1 with an intercept), times outputs if several."""
    entries = features + (loss.intercept > 0)
    return (entries, loss.outputs) if loss.outputs > 1 else (entries,)


def load(
    plan: Plan,
    loss: Loss,
    X: Any,
    y: Any,
    sample_weight: Any = None,
    groups: Any = None,
    *,
    part: bool = False,
) -> Records:
    """The records of a run, with every public fact checked.

    ``part``: these are some of the plan's records, and how many there are was checked elsewhere.
    """
    if not isinstance(loss, Loss):
        raise PlanError(f"loss must be a Loss, such as Logistic(); found {loss!r}.")
    bound = norm_bound(plan, loss)
    refuse_elsewhere(X, y, sample_weight)
    if isinstance(X, (str, Path)):
        X, y = spool_parquet(Path(X), y)
    matrix = _as_matrix(X)
    records, features = matrix.shape
    check_unit(plan.unit, groups)
    weights = np.zeros(0) if sample_weight is None else row_weights(sample_weight, records)
    pointers = NO_POINTERS
    if groups is not None:
        needed = mapped_bytes(matrix)
        if needed > memory_left():
            raise DataError(
                "groups bring the rows of each person together in memory, which takes about "
                f"{gigabytes(needed)} more than there is left. Use a machine with more memory."
            )
        order, pointers = by_person(groups, records)
        matrix, y = matrix[order], np.asarray(y)[order]
        counts = np.diff(pointers)
        shares = np.repeat(1.0 / counts, counts)
        weights = shares * weights[order] if weights.size else shares
        records = order.size
    if not part:
        check_shape(plan, loss, pointers.size - 1 if groups is not None else records, features)
    rows = _as_rows(matrix)
    late = found_late(plan, rows)
    margin = 1 - (features + 16) * np.finfo(float).eps - _rounding(plan, groups)
    found = Records(
        rows=rows,
        features=features,
        targets=as_targets(loss, y, records, late),
        scale=np.empty(0 if late else records),
        norms=np.empty(0 if late or loss.clip is None else records),
        within=_shrunk(bound, loss.intercept, margin),
        loss=loss,
        clip=math.inf if loss.clip is None else loss.clip * margin,
        weights=weights,
        pointers=pointers,
        scratch=y.scratch if isinstance(y, Encoded) else beside(X),
    )
    if not late:
        usable = np.isfinite(found.targets)
        for lower, upper, length in _row_norms(rows, records):
            found.scale[lower:upper], norms = _bounded(found, length, usable[lower:upper])
            found.norms[lower:upper] = norms
    return found


def found_late(plan: Plan, rows: Any) -> bool:
    """Whether factors and norms are found whenever a row is read, for want of room to keep them.

    By what is public: the plan's number of records, and the size of a memory map. A CSR matrix,
    whose entries cost more than that, has them kept.
    """
    if isinstance(rows, tuple):
        return False
    return plan.records > MOST_KEPT or mapped_bytes(rows) > RESIDENT_BYTES


def _bounded(
    records: Records, length: NDArray[np.float64], usable: NDArray[np.bool_]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Factors of rows of such norms, and where gradients are clipped the norms they leave."""
    length[~(length < math.sqrt(np.finfo(float).max))] = math.inf
    factors = np.where(usable, _factors(length, records.within), 0.0)
    if math.isinf(records.clip):
        return factors, np.empty(0)
    norms = np.hypot(np.minimum(length, records.within), records.loss.intercept)
    return factors, np.where(factors > 0, norms, 0.0)


def _rounding(plan: Plan, groups: Any) -> float:
    """The share kept for rounding: a person's rows are as many as they like, so full blocks."""
    most = most_in_batch(plan)
    return rounding_share(most if groups is None else max(most, BLOCK))


# -- norms ----------------------------------------------------------------------------------------


def _row_norms(rows: Any, records: int) -> Iterator[tuple[int, int, NDArray[np.float64]]]:
    """Ranges of rows in order, with the norm of each row."""
    size = rows[0].nbytes if isinstance(rows, tuple) else rows.nbytes
    step = max(int(_SCAN_BYTES * records / max(size, 1)), 1)
    for lower in range(0, records, step):
        upper = min(lower + step, records)
        with np.errstate(all="ignore"):
            length = _sparse_norms(rows, lower, upper) if isinstance(rows, tuple) else (
                _dense_norms(rows[lower:upper])
            )  # fmt: skip
        yield lower, upper, length
        release_pages(rows)


def _dense_norms(block: NDArray[Any]) -> NDArray[np.float64]:
    """Norms of dense rows, each divided by its largest entry first: no square is lost."""
    values = np.array(block, dtype=np.float64, order="C")
    top = np.max(np.abs(values), axis=1, initial=0.0)
    values /= np.where(top > 0, top, 1.0)[:, None]
    return np.asarray(top * np.sqrt(np.einsum("ij,ij->i", values, values)))


def _sparse_norms(rows: Any, lower: int, upper: int) -> NDArray[np.float64]:
    values, _, pointers = rows
    starts = np.asarray(pointers[lower : upper + 1], dtype=np.int64)
    entries = np.abs(values[starts[0] : starts[-1]].astype(np.float64))
    owner = np.repeat(np.arange(upper - lower), np.diff(starts))
    top = np.zeros(upper - lower)
    np.maximum.at(top, owner, entries)
    squares = (entries / np.where(top > 0, top, 1.0)[owner]) ** 2
    return np.asarray(top * np.sqrt(np.bincount(owner, squares, minlength=upper - lower)))


def _factors(norms: NDArray[np.float64], bound: float) -> NDArray[np.float64]:
    """The factors that bring rows within the norm bound; 0 where a row is not finite."""
    factors = np.ones(norms.size)
    above = norms > bound
    factors[above] = bound / norms[above]
    factors[np.isinf(norms)] = 0.0
    return factors


def _shrunk(bound: float, intercept: float, margin: float) -> float:
    """The row norm that makes the *augmented* norm smaller by the factor ``margin``.

    The margin, just below 1, pays for the rounding of norms, products and of the plan's constants.
    """
    if math.isinf(bound):
        return bound
    inside = margin**2 - (intercept / bound) ** 2 * (1 - margin**2)
    return bound * math.sqrt(max(inside, 0.0))


# -- matrices -------------------------------------------------------------------------------------


def _as_matrix(X: Any) -> Any:
    """A 2-D float array (a view where possible) or a canonical CSR matrix."""
    if scipy.sparse.issparse(X):
        return _as_csr(X)
    if not isinstance(X, np.ndarray):
        X = dense_from_table(X)
    if X.ndim != 2:
        raise DataError(
            f"X must have two dimensions, records by features; found {X.ndim}. "
            "For one feature use X.reshape(-1, 1)."
        )
    if X.dtype.kind not in "fiub":
        raise DataError(
            f"X must hold numbers; found dtype {X.dtype}. Encode other columns with public bounds "
            "first (PublicTableEncoder)."
        )
    if X.dtype not in (np.float32, np.float64):
        X = X.astype(np.result_type(X.dtype, np.float16, np.float32))
        X = X.astype(np.float64) if X.dtype.itemsize > 8 else X
    if not (X.flags.c_contiguous or X.flags.f_contiguous or mapped_bytes(X)):
        X = np.ascontiguousarray(X)  # a strided view is read many times: once is worth a copy
    return X


def _as_csr(X: Any) -> Any:
    X = scipy.sparse.csr_array(X)
    X.check_format(full_check=True)
    if X.dtype not in (np.float32, np.float64):
        X = X.astype(np.float64)
    if not X.has_canonical_format:
        # Entries stored twice would count half in the norm that bounds the row.
        X = X.copy()
        X.sum_duplicates()
    return X


def _as_rows(matrix: Any) -> Any:
    """Read-only arrays, so that the kernels are compiled once for writable and other data."""
    if scipy.sparse.issparse(matrix):
        return tuple(read_only(part) for part in (matrix.data, matrix.indices, matrix.indptr))
    return read_only(matrix)


def check_shape(plan: Plan, loss: Loss, records: int, features: int) -> None:
    """Refuse data of another shape than the plan was made for."""
    if plan.neighboring_relation == ADD_OR_REMOVE_ONE:
        if records > plan.records:
            raise DataError(
                f"X has more rows than the plan's records={plan.records}, a public upper bound "
                "under add_or_remove_one. Account a plan for more records."
            )
    elif records != plan.records:
        raise DataError(
            f"X has {records} rows, the plan was made for records={plan.records}. Account a plan "
            "for this data set, or use neighboring_relation='add_or_remove_one', where records is "
            "an upper bound."
        )
    weights = math.prod(weight_shape(loss, features))
    if weights == 0:
        raise DataError("X has no columns. Give at least one feature, or the loss an intercept.")
    if plan.dimension is not None and plan.dimension != weights:
        raise DataError(
            f"the plan's dimension is {plan.dimension}; {features} features make {weights} weights "
            f"with {type(loss).__name__}(intercept={loss.intercept:g}). Set dimension={weights}."
        )
