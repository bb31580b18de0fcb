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
_DIVISOR = "sums are divided by the public number of records: a row given twice is another plan"
_LARGE = "weights above 1 are refused unless largest_weight states a public maximum"
EXPECTED_FAILED_CHECKS = {
    "check_estimators_nan_inf": _NOT_FINITE,
    "check_supervised_y_no_nan": _NOT_FINITE,
    "check_all_zero_sample_weights_error": "weights are private: an error would tell about them",
    "check_sample_weight_equivalence_on_dense_data": _DIVISOR,
    "check_sample_weight_equivalence_on_sparse_data": _DIVISOR,
    "check_sample_weights_list": _LARGE,
    "check_sample_weights_not_overwritten": _LARGE,
    "check_class_weight_classifiers": "its rows are far longer than data_norm, which training "
    "scales them down to: their scores outweigh the constant term that class weights move",
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
