"""The private count of records: its exact delta, by rational and 60-digit arithmetic."""

from __future__ import annotations

import math
from fractions import Fraction

import mpmath
import pytest

from dplateau.accounting.record_count import (
    BESIDE_NOISE,
    LADDER,
    PrivateCount,
    SeveralCounts,
    ladder,
    until_sharp,
)
from dplateau.accounting.spending import PrivacyBudget
from dplateau.errors import PlanError

CASES = [
    (0.02, 1e-7),
    (0.002, 1e-8),
    (0.1, 1e-9),
    (0.5, 1e-3),
    (2.0, 1e-6),
    (8.0, 0.3),
    (1e-4, 1e-3),
]


def law(ratio, m):
    """``P(Z = k)`` for ``k = -m..m``, in whatever arithmetic ``ratio = exp(-epsilon)`` has."""
    weights = {k: ratio ** abs(k) for k in range(-m, m + 1)}
    total = sum(weights.values())
    return {k: weight / total for k, weight in weights.items()}


def hockey_stick(one, other, factor):
    """``sum of (P - factor Q)_+`` over all outcomes: the exact delta of the pair."""
    outcomes = one.keys() | other.keys()
    return sum(max(one.get(z, 0) - factor * other.get(z, 0), 0) for z in outcomes)


@pytest.mark.parametrize(("epsilon", "delta"), CASES)
def test_delta_is_exact_and_the_width_is_the_least(epsilon, delta):
    m = PrivateCount(epsilon, delta).half_width
    with mpmath.workdps(60):
        ratio = mpmath.exp(-mpmath.mpf(epsilon))
        chances = law(ratio, m)
        few = {k + m: p for k, p in chances.items()}  # the count for n = 0
        many = {k + m + 1: p for k, p in chances.items()}  # and for n = 1
        # no factor at which rounding of 60 digits could turn equality into an excess
        factor = (1 + mpmath.mpf(10) ** -50) / ratio
        for one, other in ((few, many), (many, few)):
            found = hockey_stick(one, other, factor)
            assert found <= delta
            assert mpmath.almosteq(found, chances[m], rel_eps=mpmath.mpf(10) ** -40)
        if m > 1:
            assert law(ratio, m - 1)[m - 1] > delta * (1 - 1e-8)


@pytest.mark.parametrize(
    ("ratio", "m"), [(Fraction(1, 2), 1), (Fraction(9, 10), 7), (Fraction(99, 100), 60)]
)
def test_the_theorem_in_rational_numbers(ratio, m):
    """With ``exp(-epsilon)`` rational nothing is rounded: delta is ``P(Z = m)``."""
    chances = law(ratio, m)
    few = chances
    many = {k + 1: p for k, p in chances.items()}
    assert hockey_stick(few, many, 1 / ratio) == chances[m]
    assert hockey_stick(many, few, 1 / ratio) == chances[m]
    assert hockey_stick(few, many, Fraction(1)) == chances[0], "total variation"


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.7, 1e-8, 1e6])
@pytest.mark.parametrize("delta", [1e-5, 1e-9, 0.1])
def test_the_parts_never_exceed_the_budget(epsilon, delta):
    budget = PrivacyBudget(epsilon, delta)
    for count, (share, part) in zip(budget.counts, LADDER, strict=True):
        left = budget.after(count)
        for taken, rest, whole in (
            (count.epsilon, left.epsilon, epsilon),
            (count.delta, left.delta, delta),
        ):
            assert Fraction(taken) + Fraction(rest) <= Fraction(whole)
            assert taken + rest == pytest.approx(whole, rel=1e-14)
        assert (count.epsilon, count.delta) == pytest.approx((share * epsilon, part * delta))


def test_a_budget_without_an_epsilon_buys_one_count_of_its_own_price():
    budget = PrivacyBudget.of(None, 1e-5)
    (count,) = budget.counts
    assert (count.epsilon, count.delta) == (BESIDE_NOISE[0], BESIDE_NOISE[1] * 1e-5)
    assert budget.after(count).epsilon is None
    assert budget.after(count).delta + count.delta <= 1e-5
    assert budget.after(None) == budget


