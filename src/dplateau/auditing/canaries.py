"""The record an audit plants, and the two neighbours that differ in it.

A canary is named ("dense", "unused", "opposite", "walk") or is a `Record` of the user's own. What
stands in its place in the other neighbour follows from the plan's neighbouring relation.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dplateau.errors import DataError, PlanError
from dplateau.plan.batches import ADD_OR_REMOVE_ONE, REPLACE_ONE
from dplateau.plan.loss import FAR, Loss
from dplateau.plan.plan import Plan

Array = NDArray[np.float64]
Table = tuple[Array, NDArray[Any]]

CANARIES = ("dense", "unused", "opposite", "walk")


@dataclass(frozen=True, eq=False)
class Record:
    """One row of features and its target.

    Examples
    --------
    >>> Record([0.6, 0.8], 1).norm
    1.0
    """

    features: ArrayLike
    target: Any

    def __post_init__(self) -> None:
        row = np.array(self.features, dtype=np.float64)
        if row.ndim != 1:
            raise DataError(f"a canary's features are one row; found shape {row.shape}.")
        object.__setattr__(self, "features", row)

    @property
    def row(self) -> Array:
        """The features as an array."""
        return np.asarray(self.features)

    @property
    def norm(self) -> float:
        """Euclidean norm of the features."""
        return float(np.linalg.norm(self.row))


@dataclass(frozen=True, eq=False)
class Neighbours:
    """Two neighbouring tables: with the canary, and with its stand-in (``None``: nothing)."""

    name: str
    canary: Record
    stand_in: Record | None
    absent: Table
    present: Table


# -- what a record does to the weights -------------------------------------------------------------


def _augmented(loss: Loss, record: Record) -> Array:
    if loss.intercept > 0:
        return np.append(record.row, loss.intercept)
    return record.row


def _scores(loss: Loss, weights: Array, record: Record) -> Array:
    """Score of one record under each of many weights: (runs,) or (runs, classes)."""
    return np.asarray(np.tensordot(weights, _augmented(loss, record), axes=(1, 0)))


def _targets(loss: Loss, record: Record, runs: int) -> Array:
    return np.repeat(loss.encode_targets(np.array([record.target])), runs)


def record_losses(loss: Loss, weights: Array, record: Record) -> Array:
    """The record's loss under each of many weights, shape (runs,)."""
    return loss.value(_scores(loss, weights, record), _targets(loss, record, len(weights)))


def gradients(loss: Loss, weights: Array, record: Record) -> Array:
    """The record's gradient, clipped as the loss says, under each of many weights."""
    slopes = loss.slope(_scores(loss, weights, record), _targets(loss, record, len(weights)))
    row = _augmented(loss, record)
    found = slopes[:, np.newaxis] * row if slopes.ndim == 1 else np.einsum("rk,j->rjk", slopes, row)
    if loss.clip is not None:
        norms = np.linalg.norm(found.reshape(len(found), -1), axis=1)
        scale = np.minimum(1.0, loss.clip / np.maximum(norms, np.finfo(float).tiny))
        found = found * scale.reshape(-1, *[1] * (found.ndim - 1))
    return found


# -- building the neighbours -----------------------------------------------------------------------


def norm_bound(plan: Plan, loss: Loss) -> float:
    """The largest feature norm that the plan's constants allow a canary.

    Examples
    --------
    >>> from dplateau import FullBatch, Logistic
    >>> plan = Plan(records=9, batches=FullBatch(), iterations=1, step_size=1, noise_multiplier=1,
    ...             loss=Logistic(), data_norm=2.0)
    >>> norm_bound(plan, Logistic())
    2.0
    """
    if plan.data_norm is not None:
        return plan.data_norm
    bound = loss.largest_data_norm(plan.lipschitz, plan.smoothness)
    # Gradients are clipped and features free: long enough to reach the clip, no longer.
    return bound if math.isfinite(bound) else 4.0 * plan.lipschitz / loss.slope_bound


def position(plan: Plan) -> int:
    """The row whose record an attacker would choose.

    In cyclic order the last executed batch is forgotten least; elsewhere rows are exchangeable.

    Examples
    --------
    >>> from dplateau import Cyclic
    >>> position(Plan(records=10, batches=Cyclic(4), iterations=5, step_size=1, noise_multiplier=1,
    ...               lipschitz=1, smoothness=1))
    7
    """
    return plan.batches.last_row(int(plan.iterations), plan.records)


def other_records(plan: Plan, X: ArrayLike, y: ArrayLike) -> Table:
    """All rows but the canary's: the table itself if it leaves room, else without one row."""
    X, y = np.asarray(X, dtype=np.float64, order="C"), np.asarray(y)
    if X.ndim != 2 or y.shape != (len(X),):
        raise DataError(
            f"an audit needs a table and one target per row; found X of shape {X.shape} and y of "
            f"shape {y.shape}."
        )
    n, exact = plan.records, plan.neighboring_relation != ADD_OR_REMOVE_ONE
    if len(X) > n or (exact and len(X) < n - 1):
        raise DataError(
            f"the plan is for {n} records and the table has {len(X)} rows. Pass {n} rows (the "
            f"canary takes the place of one) or {n - 1}, or change the plan's records."
        )
    if len(X) < n:
        return X, y
    return np.delete(X, position(plan), axis=0), np.delete(y, position(plan))


def with_record(plan: Plan, others: Table, record: Record | None) -> Table:
    """The other rows with a record at the canary's place (``None``: without any)."""
    X, y = others
    if record is None:
        return X, y
    at = min(position(plan), len(X))
    target = np.array([record.target])
    return (
        np.concatenate([X[:at], record.row[np.newaxis], X[at:]]),
        np.concatenate([y[:at], target, y[at:]]),
    )


