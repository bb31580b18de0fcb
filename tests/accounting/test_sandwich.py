"""Each new bound lies above an exact process, and a bound broken on purpose does not.

The processes are chosen so that the bounds are nearly tight there: strong contraction makes the
last step almost all of the story, so a mistake of ten per cent shows.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.special import ndtr

import dplateau as dp
from dplateau.accounting.bounds.composition import random_batches
from dplateau.accounting.bounds.forgetting import Survival, survival
from dplateau.accounting.bounds.sampled_shift import fixed_size_shift, poisson_shift, water_filling
from dplateau.accounting.bounds.shift import from_common_start
from dplateau.accounting.privacy_loss.composed import Composition
from dplateau.accounting.privacy_loss.conversions import gdp_delta
from dplateau.accounting.privacy_loss.profiles import Gaussian, WithFailure
from dplateau.accounting.privacy_loss.sampled import poisson_step

EPSILONS = np.array([0.0, 0.05, 0.2, 0.5, 1.0, 2.0, 4.0, 6.0, 8.0])


def contracting(c: float, hit: float, *, batches: dp.Poisson | None = None) -> dp.Plan:
    records, b = 1000, 1000 if batches is None else batches.size
    return dp.Plan(
        records=records,
        batches=batches or dp.FullBatch(),
        iterations=math.inf,
        step_size=hit * b,
        noise_multiplier=1 / hit,
        lipschitz=1.0,
        smoothness=0.0,
        regularization=(1 - c) / (hit * b),
        domain=dp.Everywhere() if batches is None else dp.L2Ball(10.0),
        neighboring_relation="add_or_remove_one",
    )


def violated(claimed: list[float], exact: list[float]) -> bool:
    return any(c < e * (1 - 1e-6) - 1e-12 for c, e in zip(claimed, exact, strict=True))


class TestForgetting:
    """Quadratic losses, full batch, no domain: the stationary laws are Gaussians."""

    c, hit = 0.3, 1.0
    plan = contracting(c, hit)

    @property
    def exact(self) -> list[float]:
        mu = self.hit * math.sqrt((1 + self.c) / (1 - self.c))
        return [gdp_delta(mu, float(e)) for e in EPSILONS]

    def claim(self, steps: int, *, price_steps: int | None = None, failure=None, noise=1.0):
        chance = survival(self.plan)
        assert isinstance(chance, Survival)
        lost = chance(steps) if failure is None else failure
        mu = from_common_start(self.plan, price_steps or steps) / noise
        profile = WithFailure(Gaussian(mu), lost)
        return [profile.delta(float(e)) for e in EPSILONS]

    @pytest.mark.parametrize("steps", [1, 2, 3, 5, 9, 20])
    def test_holds(self, steps: int) -> None:
        assert not violated(self.claim(steps), self.exact)

    def test_dropping_the_survival_chance_is_caught(self) -> None:
        assert violated(self.claim(1, failure=0.0), self.exact)

    def test_shortening_the_window_is_caught(self) -> None:
        assert violated(self.claim(12, price_steps=1), self.exact)

    def test_overstating_the_noise_is_caught(self) -> None:
        assert violated(self.claim(20, noise=1.1), self.exact)


class TestPoissonShift:
    """A step that forgets nearly everything: the last iterate is one sampled step."""

    q, hit = 0.1, 1.5
    plan = contracting(1e-4, hit, batches=dp.Poisson(100))

    def exact(self) -> list[float]:
        plds = poisson_step(self.q, self.hit)
        orders = [Composition(((pld, 1),)) for pld in plds]
        return [max(o.delta(float(e)) for o in orders) * (1 - 1e-3) for e in EPSILONS]

    def claim(self, *, q: float | None = None, noise: float = 1.0) -> list[float]:
        broken = self.plan if q is None else self.plan.replace(batches=dp.Poisson(1000 * q))
        payment = 1e-4 * self.plan.diameter
        profile = random_batches(broken, [(self.hit / noise, payment / noise, 1)])
        return [profile.delta(float(e)) for e in EPSILONS]

    def test_holds(self) -> None:
        profile, last = poisson_shift(self.plan, 1e-5)
        assert last <= 3
        assert not violated([profile.delta(float(e)) for e in EPSILONS], self.exact())
        assert not violated(self.claim(), self.exact())

    def test_halving_the_hit_probability_is_caught(self) -> None:
        assert violated(self.claim(q=self.q / 2), self.exact())

    def test_overstating_the_noise_is_caught(self) -> None:
        assert violated(self.claim(noise=1.1), self.exact())


class TestCappedPoisson:
    """The worked counterexample of theory section 1: twelve other records, room for eight."""

    q, hit, epsilon, cap, others = 0.3, 0.2, 0.2, 8, 12

    def exact(self) -> float:
        """Every other record pulls back; the last iterate after one step, by quadrature."""
        x = np.linspace(-14, 12, 400_001)
        sizes = np.arange(self.others + 1)
        chance = np.array(
            [
                math.comb(self.others, k) * self.q**k * (1 - self.q) ** (self.others - k)
                for k in sizes
            ]
        )

        def bump(m: float) -> np.ndarray:
            return np.exp(-0.5 * (x - m) ** 2) / math.sqrt(2 * math.pi)

        without = sum(
            p * bump(-self.hit * min(k, self.cap)) for k, p in zip(sizes, chance, strict=True)
        )
        having = np.zeros_like(x)
        for k, p in zip(sizes, chance, strict=True):
            base = -self.hit * min(k, self.cap)
            kept, moved = (self.q, 1) if k < self.cap else (self.q * self.cap / (k + 1), 2)
            having += p * ((1 - kept) * bump(base) + kept * bump(base + moved * self.hit))
        gap = np.maximum(without - math.exp(self.epsilon) * having, 0.0)
        return float(gap.sum() * (x[1] - x[0]))

    @property
    def overflow(self) -> float:
        return sum(
            math.comb(12, k) * self.q**k * (1 - self.q) ** (12 - k) for k in range(self.cap, 13)
        )

    def test_mixing_profiles_holds_and_mixing_gaussians_does_not(self) -> None:
        exact = self.exact()
        assert exact == pytest.approx(2.3334e-8, rel=2e-3)
        mixed = poisson_step(self.q, self.hit).mixed_with(
            poisson_step(self.q, 2 * self.hit), self.overflow
        )
        assert Composition(((mixed.backward, 1),)).delta(self.epsilon) >= exact
        kappa, q, s = self.overflow, self.q, self.hit
        x = np.linspace(-14, 12, 400_001)
        three = sum(
            w * np.exp(-0.5 * (x - m) ** 2)
            for w, m in ((1 - q, 0), (q * (1 - kappa), s), (q * kappa, 2 * s))
        ) / math.sqrt(2 * math.pi)
        plain = np.exp(-0.5 * x**2) / math.sqrt(2 * math.pi)
        gap = np.maximum(plain - math.exp(self.epsilon) * three, 0).sum() * (x[1] - x[0])
        assert gap == pytest.approx(1.8944e-8, rel=2e-3)
        assert gap < exact

    def test_the_plan_prices_its_cap(self) -> None:
        plan = dp.Plan(
            records=13,
            batches=dp.Poisson(13 * 0.3),
            iterations=1,
            step_size=2 * 3.9 / 8.2,
            noise_multiplier=5.0,
            lipschitz=1.0,
            smoothness=1.0,
            neighboring_relation="add_or_remove_one",
        )
        assert plan.batch_cap == 8
        assert plan.overflow == pytest.approx(self.overflow, rel=1e-9)
        assert dp.account(plan).delta(self.epsilon) >= self.exact()
        zeroed = plan.replace(neighboring_relation="replace_special")
        assert dp.account(zeroed).delta(0.2) < dp.account(plan).delta(0.2)


@pytest.mark.parametrize("c", [1.0, 0.99])
def test_unsplit_shift_is_never_worse_than_the_split(c: float) -> None:
    """Section 5 against the paper's division of the noise, at the same window and any division."""
    q, hit, far, last = 0.05, 0.5, 4.0, 60
    weight = c ** np.arange(last - 1, -1, -1.0)
    payments = water_filling(np.full(last, q * hit), weight, c**last * far)
    plan = contracting(1.0, hit, batches=dp.Poisson(50))
    profile = random_batches(plan, [(hit, float(a), 1) for a in payments])
    ours = profile.epsilon(1e-5)
    for split in (0.1, 0.3, 0.5, 0.8):
        debt = (c**last * far) ** 2 / float(weight @ weight) / split
        composed = Composition(
            (
                (poisson_step(1.0, math.sqrt(debt)).forward, 1),
                (poisson_step(q, hit / math.sqrt(1 - split)).forward, last),
            )
        )
        assert ours <= composed.epsilon(1e-5) * (1 + 1e-3)