@pytest.mark.parametrize("epsilon", [1e-300, 1e-9, 1.0, 1e300])
@pytest.mark.parametrize("delta", [1e-300, 1e-6, 0.999])
def test_extremes_are_answered_at_once(epsilon, delta):
    count = PrivateCount(epsilon, delta)
    assert count.half_width >= 1


def test_a_wider_count_costs_less():
    widths = [PrivateCount(epsilon, 1e-7).half_width for epsilon in (0.01, 0.1, 1.0)]
    assert widths == sorted(widths, reverse=True)
    widths = [PrivateCount(0.1, delta).half_width for delta in (1e-9, 1e-6, 1e-3)]
    assert widths == sorted(widths, reverse=True)


@pytest.mark.parametrize(
    ("epsilon", "delta"), [(0.0, 1e-6), (-1.0, 1e-6), (math.inf, 0.1), (1.0, 0.0)]
)
def test_what_is_no_price_is_refused(epsilon, delta):
    with pytest.raises(PlanError):
        PrivateCount(epsilon, delta)


def outcomes(counts, records):
    """Every way that counts one after the other can end, with its chance."""
    first, *others = counts
    m, found = first.half_width, {}
    for k, chance in law(math.exp(-first.epsilon), m).items():
        counted = records + m + k
        if first.is_sharp(counted) or not others:
            found[(counted,)] = chance
        else:
            rest = outcomes(others, records).items()
            found |= {(counted, *after): chance * then for after, then in rest}
    return found


@pytest.mark.parametrize("records", [1, 33, 60, 300])
def test_counts_that_follow_one_another_cost_their_sum(records):
    """By enumeration: what is bought next depends on what was counted, and nothing else leaks."""
    counts = (PrivateCount(0.15, 0.02), PrivateCount(0.3, 0.02), PrivateCount(0.7, 0.01))
    few, many = (outcomes(counts, n) for n in (records, records + 1))
    assert sum(few.values()) == pytest.approx(1.0)
    bought = {len(each) for each in few}
    assert bought == {1: {3}, 33: {2, 3}, 60: {1, 2}, 300: {1}}[records]
    whole = SeveralCounts(counts)
    for one, other in ((few, many), (many, few)):
        assert hockey_stick(one, other, math.exp(whole.epsilon)) <= whole.delta * (1 + 1e-12)
    # the sum is needed: a record is told from its absence by more than any one count allows
    if records == 1:
        assert hockey_stick(few, many, math.exp(counts[-1].epsilon)) > counts[-1].delta


@pytest.mark.parametrize("epsilon", [0.1, 3.7, 1e-8])
def test_no_number_of_counts_exceeds_the_budget(epsilon):
    counts = ladder(epsilon, 1e-5)
    for bought in range(1, len(counts) + 1):
        several = SeveralCounts(counts[:bought])
        for parts, left, whole in (
            ([c.epsilon for c in several.counts], several.epsilon_left(epsilon), epsilon),
            ([c.delta for c in several.counts], several.delta_left(1e-5), 1e-5),
        ):
            assert sum(map(Fraction, parts)) + Fraction(left) <= Fraction(whole)
    assert several.delta == pytest.approx(1e-7)
    assert several.together == PrivateCount(several.epsilon, several.delta)


def test_the_share_shrinks_as_records_and_budget_grow():
    def share(records, epsilon):
        counts = ladder(epsilon, 1e-5)
        bought, _ = until_sharp(counts, lambda count: records + count.half_width)
        return bought.epsilon / epsilon

    found = [share(records, 1.0) for records in (300, 20_000, 500_000)]
    assert found == pytest.approx([0.0245, 0.0045, 0.0005])
    assert share(20_000, 10.0) == pytest.approx(share(200_000, 1.0)) == LADDER[0][0]
