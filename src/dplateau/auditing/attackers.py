"""Scores that an attacker computes from the released weights: large means "the canary was there".

Each attacker learns from one half of the runs of both neighbours (`Setting`) and returns a function
of the weights alone, which is then applied to the other half.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from sklearn.covariance import ledoit_wolf

from dplateau.auditing.canaries import Neighbours, gradients, record_losses
from dplateau.plan.loss import Loss

Array = NDArray[np.float64]
Score = Callable[[Array], Array]

_LARGEST_COVARIANCE = 512  # weights; beyond it the Gaussian fit keeps variances only


@dataclass(frozen=True)
class Setting:
    """All that an attacker may learn from."""

    loss: Loss
    neighbours: Neighbours
    absent: Array  # weights of the runs to learn from, (runs, ...)
    present: Array


def likelihood_ratio(setting: Setting) -> Score:
    """The log-likelihood ratio of two Gaussians with one covariance, fitted to the runs.

    A linear score: the direction ``Sigma^-1 (mean_present - mean_absent)``, with the covariance
    shrunk as Ledoit and Wolf advise.
    """
    absent, present = _flat(setting.absent), _flat(setting.present)
    gap = present.mean(axis=0) - absent.mean(axis=0)
    centred = np.concatenate([absent - absent.mean(axis=0), present - present.mean(axis=0)])
    variances = centred.var(axis=0)
    if not variances.max() > 0:  # no noise at all: every direction separates
        direction = gap
    elif gap.size > _LARGEST_COVARIANCE:
        direction = gap / np.maximum(variances, variances.max() * 1e-12)
    else:
        covariance, _ = ledoit_wolf(centred, assume_centered=True)
        direction = np.linalg.lstsq(covariance, gap, rcond=None)[0]
    return lambda weights: np.asarray(_flat(weights) @ direction)


def canary_loss(setting: Setting) -> Score:
    """How well the model fits the canary, against the record that stands in its place."""
    loss, neighbours = setting.loss, setting.neighbours

    def score(weights: Array) -> Array:
        fit = -record_losses(loss, weights, neighbours.canary)
        if neighbours.stand_in is not None:
            fit = fit + record_losses(loss, weights, neighbours.stand_in)
        return fit

    return score


def gradient_alignment(setting: Setting) -> Score:
    """The weights along the direction that the canary's own gradient pushes them.

    The direction is computed from the record and typical weights, not fitted, so that it does not
    suffer in high dimension.
    """
    loss, neighbours = setting.loss, setting.neighbours
    typical = np.concatenate([setting.absent, setting.present])
    push = -gradients(loss, typical, neighbours.canary).mean(axis=0)
    if neighbours.stand_in is not None:
        push = push + gradients(loss, typical, neighbours.stand_in).mean(axis=0)
    direction = push.ravel()
    return lambda weights: np.asarray(_flat(weights) @ direction)


def _flat(weights: Array) -> Array:
    return weights.reshape(len(weights), -1)


ATTACKERS: dict[str, Callable[[Setting], Score]] = {
    "likelihood": likelihood_ratio,
    "alignment": gradient_alignment,
    "loss": canary_loss,
}
