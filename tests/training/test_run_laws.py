"""With noise, a run has the law that the theory says: closed forms, the exact walk, the samplers.

Every statistical test here rejects a correct program with probability at most 1e-6 (seeds are
fixed, so in fact never or always).
"""

import math

import numpy as np
import pytest
from scipy import stats

import dplateau as dp
from dplateau.accounting.rounding import RELEASE_SHARE
from dplateau.plan.subsets import size_law
from dplateau.training.native import sampling
from dplateau.training.native.motion import motion_of
from dplateau.training.noise import open_streams, training_streams
from dplateau.training.run import run_many

LEVEL = 1e-6


def quadratic(batches, *, iterations=25, step=0.4, noise=3.0, regularization=0.2, records=12):
    """Squared losses (a Huber threshold never reached): the last iterate is Gaussian."""
    loss = dp.Huber(threshold=1e6)
    rng = np.random.default_rng(2)
    X = rng.normal(size=(records, 2))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    y = rng.normal(size=records)
    plan = dp.Plan(
        records=records,
        batches=batches,
        iterations=iterations,
        step_size=step,
        noise_multiplier=noise / 1e6,
        loss=loss,
        data_norm=1.0 + 1e-9,
        regularization=regularization,
    )
    return plan, loss, X, y


def closed_form(plan, X, y):
    """Mean and covariance of ``w <- A_t w + b_t + eta sigma Z``."""
    d = X.shape[1]
    mean, covariance = np.zeros(d), np.zeros((d, d))
    size, laps = int(plan.batch_size), math.ceil(len(X) / plan.batch_size)
    for t, eta in enumerate(plan.step_size.values(0, plan.iterations)):
        rows = slice((t % laps) * size, (t % laps + 1) * size)
        curvature = X[rows].T @ X[rows] / plan.batch_size + plan.regularization * np.eye(d)
        A = np.eye(d) - eta * curvature
        mean = A @ mean + eta * X[rows].T @ y[rows] / plan.batch_size
        covariance = A @ covariance @ A.T + (eta * plan.sigma) ** 2 * np.eye(d)
    return mean, covariance


@pytest.mark.parametrize("batches", [dp.FullBatch(), dp.Cyclic(5)], ids=["full", "cyclic"])
def test_the_law_on_quadratics_is_the_closed_form(batches):
    plan, loss, X, y = quadratic(batches)
    repeats = 20_000
    models = run_many(plan, loss, X, y, repeats, random_state=11)
    mean, covariance = closed_form(plan, X, y)
    white = np.linalg.solve(np.linalg.cholesky(covariance), (models - mean).T)
    # Each is exactly normal, so these have known laws: a union bound over all of them.
    for coordinate in white:
        assert stats.kstest(coordinate, "norm").pvalue > LEVEL / 10
        assert abs(stats.norm.isf(LEVEL / 20)) > abs(coordinate.mean()) * math.sqrt(repeats)
        spread = (coordinate**2).sum()
        assert stats.chi2.sf(spread, repeats) > LEVEL / 20
        assert stats.chi2.cdf(spread, repeats) > LEVEL / 20
    correlation = np.arctanh(np.corrcoef(white)[0, 1]) * math.sqrt(repeats - 3)
    assert abs(correlation) < stats.norm.isf(LEVEL / 20)


