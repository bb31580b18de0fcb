"""Output perturbation: minimise exactly, add Gaussian noise once. The simplest private baseline.

Chaudhuri, Monteleoni, Sarwate (2011) in its (epsilon, delta) form: with an L2 penalty ``lam`` the
minimiser of the mean loss moves by at most ``Delta / (n lam)`` when one record changes, ``Delta``
the sensitivity of one record's gradient (2L for replace-one). The noise is the analytic Gaussian
mechanism's (Balle and Wang 2018), by dp_accounting. The solver's residual gradient is paid for.
"""

from __future__ import annotations

import math
from functools import cache

import numpy as np
from dp_accounting.pld import privacy_loss_distribution
from numpy.typing import NDArray
from scipy.optimize import brentq, minimize
from scipy.stats import norm

from benchmarks.datasets import Problem
from dplateau.plan.losses import Huber, Logistic, Loss, Softmax

WEIGHT_NORM = 10.0  # the size of weights that the default penalty is balanced for

Array = NDArray[np.float64]


def loss_of(problem: Problem) -> Loss:
    """The convex loss for the problem, with an intercept as one more feature of value 1."""
    if problem.regression:
        return Huber(threshold=1.0, intercept=1.0)
    if problem.classes == 2:
        return Logistic(intercept=1.0)
    return Softmax(classes=problem.classes, intercept=1.0)


@cache
def gaussian_noise(epsilon: float, delta: float) -> float:
    """The least noise, in units of the sensitivity, of one Gaussian release (exact)."""

    def excess(log_noise: float) -> float:
        mu = math.exp(-log_noise)
        spent = norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * norm.cdf(
            -mu / 2 - epsilon / mu
        )
        return float(spent - delta)

    noise = math.exp(brentq(excess, -4.0, 12.0, xtol=1e-10)) * (1 + 1e-6)
    pld = privacy_loss_distribution.from_gaussian_mechanism(noise)
    assert pld.get_delta_for_epsilon(epsilon) <= delta * 1.01
    return noise


def default_penalty(loss: Loss, records: int, weights: int, noise: float) -> float:
    """Balance what noise adds to the loss against what the penalty costs, from public facts.

    Noise of standard deviation ``tau = 2 L noise / (n lam)`` per weight adds about
    ``M d tau^2 / 2`` (M the smoothness); the penalty costs about ``lam WEIGHT_NORM^2 / 2``.
    """
    lipschitz, smoothness = loss.constants(1.0)
    scale = 2 * lipschitz * noise / records
    return float((2 * smoothness * weights * scale**2 / WEIGHT_NORM**2) ** (1 / 3))


def fit(
    problem: Problem,
    epsilon: float,
    delta: float,
    seeds: list[int],
    *,
    relation: str,
    factor: float = 1.0,
) -> list[Array]:
    """Private weights for every seed, each of shape (features + 1, outputs).

    The minimiser is found once and perturbed by every seed's noise; ``factor`` scales the default
    penalty.
    """
    loss = loss_of(problem)
    X = np.column_stack([problem.X_train, np.ones(len(problem.X_train))])
    targets = loss.encode_targets(problem.y_train)
    shape = (X.shape[1], loss.outputs)
    noise = gaussian_noise(epsilon, delta)
    penalty = factor * default_penalty(loss, len(X), math.prod(shape), noise)

    def objective(flat: Array) -> tuple[float, Array]:
        weights = flat.reshape(shape)
        scores = X @ weights
        scores = scores if loss.outputs > 1 else scores[:, 0]
        slopes = loss.slope(scores, targets).reshape(len(X), -1)
        value = loss.value(scores, targets).mean() + penalty / 2 * np.sum(weights**2)
        return float(value), (X.T @ slopes / len(X) + penalty * weights).ravel()

    options = {"maxiter": 500, "gtol": 1e-8, "ftol": 1e-15}
    found = minimize(
        objective, np.zeros(math.prod(shape)), jac=True, method="L-BFGS-B", options=options
    )
    residual = float(np.linalg.norm(objective(found.x)[1]))
    gradient = loss.constants(1.0).lipschitz * (2 if relation == "replace_one" else 1)
    sensitivity = (gradient / len(X) + 2 * residual) / penalty
    draws = [np.random.default_rng(seed).standard_normal(shape) for seed in seeds]
    return [found.x.reshape(shape) + noise * sensitivity * draw for draw in draws]


def score(problem: Problem, weights: Array) -> float:
    """Accuracy on the test rows, or R squared."""
    scores = problem.X_test @ weights[:-1] + weights[-1]
    if problem.regression:
        truth = problem.y_test
        return float(1 - np.mean((scores[:, 0] - truth) ** 2) / np.var(truth))
    guess = scores[:, 0] > 0 if problem.outputs == 1 else scores.argmax(axis=1)
    return float(np.mean(guess == problem.y_test))
