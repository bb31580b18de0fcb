"""Private classifiers: logistic regression in two or more classes, and the support vector machine.

There is no ``warm_start``, ``partial_fit``, ``early_stopping``, ``average`` or ``verbose``: each
would show or use an iterate other than the last, which is all that the certificate covers.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, softmax
from sklearn.base import ClassifierMixin
from sklearn.utils.extmath import row_norms
from sklearn.utils.multiclass import check_classification_targets, type_of_target

from dplateau._validate import non_negative
from dplateau.errors import DataError, PlanError
from dplateau.estimators.base import Array, PrivateLinearModel
from dplateau.estimators.evaluation import Question, classification, positions
from dplateau.estimators.inputs import present
from dplateau.estimators.scaling import mapped
from dplateau.plan.losses import Logistic, Loss, SmoothedHinge, Softmax
from dplateau.training.targets import Encoded, which_exist

_PIECE = 1 << 22  # targets that are looked at together


@dataclass(kw_only=True, eq=False, repr=False)
class PrivateLinearClassifier(ClassifierMixin, PrivateLinearModel):
    """What the classifiers share: declared classes, and scores that choose among them."""

    classes: Sequence[Any] | None = None
    class_weight: Mapping[Any, float] | None = None

    def _weights(self, y: NDArray[Any], sample_weight: Any) -> Array | None:
        """Rows' weights times the public one of their class."""
        weights, by_class = super()._weights(y, sample_weight), self._class_weights()
        if by_class is None:
            return weights
        if isinstance(y, Encoded):
            raise PlanError("class_weight does not go with a table in scratch space. Leave it out.")
        found = np.zeros(len(y))
        for label, weight in by_class.items():
            found[np.asarray(y == label, dtype=bool)] = weight
        return found if weights is None else weights * found

    def _class_weights(self) -> dict[Any, float] | None:
        """Every class's factor in [0, 1]; numbers above 1 are public, so the largest is made 1."""
        if self.class_weight is None:
            return None
        if not isinstance(self.class_weight, Mapping):
            raise PlanError(
                f"class_weight must give public numbers, such as {{0: 0.2, 1: 1.0}}; found "
                f"{self.class_weight!r}. Weights made from how often classes occur would tell it."
            )
        labels = self._labels()
        unknown = [label for label in self.class_weight if label not in labels]
        if unknown:
            raise PlanError(f"class_weight names {unknown[0]!r}, which is not among classes.")
        given = {
            label: non_negative("class_weight", self.class_weight.get(label, 1.0))
            for label in labels
        }
        top = max(1.0, *given.values())
        return {label: weight / top for label, weight in given.items()}

    def _check_facts(self) -> None:
        super()._check_facts()
        self._labels()

    def _labels(self) -> tuple[Any, ...]:
        """The declared classes in sorted order, so that their order in the call says nothing."""
        if self.classes is None:
            raise PlanError(
                "classes is missing: which labels may occur is a fact to declare, such as "
                "classes=[0, 1]. Reading it off the data would tell whether a rare label occurs."
            )
        if isinstance(self.classes, str) or not isinstance(self.classes, Iterable):
            raise PlanError(
                "classes must be a list of the labels that may occur, such as classes=[0, 1]; "
                f"found {self.classes!r}."
            )
        labels = [c.item() if isinstance(c, np.generic) else c for c in self.classes]
        if len(labels) < 2:
            raise PlanError(
                f"classes must hold two labels or more; found {labels!r}. Declare every label that "
                "may occur (the target's categories in a schema)."
            )
        try:
            return tuple(sorted(labels))
        except TypeError:  # mixed types have no order
            return tuple(labels)

    def _targets(self, y: NDArray[Any]) -> NDArray[Any]:
        if y.dtype.kind in "iub":  # whole numbers are classes
            return y
        for piece in np.split(y, range(_PIECE, len(y), _PIECE)):
            if which_exist(piece).any():
                with (
                    warnings.catch_warnings()
                ):  # its warning compares classes with the rows' number
                    warnings.simplefilter("ignore")
                    check_classification_targets(present(piece))
        return y

    def _settle(self) -> None:
        self.classes_ = np.array(self._labels())

    def _question(self, X: Any, y: NDArray[Any]) -> Question:
        true = positions(y, self.classes_.tolist())
        predicted = positions(self.predict(X), self.classes_.tolist())
        return classification(true, predicted, self._chances(X, predicted), len(self.classes_))

    def _chances(self, X: Any, predicted: NDArray[np.intp]) -> Array | None:
        """Probabilities, of the second of two classes or of the predicted one."""
        return None

    # Read off the certified weights each time: what predicts cannot differ from what was hashed.

    @property
    def coef_(self) -> Array:
        """The features' weights, one row per score."""
        return self._linear()[0]

    def _linear(self) -> tuple[Array, Array]:
        per_class = self.weights_.reshape(len(self.weights_), -1).T
        weights = np.array(per_class[:, :-1] if self._constant else per_class, order="C")
        last = per_class[:, -1] * self._constant if self._constant else np.zeros(len(per_class))
        return self._as_came(weights, last)

    @property
    def intercept_(self) -> Array:
        """The constant term of every score."""
        return self._linear()[1]

    def decision_function(self, X: Any) -> Array:
        """Scores: one per row in two classes (positive means the second), else one per class."""
        scores = self._scores(X)
        return scores.ravel() if len(self.classes_) == 2 else scores

    def predict(self, X: Any) -> NDArray[Any]:
        """The class with the highest score."""
        scores = self.decision_function(X)
        winners = (scores > 0).astype(int) if scores.ndim == 1 else scores.argmax(axis=1)
        return np.asarray(self.classes_[winners])


