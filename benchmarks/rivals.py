"""Stronger rivals for convex models, written anew: what their papers do, with valid noise.

Add or remove one record, the number of rows public, rows of norm at most one. Each function takes
a problem, a budget and one setting of a grid (tuned on *test* rows by `against_rivals`: a gift) and
returns weights whose last row belongs to a constant feature of one. What a paper approximates
(a minimum, a private step size) is given here exactly and for free.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq, minimize
from scipy.special import expit
from scipy.stats import chi

from benchmarks.datasets import Problem
from benchmarks.output_perturbation import gaussian_noise
from dplateau.plan.losses import Huber, Logistic, Loss, Softmax

CONSTANT = 0.25  # the intercept's feature, as ours: a larger one would cost them more noise
LENGTH = math.hypot(1.0, CONSTANT)  # of rows with it
ORDERS = np.concatenate([np.linspace(1.05, 10, 60), np.geomspace(10.5, 4000, 100)])

Array = NDArray[np.float64]
Setting = dict[str, Any]


def _rows(problem: Problem) -> Array:
    X = np.asarray(problem.X_train, dtype=np.float64)
    return np.column_stack([X, np.full(len(X), CONSTANT)])


def _released(weights: Array) -> Array:
    """Weights as they are for a constant feature of one."""
    weights = weights.reshape(len(weights), -1).copy()
    weights[-1] *= CONSTANT
    return weights


def _loss(problem: Problem) -> Loss:
    if problem.regression:
        return Huber(threshold=1.0)
    return Logistic() if problem.classes == 2 else Softmax(classes=problem.classes)


def _slopes(loss: Loss, scores: Array, targets: NDArray[Any]) -> Array:
    flat = scores if loss.outputs > 1 else scores[:, 0]
    return np.asarray(loss.slope(flat, targets), dtype=np.float64).reshape(len(scores), -1)


def objective_perturbation(
    problem: Problem, epsilon: float, delta: float, seed: int, setting: Setting
) -> Array:
    """Redberg, Koskela, Wang (2023): minimise the sum of losses, a penalty and a random line.

    With ``b`` of the line, ``g`` the record's gradient and ``H`` its Hessian, log densities at a
    minimum differ by at most ``log det(1 + H / penalty) + |b g| / s**2 + |g|**2 / (2 s**2)``; all
    gradients of a record lie along its row, so ``|b g| <= L s`` times a chi variable of as many
    degrees as there are scores (for one score this is their theorem). The minimum is exact.
    """
    loss, X = _loss(problem), _rows(problem)
    targets = loss.encode_targets(problem.y_train)
    penalty, deviation = _line(loss, epsilon, delta, setting["share"])
    shape = (X.shape[1], loss.outputs)
    line = deviation * np.random.default_rng(seed).standard_normal(shape)

    def objective(flat: Array) -> tuple[float, Array]:
        weights = flat.reshape(shape)
        scores = X @ weights
        value = loss.value(scores if loss.outputs > 1 else scores[:, 0], targets).sum()
        value += penalty / 2 * np.sum(weights**2) + np.sum(line * weights)
        gradient = X.T @ _slopes(loss, scores, targets) + penalty * weights + line
        return float(value) / len(X), gradient.ravel() / len(X)

    options = {"maxiter": 300, "gtol": 1e-6}
    start = np.zeros(math.prod(shape))
    found = minimize(objective, start, jac=True, method="L-BFGS-B", options=options)
    return _released(found.x.reshape(shape))


def _line(loss: Loss, epsilon: float, delta: float, share: float) -> tuple[float, float]:
    """Penalty and deviation of the line: the penalty's determinant takes this share of epsilon."""
    bends = max(loss.outputs - 1, 1)  # directions, among which a trace is divided at worst
    trace = loss.curvature if loss.outputs == 1 else 1 - 1 / loss.outputs
    penalty = trace / bends * LENGTH**2 / math.expm1(share * epsilon / bends)
    lengths = np.linspace(0.0, 40.0, 40_001)  # of the line along a row, in deviations
    density = chi(loss.outputs).pdf(lengths)
    lipschitz = loss.constants(LENGTH).lipschitz

    def excess(log_deviation: float) -> float:
        moved = lipschitz / math.exp(log_deviation)
        lost = moved * lengths + moved**2 / 2
        outside = -np.expm1(np.minimum((1 - share) * epsilon - lost, 0.0))
        return float(np.trapezoid(outside * density, lengths)) - delta

    return penalty, math.exp(brentq(excess, -4.0, 14.0, xtol=1e-9)) * (1 + 1e-6)


