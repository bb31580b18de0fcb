"""What estimators refuse before scikit-learn does, which would quote the cells it cannot read.

An error message ends up in logs and tickets. These name dtypes, shapes and columns only.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from dplateau.certificate.wording import short, unfit
from dplateau.errors import DataError, PlanError
from dplateau.training.partitions import refuse_elsewhere
from dplateau.training.targets import which_exist

_ENCODE = "Encode other columns by public facts first (PublicTableEncoder)."


def refuse_unreadable(X: Any) -> None:
    """Refuse features that are no table of numbers, without repeating one of them.

    Examples
    --------
    >>> refuse_unreadable([["own"], ["rent"]])
    Traceback (most recent call last):
    ...
    dplateau.errors.DataError: X must hold numbers; found text or objects that are none (dtype \
<U4). Encode other columns by public facts first (PublicTableEncoder).
    """
    refuse_elsewhere(X)
    if scipy.sparse.issparse(X) or _numbers_alone(X):
        return
    try:
        array = np.asarray(X)
    except ValueError:  # rows of different lengths, which scikit-learn refuses by shape
        return
    if array.dtype.kind == "c":
        raise DataError(
            f"Complex data not supported: X has dtype {array.dtype}. Pass real numbers."
        )
    if array.ndim != 2:
        raise DataError(
            f"X must have two dimensions, records by features; found shape {array.shape}. "
            "Reshape your data: X.reshape(-1, 1) for one feature, X.reshape(1, -1) for one record."
        )
    try:
        array.astype(np.float64)
    except ValueError:
        columns = _named(X)
        where = f" in column {', '.join(map(repr, columns))}" if columns else ""
        raise DataError(
            f"X must hold numbers; found text or objects that are none{where} "
            f"(dtype {array.dtype}). {_ENCODE}"
        ) from None


_PARAMETERS = (
    ("Use a smaller step,", "Use a smaller learning_rate,"),
    ("Use a step size of", "Use a learning_rate of"),
    (
        "Bound the domain, add regularization, or give a finite number of iterations.",
        "Give a radius, an alpha above 0, or a finite number of steps.",
    ),
    (", or raise Poisson(max_overflow=...)", ", or batches=Poisson(..., max_overflow=...)"),
)
_COMPOSED = ", or hidden_state=False to claim composition only"


def in_parameters(advice: str, *, endless: bool) -> str:
    """A plan's refusal in the words of an estimator's parameters.

    ``endless``: composition of endless steps promises nothing, so it is no way out.

    Examples
    --------
    >>> in_parameters("Use a smaller step, or hidden_state=False to claim composition only.",
    ...               endless=True)
    'Use a smaller learning_rate.'
    """
    for plans, ours in _PARAMETERS:
        advice = advice.replace(plans, ours)
    if endless:
        advice = advice.replace(_COMPOSED, "")
    return advice


def refuse_unreleasable(records: Any, delta: Any) -> None:
    """Refuse, before any training, what could never be released.

    Examples
    --------
    >>> refuse_unreleasable(1000, 0.4)
    Traceback (most recent call last):
    ...
    dplateau.errors.PlanError: delta=0.4 is not for release: delta must be far below one over the \
number of records (1,000), or the guarantee would allow to publish one of them in full. Choose \
delta=1e-5 or less.
    """
    whole = isinstance(records, (int, np.integer)) and isinstance(delta, float)
    why = unfit(int(records), delta) if whole else ""
    if why and records < 2:
        raise DataError(f"n_samples=1, found 1 sample: {why}. Train on more records.")
    if why:
        small = min(10.0 ** -(len(str(records)) + 1), 1e-5)
        raise PlanError(
            f"delta={delta:g} is not for release: {why}. Choose delta={short(small)} or less."
        )


def present(y: NDArray[Any]) -> NDArray[Any]:
    """The targets that exist, in the type they have without those that do not.

    Examples
    --------
    >>> present(np.array([0, None, 1], dtype=object)).dtype.kind
    'i'
    """
    y = y[which_exist(y)]
    return np.array(y.tolist()) if y.dtype.kind == "O" else y


def as_numbers(y: NDArray[Any]) -> NDArray[np.float64]:
    """Targets as floats, NaN where there is none; other text is refused without repeating it."""
    try:
        return np.where(which_exist(y), y, np.nan).astype(np.float64)
    except (TypeError, ValueError):
        raise DataError(
            f"y must hold numbers; found text or objects that are none (dtype {y.dtype}). "
            "Convert it, with NaN where there is no number: such a record contributes nothing."
        ) from None


def numbers_or_none(y: NDArray[Any]) -> NDArray[np.float64]:
    """Targets as floats, NaN where one is none: no record raises an error.

    Examples
    --------
    >>> numbers_or_none(np.array([1, None, "x"], dtype=object)).tolist()
    [1.0, nan, nan]
    """

    def read(value: Any) -> float:
        try:
            return float(value)
        except (TypeError, ValueError, OverflowError):
            return np.nan

    if y.dtype.kind in "fiub":
        return y.astype(np.float64)
    return np.array([read(value) for value in y], dtype=np.float64)


def _numbers_alone(X: Any) -> bool:
    """Whether all columns of a table, or an array of two dimensions, hold real numbers."""
    if isinstance(X, np.ndarray):
        return X.ndim == 2 and X.dtype.kind in "fiub"
    kinds = [getattr(dtype, "kind", "O") for dtype in getattr(X, "dtypes", [])]
    return bool(kinds) and all(kind in "fiub" for kind in kinds)


def _named(X: Any) -> list[str]:
    """The columns of a data frame that are not of a number's type."""
    if not hasattr(X, "columns") or not hasattr(X, "dtypes"):
        return []
    pairs = zip(X.columns, X.dtypes, strict=True)
    return [str(name) for name, dtype in pairs if getattr(dtype, "kind", "O") not in "fiub"]
