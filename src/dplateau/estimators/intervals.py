"""Confidence intervals that count sampling and privacy noise (theory, section 23).

A share of the budget buys noisy sums at the released weights; one Newton step from there, made
twice against its own ridge, undoes early stopping, clipped gradients and penalties. Everything
here is computed from what was released and from the plan.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri
from sklearn.utils.validation import check_is_fitted

from dplateau._validate import probability
from dplateau.accounting.moments import Moments
from dplateau.accounting.privacy_loss.conversions import gdp_of
from dplateau.accounting.spending import PrivacyBudget
from dplateau.errors import PlanError
from dplateau.estimators.scaling import mapped
from dplateau.training.sandwich import Sandwich

Array = NDArray[np.float64]

SHARE = 0.3  # of the budget's mu**2, where ``intervals=True``
MOST_WEIGHTS = 2000
_RIDGE = 0.5  # of the curvature noise's largest eigenvalue, about sqrt(2 weights) deviations
_ROWS = 4096  # that are made dense at a time


def bought_moments(
    share: float | bool,
    weights: int,
    norm: float,
    relation: str,
    budget: PrivacyBudget,
) -> Moments | None:
    """What to buy for a share of the budget; None where none is asked for."""
    if share is False or share == 0:
        return None
    share = SHARE if share is True else share
    if not (isinstance(share, (int, float)) and 0 < share < 1):
        raise PlanError(
            f"intervals must be a share of the budget between 0 and 1, or True for {SHARE:g}; "
            f"found {share!r}."
        )
    if budget.epsilon is None:
        raise PlanError(
            "confidence intervals take a share of a budget: give epsilon in place of "
            "noise_multiplier, or leave intervals out."
        )
    if weights > MOST_WEIGHTS:
        raise PlanError(
            f"confidence intervals are for at most {MOST_WEIGHTS} weights; there are {weights}. "
            "Use fewer features, or leave intervals out."
        )
    return Moments(math.sqrt(share) * gdp_of(budget.epsilon, budget.delta), relation, norm)


@dataclass(frozen=True, eq=False)
class Intervals:
    """A confidence interval for every coefficient, and for the intercept if there is one.

    Attributes
    ----------
    names : list of str
        The features', then "(intercept)".
    released : ndarray
        The model's own coefficients, chosen to predict well under the noise: early stopping and
        penalties draw them to 0, clipped gradients stretch them.
    estimate : ndarray
        What the intervals are around: the coefficients with early stopping, penalty and clipped
        gradients undone.
    standard_error : ndarray
        Of the estimate, by sampling and privacy noise together.
    low, high : ndarray
        The ends.
    level : float
        The chance with which each interval, taken by itself, covers.
    """

    names: list[str]
    released: Array
    estimate: Array
    standard_error: Array
    low: Array
    high: Array
    level: float

    @property
    def coef_(self) -> Array:
        """The features' intervals, shape (features, 2)."""
        ends = np.column_stack([self.low, self.high])
        return ends[:-1] if self.names[-1:] == [INTERCEPT] else ends

    @property
    def intercept_(self) -> Array | None:
        """The intercept's interval; None where there is no intercept."""
        if self.names[-1:] != [INTERCEPT]:
            return None
        return np.array([self.low[-1], self.high[-1]])

    def __str__(self) -> str:
        wide = max(len(name) for name in self.names)
        head = f"{'':{wide}}  {'released':>10} {'estimate':>10} {'low':>10} {'high':>10}"
        rows = zip(self.names, self.released, self.estimate, self.low, self.high, strict=True)
        lines = [
            f"{name:{wide}}  " + " ".join(f"{value:>10.4g}" for value in row) for name, *row in rows
        ]
        return "\n".join([head, *lines])


INTERCEPT = "(intercept)"


@dataclass(frozen=True, eq=False)
class Inference:
    """The law of the estimate, from the released weights and sums.

    See docs/theory.md#section-23.

    Attributes
    ----------
    estimate : ndarray
        Of the weights that minimise the expected loss.
    covariance : ndarray
        Of its sampling and privacy noise.
    ridge : ndarray
        The matrix whose product with the estimate is what the ridge may still hide.
    """

    estimate: Array
    covariance: Array
    ridge: Array

    @classmethod
    def of(cls, weights: Array, sums: Sandwich, noise: tuple[float, float, float]) -> Inference:
        """By section 23; ``noise`` holds the deviations on gradient, curvature and spread."""
        size, (of_gradient, of_curvature, _) = weights.size, noise
        identity = np.eye(size)
        curvature, spread = _semidefinite(sums.curvature), _semidefinite(sums.spread)
        penalty = _RIDGE * of_curvature * math.sqrt(2 * size)
        inverse = np.linalg.inv(curvature + penalty * identity)
        step = (identity + penalty * inverse) @ inverse
        estimate = step @ (curvature @ weights - sums.gradient)
        moved = estimate - weights
        noisy_product = (moved @ moved) * identity + np.outer(moved, moved)
        middle = spread + of_gradient**2 * identity + of_curvature**2 / 2 * noisy_product
        hidden = penalty**2 * inverse @ inverse
        return cls(estimate, step @ middle @ step.T, hidden)

    def about(self, contrasts: Array, level: float) -> tuple[Array, Array, Array]:
        """Estimates, standard errors and half widths of linear functions of the weights."""
        errors = np.sqrt(np.einsum("ij,jk,ik->i", contrasts, self.covariance, contrasts))
        quantile = ndtri((1 + probability("level", level)) / 2)
        widths = quantile * errors + np.abs(contrasts @ (self.ridge @ self.estimate))
        return contrasts @ self.estimate, errors, widths


