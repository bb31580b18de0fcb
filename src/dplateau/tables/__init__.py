"""Tables: reading, public schema, encoding."""

# What `dplateau train --model` knows: a name a person would type, and the estimator it means.
MODELS = {
    "logistic": "PrivateLogisticRegression",
    "svm": "PrivateLinearSVC",
    "linear": "PrivateLinearRegression",
    "quantile": "PrivateQuantileRegressor",
}
