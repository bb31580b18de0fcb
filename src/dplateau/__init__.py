"""Private convex models, and exactly how private they are.

Train as long as you like; after a short burn-in the privacy loss of the released model stops
growing.
"""

from importlib import import_module
from typing import Any

from dplateau.errors import DataError, PlanError, PrivacyWarning, StoppedEarlyWarning
from dplateau.plan import batches, domains, losses, schedules
from dplateau.plan.batches import Cyclic, FixedSize, FullBatch, Poisson, RandomAllocation
from dplateau.plan.domains import Box, Everywhere, L1Ball, L2Ball, Simplex
from dplateau.plan.losses import Huber, Logistic, SmoothedHinge, SmoothedPinball, Softmax
from dplateau.plan.plan import Plan

__version__ = "0.1.0"

# Loaded on first use, so that `import dplateau` stays quick: name -> module that defines it.
_LAZY = {
    "Guarantee": "dplateau.accounting.guarantee",
    "account": "dplateau.accounting.guarantee",
    "calibrate": "dplateau.accounting.calibration",
    "most_iterations": "dplateau.accounting.calibration",
    "largest_radius": "dplateau.accounting.calibration",
    "lower_bound": "dplateau.accounting.lower.lower",
    "run": "dplateau.training.run",
    "run_many": "dplateau.training.run",
    "release": "dplateau.training.run",
    "Release": "dplateau.training.run",
    "suggest_plan": "dplateau.estimators.planner",
    "PublicTableEncoder": "dplateau.tables.encoding",
    "check_schema": "dplateau.tables.checking",
    "load_model": "dplateau.tables.table_model",
    "PrivateLogisticRegression": "dplateau.estimators",
    "PrivateLinearRegression": "dplateau.estimators",
    "PrivateLinearSVC": "dplateau.estimators",
    "PrivateQuantileRegressor": "dplateau.estimators",
    "PrivateSearch": "dplateau.estimators",
    "Certificate": "dplateau.certificate.record",
    "audit": "dplateau.auditing",
    "Ledger": "dplateau.ledger",
}
_LAZY_MODULES = {"published": "dplateau.accounting.published", "plots": "dplateau.report.plots"}


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        value = getattr(import_module(_LAZY[name]), name)
    elif name in _LAZY_MODULES:
        value = import_module(_LAZY_MODULES[name])
    else:
        raise AttributeError(f"module 'dplateau' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY, *_LAZY_MODULES})


__all__ = [  # noqa: RUF022 (the order in which a plan is written)
    "Plan",
    "FullBatch",
    "Cyclic",
    "FixedSize",
    "Poisson",
    "RandomAllocation",
    "batches",
    "domains",
    "losses",
    "schedules",
    "Everywhere",
    "L2Ball",
    "Box",
    "L1Ball",
    "Simplex",
    "Logistic",
    "Softmax",
    "Huber",
    "SmoothedHinge",
    "SmoothedPinball",
    "PlanError",
    "DataError",
    "PrivacyWarning",
    "StoppedEarlyWarning",
]
