"""A trainer written anew in plain numpy, with switches that break it one rule at a time.

It follows theory section 1 literally and shares no code with `dplateau.training`, so it also checks
that the audit's verdicts do not hang on our own kernels.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from dplateau import Cyclic, Everywhere, FixedSize, FullBatch, Poisson


@dataclasses.dataclass(frozen=True)
class ReferenceTrainer:
    """All runs at once; every field but the defaults is a fault."""

    noise_factor: float = 1.0
    clip_features: bool = True
    reuse_batches: bool = False
    fixed_seed: bool = False
    divide_by_realised: bool = False
    release_average: bool = False

    def __call__(self, plan, loss, X, y, repeats, *, random_state=None):
        rng = np.random.default_rng(0 if self.fixed_seed else random_state)
        draws = 1 if self.fixed_seed else repeats
        X = self._rows(plan, loss, np.asarray(X, dtype=float))
        usable = np.isfinite(X).all(axis=1)
        X = np.where(usable[:, None], X, 0.0)
        targets = loss.encode_targets(y)
        weights = np.zeros((draws, X.shape[1]))
        total = np.zeros_like(weights)
        taken = None
        for t in range(plan.iterations):
            if taken is None or not self.reuse_batches:
                taken = _taken(plan, len(X), draws, rng, t)
            eta = float(plan.step_size.values(t, t + 1)[0])
            sigma = float(plan.sigma_schedule.values(t, t + 1)[0])
            gradient = self._gradient(plan, loss, X, targets, weights, taken)
            noise = self.noise_factor * sigma * rng.standard_normal(weights.shape)
            weights = weights - eta * (gradient + plan.regularization * weights + noise)
            if plan.domain != Everywhere():
                weights = np.stack([plan.domain.project(w) for w in weights])
            total += weights
        released = total / plan.iterations if self.release_average else weights
        return np.repeat(released, repeats // draws, axis=0)

    def _rows(self, plan, loss, X):
        if self.clip_features:
            norms = np.linalg.norm(X, axis=1, keepdims=True)
            X = X * np.minimum(1.0, plan.data_norm / np.maximum(norms, 1e-300))
        if loss.intercept > 0:
            X = np.column_stack([X, np.full(len(X), loss.intercept)])
            X[np.isnan(X).any(axis=1)] = np.nan
        return X

    def _gradient(self, plan, loss, X, targets, weights, taken):
        slopes = loss.slope(weights @ X.T, targets[np.newaxis])
        if loss.clip is not None:
            size = np.abs(slopes) * np.linalg.norm(X, axis=1)
            slopes = slopes * np.minimum(1.0, loss.clip / np.maximum(size, 1e-300))
        summed = (slopes * taken) @ X
        if self.divide_by_realised:
            return summed / np.maximum(taken.sum(axis=1, keepdims=True), 1)
        return summed / plan.batch_size


def _taken(plan, rows, draws, rng, step):
    """Which records take part: one row per run."""
    batches = plan.batches
    if isinstance(batches, FullBatch):
        return np.ones((1, rows))
    if isinstance(batches, Cyclic):
        start = (step % batches.per_epoch(rows)) * batches.size
        order = np.arange(rows)
        return ((order >= start) & (order < start + batches.size)).astype(float)[np.newaxis]
    if isinstance(batches, FixedSize):
        ranks = rng.random((draws, rows)).argsort(axis=1).argsort(axis=1)
        return (ranks < batches.size).astype(float)
    assert isinstance(batches, Poisson)
    assert plan.overflow < 1e-6, "the reference trainer leaves the cap of Poisson batches out"
    return (rng.random((draws, rows)) < plan.inclusion_probability).astype(float)


@pytest.fixture
def reference_trainer():
    """The class above: call it with the faults wanted."""
    return ReferenceTrainer


@pytest.fixture(scope="session")
def small_table():
    """Two Gaussian classes in five features, rows of norm about one."""
    rng = np.random.default_rng(7)
    y = np.arange(60) % 2
    X = rng.normal(size=(60, 5)) / np.sqrt(5) + 0.3 * (2 * y[:, None] - 1)
    return X, y
