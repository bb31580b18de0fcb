"""scikit-learn estimators: thin layers over `suggest_plan` and `release`."""

from dplateau.estimators.classification import PrivateLinearSVC, PrivateLogisticRegression
from dplateau.estimators.regression import PrivateLinearRegression, PrivateQuantileRegressor
from dplateau.estimators.surroundings import PrivacyWarning

__all__ = [
    "PrivacyWarning",
    "PrivateLinearRegression",
    "PrivateLinearSVC",
    "PrivateLogisticRegression",
    "PrivateQuantileRegressor",
]
