"""scikit-learn estimators: thin layers over `suggest_plan` and `release`."""

from dplateau.estimators.classification import PrivateLinearSVC, PrivateLogisticRegression
from dplateau.estimators.regression import PrivateLinearRegression, PrivateQuantileRegressor
from dplateau.estimators.search import PrivateSearch
from dplateau.estimators.surroundings import PrivacyWarning

_NOT_FINITE = (
    "a record that is not finite contributes nothing: an error would be a release about it"
)

# For `sklearn.utils.estimator_checks.check_estimator(model, expected_failed_checks=...)`, where the
# declared classes are those of the checks. A label outside them is refused, so with other classes
# the checks that use such labels fail as well.
EXPECTED_FAILED_CHECKS = {
    "check_estimators_nan_inf": _NOT_FINITE,
    "check_supervised_y_no_nan": _NOT_FINITE,
}

__all__ = [
    "EXPECTED_FAILED_CHECKS",
    "PrivacyWarning",
    "PrivateLinearRegression",
    "PrivateLinearSVC",
    "PrivateLogisticRegression",
    "PrivateQuantileRegressor",
    "PrivateSearch",
]
