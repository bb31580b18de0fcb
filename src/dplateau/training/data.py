"""From what users hold (arrays, tables, files) to what the kernels read, without a copy.

The public facts (shape, row count, declared classes) are checked here and their violation is an
error. The content of a record never is: a row or target that is not finite contributes nothing.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from dplateau.errors import DataError, PlanError
from dplateau.plan.batches import ADD_OR_REMOVE_ONE
from dplateau.plan.checks import refuse_clipped_softmax
from dplateau.plan.losses import Huber, Logistic, Loss, SmoothedHinge, SmoothedPinball, Softmax
from dplateau.plan.plan import Plan
from dplateau.training import slopes
from dplateau.training.kernels import Problem
from dplateau.training.rows import TILE, bound_rows, bounded_norms
from dplateau.training.sources import dense_from_table, mapped_bytes, release_pages, spool_parquet

_CODES: dict[type[Loss], tuple[int, tuple[str, ...]]] = {
    Logistic: (slopes.LOGISTIC, ()),
    SmoothedHinge: (slopes.SMOOTHED_HINGE, ("width",)),
    Huber: (slopes.HUBER, ("threshold",)),
    SmoothedPinball: (slopes.SMOOTHED_PINBALL, ("quantile", "width")),
    Softmax: (slopes.SOFTMAX, ()),
}
_SCAN_BYTES = 1 << 26
_BLOCK_BYTES = 1 << 18


def loss_code(loss: Loss) -> tuple[int, float, float]:
    """The kernel's number of a loss and its parameters: the one place that maps them.

    Examples
    --------
    >>> loss_code(Huber(threshold=2.0)) == (slopes.HUBER, 2.0, 0.0)
    True
    """
    if type(loss) not in _CODES:
        known = sorted(cls.__name__ for cls in _CODES)
        raise PlanError(f"loss must be one of {known}; found {loss!r}.")
    code, names = _CODES[type(loss)]
    values = [getattr(loss, name) for name in names]
    first, second = (*values, 0.0, 0.0)[:2]
    return code, first, second


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
    if plan.hidden_state:
        refuse_clipped_softmax(loss)
    if plan.loss is not None:
        return math.inf if plan.data_norm is None else plan.data_norm
    return loss.largest_data_norm(plan.lipschitz, plan.smoothness)


def weight_shape(loss: Loss, features: int) -> tuple[int, ...]:
    """Shape of the weights: features (+ 1 with an intercept), times classes for `Softmax`."""
    entries = features + (loss.intercept > 0)
    return (entries, loss.outputs) if isinstance(loss, Softmax) else (entries,)


def load(plan: Plan, loss: Loss, X: Any, y: Any) -> Problem:
    """The problem that the kernels run, with every public fact checked."""
    code, first, second = loss_code(loss)
    bound = norm_bound(plan, loss)
    if isinstance(X, (str, Path)):
        X, y = spool_parquet(Path(X), y)
    matrix = _as_matrix(X)
    records, features = matrix.shape
    _check_shape(plan, loss, records, features)
    targets, usable = _as_targets(loss, y, records)
    rows = _as_rows(matrix)
    margin = 1 - (features + 16) * np.finfo(float).eps
    within = _shrunk(bound, loss.intercept, margin)
    scale = np.empty(records)
    for lower, upper in _scan(matrix):
        bound_rows(rows, within, lower, scale[lower:upper])
        release_pages(rows)
    scale[~usable] = 0.0
    norms = np.empty(0)
    if loss.clip is not None:
        norms = np.empty(records)
        for lower, upper in _scan(matrix):
            bounded_norms(rows, scale, loss.intercept, lower, norms[lower:upper])
            release_pages(rows)
    return Problem(
        rows=rows,
        features=features,
        targets=targets,
        scale=scale,
        norms=norms,
        loss=code,
        first=float(first),
        second=float(second),
        clip=math.inf if loss.clip is None else loss.clip * margin,
        intercept=loss.intercept,
        block=_block(rows, features),
        gathered=_block(rows, features) if _scattered(rows) else 0,
    )


def _block(rows: Any, features: int) -> int:
    """How many rows to read at once: as many as the cache holds, in whole tiles."""
    if isinstance(rows, tuple):
        return 256
    return min(max(_BLOCK_BYTES // (8 * max(features, 1)) // TILE, 1), 32) * TILE


def _scattered(rows: Any) -> bool:
    """Whether a row's numbers lie apart: in Fortran order, or in a strided memory map."""
    return not isinstance(rows, tuple) and not rows.flags.c_contiguous


def _shrunk(bound: float, intercept: float, margin: float) -> float:
    """The row norm that makes the *augmented* norm smaller by the factor ``margin``.

    The margin, just below 1, pays for the rounding of norms, products and of the plan's constants.
    """
    if math.isinf(bound):
        return bound
    return math.sqrt(max((bound * margin) ** 2 - intercept**2 * (1 - margin**2), 0.0))


def _as_matrix(X: Any) -> Any:
    """A 2-D float array (a view where possible) or a canonical CSR matrix."""
    if scipy.sparse.issparse(X):
        return _as_csr(X)
    if not isinstance(X, np.ndarray):
        X = dense_from_table(X)
    if X.ndim != 2:
        raise DataError(
            f"X must have two dimensions, records by features; found shape {X.shape}. "
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
        return tuple(_read_only(part) for part in (matrix.data, matrix.indices, matrix.indptr))
    return _read_only(matrix)


def _read_only(array: NDArray[Any]) -> NDArray[Any]:
    view = np.asarray(array).view()
    view.flags.writeable = False
    return view


def _check_shape(plan: Plan, loss: Loss, records: int, features: int) -> None:
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


def _as_targets(loss: Loss, y: Any, records: int) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """Encoded targets, and which records have one; encoded in pieces to spare memory."""
    y = np.asarray(y)
    if y.ndim != 1 or len(y) != records:
        raise DataError(f"y must have one entry per row of X, shape ({records},); found {y.shape}.")
    if not isinstance(loss, (Logistic, SmoothedHinge, Softmax)):
        y = _as_numbers(loss, y)
    targets = np.empty(records)
    usable = np.ones(records, dtype=bool)
    for lower in range(0, records, 1 << 20):
        piece = y[lower : lower + (1 << 20)]
        present = which_exist(piece)
        usable[lower : lower + len(piece)] = present
        encoded = loss.encode_targets(piece[present])
        targets[lower : lower + len(piece)][present] = encoded
        targets[lower : lower + len(piece)][~present] = 0.0
    usable &= np.isfinite(targets)
    return _read_only(targets), usable


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


def _scan(matrix: Any) -> list[tuple[int, int]]:
    """Ranges of rows that together hold about ``_SCAN_BYTES``, in order."""
    records = matrix.shape[0]
    size = matrix.data.nbytes if scipy.sparse.issparse(matrix) else matrix.nbytes
    rows = max(int(_SCAN_BYTES * records / max(size, 1)), 1)
    return [(lower, min(lower + rows, records)) for lower in range(0, records, rows)]