def walk_on_the_interval(drift, spread, half, steps, cells=500):
    """The law of ``clip(w + drift + spread Z)`` on ``[-half, half]``: cells and two atoms."""
    edges = np.linspace(-half, half, cells + 1)
    centres = np.concatenate([[-half], (edges[1:] + edges[:-1]) / 2, [half]])
    below = stats.norm.cdf((edges[None, :] - centres[:, None] - drift) / spread)
    kernel = np.column_stack([below[:, 0], np.diff(below, axis=1), 1 - below[:, -1]])
    law = np.zeros(cells + 2)
    law[1 + cells // 2] = law[cells // 2] = 0.5
    for _ in range(steps):
        law = law @ kernel
    # The release: a little more noise, and the projection once more.
    below = stats.norm.cdf((edges[None, :] - centres[:, None]) / (spread * RELEASE_SHARE))
    law = law @ np.column_stack([below[:, 0], np.diff(below, axis=1), 1 - below[:, -1]])
    return edges, np.cumsum(law)[:-1]


def test_the_law_on_an_interval_is_the_exact_walk():
    # One record whose Huber slope is always at its threshold: a linear loss, constant drift.
    loss = dp.Huber(threshold=0.5)
    plan = dp.Plan(
        records=1,
        batches=dp.FullBatch(),
        iterations=30,
        step_size=0.1,
        noise_multiplier=4.0,
        loss=loss,
        data_norm=1.0,
        domain=dp.Box(-0.6, 0.6),
        dimension=1,
    )
    repeats = 40_000
    models = run_many(plan, loss, np.ones((1, 1)), np.array([50.0]), repeats, random_state=3)[:, 0]
    edges, distribution = walk_on_the_interval(0.05, 0.1 * plan.sigma, 0.6, 30)
    found = np.searchsorted(np.sort(models), edges, side="right") / repeats
    # Dvoretzky-Kiefer-Wolfowitz, plus the grid's own error; the top atom lies beyond the last edge.
    allowed = math.sqrt(math.log(2 / LEVEL) / (2 * repeats)) + 3e-3
    assert np.abs(found[:-1] - distribution[:-1]).max() < allowed
    assert abs((models == models.max()).mean() - (1 - distribution[-1])) < allowed


# -- samplers -------------------------------------------------------------------------------------


def draw(batches, records, draws, seed=0, **fields):
    """The batches of many steps, as a 0/1 matrix of steps by records."""
    plan = dp.Plan(
        records=records,
        batches=batches,
        iterations=1,
        step_size=fields.pop("step_size", 0.01),
        noise_multiplier=1.0,
        lipschitz=1.0,
        smoothness=1.0,
        **fields,
    )
    motion = motion_of(plan, records)
    (_, stream), marked = open_streams(seed, 1)[0], np.zeros(records, np.uint8)
    hits = np.zeros((draws, records), dtype=bool)
    for t in range(draws):
        rows, start, stop = sampling.draw_batch(
            motion, records, t, stream, marked, np.empty(motion.size, np.int64)
        )
        batch = rows[start:stop]
        assert len(np.unique(batch)) == len(batch)
        assert not marked.any()
        hits[t, batch] = True
    return plan, hits


def frequencies_fit(counts, draws, chance, tests):
    """Every count is Binomial(draws, chance): exact two-sided tails, union bound."""
    tail = np.minimum(
        stats.binom.cdf(counts, draws, chance), stats.binom.sf(counts - 1, draws, chance)
    )
    return tail.min() > LEVEL / (4 * tests)


@pytest.mark.parametrize("size", [3, 11, 19])
def test_poisson_batches_are_independent_coins(size):
    draws, records = 12_000, 20
    plan, hits = draw(dp.Poisson(size), records, draws, seed=size)
    q = plan.inclusion_probability
    assert frequencies_fit(hits.sum(axis=0), draws, q, records)
    pairs = (hits.astype(int).T @ hits.astype(int))[np.triu_indices(records, 1)]
    assert frequencies_fit(pairs, draws, q * q, len(pairs))
    sizes = np.bincount(hits.sum(axis=1), minlength=records + 1)
    expected = draws * stats.binom.pmf(np.arange(records + 1), records, q)
    keep = expected > 10
    table = [np.append(part[keep], part[~keep].sum()) for part in (sizes, expected)]
    assert stats.chisquare(*table).pvalue > LEVEL / 4
    neighbours = (hits[1:] & hits[:-1]).sum(axis=0)  # one step tells nothing of the next
    assert frequencies_fit(neighbours[::2], draws - 1, q * q, 1e3)


@pytest.mark.parametrize(
    ("records", "inclusion"), [(20, 0.55), (60_000, 0.0085), (10**7, 0.3), (5, 1e-9), (10**9, 2e-6)]
)
def test_the_law_of_a_batchs_size_is_binomial_to_the_last_bits(records, inclusion):
    least, high, low = size_law(records, inclusion)
    cumulative = high / 2.0**53
    expected = stats.binom.cdf(least + np.arange(len(cumulative)), records, inclusion)
    np.testing.assert_allclose(cumulative, expected, rtol=0, atol=1e-12)
    assert least == 0 or high[0] == 0
    assert (high[-1], low[-1]) == (2**53, 0)


@pytest.mark.parametrize("size", [150, 1700])
def test_large_poisson_batches_have_the_binomial_size(size):
    draws, records = 2000, 2000
    plan, hits = draw(dp.Poisson(size), records, draws, seed=size)
    law = stats.binom(records, plan.inclusion_probability)
    cuts = law.ppf(np.linspace(0.05, 0.95, 19))
    found = np.bincount(np.searchsorted(cuts, hits.sum(axis=1)), minlength=20)
    expected = draws * np.diff(np.concatenate([[0.0], law.cdf(cuts), [1.0]]))
    assert stats.chisquare(found, expected).pvalue > LEVEL


def test_a_poisson_batch_beyond_the_cap_is_a_uniform_subset_of_it():
    draws, records = 12_000, 20
    plan, hits = draw(
        dp.Poisson(6, max_overflow=0.5), records, draws, step_size=1.6, domain=dp.L2Ball(1.0)
    )
    assert plan.batch_cap == 7
    sizes = np.bincount(hits.sum(axis=1), minlength=records + 1)
    assert sizes[8:].sum() == 0
    q = plan.inclusion_probability
    assert frequencies_fit(sizes[7], draws, stats.binom.sf(6, records, q), 8)
    assert frequencies_fit(sizes[:7], draws, stats.binom.pmf(np.arange(7), records, q), 8)
    full = hits[hits.sum(axis=1) == 7]
    assert frequencies_fit(full.sum(axis=0), len(full), 7 / records, records)


@pytest.mark.parametrize("size", [1, 4, 13, 20])
def test_fixed_size_batches_are_uniform_subsets_of_exact_size(size):
    draws, records = 12_000, 20
    _, hits = draw(dp.FixedSize(size), records, draws, seed=size)
    assert np.all(hits.sum(axis=1) == size)
    assert frequencies_fit(hits.sum(axis=0), draws, size / records, records)
    pairs = (hits.astype(int).T @ hits.astype(int))[np.triu_indices(records, 1)]
    chance = size * (size - 1) / (records * (records - 1))
    assert frequencies_fit(pairs, draws, chance, len(pairs))


def test_uniform_integers_have_no_bias():
    (_, stream), draws = open_streams(1, 1)[0], 60_000
    found = np.bincount([sampling._below(6, stream) for _ in range(draws)], minlength=6)
    assert frequencies_fit(found, draws, 1 / 6, 6)


# -- noise ----------------------------------------------------------------------------------------


def test_noise_is_normal_and_streams_are_independent():
    count = 50_000
    pairs = training_streams(9, 2) + training_streams(None, 2)
    drawn = np.array([draw(count) for n, g in pairs for draw in (n.take, g.standard_normal)])
    for row in drawn:
        assert stats.kstest(row, "norm").pvalue > LEVEL / 100
    correlations = np.corrcoef(drawn)[np.triu_indices(len(drawn), 1)] * math.sqrt(count)
    assert np.abs(correlations).max() < stats.norm.isf(LEVEL / 200)
    lagged = [(row[1:] * row[:-1]).mean() * math.sqrt(count) for row in drawn]
    assert np.abs(lagged).max() < stats.norm.isf(LEVEL / 200) + 0.2


def test_the_noise_of_every_weight_and_step_is_its_own():
    # No gradient at all: the last iterate is a sum of the steps' noises.
    loss = dp.Huber()
    plan = dp.Plan(
        records=2,
        batches=dp.FullBatch(),
        iterations=4,
        step_size=0.5,
        noise_multiplier=1.0,
        loss=loss,
        data_norm=1.0,
    )
    models = run_many(plan, loss, np.zeros((2, 6)), np.zeros(2), 20_000, random_state=5)
    standard = models / (math.sqrt(4) * 0.5 * plan.sigma)
    for column in standard.T:
        assert stats.kstest(column, "norm").pvalue > LEVEL / 50
    off = np.corrcoef(standard.T)[np.triu_indices(6, 1)] * math.sqrt(len(models))
    assert np.abs(off).max() < stats.norm.isf(LEVEL / 100)
