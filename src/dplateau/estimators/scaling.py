"""Features between public bounds, centred and scaled before training: publicly or privately.

An affine map of every feature, so that predictions stay linear in the features as they came. The
bounds are the public ones, or narrower ones that a share of the budget buys (theory, section 17).
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from dplateau.accounting.looks import CLIPPED, Centre, Look, Spread
from dplateau.accounting.privacy_loss.conversions import gdp_of
from dplateau.accounting.spending import PrivacyBudget
from dplateau.errors import DataError, PlanError
from dplateau.training.asking import Asked
from dplateau.training.cluster import ClusterTeam
from dplateau.training.scaling import (
    ROOMY,
    SNUG,
    WIDTH,
    private_bounds,
    private_centre,
    whitening,
)
from dplateau.training.scratch import ScratchArray, check_room, memory_left, scratch_directory
from dplateau.training.sources import mapped_bytes, mapped_file, release_pages

Array = NDArray[np.float64]

KINDS = ("auto", "public", "standard", "whiten")
SHARE = 0.3  # of the budget's Gaussian privacy at most: leaves 95 % of it for the training
_ENOUGH = 0.1  # noise on the counts, as a share of the records, up to which looking pays
_SHARP = 0.1  # noise on the matrix, as a share of a scaled feature's variance, likewise
_AMPLE = 30.0  # n mu over columns**1.5 from which on whitening is forecast to pay
_MOST_COLUMNS = 100  # that "auto" whitens
_HELD = 0.6  # of the memory left that a scaled table may take; larger ones go to the disk
_PIECE = 1 << 22  # values that are scaled together there
UNCENTRED = (
    "feature_bounds centre every feature, which a sparse matrix cannot hold. Pass an array, or "
    "data_norm in place of feature_bounds."
)
_UNCLEAR = 0.2  # noise on the mean squared length up to which rows are centred
_CLEAR, _FINE = 0.02, 5e-4  # noise on the mean and on that below which nothing is gained
_LEAST = 0.05  # of the budget's Gaussian privacy, however many records there are
_WARY = 4.0  # times as many records, where a look serves only to find that a bound is loose
_LOOSE = 0.5  # of the bound: rows that need no more of it are stretched, where lengths count


def bought_mu(
    scaling: str, columns: int, records: int, relation: str, budget: PrivacyBudget
) -> float:
    """The Gaussian privacy to spend on scaling: 0 for none, from public facts alone.

    ``"auto"`` looks where the noise on its counts is small against the number of records.

    Examples
    --------
    >>> budget = PrivacyBudget.of(1.0, 1e-6)
    >>> bought_mu("auto", 5, 100, "replace_one", budget)
    0.0
    >>> bought_mu("auto", 5, 100_000, "replace_one", budget) > 0
    True
    """
    mu = 0.0 if columns == 0 else _share(scaling, budget)
    if mu == 0:
        return 0.0
    if scaling == "auto" and Spread(mu, relation).noise(columns)[0] > _ENOUGH * records:
        return 0.0
    return mu


def _share(scaling: str, budget: PrivacyBudget) -> float:
    """The Gaussian privacy that a look would cost; 0 where none is wanted."""
    if scaling not in KINDS:
        raise PlanError(f"scaling must be one of {list(KINDS)}; found {scaling!r}.")
    if scaling == "public" or (scaling == "auto" and budget.epsilon is None):
        return 0.0
    if budget.epsilon is None:
        raise PlanError("scaling needs a budget to buy from: give epsilon, or scaling='public'.")
    return SHARE * gdp_of(budget.epsilon, budget.delta)


def bought_centre(
    scaling: str,
    features: int,
    records: int,
    relation: str,
    budget: PrivacyBudget,
    *,
    lengths_count: bool = False,
) -> Centre | None:
    """The look at rows of which only ``data_norm`` is known: their mean and usual length.

    "auto" looks where noise is small against the number of records: no longer than the longest row
    on the mean, and `_UNCLEAR` on the mean squared length; a quarter of that where rows are mapped
    only if ``data_norm`` turns out to be loose. Where records are so many that a smaller share buys
    a mean that is clear enough, no more is spent.

    Examples
    --------
    >>> budget = PrivacyBudget.of(0.1, 1e-5)
    >>> bought_centre("auto", 64, 300, "add_or_remove_one", budget)
    >>> bought_centre("auto", 64, 3000, "add_or_remove_one", budget)  # doctest: +ELLIPSIS
    Centre(mu=..., relation='add_or_remove_one')
    >>> budget = PrivacyBudget.of(1.0, 1e-5)
    >>> of_few, of_many = (
    ...     bought_centre("auto", 64, n, "replace_one", budget).mu for n in (10**4, 10**6)
    ... )
    >>> round(of_few / of_many, 1)
    6.0
    """
    mu = _share(scaling, budget)
    if mu == 0:
        return None
    _, noise = Centre(mu, relation).noise()
    wanted = noise * max(math.sqrt(features), 1 / _UNCLEAR) * (_WARY if lengths_count else 1.0)
    if scaling == "auto" and wanted > records:
        return None
    needed = noise * max(math.sqrt(features) / _CLEAR, 1 / _FINE) / max(records, 1)
    return Centre(mu * min(max(needed, _LEAST / SHARE), 1.0), relation)


def bought_look(
    scaling: str,
    columns: int,
    records: int,
    relation: str,
    budget: PrivacyBudget,
    *,
    may_whiten: bool = True,
) -> Spread | None:
    """The look at the columns to buy: none, at their bounds, or at their second moments too.

    In scaled features the forecast leaves ``reach sqrt(d / 2) / (n mu)`` of the loss, whatever they
    are; in whitened ones all directions are learned after a travel of some ``d``, and ``d**2`` over
    ``(n mu)**2`` is left. "auto" whitens where that is less by far, the matrix is sharp, and
    features may be mixed.

    Examples
    --------
    >>> budget = PrivacyBudget.of(1.0, 1e-6)
    >>> [bought_look("auto", 8, n, "replace_one", budget) for n in (10**4, 10**6)]
    ... # doctest: +ELLIPSIS
    [Spread(mu=..., whiten=False), Spread(mu=..., whiten=True)]
    """
    mu = bought_mu(scaling, columns, records, relation, budget)
    if mu == 0:
        return None
    look = Spread(mu, relation, whiten=True)
    noise = 2 * math.sqrt(columns) * look.matrix_noise(columns) / max(records, 1)
    ample = records * mu / SHARE >= _AMPLE * columns**1.5 and 2 <= columns <= _MOST_COLUMNS
    sharp = noise <= _SHARP / WIDTH**2
    whiten = scaling == "whiten" or (scaling == "auto" and may_whiten and ample and sharp)
    return look if whiten else Spread(mu, relation)


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
    return CLIPPED * math.sqrt(features)


def stay_as_they_are(X: Any) -> bool:
    """Whether features are not mapped in memory: sparse, in a file, or weighed on a cluster."""
    if isinstance(X, ClusterTeam):
        return X.sparse or X.weighed
    return not isinstance(X, np.ndarray) or mapped_bytes(X) > 0


def mapped(X: Any, scaling: Array) -> Any:
    """The features as they are trained on.

    ``scaling`` has a row for every feature: its centre, its half width and, where features are
    whitened, a row of the matrix that they are multiplied by afterwards. Workers of a cluster map
    the rows that they hold, and a table on disk that memory has no room for is mapped there.
    """
    if isinstance(X, ClusterTeam):
        X.map(functools.partial(mapped, scaling=scaling))
        return X
    if mapped_bytes(X) > _HELD * memory_left():
        return _on_disk(X, scaling)
    if getattr(X, "dtype", None) == np.float32:
        scaling = scaling.astype(np.float32)  # half the memory, as the rows came
    centre, half = scaling[:, 0], scaling[:, 1]
    if scipy.sparse.issparse(X):
        if centre.any() or scaling.shape[1] > 2:
            raise DataError(UNCENTRED)
        with np.errstate(over="ignore", invalid="ignore"):
            return scipy.sparse.csr_array(X.multiply(1 / half))
    with np.errstate(over="ignore", invalid="ignore"):  # such a record contributes nothing
        scaled = (X - centre) / half
        return scaled if scaling.shape[1] == 2 else scaled @ scaling[:, 2:].T


def _on_disk(X: Any, scaling: Array) -> Any:
    """The same, piece by piece, in a file without a name."""
    named = mapped_file(X)
    place = scratch_directory(None, None if named is None else named.parent)
    check_room(place, X.nbytes, "the scaled table")
    found = ScratchArray(place, X.dtype, X.shape[1])
    size = max(_PIECE // X.shape[1], 1)
    for first in range(0, len(X), size):
        found.append(mapped(np.array(X[first : first + size]), scaling))
        release_pages(X)
    return found.mapped()


def as_came(weights: Array, constant: Any, scaling: Array) -> tuple[Array, Any]:
    """Weights of mapped features (the last axis) and constants, in the scale of the features."""
    if scaling.shape[1] > 2:
        weights = weights @ scaling[:, 2:]
    weights = weights / scaling[:, 1]
    return weights, constant - weights @ scaling[:, 0]


def looked(
    seen: Asked,
    bounds: tuple[Array, Array],
    look: Look | None,
    seed: Any,
) -> Array:
    """What features are mapped by: public bounds, or what a look at the records found."""
    assert look is None or isinstance(look, Spread)
    low, high = bounds
    if look is not None:
        low, high = private_bounds(seen, low, high, look, seed)
    centre, half = (low + high) / 2, (high - low) / 2
    if look is None or not look.whiten:
        return np.column_stack([centre, half])
    middle, matrix = whitening(seen, centre, half, look, seed)
    return np.column_stack([centre + half * middle, half, matrix])


def centred(
    seen: Asked,
    data_norm: float,
    look: Look,
    records: int,
    seed: Any,
    *,
    lengths_count: bool = False,
    only_loose: bool = False,
    sparse: bool = False,
) -> Array:
    """What rows without bounds are mapped by: centred, and stretched so that ``data_norm`` fits.

    Cutting long rows off bends what a regression learns: there they get more room, and with
    ``only_loose`` rows that need most of ``data_norm`` are left as they are.
    """
    assert isinstance(look, Centre)
    room = ROOMY if lengths_count else SNUG
    centre, share = private_centre(seen, data_norm, look, records, seed, room, sparse)
    if only_loose and share > _LOOSE:
        centre, share = np.zeros_like(centre), 1.0
    return np.column_stack([centre, np.full(len(centre), share)])
