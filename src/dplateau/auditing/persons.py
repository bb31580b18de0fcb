"""Audits of plans whose unit is a person: everybody has many rows, the canary too."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dplateau.plan.loss import Loss
from dplateau.plan.plan import Plan
from dplateau.training.run import run_many

ROWS_EACH = 8


def run_people(
    plan: Plan, loss: Loss, X: Any, y: Any, repeats: int, *, random_state: Any = None
) -> NDArray[np.float64]:
    """`run_many` on a table in which each of these rows is a person's, eight times over.

    A person's loss is the mean of their rows', so eight equal rows must count like one. Training
    code that counts rows as units lets the canary push eight times as hard, and the audit says so.
    """
    rows = np.repeat(np.asarray(X), ROWS_EACH, axis=0)
    owners = np.repeat(np.arange(len(rows) // ROWS_EACH), ROWS_EACH)
    # interleaved, as tables are: who sorts by person must not be the only one who is right
    order = np.argsort(np.arange(len(rows)) % ROWS_EACH, kind="stable")
    labels = np.repeat(np.asarray(y), ROWS_EACH)
    return run_many(
        plan,
        loss,
        rows[order],
        labels[order],
        repeats,
        groups=owners[order],
        random_state=random_state,
    )