def _semidefinite(matrix: Array) -> Array:
    """The nearest matrix without a negative eigenvalue."""
    values, vectors = np.linalg.eigh(matrix)
    return np.asarray((vectors * np.maximum(values, 0.0)) @ vectors.T)


class IntervalsMixin:
    """`confidence_intervals` and `predict_interval` of an estimator trained with ``intervals``."""

    moments_: Sandwich | None = None

    def confidence_intervals(self, level: float = 0.95) -> Intervals:
        """Intervals for the coefficients that count both sampling and privacy noise.

        They are about the weights that minimise the expected loss of the records as clipped to
        ``data_norm`` (where only ``feature_bounds`` are given, to the longest row within them) and
        to the target bounds: without penalty, early stopping or clipped gradients.
        Where the model holds (a logistic regression's odds, a regression with symmetric errors)
        these are its true coefficients; where it does not, the best approximation, and the
        intervals still hold. Directions that the noise hides are drawn to 0, and the interval is
        widened by what that hides. Needs ``intervals=True`` before the fit.

        Parameters
        ----------
        level : float, default 0.95
            The chance with which each interval, taken by itself, covers.
        """
        model: Any = self
        inference = self._inference()
        # A coefficient is the score of a unit row less that of the zero row.
        units = np.vstack([np.eye(model.n_features_in_), np.zeros(model.n_features_in_)])
        rows = self._trained_rows(units)
        contrasts = rows - rows[-1]
        contrasts[-1] = rows[-1]
        offset, factor = self._in_units()
        estimate, errors, widths = (
            factor * part for part in inference.about(contrasts[: self._told()], level)
        )
        released = factor * (contrasts[: self._told()] @ model.weights_)
        names = [*map(str, self._feature_names()), INTERCEPT][: self._told()]
        if names[-1] == INTERCEPT:
            estimate[-1] += offset
            released[-1] += offset
        return Intervals(
            names, released, estimate, errors, estimate - widths, estimate + widths, level
        )

    def predict_interval(self, X: Any, level: float = 0.95) -> Array:
        """For every row an interval, shape (rows, 2), for what is predicted on average.

        The probability of the second class, a regression's mean (or quantile), a support vector
        machine's score: not for a single record's own outcome, which varies around it.
        """
        inference = self._inference()
        model: Any = self
        X = model._features(X)
        offset, factor = self._in_units()
        found = [np.empty((0, 2))]
        for lower in range(0, X.shape[0], _ROWS):
            block = X[lower : lower + _ROWS]
            rows = self._trained_rows(block.toarray() if hasattr(block, "toarray") else block)
            estimate, _, widths = inference.about(rows, level)
            ends = np.column_stack([estimate - widths, estimate + widths])
            found.append(self._as_predicted(offset + factor * ends))
        return np.vstack(found)

    def _inference(self) -> Inference:
        model: Any = self
        check_is_fitted(model)
        if getattr(model, "moments_", None) is None:
            raise PlanError(
                "this model was trained without what confidence intervals are computed from. "
                "Train with intervals=True (--intervals 0.3): a share of the budget buys it."
            )
        bought = model.certificate_.bought.moments
        return Inference.of(model.weights_, model.moments_, bought.noise(model.plan_))

    def _trained_rows(self, X: Array) -> Array:
        """Rows as the weights are multiplied with them: scaled, with the intercept's feature."""
        model: Any = self
        rows = mapped(X, model.scaling_) if hasattr(model, "scaling_") else X
        constant = np.full((len(rows), 1 if model._constant else 0), model._constant)
        return np.hstack([np.asarray(rows, dtype=np.float64), constant])

    def _told(self) -> int:
        """Coefficients that there are, the intercept's included."""
        model: Any = self
        return int(model.n_features_in_) + bool(model._constant)

    def _feature_names(self) -> list[str]:
        model: Any = self
        named = getattr(model, "feature_names_in_", None)
        return [f"x{k}" for k in range(model.n_features_in_)] if named is None else list(named)

    def _in_units(self) -> tuple[float, float]:
        """What a score is multiplied by and added to, to be in the units of the target."""
        return 0.0, 1.0

    def _as_predicted(self, ends: Array) -> Array:
        """Intervals of scores as intervals of what is predicted."""
        return ends
