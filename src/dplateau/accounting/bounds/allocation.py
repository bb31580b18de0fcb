"""Random allocation: one hit an epoch, hidden by the noise after it (docs/theory.md#section-15)."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from dplateau.accounting.privacy_loss.mixtures import OneSided, merged_upwards
from dplateau.accounting.privacy_loss.profiles import PrivacyProfile

Vector = NDArray[np.float64]

_PADDING = 1e-12
_MOST_PARTS = 1024
_FINE = 4096  # ages that are told apart one by one


def allocation_profile(hit: float, epoch: int, steps: int, mirrored: bool) -> PrivacyProfile:
    """The privacy profile of ``steps`` steps in epochs of ``epoch``, each hit once, anywhere.

    ``hit`` is ``s/varsigma``. Whole epochs: ``E <= hit^2 ((e+1)/l + 1/u)``, ``u`` the age of the
    last hit (``1/u`` alone for a single epoch). A run that ends ``r`` steps into an epoch:
    ``E <= hit^2 ((e+1)/l + 1/u + 3/A)`` if that epoch was hit, at age ``u <= r``, and ``hit^2
    ((e+1)/l + 1/A)`` if not, with ``A`` the age of the last hit before it, at most ``l``.
    """
    epochs, rest = divmod(steps, epoch)
    older = (epochs + 1) / epoch if epochs > 1 else 0.0
    if rest == 0:
        ages, chances = _ages(1, epoch, epoch)
        return _mixture(hit, np.sqrt(older + 1 / ages), chances, mirrored)
    young = _fewer(_or_else(0.0, *_ages(1, rest, epoch)))
    old = (np.zeros(1), np.ones(1))
    if epochs:
        old = _fewer(_or_else(1 / epoch, *_ages(rest + 1, epoch, epoch)))
    doubled = np.where(young[0] > 0, 3.0, 1.0)[:, None]  # both are removed in the same last steps
    energies = (older + young[0][:, None] + doubled * old[0][None, :]).ravel()
    weights = (young[1][:, None] * old[1][None, :]).ravel()
    return _mixture(hit, np.sqrt(energies), weights, mirrored)


def _ages(first: int, last: int, epoch: int) -> tuple[Vector, Vector]:
    """Ages ``first .. last`` with chance ``1/epoch`` each; old ones are rounded down together."""
    fine = np.arange(first, min(last, first + _FINE) + 1, dtype=np.float64)
    if fine[-1] >= last:
        return fine, np.full(fine.size, 1 / epoch)
    starts = np.unique(np.floor(np.geomspace(fine[-1] + 1, last, _FINE))).astype(np.int64)
    counts = np.diff(np.append(starts, last + 1))
    ages = np.concatenate([fine, starts.astype(np.float64)])
    return ages, np.concatenate([np.ones(fine.size), counts]) / epoch


def _or_else(rest: float, ages: Vector, chances: Vector) -> tuple[Vector, Vector]:
    """``1/age`` of a hit, or ``rest`` where it has none of these ages."""
    missing = max(0.0, 1 - math.fsum(chances))
    return np.append(1 / ages, rest), np.append(chances, missing)


def _fewer(distribution: tuple[Vector, Vector]) -> tuple[Vector, Vector]:
    """The same distribution rounded up to fewer values, finely where they are small."""
    weights, roots = merged_upwards(distribution[1], np.sqrt(distribution[0]), _MOST_PARTS // 4)
    return roots**2 * (1 + _PADDING), weights


def _mixture(hit: float, lengths: Vector, weights: Vector, mirrored: bool) -> PrivacyProfile:
    weights, means = merged_upwards(weights, hit * lengths * (1 + _PADDING), _MOST_PARTS)
    return OneSided(tuple(weights / math.fsum(weights)), tuple(means), mirrored)
