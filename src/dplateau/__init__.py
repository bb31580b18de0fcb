"""Private convex models, and exactly how private they are.

Train as long as you like; after a short burn-in the privacy loss of the released model stops
growing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from dplateau.errors import (
    CertificateError,
    ClusterError,
    DataError,
    PlanError,
    PrivacyWarning,
    StoppedEarlyWarning,
    UtilityWarning,
)
from dplateau.plan import batches, domains, losses, schedules
from dplateau.plan.batches import Cyclic, FixedSize, FullBatch, Poisson, RandomAllocation
from dplateau.plan.domains import Box, Everywhere, L1Ball, L2Ball, Orthant, Simplex
from dplateau.plan.losses import Huber, Logistic, SmoothedHinge, SmoothedPinball, Softmax
from dplateau.plan.plan import Plan

if TYPE_CHECKING:  # what is loaded on first use, for type checkers and editors
    from dplateau.accounting import published as published
    from dplateau.accounting.calibration import calibrate as calibrate
    from dplateau.accounting.calibration import largest_radius as largest_radius
    from dplateau.accounting.calibration import most_iterations as most_iterations
    from dplateau.accounting.guarantee import Guarantee as Guarantee
    from dplateau.accounting.guarantee import Result as Result
    from dplateau.accounting.guarantee import account as account
    from dplateau.accounting.lower.lower import lower_bound as lower_bound
    from dplateau.auditing import audit as audit
    from dplateau.certificate.issuing import release as release
    from dplateau.certificate.issuing import run as run
    from dplateau.certificate.record import Certificate as Certificate
    from dplateau.estimators import PrivateLinearRegression as PrivateLinearRegression
    from dplateau.estimators import PrivateLinearSVC as PrivateLinearSVC
    from dplateau.estimators import PrivateLogisticRegression as PrivateLogisticRegression
    from dplateau.estimators import PrivateQuantileRegressor as PrivateQuantileRegressor
    from dplateau.estimators import PrivateSearch as PrivateSearch
    from dplateau.estimators.planner import suggest_plan as suggest_plan
    from dplateau.ledger import Ledger as Ledger
    from dplateau.report import plots as plots
    from dplateau.tables.checking import check_schema as check_schema
    from dplateau.tables.encoding import PublicTableEncoder as PublicTableEncoder
    from dplateau.tables.table_model import load_model as load_model
    from dplateau.training.presample import presample as presample
    from dplateau.training.run import Release as Release
    from dplateau.training.run import run_many as run_many

__version__ = "0.2.0"

# Loaded on first use, so that `import dplateau` stays quick: name -> module that defines it.
_LAZY = {
    "Guarantee": "dplateau.accounting.guarantee",
    "account": "dplateau.accounting.guarantee",
    "calibrate": "dplateau.accounting.calibration",
    "most_iterations": "dplateau.accounting.calibration",
    "largest_radius": "dplateau.accounting.calibration",
    "lower_bound": "dplateau.accounting.lower.lower",
    "run": "dplateau.certificate.issuing",
    "run_many": "dplateau.training.run",
    "presample": "dplateau.training.presample",
    "release": "dplateau.certificate.issuing",
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
    "Result": "dplateau.accounting.guarantee",
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
    "Orthant",
    "Logistic",
    "Softmax",
    "Huber",
    "SmoothedHinge",
    "SmoothedPinball",
    "Guarantee",
    "account",
    "calibrate",
    "most_iterations",
    "largest_radius",
    "lower_bound",
    "run",
    "run_many",
    "presample",
    "release",
    "Release",
    "suggest_plan",
    "PublicTableEncoder",
    "check_schema",
    "load_model",
    "PrivateLogisticRegression",
    "PrivateLinearRegression",
    "PrivateLinearSVC",
    "PrivateQuantileRegressor",
    "PrivateSearch",
    "Certificate",
    "audit",
    "Ledger",
    "Result",
    "published",
    "plots",
    "PlanError",
    "DataError",
    "CertificateError",
    "ClusterError",
    "PrivacyWarning",
    "StoppedEarlyWarning",
    "UtilityWarning",
]
