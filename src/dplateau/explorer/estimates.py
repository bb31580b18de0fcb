"""Quick estimates of every bound, for the moment between a drag and the exact answer.

Central-limit stand-ins for the theorems: one Gaussian parameter per step instead of a privacy loss
distribution. They are estimates, not bounds: the page marks them as approximate, never exports
them, and replaces them by what `dplateau.account` says.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from dplateau.accounting.privacy_loss.conversions import gdp_epsilon, gdp_tradeoff
from dplateau.plan.batches import REPLACE_ONE
from dplateau.plan.plan import Plan

Vector = NDArray[np.float64]

_GRID = np.geomspace(1.0, 1e15, 301)  # window lengths that are looked at
_MUS = np.geomspace(1e-4, 1e4, 121)
_SHARE = 0.04  # of delta that forgetting may fail with
_STICK = math.sqrt(math.pi / 2)


@dataclass(frozen=True)
class Estimates:
    """A plan's scalars in units of its noise; schedules by their geometric middle."""

    hit: float  # one hit of the differing record
    chance: float  # of a hit per step
    period: int  # steps between hits, 1 where they are random
    energy: float  # squared Gaussian parameter per step (per hit where they are certain)
    far: float  # the diameter
    contraction: float
    hidden: bool
    delta: float

    @classmethod
    def of(cls, plan: Plan, delta: float) -> Estimates:
        """Read the scalars off a plan."""
        eta, noise = (_middle(plan, name) for name in ("step_size", "noise_multiplier"))
        spread = eta * noise * plan.lipschitz / plan.batch_size
        hits, q = plan.hits, min(plan.inclusion_probability, 1.0)
        hit = plan.sensitivity / plan.lipschitz / noise if noise > 0 else math.inf
        return cls(
            hit=hit,
            chance=1.0 if hits.deterministic else q,
            period=hits.period or 1,
            energy=hit**2 if hits.deterministic else min(q**2 * _sampled(plan, hit), hit**2),
            far=plan.diameter / spread if spread > 0 else math.inf,
            contraction=float(plan.contraction(eta)) if plan.hidden_state else 1.0,
            hidden=plan.hidden_state,
            delta=delta,
        )

    def bounds(self, steps: Vector) -> dict[str, Vector]:
        """An estimate of every bound at each number of steps (``inf`` allowed)."""
        found = {"composition": self._epsilon(self._added_up(steps))}
        if not self.hidden:
            return found
        if math.isfinite(self.far) or self.contraction < 1:
            shifted = self._shifted(steps)
            if self.chance == 1:
                shifted = np.minimum(shifted, self._common(steps))
            found["shift"] = self._epsilon(shifted)
            horizon = self._horizon()
            forgotten = self._epsilon(self._common(np.array([horizon])))[0]
            found["forgetting"] = np.where(steps >= horizon, forgotten, math.inf)
        found["paper"] = self._paper(steps)
        return found

    # -- the theorems, by central limit --------------------------------------------------------

    def _added_up(self, steps: Vector) -> Vector:
        return np.asarray(self.energy * np.ceil(steps / self.period))

    def _common(self, steps: Vector) -> Vector:
        """All steps from a common start: certain hits are blurred until the next, and shrink."""
        if self.chance < 1:
            return self._added_up(steps)
        c, per, hits = self.contraction, self.period, np.ceil(steps / self.period)
        if c == 0.0:
            return np.full_like(steps, self.energy)
        if c == 1.0:
            return np.asarray(self.energy * (1 + (hits - 1) / per))
        decay = np.exp(np.log(c) * per * hits)
        if per == 1:  # exact: Bok, Su and Altschuler 2024
            return np.asarray(self.energy * (1 - decay) / (1 + decay) * (1 + c) / (1 - c))
        earlier = (1 - decay) / -math.expm1(per * math.log(c)) - 1
        return np.asarray(self.energy * (1 + np.maximum(earlier, 0) / per))

    def _windows(self) -> tuple[Vector, Vector]:
        """What paying off the diameter within each window costs, and the hits' own cost."""
        c = self.contraction
        with np.errstate(under="ignore"):
            if c == 0.0:
                debts = np.zeros_like(_GRID)
            elif c < 1.0:
                log_c2 = 2 * math.log(c)
                noise = np.expm1(_GRID * log_c2) / math.expm1(log_c2)
                debts = np.exp(_GRID * log_c2) / noise
            else:
                debts = 1 / _GRID
        with np.errstate(invalid="ignore"):
            return np.nan_to_num(self.far**2 * debts, nan=math.inf), self._common(_GRID)

    def _shifted(self, steps: Vector) -> Vector:
        debts, hits = self._windows()
        rate = self.hit * self.chance / self.period
        with np.errstate(invalid="ignore", over="ignore"):
            total = debts + 2 * np.sqrt(debts) * rate * np.sqrt(_GRID) + hits
        return _least_up_to(steps, np.nan_to_num(total, nan=math.inf))

    def _paper(self, steps: Vector) -> Vector:
        """The paper splits the noise and converts from Renyi divergences by its simplest rule."""
        debts, hits = self._windows()
        with np.errstate(invalid="ignore", over="ignore"):
            split = np.nan_to_num((np.sqrt(debts) + np.sqrt(hits)) ** 2, nan=math.inf)
        rho = np.minimum(self._added_up(steps), _least_up_to(steps, split)) / 2
        with np.errstate(invalid="ignore"):
            return np.asarray(rho + 2 * np.sqrt(rho * math.log(1 / self.delta)))

    def _horizon(self) -> float:
        """The least number of steps that forget all but a small share of delta."""
        enough = np.flatnonzero(self._survival() <= _SHARE * self.delta)
        return float(_GRID[enough[0]]) if enough.size else math.inf

    def _survival(self) -> Vector:
        best = np.ones_like(_GRID)
        drift = self.hit * self.chance / self.period
        with np.errstate(under="ignore", over="ignore"):
            if math.isfinite(self.far):
                rate = 2 * (math.pi / (2 * (self.far + _STICK))) ** 2
                m = np.minimum(max(1.0, 1 / (2 * rate)), _GRID)
                omega = math.sqrt(rate / 2)  # the neighbours have been meeting before, too
                shrunk = -math.expm1(-rate * self.period) * math.sin(omega * self.far)
                start = self.far * min(1.0, omega * drift * self.period / shrunk)
                met = start / np.sqrt(2 * math.pi * m) * np.exp(-rate * (_GRID - m))
                best = np.minimum(best, met)
            if 0 < self.contraction < 1:
                log_c = math.log(self.contraction)
                apart = min(self.far, drift * self.period / -math.expm1(self.period * log_c))
                m = np.minimum(max(1.0, -1 / (2 * log_c)), _GRID)
                met = apart / np.sqrt(2 * math.pi * m) * np.exp(log_c * (_GRID - m))
                best = np.minimum(best, met)
        return best

    def _epsilon(self, energy: Vector) -> Vector:
        mus, epsilons = _epsilons(self.delta)
        with np.errstate(divide="ignore"):
            found = np.interp(np.log(energy) / 2, np.log(mus), epsilons)
        return np.where(energy > _MUS[-1] ** 2, math.inf, found)


