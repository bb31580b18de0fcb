"""The noise is as near to ideal normal numbers as the theory page says; the release is exact."""

import ast
from decimal import localcontext
from pathlib import Path

import mpmath
import numpy as np
import pytest
from scipy import stats

import dplateau as dp
from dplateau.accounting import rounding
from dplateau.accounting.privacy_loss.profiles import Gaussian
from dplateau.accounting.rounding import Charge, rounding_charge
from dplateau.training import exact, noise, normals
from dplateau.training.exact import add_and_round
from dplateau.training.noise import training_streams
from dplateau.training.normals import CELL, PAIRS, RARE, Normals


class Given:
    """A stream that gives these uniform numbers, then others."""

    def __init__(self, numbers):
        self.numbers, self.rest = list(numbers), np.random.default_rng(0)

    def random(self, size=None):
        count = 1 if size is None else int(np.prod(size))
        found = [self.numbers.pop(0) if self.numbers else self.rest.random() for _ in range(count)]
        return found[0] if size is None else np.array(found).reshape(size)


def hostile_uniforms():
    """Uniform floats where the transformation is hardest: ends, thresholds, octants."""
    rng = np.random.default_rng(4)
    ends = [0.0, CELL, 3 * CELL, RARE - CELL, RARE, 0.5 - CELL, 0.5, 1 - RARE, 1 - 3 * CELL]
    octants = [k / 8 + shift for k in range(8) for shift in (0.0, CELL)]
    some = rng.integers(0, 1 << 53, 400) * CELL
    return np.array([*ends, 1 - CELL, *octants, *some])


def test_no_number_is_farther_from_the_ideal_than_is_claimed():
    mpmath.mp.prec = 200
    a = np.resize(hostile_uniforms(), PAIRS)
    b = np.resize(hostile_uniforms()[::-1], PAIRS)
    extra = np.resize(hostile_uniforms(), np.count_nonzero((a < RARE) | (a > 1 - RARE)))
    block = normals._block(Given([*a, *b, *extra]))
    second, worst = iter(extra), 0.0
    for i in range(PAIRS):
        refined = next(second) if a[i] < RARE or a[i] > 1 - RARE else None
        width = CELL if refined is None else CELL * CELL
        start = mpmath.mpf(a[i]) + (0 if refined is None else mpmath.mpf(refined) * CELL)
        # The ideal number lies anywhere in the cell of its two uniform numbers: all four corners.
        for u in (start, start + width):
            if u >= 1:  # a chance of 2^-106, charged as such
                continue
            radius = mpmath.sqrt(-2 * mpmath.log1p(-u))
            for turn in (mpmath.mpf(b[i]), mpmath.mpf(b[i]) + CELL):
                ideal = radius * mpmath.cospi(2 * turn), radius * mpmath.sinpi(2 * turn)
                off = mpmath.hypot(ideal[0] - block[2 * i], ideal[1] - block[2 * i + 1])
                worst = max(worst, float(off))
    assert 0 < worst <= rounding.NOISE_FARTHEST
    assert np.abs(block).max() <= rounding.NOISE_LARGEST


def test_normals_are_normal_whatever_the_portions_they_are_taken_in():
    (one, _), (other, _) = training_streams(3, 1)[0], training_streams(3, 1)[0]
    whole = one.take(40_000)
    parts = np.concatenate([other.take(size) for size in (2, 6, 2048, 5000, 32_944)])
    np.testing.assert_array_equal(whole, parts)
    assert stats.kstest(whole, "norm").pvalue > 1e-6
    pairs = whole[: 2 * PAIRS].reshape(PAIRS, 2).T
    assert abs(np.corrcoef(pairs)[0, 1]) < 5 / np.sqrt(PAIRS)


def test_no_pair_is_split_between_two_steps():
    """The last bits of one number of a pair tell of the other: theory, section 20.3."""
    (one, _), (other, _) = training_streams(3, 1)[0], training_streams(3, 1)[0]
    pairs = one.take(4 * PAIRS).reshape(-1, 2)
    np.testing.assert_array_equal(other.take(3), [*pairs[0], pairs[1][0]])
    np.testing.assert_array_equal(other.take(1), pairs[2][:1])
    np.testing.assert_array_equal(other.take(2 * PAIRS), pairs[3 : PAIRS + 3].ravel())


def test_the_compiled_normals_are_the_same_numbers():
    from dplateau.training.native.normals import take

    (one, _), (other, _) = training_streams(8, 1)[0], training_streams(8, 1)[0]
    found = np.empty(3000)
    take(other.parts, found[:7])
    take(other.parts, found[7:])
    taken = np.concatenate([one.take(7), one.take(2993)])
    np.testing.assert_allclose(taken, found, rtol=0, atol=1e-14)
    np.testing.assert_array_equal(one.used, other.used)


# -- the release ----------------------------------------------------------------------------------


def test_the_digits_of_pi():
    mpmath.mp.prec = 600
    assert abs(mpmath.mpf(str(exact._PI)) - mpmath.pi) < mpmath.mpf(10) ** -148