def feature_covariance(
    problem: Problem, epsilon: float, delta: float, seed: int, setting: Setting
) -> Array:
    """DP-FC, Mehta et al. (2023): noisy gradients of all rows, shaped by a noisy covariance.

    One Gaussian release of the second moments, then as many of clipped gradients.
    """
    random, loss, X = np.random.default_rng(seed), _loss(problem), _rows(problem)
    targets = loss.encode_targets(problem.y_train)
    mu, steps = 1 / gaussian_noise(epsilon, delta), setting["steps"]
    moments = X.T @ X + LENGTH**2 / (mu * math.sqrt(setting["share"])) * _symmetric(
        random, X.shape[1]
    )
    values, basis = np.linalg.eigh(moments / len(X))
    inverse = basis / (np.maximum(values, 0.0) + setting["ridge"]) @ basis.T
    clip = setting["clip"] * LENGTH
    noise = clip * math.sqrt(steps / (1 - setting["share"])) / mu
    weights = np.zeros((X.shape[1], loss.outputs))
    lengths = np.linalg.norm(X, axis=1, keepdims=True)
    for _ in range(steps):
        slopes = _slopes(loss, X @ weights, targets)
        long = np.linalg.norm(slopes, axis=1, keepdims=True) * lengths
        slopes *= np.minimum(1.0, clip / np.maximum(long, 1e-12))
        gradient = (X.T @ slopes + noise * random.standard_normal(weights.shape)) / len(X)
        weights -= setting["rate"] * (inverse @ gradient)
    return _released(weights)


def _symmetric(random: np.random.Generator, size: int) -> Array:
    """Unit noise on a symmetric matrix whose Frobenius norm is what a record moves."""
    upper = np.triu(random.standard_normal((size, size)))
    upper[np.triu_indices(size, 1)] /= math.sqrt(2)  # it counts twice in that norm
    return upper + np.triu(upper, 1).T


def double_noise(
    problem: Problem, epsilon: float, delta: float, seed: int, setting: Setting
) -> Array:
    """Ganesh, Haghifam, Steinke, Thakurta (2023): noise on the gradient, then on Newton's step.

    The quadratic upper bound of logistic losses plus ``ridge``: a record adds ``v v'`` to it with
    ``|v|**2 <= LENGTH**2 / (4 n)``, which moves the inverse by at most
    ``a / (ridge (ridge + a))``, a that square; times the length of the noisy gradient.
    """
    random, X = np.random.default_rng(seed), _rows(problem).astype(np.float32)
    signs, n = np.where(problem.y_train > 0, 1.0, 0.0), len(X)
    mu, steps, ridge = 1 / gaussian_noise(epsilon, delta), setting["steps"], setting["ridge"]
    first = math.sqrt(steps / (1 - setting["share"])) / mu
    second = math.sqrt(steps / setting["share"]) / mu
    added = LENGTH**2 / (4 * n)
    moved = added / (ridge * (ridge + added))
    weights = np.zeros(X.shape[1])
    for _ in range(steps):
        scores = (X @ weights.astype(np.float32)).astype(np.float64)
        gradient = X.T @ (expit(scores) - signs).astype(np.float32) / n
        gradient = gradient + LENGTH * first / n * random.standard_normal(len(weights))
        safe = np.where(np.abs(scores) < 1e-4, 1e-4, scores)
        bend = np.tanh(safe / 2) / (2 * safe)
        hessian = (X * bend.astype(np.float32)[:, None]).T @ X / n
        step = np.linalg.solve(hessian + ridge * np.eye(len(weights)), gradient)
        noise = moved * np.linalg.norm(gradient) * second
        weights = weights - step - noise * random.standard_normal(len(weights))
    return _released(weights)


