"""Certified models as others run them: plain scikit-learn estimators, ONNX graphs.

Inputs are feature rows as the estimator reads them; a table's encoding is in ``model.json``.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from sklearn.compose import TransformedTargetRegressor
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.svm import LinearSVC

from dplateau.errors import DataError

MARK = "dplateau_certificate"


def sklearn_model(estimator: Any, digest: str) -> Any:
    """A plain fitted estimator that predicts the same, the certificate's digest on it.

    Classifiers become `LogisticRegression` or `LinearSVC`; regressors `LinearRegression`, in a
    `TransformedTargetRegressor` that keeps predictions within the target's bounds.
    """
    name = type(estimator).__name__
    features = int(estimator.n_features_in_)
    if name in ("PrivateLogisticRegression", "PrivateLinearSVC"):
        plain = LogisticRegression() if name == "PrivateLogisticRegression" else LinearSVC()
        plain.classes_ = np.array(estimator.classes_)
        plain.coef_ = np.array(estimator.coef_)
        plain.intercept_ = np.array(estimator.intercept_)
        plain.n_iter_ = np.array([estimator.n_iter_])
        plain.n_features_in_ = features
    elif hasattr(estimator, "target_bounds"):
        low, high = map(float, estimator.target_bounds)
        plain = TransformedTargetRegressor(
            LinearRegression(),
            func=np.positive,
            inverse_func=functools.partial(np.clip, a_min=low, a_max=high),
            check_inverse=False,
        ).fit(np.zeros((1, features)), np.zeros(1))  # made up: for all that is not the weights
        plain.regressor_.coef_ = np.array(estimator.coef_)
        plain.regressor_.intercept_ = float(estimator.intercept_)
    else:
        raise DataError(f"{name} has no plain scikit-learn kin.")
    setattr(plain, MARK, digest)
    return plain


def onnx_model(estimator: Any, digest: str) -> bytes:
    """An ONNX graph: ``features`` to ``prediction``, and ``probabilities`` where there are any.

    The certificate's digest is in the model's metadata. Sums are made in double precision.
    """
    try:
        from onnx import TensorProto, checker, helper
    except ImportError:
        raise DataError("ONNX needs: pip install 'dplateau[export]'.") from None
    made = _Graph(helper, TensorProto)
    scores = made.scores(np.atleast_2d(estimator.coef_), np.atleast_1d(estimator.intercept_))
    if hasattr(estimator, "classes_"):
        outputs = [made.labels(scores, np.asarray(estimator.classes_))]
        if hasattr(estimator, "predict_proba"):
            outputs.append(made.probabilities(scores, estimator))
    else:
        outputs = [made.clipped(scores, *map(float, estimator.target_bounds))]
    features = helper.make_tensor_value_info(
        "features", TensorProto.FLOAT, ["rows", int(estimator.n_features_in_)]
    )
    graph = helper.make_graph(made.nodes, "dplateau", [features], outputs, made.constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    helper.set_model_props(model, {MARK: digest})
    checker.check_model(model)
    return bytes(model.SerializeToString())


class _Graph:
    """The few nodes of a linear model."""

    def __init__(self, helper: Any, kinds: Any) -> None:
        self._helper, self._kinds = helper, kinds
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def _add(self, kind: str, inputs: list[str], **options: Any) -> str:
        name = f"{kind.lower()}{len(self.nodes)}"
        self.nodes.append(self._helper.make_node(kind, inputs, [name], **options))
        return name

    def _constant(self, values: Any) -> str:
        array = np.asarray(values)
        name = f"constant{len(self.constants)}"
        kinds = {"f": self._kinds.DOUBLE, "i": self._kinds.INT64, "b": self._kinds.BOOL}
        kind = kinds.get(array.dtype.kind, self._kinds.STRING)
        held = array.ravel().tolist()
        held = [str(v).encode() for v in held] if kind == self._kinds.STRING else held
        self.constants.append(self._helper.make_tensor(name, kind, array.shape, held))
        return name

    def _output(self, name: str, found: str, kind: Any, shape: list[Any]) -> Any:
        self.nodes.append(self._helper.make_node("Identity", [found], [name]))
        return self._helper.make_tensor_value_info(name, kind, shape)

    def scores(self, weights: Any, intercept: Any) -> str:
        """``features @ weights.T + intercept``."""
        doubled = self._add("Cast", ["features"], to=self._kinds.DOUBLE)
        found = self._add("MatMul", [doubled, self._constant(np.array(weights, float).T)])
        return self._add("Add", [found, self._constant(np.array(intercept, float))])

    def labels(self, scores: str, classes: Any) -> Any:
        """The class with the highest score; of two, the second if its score is positive."""
        if len(classes) == 2:
            above = self._add("Greater", [scores, self._constant(np.array([0.0]))])
            column = self._add("Cast", [above], to=self._kinds.INT64)
            place = self._add("Squeeze", [column, self._constant(np.array([1]))])
        else:
            place = self._add("ArgMax", [scores], axis=1, keepdims=0)
        found = self._add("Gather", [self._constant(classes), place])
        kinds = {"f": self._kinds.DOUBLE, "i": self._kinds.INT64, "b": self._kinds.BOOL}
        kind = kinds.get(classes.dtype.kind, self._kinds.STRING)
        return self._output("prediction", found, kind, ["rows"])

    def probabilities(self, scores: str, estimator: Any) -> Any:
        """As `predict_proba`: a softmax, or the balance of two pulls that were clipped."""
        if len(estimator.classes_) > 2:
            found = self._add("Softmax", [scores], axis=1)
        else:
            most = self._largest_pull(estimator)
            away = self._add("Min", [self._add("Sigmoid", [scores]), most])
            turned = self._add("Neg", [scores])
            towards = self._add("Min", [self._add("Sigmoid", [turned]), most])
            pulls = self._add("Concat", [towards, away], axis=1)
            total = self._add("Add", [towards, away])
            found = self._add("Div", [pulls, total])
        size = len(estimator.classes_)
        return self._output("probabilities", found, self._kinds.DOUBLE, ["rows", size])

    def _largest_pull(self, estimator: Any) -> str:
        """What a row's slope was clipped at in training: the clip over the row's bounded norm."""
        plan = estimator.plan_
        limit = float("inf") if plan.loss.clip is None else float(plan.loss.clip)
        doubled = self._add("Cast", ["features"], to=self._kinds.DOUBLE)
        if hasattr(estimator, "scaling_"):
            scaling = np.asarray(estimator.scaling_, dtype=float)
            moved = self._add("Sub", [doubled, self._constant(scaling[:, 0])])
            doubled = self._add("Div", [moved, self._constant(scaling[:, 1])])
            if scaling.shape[1] > 2:
                doubled = self._add("MatMul", [doubled, self._constant(scaling[:, 2:].T)])
        squares = self._add("Mul", [doubled, doubled])
        square = self._add("ReduceSum", [squares, self._constant(np.array([1]))], keepdims=1)
        bounded = self._add("Min", [square, self._constant(np.array([float(plan.data_norm) ** 2]))])
        whole = self._add(
            "Add", [bounded, self._constant(np.array([float(plan.loss.intercept) ** 2 + 1e-300]))]
        )
        return self._add("Div", [self._constant(np.array([limit])), self._add("Sqrt", [whole])])

    def clipped(self, scores: str, low: float, high: float) -> Any:
        """Targets within their public bounds."""
        bounds = [self._constant(np.array(bound)) for bound in (low, high)]
        found = self._add("Clip", [scores, *bounds])
        flat = self._add("Squeeze", [found, self._constant(np.array([1]))])
        return self._output("prediction", flat, self._kinds.DOUBLE, ["rows"])