def test_decimals_enclose_the_ideal_number():
    mpmath.mp.prec = 500
    rng = np.random.default_rng(2)
    for _ in range(20):
        radial, angular = (rng.integers(0, 1 << 53, 2).tolist() for _ in range(2))
        with localcontext() as context:
            context.prec = 60
            low, high = exact._interval(radial, angular, 60)
        u, turn = (
            (words[0] + (words[1] + mpmath.mpf("0.3")) / 2**53) / mpmath.mpf(2) ** 53
            for words in (radial, angular)
        )
        ideal = mpmath.sqrt(-2 * mpmath.log1p(-u)) * mpmath.cospi(2 * turn)
        assert mpmath.mpf(str(low)) < ideal < mpmath.mpf(str(high))
        assert float(high - low) < 1e-27


def test_what_floats_cannot_decide_decimals_do(monkeypatch):
    """The same draws with every case undecided end at the same multiples."""
    weights = np.linspace(-2, 2, 60)
    plain = add_and_round(weights, 0.5, 2.0**-7, np.random.default_rng(5))
    asked = []
    decide = exact._in_decimals

    def counted(*arguments):
        asked.append(arguments)
        return decide(*arguments)

    monkeypatch.setattr(exact, "_in_decimals", counted)
    monkeypatch.setattr(exact, "NOISE_FARTHEST", 1.0)
    np.testing.assert_array_equal(
        plain, add_and_round(weights, 0.5, 2.0**-7, np.random.default_rng(5))
    )
    assert len(asked) == weights.size


def test_a_number_on_the_edge_is_decided_by_further_bits():
    # sqrt(-2 log(1/2)) cos(0) is the left end of its cell: put the edge of the grid there.
    z = float(np.sqrt(2 * np.log(2)))
    grid = 2.0**-4
    edge = (np.floor(z / grid) + 0.5) * grid
    found = {
        float(add_and_round(np.array([edge - z]), 1.0, grid, Given([0.5, 0.0, *bits]))[0])
        for bits in ([0.01, 0.5], [0.99, 0.5], [0.5, 0.01])
    }
    assert found <= {edge - grid / 2, edge + grid / 2}
    assert found


def test_the_release_is_on_the_grid_in_the_domain_and_hardly_moved():
    plan = dp.Plan(
        records=10, batches=dp.FullBatch(), iterations=5, step_size=0.5, noise_multiplier=10.0,
        lipschitz=1.0, smoothness=1.0, domain=dp.L2Ball(1.0),
    )  # fmt: skip
    (source, _), grid = training_streams(1, 1)[0], noise.release_grid(plan, 5)
    models = np.tile([0.6, 0.8], (4000, 1))
    found = noise.released(plan, 5, models, source)
    np.testing.assert_array_equal(np.rint(found / grid) * grid, found)
    assert (np.linalg.norm(found, axis=1) <= 1 + grid).all()
    spread = noise.last_spread(plan, 5) * rounding.RELEASE_SHARE
    along = (found - models) @ np.array([0.8, -0.6])  # where the ball does not hinder
    assert abs(along.std() / spread - 1) < 0.06
    assert abs(along.mean()) < 5 * spread / np.sqrt(4000)


def test_without_noise_nothing_is_added():
    plan = dp.Plan(
        records=10, batches=dp.FullBatch(), iterations=5, step_size=0.5, noise_multiplier=0.0,
        lipschitz=1.0, smoothness=1.0,
    )  # fmt: skip
    models = np.array([[0.1, 0.2]])
    np.testing.assert_array_equal(
        noise.released(plan, 5, models, Normals(np.random.default_rng(0))), models
    )


# -- the charge -----------------------------------------------------------------------------------


def charge(shape=(30,), **changes):
    fields = {
        "records": 1000, "batches": dp.FullBatch(), "iterations": 500, "step_size": 1.0,
        "noise_multiplier": 20.0, "lipschitz": 1.0, "smoothness": 0.25, "domain": dp.L2Ball(5.0),
    }  # fmt: skip
    return rounding_charge(dp.Plan(**{**fields, **changes}), shape)


def test_the_charge_is_small_for_what_people_train():
    for found in (
        charge(),
        charge(records=10**6, noise_multiplier=100.0),
        charge((785, 10), records=60_000, batches=dp.Poisson(600), noise_multiplier=1.0),
        charge(hidden_state=False),
        charge(hidden_state=False, smoothness=None),
        charge(iterations=20_000, domain=dp.Everywhere(), lipschitz=None, smoothness=None,
               loss=dp.Logistic(), data_norm=1.0, noise_multiplier=200.0),
    ):  # fmt: skip
        assert 1.0 < found.claimed(1.0, 1e-6) < 1.0 + 1e-5
        assert 1e-6 * (1 - 1e-4) < found.ideal_delta(1e-6) < 1e-6