def blank(others: Table, target: Any) -> Record:
    """A record that contributes nothing: one that is not a number has no gradient."""
    return Record(np.full(others[0].shape[1], np.nan), target)


def build_neighbours(
    canary: str | Record | tuple[ArrayLike, Any],
    plan: Plan,
    loss: Loss,
    others: Table,
    typical: Array,
) -> Neighbours:
    """Plant the canary among the other records.

    Parameters
    ----------
    canary : str or Record
        One of `CANARIES` except "walk", or the user's own record.
    others : (X, y)
        All rows but the canary's.
    typical : ndarray (runs, ...)
        Weights of a few pilot runs; they decide which target hurts most.
    """
    if isinstance(canary, str):
        name, row = canary, _direction(canary, others[0], typical) * norm_bound(plan, loss)
        candidates = [Record(row, target) for target in loss.extreme_targets]
    else:
        own = canary if isinstance(canary, Record) else Record(*canary)
        if own.row.size != others[0].shape[1]:
            raise DataError(
                f"the canary has {own.row.size} features and the table {others[0].shape[1]}."
            )
        name, candidates = "record", [own]
    pairs = [pair for record in candidates for pair in _pairs(plan, loss, others, record)]
    record, stand_in = max(pairs, key=lambda pair: _push(loss, typical, *pair))
    return _neighbours(name, plan, others, record, stand_in)


def _pairs(
    plan: Plan, loss: Loss, others: Table, record: Record
) -> list[tuple[Record, Record | None]]:
    """The canary with each candidate for its place in the other neighbour."""
    if plan.neighboring_relation == ADD_OR_REMOVE_ONE:
        return [(record, None)]
    if plan.neighboring_relation != REPLACE_ONE:
        return [(record, blank(others, record.target))]
    targets = loss.extreme_targets
    mirrored = [Record(-record.row, target) for target in (*targets, record.target)]
    same = [Record(record.row, target) for target in targets]
    return [(record, other) for other in (*mirrored, *same)]


def _is_blank(record: Record | None) -> bool:
    return record is None or bool(np.isnan(record.row).any())


def _push(loss: Loss, typical: Array, record: Record, stand_in: Record | None) -> float:
    """How far apart the two neighbours' gradients are, typically."""
    apart = gradients(loss, typical, record)
    if not _is_blank(stand_in):
        assert stand_in is not None
        apart = apart - gradients(loss, typical, stand_in)
    return float(np.linalg.norm(apart.mean(axis=0)))


def _direction(canary: str, X: Array, typical: Array) -> Array:
    """The unit feature vector that the canary's name asks for."""
    d = X.shape[1]
    if canary == "dense":
        return np.full(d, 1.0 / math.sqrt(d))
    unit = np.zeros(d)
    if canary == "unused":
        used = np.nansum(np.square(X), axis=0)
        unit[int(np.argmin(used))] = 1.0
        return unit
    if canary == "opposite":
        # Where the model is most certain, a wrong label has the steepest loss.
        mean = typical.mean(axis=0)[:d].reshape(d, -1)
        direction = np.linalg.svd(mean, full_matrices=False)[0][:, 0]
        return np.asarray(direction)
    raise PlanError(
        f"unknown canary {canary!r}; known are {list(CANARIES)}. "
        "Or pass a record of your own: (features, target)."
    )


def walk_neighbours(plan: Plan, loss: Loss) -> Neighbours:
    """The paper's lower-bound construction: a random walk on an interval (its section 4).

    One feature; every loss is linear on the domain. The canary pushes the walk one way. Where the
    other neighbour lacks it, the remaining records together push back by half of its average push,
    which makes the pair the one whose exact epsilon `dplateau.lower_bound` computes.
    """
    _check_walk(plan, loss)
    n, reach = plan.records, norm_bound(plan, loss)
    up, down = (abs(float(loss.slope(np.zeros(1), np.array([t]))[0])) for t in (FAR, -FAR))
    target, share = (FAR, up / down) if up >= down else (-FAR, down / up)
    record = Record([reach], target)
    replaces = plan.neighboring_relation == REPLACE_ONE
    step_back = 0.0 if replaces else reach * min(1.0, share / (2 * max(n - 1, 1)))
    others = np.full((n - 1, 1), step_back), np.full(n - 1, -target)
    stand_in: Record | None = blank(others, target)
    if replaces:
        stand_in = Record([-reach], target)
    elif plan.neighboring_relation == ADD_OR_REMOVE_ONE:
        stand_in = None
    return _neighbours("walk", plan, others, record, stand_in)


def _check_walk(plan: Plan, loss: Loss) -> None:
    if not loss.linear_far_away or loss.intercept > 0:
        raise PlanError(
            "the walk needs a loss that far targets make linear, without intercept; found "
            f"{loss!r}. Use Huber() or SmoothedPinball(), or another canary."
        )
    if plan.dimension not in (None, 1):
        raise PlanError(
            f"the walk has one weight and the plan has dimension={plan.dimension}. "
            "Use plan.replace(dimension=1), or another canary."
        )


def _neighbours(
    name: str, plan: Plan, others: Table, record: Record, stand_in: Record | None
) -> Neighbours:
    return Neighbours(
        name=name,
        canary=record,
        stand_in=None if _is_blank(stand_in) else stand_in,
        absent=with_record(plan, others, stand_in),
        present=with_record(plan, others, record),
    )