@dataclass(kw_only=True, eq=False, repr=False)
class PrivateLogisticRegression(PrivateLinearClassifier):
    """Differentially private logistic regression, in two classes or many.

    Required are ``delta``, ``data_norm``, ``classes`` and one of ``epsilon`` and
    ``noise_multiplier``: public facts and the budget. Everything else has a default that the
    planner chooses from them.

    There is no ``warm_start``, ``partial_fit``, ``early_stopping``, ``average`` or ``verbose``:
    each would show or use an iterate other than the last, which is all the certificate covers.

    Parameters
    ----------
    classes : sequence
        The labels that may occur, in any order.
    class_weight : mapping, optional
        A public number for each class that its records' losses are multiplied by (1 where none is
        given); numbers above 1 are all divided by the largest.

    Attributes
    ----------
    coef_, intercept_ : ndarray
        The released weights, in the scale of the features.
    classes_ : ndarray
        The declared classes, sorted.
    n_iter_ : int
        Steps run.
    plan_ : Plan
        The plan as executed.
    certificate_ : Certificate
        What is promised about the released weights.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.preprocessing import normalize
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> model = PrivateLogisticRegression(epsilon=4.0, delta=1e-6, data_norm=1.0, classes=[0, 1])
    >>> model.fit(normalize(X), y).coef_.shape
    (1, 30)
    >>> model.certificate_.epsilon <= 4.0
    True
    """

    def _loss(self) -> Loss:
        labels = self._labels()
        if len(labels) == 2:
            return Logistic(intercept=self._intercept(), classes=labels)
        return Softmax(intercept=self._intercept(), classes=labels)

    def predict_proba(self, X: Any) -> Array:
        """Probabilities of the classes, in the order of ``classes_``.

        Clipped gradients shift the scores that a probability belongs to. In two classes this is
        undone: at the best score ``m`` for probability ``p`` the pulls of both classes balance,
        ``p * slope(m) = (1 - p) * slope(-m)``, with the slopes as clipped in training.
        """
        scores = self.decision_function(X)
        if scores.ndim == 2:
            return np.asarray(softmax(scores, axis=1))
        loss, data_norm = self.plan_.loss, self.plan_.data_norm
        assert loss is not None
        assert data_norm is not None
        rows = self._features(X)
        if hasattr(self, "scaling_"):
            rows = mapped(rows, self.scaling_)
        norms = np.minimum(row_norms(rows), data_norm)
        limit = np.inf if loss.clip is None else loss.clip
        limit = limit / np.maximum(np.hypot(norms, loss.intercept), np.finfo(float).tiny)
        up, down = np.minimum(expit(-scores), limit), np.minimum(expit(scores), limit)
        positive = down / (up + down)
        return np.column_stack([1.0 - positive, positive])

    def _as_predicted(self, ends: Array) -> Array:
        return np.asarray(expit(ends))

    def _chances(self, X: Any, predicted: NDArray[np.intp]) -> Array | None:
        chances = self.predict_proba(X)
        if chances.shape[1] == 2:
            return np.asarray(chances[:, 1])
        return np.asarray(chances[np.arange(len(predicted)), predicted])

    def predict_log_proba(self, X: Any) -> Array:
        """The logarithm of `predict_proba`."""
        with np.errstate(divide="ignore"):
            return np.log(self.predict_proba(X))


@dataclass(kw_only=True, eq=False, repr=False)
class PrivateLinearSVC(PrivateLinearClassifier):
    """Differentially private support vector machine with a smoothed hinge, in two classes.

    Facts, budget, attributes and what is left out on purpose: as in `PrivateLogisticRegression`.

    Parameters
    ----------
    classes : sequence
        The two labels that may occur.
    class_weight : mapping, optional
        A public number for each class that its records' losses are multiplied by (1 where none is
        given); numbers above 1 are all divided by the largest.
    width : float, default 0.5
        Over which the hinge's corner is rounded.

    Examples
    --------
    >>> import numpy as np
    >>> model = PrivateLinearSVC(epsilon=1.0, delta=1e-6, data_norm=1.0, classes=["no", "yes"])
    >>> model.plan(n_samples=10_000, n_features=20).loss.kind
    'smoothed_hinge'
    """

    width: float = 0.5

    def _loss(self) -> Loss:
        labels = self._labels()
        if len(labels) != 2:
            raise PlanError(
                f"PrivateLinearSVC separates two classes; found {len(labels)}. "
                "Use PrivateLogisticRegression for more."
            )
        return SmoothedHinge(intercept=self._intercept(), classes=labels, width=self.width)

    def _records(self, X: Any, y: Any) -> tuple[Any, NDArray[Any]]:
        X, y = super()._records(X, y)
        labels = present(y)
        if labels.size and type_of_target(labels) == "multiclass":
            raise DataError(
                "Only binary classification is supported. The type of the target is multiclass. "
                "Use PrivateLogisticRegression for more classes."
            )
        return X, y

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags
