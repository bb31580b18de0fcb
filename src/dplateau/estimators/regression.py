"""Private regression: the mean, by a loss with bounded residuals, and quantiles."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.base import RegressorMixin

from dplateau._validate import as_number
from dplateau.errors import PlanError
from dplateau.estimators.base import Array, PrivateLinearModel
from dplateau.estimators.evaluation import Question, quantile, regression
from dplateau.estimators.inputs import as_numbers, numbers_or_none
from dplateau.plan.losses import Huber, Loss, SmoothedPinball


@dataclass(kw_only=True, eq=False, repr=False)
class PrivateLinearRegressor(RegressorMixin, PrivateLinearModel):
    """What the regressors share: targets clipped to public bounds and trained on as [-1, 1]."""

    _lengths_count: ClassVar[bool] = True
    target_bounds: Sequence[float] | None = None

    def _range(self) -> tuple[float, float]:
        """Middle and half width of the target bounds."""
        if self.target_bounds is None:
            raise PlanError(
                "target_bounds is missing: a public interval that targets are clipped to, such as "
                "target_bounds=(0, 100). Never read it off the data."
            )
        try:
            low, high = (as_number("target_bounds", bound) for bound in self.target_bounds)
        except (TypeError, ValueError):
            low = high = np.nan
        if not (np.isfinite(low) and np.isfinite(high) and low < high):
            raise PlanError(
                "target_bounds must be two finite numbers, the lower one first; "
                f"found {self.target_bounds!r}."
            )
        return (low + high) / 2, (high - low) / 2

    def _check_facts(self) -> None:
        super()._check_facts()
        self._range()

    def _targets(self, y: NDArray[Any]) -> Array:
        """In [-1, 1], clipped to the bounds; NaN where there is no finite target."""
        middle, half = self._range()
        targets = as_numbers(y)
        targets = np.where(np.isfinite(targets), (targets - middle) / half, np.nan)
        return np.clip(targets, -1.0, 1.0)

    def _facts(self) -> dict[str, Any]:
        return {**super()._facts(), "target_bounds": [float(bound) for bound in self.target_bounds]}  # type: ignore[union-attr]

    def _question(self, X: Any, y: Any) -> Question:
        targets, predicted, half = self._compared(X, y)
        return regression(targets, predicted, half)

    def _compared(self, X: Any, y: Any) -> tuple[Array, Array, float]:
        """Targets (NaN where there is none) and predictions in [-1, 1], and what 1 stands for."""
        middle, half = self._range()
        targets = np.clip((numbers_or_none(y) - middle) / half, -1.0, 1.0)
        return targets, (self.predict(X) - middle) / half, half

    # Read off the certified weights each time: what predicts cannot differ from what was hashed.

    @property
    def coef_(self) -> Array:
        """The features' weights, in the scale of the target."""
        return self._linear()[0]

    def _linear(self) -> tuple[Array, float]:
        weights, (middle, half) = self.weights_, self._range()
        constant = middle + float(weights[-1]) * half * self._constant
        own = (weights[:-1] if self._constant else weights) * half
        coefficients, constant = self._as_came(own, constant)
        return coefficients, float(constant)

    @property
    def intercept_(self) -> float:
        """The constant term."""
        return self._linear()[1]

    def _in_units(self) -> tuple[float, float]:
        return self._range()

    def _as_predicted(self, ends: Array) -> Array:
        middle, half = self._range()
        return np.clip(ends, middle - half, middle + half)

    def predict(self, X: Any) -> Array:
        """The predicted targets, within ``target_bounds``."""
        middle, half = self._range()
        return np.clip(self._scores(X), middle - half, middle + half)


@dataclass(kw_only=True, eq=False, repr=False)
class PrivateLinearRegression(PrivateLinearRegressor):
    """Differentially private linear regression with clipped residuals.

    Facts, budget, attributes and what is left out on purpose: as in `PrivateLogisticRegression`,
    with ``target_bounds`` in place of ``classes``.

    Parameters
    ----------
    target_bounds : (float, float)
        Required. A public interval that targets are clipped to.
    residual_clip : float, default 0.25
        Residuals count in full up to this share of half the target range; a smaller one needs
        less noise and is more robust.

    Examples
    --------
    >>> model = PrivateLinearRegression(epsilon=1.0, delta=1e-6, data_norm=1.0,
    ...                                 target_bounds=(0, 100))
    >>> model.plan(n_samples=10_000, n_features=20).loss.kind
    'huber'
    """

    _mean_counts: ClassVar[bool] = True
    residual_clip: float = 0.25

    def _loss(self) -> Loss:
        self._range()
        return Huber(intercept=self._intercept(), threshold=self.residual_clip)


@dataclass(kw_only=True, eq=False, repr=False)
class PrivateQuantileRegressor(PrivateLinearRegressor):
    """Differentially private quantile regression with a smoothed pinball loss.

    Facts, budget, attributes and what is left out on purpose: as in `PrivateLogisticRegression`,
    with ``target_bounds`` in place of ``classes``.

    Parameters
    ----------
    target_bounds : (float, float)
        Required. A public interval that targets are clipped to.
    quantile : float, default 0.5
        Which quantile to predict.
    width : float, default 0.1
        Over which the loss's corner is rounded, as a share of half the target range.

    Examples
    --------
    >>> model = PrivateQuantileRegressor(epsilon=1.0, delta=1e-6, data_norm=1.0,
    ...                                  target_bounds=(0, 100), quantile=0.9)
    >>> model.plan(n_samples=10_000, n_features=20).loss.kind
    'smoothed_pinball'
    """

    quantile: float = 0.5
    width: float = 0.1

    def _question(self, X: Any, y: Any) -> Question:
        return quantile(*self._compared(X, y), self.quantile)

    def _loss(self) -> Loss:
        self._range()
        return SmoothedPinball(
            intercept=self._intercept(), quantile=self.quantile, width=self.width
        )
