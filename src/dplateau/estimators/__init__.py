"""scikit-learn estimators: thin layers over `suggest_plan` and `release`."""

from dplateau.estimators.classification import PrivateLinearSVC, PrivateLogisticRegression
from dplateau.estimators.regression import PrivateLinearRegression, PrivateQuantileRegressor
from dplateau.estimators.search import PrivateSearch
from dplateau.estimators.surroundings import PrivacyWarning

_CERTAIN = (
    "tables that differ in one record would be told apart with certainty, by the error on one of "
    "them: no epsilon holds at any delta below 1. "
)
_NOT_FINITE = _CERTAIN + "A record that is not finite contributes nothing."
_DIVISOR = (
    "sums are divided by the public number of records, which a row given twice changes: passes "
    "with neighboring_relation='add_or_remove_one', records= and largest_weight= stated"
)
_LARGE = "weights above 1 are refused: passes with largest_weight=, a public maximum, stated"

# For `sklearn.utils.estimator_checks.check_estimator(model, expected_failed_checks=...)`, where the
# declared classes are those of the checks. A label outside them is refused, so with other classes
# the checks that use such labels fail as well.
IMPOSSIBLE_CHECKS = {
    "check_estimators_nan_inf": _NOT_FINITE,
    "check_supervised_y_no_nan": _NOT_FINITE,
    "check_all_zero_sample_weights_error": _CERTAIN + "Weights are part of the record.",
}
CHECKS_THAT_NEED_FACTS = {
    "check_sample_weight_equivalence_on_dense_data": _DIVISOR,
    "check_sample_weight_equivalence_on_sparse_data": _DIVISOR,
    "check_sample_weights_list": _LARGE,
    "check_sample_weights_not_overwritten": _LARGE,
    "check_class_weight_classifiers": "its rows are longer than data_norm, which training scales "
    "them down to: passes with data_norm=100, which is true of them, stated",
}
EXPECTED_FAILED_CHECKS = IMPOSSIBLE_CHECKS | CHECKS_THAT_NEED_FACTS

__all__ = [
    "CHECKS_THAT_NEED_FACTS",
    "EXPECTED_FAILED_CHECKS",
    "IMPOSSIBLE_CHECKS",
    "PrivacyWarning",
    "PrivateLinearRegression",
    "PrivateLinearSVC",
    "PrivateLogisticRegression",
    "PrivateQuantileRegressor",
    "PrivateSearch",
]