def test_the_charge_grows_with_everything_that_is_rounded():
    base = charge().mu
    for more in (
        charge(iterations=2000),
        charge((60,)),
        charge(records=4000),
        charge(domain=dp.L2Ball(50.0)),
        charge(noise_multiplier=5.0),
        charge(domain=dp.Everywhere()),
    ):
        assert more.mu > base
    assert charge(regularization=0.5, domain=dp.Everywhere()).mu < charge(domain=dp.Everywhere()).mu


@pytest.mark.parametrize("changes", [{"noise_multiplier": 0.0}, {"iterations": float("inf")}])
def test_what_is_not_bounded_is_charged_without_bound(changes):
    found = charge(**changes)
    assert found.claimed(1.0, 1e-6) == float("inf")
    assert found.distance(0.0) == 1.0
    assert found.power(lambda rates: rates, np.array([0.0, 0.5])).tolist() == [1.0, 1.0]
    assert Charge(0.0, 0.0).claimed(float("inf"), 1e-6) == float("inf")


@pytest.mark.parametrize("mu", [1e-10, 1e-6, 1e-3])
def test_what_is_claimed_pays_for_the_program(mu):
    """The worst program there is: normal numbers whose means lie mu farther out on both sides."""
    plan = Gaussian(0.5)
    found, worst = Charge(mu, 0.0), Gaussian(0.5 + 2 * mu)
    for delta in (1e-10, 1e-6, 1e-3):
        claimed = found.claimed(plan.epsilon(found.ideal_delta(delta)), delta)
        assert worst.epsilon(delta) <= claimed <= worst.epsilon(delta) + 30 * mu + 1e-5
    rates = np.array([1e-4, 0.01, 0.5])
    power = found.power(lambda a: 1 - plan.tradeoff(a), rates)
    np.testing.assert_allclose(power, 1 - worst.tradeoff(rates), rtol=1e-9)
    assert worst.delta(0.0) <= found.distance(plan.delta(0.0)) <= worst.delta(0.0) + mu


def test_an_event_that_is_given_up_is_paid_for_by_delta():
    few = Charge(1e-10, 1e-20)
    assert few.claimed(1.0, 1e-6) < 1.0 + 1e-8
    assert few.claimed(40.0, 1e-6) == float("inf")  # exp(40) * 1e-20 is more than delta
    assert few.claimed(1.0, 1e-20) == float("inf")


def test_a_step_in_floats_ends_where_the_charge_says(either_engine):
    """One step against 60 digits: the mean moves by less than the bound of section 20.3."""
    mpmath.mp.prec = 200
    rng = np.random.default_rng(3)
    X = rng.normal(size=(40, 3))
    y = np.where(rng.random(40) < 0.5, 1, -1)
    plan = dp.Plan(
        records=40, batches=dp.FullBatch(), iterations=1, step_size=1.0, noise_multiplier=0.0,
        loss=dp.Logistic(), data_norm=1.0, domain=dp.L2Ball(9.0), regularization=0.1,
    )  # fmt: skip
    from dplateau.training.session import Session

    session = Session(plan, plan.loss, X, y)
    start = rng.normal(size=3) * 4
    session.weights = start.copy()
    session.advance(1, training_streams(0, 1)[0])
    w = [mpmath.mpf(x) for x in start]
    total = [mpmath.mpf(0)] * 3
    for row, label, scale in zip(X, y, session.records.scale, strict=True):
        x = [mpmath.mpf(v) * mpmath.mpf(scale) for v in row]
        score = mpmath.fsum(p * q for p, q in zip(x, w, strict=True))
        slope = -label / (1 + mpmath.exp(label * score))
        total = [t + slope * v for t, v in zip(total, x, strict=True)]
    moved = [v - (t / 40 + mpmath.mpf(0.1) * v) for v, t in zip(w, total, strict=True)]
    off = mpmath.sqrt(
        mpmath.fsum((m - f) ** 2 for m, f in zip(moved, session.weights, strict=True))
    )
    wrong, rounded = rounding._moved(plan, (3,))
    assert off <= wrong + rounded


# Draws of numpy that are no release: made-up rows, made-up noise, an audit's own attack.
MADE_UP = {
    "auditing/selection.py",
    "auditing/synthetic.py",
    "estimators/evaluation.py",
    "estimators/pace.py",
}
FLOAT_LAWS = {
    *("normal", "standard_normal", "multivariate_normal", "laplace", "exponential", "gamma"),
    *("standard_exponential", "standard_gamma", "geometric", "poisson", "binomial", "logistic"),
}


def test_no_release_rests_on_a_law_that_numpy_computes_in_floats():
    package = Path(dp.__file__).parent
    drawing = set()
    for path in package.rglob("*.py"):
        calls = [n.func for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.Call)]
        names = {f.attr for f in calls if isinstance(f, ast.Attribute)}
        if names & FLOAT_LAWS:
            drawing.add(path.relative_to(package).as_posix())
    assert drawing <= MADE_UP
    assert "estimators/pace.py" in drawing  # the search finds what there is
