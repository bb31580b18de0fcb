"""Features between public bounds, centred and scaled before training: publicly or privately.

An affine map of every feature, so that predictions stay linear in the features as they came. The
bounds are the public ones, or narrower ones that a share of the budget buys (theory, section 17).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from dplateau._validate import positive
from dplateau.accounting.prepared import Spread
from dplateau.accounting.privacy_loss.conversions import gdp_of
from dplateau.errors import DataError, PlanError

Array = NDArray[np.float64]

KINDS = ("auto", "public", "standard")
SHARE = 0.3  # of the budget's Gaussian privacy: leaves 95 % of it for the training
ROW = 0.6  # usual length of a row of features in [-1, 1], relative to the longest possible
_ENOUGH = 0.1  # noise on the counts, as a share of the records, up to which looking pays


def bought_mu(
    scaling: str, columns: int, records: int, relation: str, epsilon: float | None, delta: float
) -> float:
    """The Gaussian privacy to spend on scaling: 0 for none, from public facts alone.

    ``"auto"`` looks where the noise on its counts is small against the number of records.

    Examples
    --------
    >>> bought_mu("auto", 5, 100, "replace_one", 1.0, 1e-6)
    0.0
    >>> bought_mu("auto", 5, 100_000, "replace_one", 1.0, 1e-6) > 0
    True
    """
    if scaling not in KINDS:
        raise PlanError(f"scaling must be one of {list(KINDS)}; found {scaling!r}.")
    if scaling == "public" or columns == 0:
        return 0.0
    if epsilon is None:
        if scaling == "auto":
            return 0.0
        raise PlanError("scaling needs a budget to buy from: give epsilon, or scaling='public'.")
    mu = SHARE * gdp_of(positive("epsilon", epsilon), delta)
    if scaling == "auto" and Spread(mu, relation).noise(columns)[0] > _ENOUGH * records:
        return 0.0
    return mu


def as_bounds(feature_bounds: Any) -> tuple[Array, Array]:
    """Lower and upper bounds of all features; refused unless there is a pair for each."""
    try:
        bounds = np.array(feature_bounds, dtype=np.float64)
    except (TypeError, ValueError):
        bounds = np.empty(0)
    if (
        bounds.ndim != 2
        or bounds.shape[1:] != (2,)
        or not np.isfinite(bounds).all()
        or not (bounds[:, 0] < bounds[:, 1]).all()
    ):
        raise PlanError(
            "feature_bounds must be a pair of finite numbers for every feature, the lower one "
            "first, such as [(0, 100), (0, 1)]. State what is publicly known; never read it off "
            "the data."
        )
    return bounds[:, 0], bounds[:, 1]


def row_norm(features: int) -> float:
    """The norm that rows of scaled features are clipped to where none is given."""
    return ROW * math.sqrt(features)


def mapped(X: Any, centre_and_half: Array) -> Any:
    """The features as they are trained on."""
    if scipy.sparse.issparse(X):
        raise DataError(
            "feature_bounds centre every feature, which a sparse matrix cannot hold. Pass an "
            "array, or data_norm in place of feature_bounds."
        )
    return (X - centre_and_half[:, 0]) / centre_and_half[:, 1]


__all__ = ["KINDS", "SHARE", "as_bounds", "bought_mu", "mapped", "row_norm"]
