"""The parts of a plan: projections, diameters, batches, and the constants of the losses."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy.optimize import minimize

import dplateau as dp

BOUNDED = [
    dp.L2Ball(1.3),
    dp.Box(-0.4, 0.9),
    dp.L1Ball(1.1),
    dp.Simplex(0.8),
    dp.Orthant([1, -1, 1], radius=1.2),
    dp.Orthant([0, -1], radius=1.2),
]
DOMAINS = [*BOUNDED, dp.Everywhere(), dp.Orthant([1, 0, -1])]


def inside(domain, w: np.ndarray) -> bool:
    tolerance = 1e-9
    if isinstance(domain, dp.L2Ball):
        return np.linalg.norm(w) <= domain.radius + tolerance
    if isinstance(domain, dp.Box):
        return bool(np.all((w >= domain.lower - tolerance) & (w <= domain.upper + tolerance)))
    if isinstance(domain, dp.L1Ball):
        return np.abs(w).sum() <= domain.radius + tolerance
    if isinstance(domain, dp.Simplex):
        return bool(np.all(w >= -tolerance)) and abs(w.sum() - domain.total) <= tolerance
    if isinstance(domain, dp.Orthant):
        known = w[: len(domain.signs)] * domain.signs
        return bool(np.all(known >= 0)) and np.linalg.norm(w) <= domain.reach + tolerance
    return True


@pytest.mark.parametrize("domain", DOMAINS, ids=repr)
def test_projection_is_exact(domain) -> None:
    """In the set, idempotent, and no other point of the set is nearer (the obtuse angle)."""
    rng = np.random.default_rng(0)
    for _ in range(50):
        w = rng.normal(size=5) * rng.choice([0.1, 1.0, 10.0])
        nearest = domain.project(w)
        assert inside(domain, nearest)
        assert np.allclose(domain.project(nearest), nearest, atol=1e-12)
        for other in rng.normal(size=(20, 5)):
            point = domain.project(other)
            assert (w - nearest) @ (point - nearest) <= 1e-9


@pytest.mark.parametrize("domain", DOMAINS, ids=repr)
def test_projection_never_expands(domain) -> None:
    rng = np.random.default_rng(1)
    for _ in range(200):
        a, b = rng.normal(size=(2, 6)) * 3
        apart = np.linalg.norm(domain.project(a) - domain.project(b))
        assert apart <= np.linalg.norm(a - b) * (1 + 1e-12)


@pytest.mark.parametrize("domain", BOUNDED, ids=repr)
def test_diameter_is_attained_and_never_exceeded(domain) -> None:
    """Corners of the set are where far points along axes and diagonals are projected to."""
    d = 3
    corners = [
        domain.project(1e3 * np.array(direction, dtype=float))
        for direction in itertools.product([-1, 0, 1], repeat=d)
    ]
    far = max(np.linalg.norm(a - b) for a in corners for b in corners)
    assert far == pytest.approx(domain.diameter(d), rel=1e-9)


@pytest.mark.parametrize(
    "make",
    [
        lambda: dp.L2Ball(0),
        lambda: dp.L2Ball(-1),
        lambda: dp.L2Ball(math.nan),
        lambda: dp.Box(1, 1),
        lambda: dp.Box(-math.inf, 1),
        lambda: dp.L1Ball(math.inf),
        lambda: dp.Simplex(0),
        lambda: dp.Orthant([2]),
        lambda: dp.Orthant([True]),
        lambda: dp.Orthant("+-"),
        lambda: dp.Orthant(1),
        lambda: dp.Orthant([1], radius=0),
        lambda: dp.Orthant([1, 1]).diameter(1),
        lambda: dp.Orthant([1, 1]).project(np.zeros(1)),
        lambda: dp.Cyclic(0),
        lambda: dp.FixedSize(2.5),
        lambda: dp.Poisson(0),
        lambda: dp.Poisson(5, max_overflow=2),
        lambda: dp.Huber(threshold=0),
        lambda: dp.SmoothedHinge(width=-1),
        lambda: dp.SmoothedPinball(quantile=1.0),
        lambda: dp.Softmax(classes=1),
        lambda: dp.Softmax(classes=["a", "a"]),
        lambda: dp.Logistic(classes=["a", "b", "c"]),
        lambda: dp.Logistic(clip=0),
        lambda: dp.Logistic(intercept=-1),
        lambda: dp.schedules.Explicit([]),
        lambda: dp.schedules.Explicit([[1.0]]),
        lambda: dp.schedules.Polynomial(1.0, power=-1),
    ],
)
def test_impossible_parts_are_refused(make) -> None:
    with pytest.raises(dp.PlanError):
        make()


GLMS = [
    dp.Logistic(),
    dp.SmoothedHinge(width=0.4),
    dp.Huber(threshold=0.7),
    dp.SmoothedPinball(quantile=0.8, width=0.3),
]
TARGETS = {"huber": [-1.0, 0.3, 5.0], "smoothed_pinball": [-1.0, 0.3, 5.0]}


@pytest.mark.parametrize("loss", GLMS, ids=lambda loss: loss.kind)
def test_slope_is_the_derivative_and_constants_are_attained(loss) -> None:
    scores = np.linspace(-6, 6, 4001)
    steepest = sharpest = 0.0
    for target in TARGETS.get(loss.kind, [-1.0, 1.0]):
        y = np.full_like(scores, target)
        slope = loss.slope(scores, y)
        numeric = np.gradient(loss.value(scores, y), scores)
        assert np.allclose(slope[1:-1], numeric[1:-1], atol=2e-2 * loss.curvature)
        bend = np.diff(slope) / np.diff(scores)
        assert np.all(bend >= -1e-12)  # convex
        steepest = max(steepest, np.abs(slope).max())
        sharpest = max(sharpest, bend.max())
    assert steepest <= loss.slope_bound * (1 + 1e-12)
    assert steepest >= loss.slope_bound * 0.99
    assert sharpest <= loss.curvature * (1 + 1e-9)
    assert sharpest >= loss.curvature * 0.99


def test_softmax_constants_by_optimised_search() -> None:
    """L = sqrt(2) R and M = R^2/2, not R^2/4 as a tutorial elsewhere has it."""
    loss = dp.Softmax(classes=4)

    def steepness(scores: np.ndarray) -> float:
        return -float(np.linalg.norm(loss.slope(scores[None, :], np.array([0.0]))))

    def sharpness(both: np.ndarray) -> float:
        scores, direction = both[:4], both[4:] / np.linalg.norm(both[4:])
        p = loss.slope(scores[None, :], np.array([0.0]))[0] + np.eye(4)[0]
        return -float(direction @ (np.diag(p) - np.outer(p, p)) @ direction)

    rng = np.random.default_rng(0)
    steepest = max(-minimize(steepness, rng.normal(size=4) * 5).fun for _ in range(10))
    sharpest = max(-minimize(sharpness, rng.normal(size=8)).fun for _ in range(30))
    assert loss.slope_bound * 0.999 <= steepest <= loss.slope_bound + 1e-9
    assert loss.curvature * 0.98 <= sharpest <= loss.curvature + 1e-9
    assert sharpest > 0.25 * 1.5


@pytest.mark.parametrize("loss", [*GLMS, dp.Softmax(classes=3)], ids=lambda loss: loss.kind)
def test_largest_data_norm_inverts_constants(loss) -> None:
    for norm in (0.5, 20.0):
        assert loss.largest_data_norm(*loss.constants(norm)) == pytest.approx(norm)


def test_intercept_counts_towards_the_norm_once() -> None:
    loss = dp.Logistic(intercept=1.0)
    assert loss.constants(1.0) == pytest.approx((math.sqrt(2), 0.5))
    assert loss.largest_data_norm(*loss.constants(1.0)) == pytest.approx(1.0)
    with pytest.raises(dp.PlanError, match="intercept"):
        loss.largest_data_norm(0.5, 1.0)


def test_clipping_lowers_lipschitz_alone() -> None:
    assert dp.Logistic(clip=0.25).constants(2.0) == (0.25, 1.0)
    assert dp.Logistic(clip=100.0).constants(2.0) == (2.0, 1.0)
    assert dp.Softmax(classes=3, clip=1.0).largest_data_norm(1.0, math.inf) == math.inf


def test_labels() -> None:
    assert dp.Logistic().encode_targets([0, 1, 1]).tolist() == [-1, 1, 1]
    assert dp.Logistic().encode_targets([-1, 1]).tolist() == [-1, 1]
    assert dp.Logistic(classes=("a", "b")).encode_targets(["b", "a"]).tolist() == [1, -1]
    assert dp.Softmax(classes=("x", "y", "z")).encode_targets(["z", "x"]).tolist() == [2, 0]
    with pytest.raises(dp.DataError, match="declared classes") as refusal:
        dp.Softmax(classes=3).encode_targets([0, 7])
    assert "7" not in str(refusal.value)  # an error never repeats a private value
    with pytest.raises(dp.DataError, match="one-dimensional"):
        dp.Logistic().encode_targets([[0, 1]])
