"""No bound is computed twice for one question: calls of every bound's ``at`` are counted."""

from collections import Counter

import numpy as np
import pytest

import dplateau as dp
from dplateau.accounting.bounds.base import registered
from dplateau.accounting.prepared import account_prepared

DELTA = 1e-6
KINDS = {
    "full": dp.FullBatch(),
    "cyclic": dp.Cyclic(50),
    "fixed": dp.FixedSize(50),
    "poisson": dp.Poisson(50),
    "allocation": dp.RandomAllocation(10),
}


@pytest.fixture
def asked(monkeypatch):
    """How often each bound was asked for its parameters, by plan and delta."""
    counts: Counter[tuple[str, str, float]] = Counter()

    def count(family):
        original = family.at

        def counted(self, plan, delta):
            counts[self.name, plan.to_json(), float(delta)] += 1
            return original(self, plan, delta)

        monkeypatch.setattr(family, "at", counted)

    for bound in registered():
        count(type(bound))
    return counts


def once(asked):
    assert asked, "nothing was counted"
    return [key for key, times in asked.items() if times > 1] == []


def plan_of(kind):
    return dp.Plan(
        records=500,
        batches=KINDS[kind],
        iterations=60,
        step_size=1.0,
        noise_multiplier=4.0,
        lipschitz=1.0,
        smoothness=0.25,
        domain=dp.L2Ball(2.0),
        dimension=3,
    )


@pytest.mark.parametrize("kind", KINDS)
def test_by_a_guarantee(kind, asked):
    guarantee = dp.account(plan_of(kind), DELTA)
    for _ in range(2):
        epsilon = guarantee.at(DELTA).epsilon
        assert guarantee.epsilon(DELTA) == epsilon == min(guarantee.bounds(DELTA).values())
        guarantee.explain()
        guarantee.tradeoff([0.01, 0.1])
        guarantee.delta(epsilon)
        guarantee.delta(2 * epsilon)
    assert once(asked)


def test_beside_another_release(asked):
    alone = dp.account(plan_of("cyclic")).epsilon(DELTA)
    asked.clear()
    guarantee = account_prepared(plan_of("cyclic"), 0.1, DELTA)
    assert alone < guarantee.epsilon(DELTA) == guarantee.at(DELTA).epsilon
    assert guarantee.alone(DELTA) == alone
    guarantee.bounds(DELTA)
    assert once(asked)


@pytest.mark.parametrize(
    "more",
    [{}, {"scaling": "public"}, {"intervals": True}, {"batches": "poisson", "batch_size": 50}],
)
def test_by_a_certificate(more, asked):
    rng = np.random.default_rng(3)
    X = rng.normal(size=(400, 2))
    model = dp.PrivateLogisticRegression(
        epsilon=2.0, delta=1e-5, data_norm=3.0, classes=[0, 1], **more
    )
    certificate = model.fit(X, (X[:, 0] > 0).astype(int)).certificate_
    asked.clear()
    assert certificate.examine().holds  # writes the whole record again
    assert once(asked)


def test_once_one_bound_is_small_enough_the_others_are_left_alone(asked):
    guarantee = dp.account(plan_of("full"))
    bounds = guarantee._bounds
    chosen, epsilon = guarantee.least_of(bounds, DELTA, enough=np.inf)
    answers = [guarantee._answer(name, DELTA)[1] for name, *_ in list(asked)]
    assert np.isfinite(answers).sum() == 1  # those that have nothing to say may have been asked
    every = guarantee.bounds(DELTA)
    assert epsilon == every[chosen.name] >= min(every.values())
    assert guarantee.least_of(bounds, DELTA)[1] == min(every.values())
