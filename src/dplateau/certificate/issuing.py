"""Run a plan and certify what leaves the run, in one act."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any, TypedDict, Unpack

import numpy as np
from numpy.typing import NDArray

from dplateau.certificate.record import Certificate
from dplateau.errors import PlanError
from dplateau.plan.loss import Loss
from dplateau.plan.plan import Plan
from dplateau.training import run as training
from dplateau.training.checkpoint import Checkpoint
from dplateau.training.noise import Seed
from dplateau.training.run import Release

Array = NDArray[np.float64]


class RunOptions(TypedDict, total=False):
    """The options of a run; see `dplateau.training.run.release` for what each does."""

    sample_weight: Any
    groups: Any
    random_state: Seed
    progress: bool
    time_budget: float | str | None
    stop_at: datetime | None
    checkpoint: str | Path | Checkpoint | None
    allow_intermediate: bool
    callback: Callable[[int, Array], object] | None


class IssueOptions(RunOptions, total=False):
    """The same, and where to write a certificate at which delta."""

    certificate: str | Path | None
    delta: float | None


def release(
    plan: Plan,
    loss: Loss,
    X: Any,
    y: Any = None,
    *,
    certificate: str | Path | None = None,
    delta: float | None = None,
    **options: Unpack[RunOptions],
) -> Release:
    """Execute the plan, and certify the release on request.

    Parameters
    ----------
    plan, loss, X, y
        What to run, and on which data: see `dplateau.training.run.release`.
    certificate : path, optional
        Write a certificate of the release there, at ``delta``.
    delta : float, optional
        For the certificate.
    **options
        ``sample_weight``, ``groups``, ``random_state``, ``progress``, ``time_budget``, ``stop_at``,
        ``checkpoint``, ``allow_intermediate`` and ``callback``: see there.
    """
    if certificate is None:
        return training.release(plan, loss, X, y, **options)
    if delta is None:
        raise PlanError("a certificate states epsilon at a delta: pass delta as well.")
    path, at = certificate, delta
    return training.release(
        plan, loss, X, y, issue=lambda outcome: Certificate.of(outcome, at).write(path), **options
    )


def run(plan: Plan, loss: Loss, X: Any, y: Any = None, **options: Unpack[IssueOptions]) -> Array:
    """Execute the plan and return its last iterate: `release` without the particulars.

    Examples
    --------
    >>> from dplateau import FullBatch, Huber
    >>> plan = Plan(records=3, batches=FullBatch(), iterations=200, step_size=0.5,
    ...             noise_multiplier=0.0, loss=Huber(threshold=10.0), data_norm=1.0)
    >>> X, y = np.eye(3), np.array([1.0, 2.0, 3.0])
    >>> run(plan, Huber(threshold=10.0), X, y).round(4).tolist()
    [1.0, 2.0, 3.0]
    """
    return release(plan, loss, X, y, **options).weights