def attack(epsilon: float, delta: float, false_alarms: Vector) -> Vector:
    """The share of records found, as if the privacy were Gaussian with this epsilon."""
    mus, epsilons = _epsilons(delta)
    if not epsilon < epsilons[-1]:
        return np.ones_like(false_alarms)
    mu = math.exp(float(np.interp(epsilon, epsilons, np.log(mus))))
    return np.asarray(1 - gdp_tradeoff(mu, false_alarms))


@lru_cache(maxsize=64)
def _epsilons(delta: float) -> tuple[Vector, Vector]:
    return _MUS, np.array([gdp_epsilon(float(mu), delta) for mu in _MUS])


def _middle(plan: Plan, name: str) -> float:
    schedule = getattr(plan, name)
    return math.sqrt(schedule.smallest(plan.iterations) * schedule.largest(plan.iterations))


def _sampled(plan: Plan, hit: float) -> float:
    """Squared distance of one sampled step, in units of the squared chance of a hit."""
    square = min(hit * hit, 600.0)
    if plan.hits.exchanged:
        grown = math.exp(square) * float(ndtr(1.5 * hit))
        return 2 * (grown + 3 * float(ndtr(-hit / 2)) - 2)
    if plan.neighboring_relation == REPLACE_ONE:
        return 4 * math.sinh(square / 4)
    return math.expm1(square)


def _least_up_to(steps: Vector, values: Vector) -> Vector:
    """The least value among the windows no longer than each number of steps."""
    place = np.searchsorted(_GRID, steps, side="right") - 1
    return np.asarray(np.minimum.accumulate(values)[np.maximum(place, 0)])