def adassp(problem: Problem, epsilon: float, delta: float, seed: int, setting: Setting) -> Array:
    """Wang (2018): noisy second moments with a ridge that a noisy least eigenvalue asks for."""
    random, X, y = np.random.default_rng(seed), _rows(problem), np.asarray(problem.y_train)
    noise, d = math.sqrt(3) * gaussian_noise(epsilon, delta), X.shape[1]
    moments = X.T @ X
    least = float(np.linalg.eigvalsh(moments)[0]) + LENGTH**2 * noise * random.standard_normal()
    wanted = setting["factor"] * math.sqrt(d * math.log(2 * d**2 / 0.05)) * noise * LENGTH**2
    ridge = max(0.0, wanted - max(least, 0.0))
    noisy = moments + LENGTH**2 * noise * _symmetric(random, d) + ridge * np.eye(d)
    return _released(np.linalg.solve(noisy, X.T @ y + LENGTH * noise * random.standard_normal(d)))


def hessian_mixing(
    problem: Problem, epsilon: float, delta: float, seed: int, setting: Setting
) -> Array:
    """Lev et al. (2026): Newton steps with a fresh Gaussian sketch of the rows and noisy residuals.

    A sketch's rows are ``N(0, X'X + padding)``: a record changes their variance along one direction
    by a factor of at most ``1 + 1 / floor``, where the floor is the padding and a noisy lower bound
    on the least eigenvalue. All releases are added up as Renyi divergences.
    """
    random, X, y = np.random.default_rng(seed), _rows(problem), np.asarray(problem.y_train)
    d, steps, clip = X.shape[1], setting["steps"], setting["clip"]
    rows = math.ceil(setting["rows"] * d)
    floor, noise, first = _mixing(epsilon, delta, rows, steps, setting["share"])
    moments = X.T @ X
    # Below the truth but for a chance of delta / 10, which `_mixing` has put aside.
    known = np.linalg.eigvalsh(moments)[0] + LENGTH**2 * first * (
        random.standard_normal() - math.sqrt(2 * math.log(10 / delta))
    )
    padding = max(LENGTH**2 * floor - max(float(known), 0.0), 0.0)
    root = np.linalg.cholesky(moments + (padding + 1e-9) * np.eye(d))
    weights = np.zeros(d)
    for _ in range(steps):
        sketch = random.standard_normal((rows, d)) @ root.T
        residual = np.clip(y - X @ weights, -clip, clip)
        gradient = X.T @ residual + LENGTH * clip * noise * random.standard_normal(d)
        weights = weights + rows * np.linalg.solve(sketch.T @ sketch, gradient)
    return _released(weights)


@cache
def _mixing(
    epsilon: float, delta: float, rows: int, steps: int, share: float
) -> tuple[float, float, float]:
    """The floor, the noise on gradients and that on the least eigenvalue, for this budget."""

    def price(gaussian: float, floor: float) -> float:
        spread, less = 1 / floor, ORDERS - 1
        inside = np.maximum(1 - less * spread, 1e-300)
        more = -np.log1p(spread) / 2 - np.log(inside) / (2 * less)
        fewer = np.log1p(spread) / 2 * (1 + 1 / less) - np.log1p(ORDERS * spread) / (2 * less)
        spent = steps * rows * np.maximum(more, fewer) + ORDERS * gaussian / 2
        spent = np.where(less * spread < 1, spent, np.inf)
        given = spent + np.log1p(-1 / ORDERS) - (math.log(0.9 * delta) + np.log(ORDERS)) / less
        return float(np.min(given)) - epsilon

    alone = brentq(lambda g: price(g, 1e12), 1e-12, 1e6)
    floor = brentq(lambda f: price(share * alone, f), 1.0, 1e12, rtol=1e-9)
    # A twentieth of what is Gaussian tells the least eigenvalue.
    return floor, math.sqrt(steps / (0.95 * share * alone)), 1 / math.sqrt(0.05 * share * alone)


__all__ = [
    "adassp",
    "double_noise",
    "feature_covariance",
    "hessian_mixing",
    "objective_perturbation",
]