def test_water_filling_is_optimal_and_pays_the_debt() -> None:
    rng = np.random.default_rng(3)
    owed, weight = rng.uniform(0, 0.2, 40), rng.uniform(0.1, 1.0, 40)
    paid = water_filling(owed, weight, 5.0)
    assert weight @ paid == pytest.approx(5.0, rel=1e-9)
    assert weight @ paid >= 5.0
    level = (paid + owed)[paid > 0] / weight[paid > 0]
    assert np.ptp(level) < 1e-9 * level.mean()
    assert np.all(owed[paid == 0] / weight[paid == 0] >= level.mean() * (1 - 1e-9))


def test_fixed_size_split_is_a_valid_window() -> None:
    plan = dp.Plan(
        records=1000,
        batches=dp.FixedSize(50),
        iterations=math.inf,
        step_size=10.0,
        noise_multiplier=2.0,
        lipschitz=1.0,
        smoothness=0.0,
        domain=dp.L2Ball(0.5),
    )
    profile, last = fixed_size_shift(plan, 1e-6)
    assert math.isfinite(last)
    # one step alone, nothing to pay: what even an endless run must cost at least
    assert profile.epsilon(1e-6) > dp.account(plan.replace(iterations=1)).epsilon(1e-6)


def test_forgetting_beats_the_split_walk_in_total_variation() -> None:
    """epsilon = 0: ``TV <= TV(last step) + S(1)`` for the one-dimensional walk, in closed form."""
    far, hit = 1.0, 0.3
    chance = Survival(far, 0.0, drift=hit)
    last_step = 2 * ndtr(hit / 2) - 1
    # On a short interval nearly all mass sits at the ends; the walks' laws differ by at most this.
    p, q = ndtr(-far + hit / 2), ndtr(-far - hit / 2)
    stationary = abs(p - q) / (p + q)
    assert stationary <= last_step + chance(1)
