"""The count as drawn: integers only, never below the truth, and of the law that is accounted."""

from __future__ import annotations

import math
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from dplateau.accounting.record_count import PrivateCount, SeveralCounts, ladder
from dplateau.training import noise
from dplateau.training.count import count_until_sharp, two_sided_geometric


def drawn(count, records, seed=None):
    """The result of a single count."""
    bought, bound = count_until_sharp((count,), records, seed)
    assert bought == count
    return bound


@pytest.mark.parametrize("rate", [Fraction(1, 2), Fraction(3, 7), Fraction(3, 2), Fraction(0.35)])
def test_draws_follow_the_geometric_law(rate):
    """Chi-squared over 5 000 seeded draws; a false alarm had chance 1e-3."""
    ((generator, _),) = noise.open_streams(12, 1)
    draws = 5000
    found = Counter(two_sided_geometric(rate, generator) for _ in range(draws))
    ratio = math.exp(-rate)
    reach = max(int(math.log(draws / 20) / rate), 1)
    inner = {k: (1 - ratio) / (1 + ratio) * ratio ** abs(k) for k in range(-reach, reach + 1)}
    expected = [draws * p for p in inner.values()] + [draws * (1 - sum(inner.values()))]
    seen = [found.pop(k, 0) for k in inner] + [sum(found.values())]
    assert stats.chisquare(seen, expected).pvalue > 1e-3


def test_the_count_bounds_the_records_and_is_cut_where_it_is_accounted():
    count = PrivateCount(0.8, 1e-2)
    m = count.half_width
    counts = [drawn(count, 50, seed) for seed in range(1500)]
    assert min(counts) >= 50
    assert max(counts) <= 50 + 2 * m
    # the ends have chance 0.008 each: one that is never reached had chance 5e-6
    assert {min(counts), max(counts)} == {50, 50 + 2 * m}
    assert count.likely_records(50 + m) == 50


def test_neighbours_shift_the_same_draw_by_one():
    """Given the randomness, the count moves with the records: no other use of them is made."""
    count = PrivateCount(0.02, 1e-7)
    assert [drawn(count, 101, s) - drawn(count, 100, s) for s in range(20)] == [1] * 20


def test_unseeded_counts_differ_and_the_training_noise_is_no_part_of_them():
    count = PrivateCount(1e-4, 1e-7)
    assert len({drawn(count, 10) for _ in range(20)}) > 10
    ((training, _),) = noise.open_streams(5, 1)
    _, (counting, _) = noise.open_streams(5, 2)
    assert not np.array_equal(training.integers(2**62, size=4), counting.integers(2**62, size=4))


def test_sharper_counts_are_drawn_only_where_a_coarse_one_does_not_do():
    """And each has noise of its own, whatever the seed."""
    counts = ladder(1.0, 1e-5)
    for seed in range(20):
        bought, bound = count_until_sharp(counts, 2_000_000, seed)
        assert bought == counts[0]
        assert 2_000_000 <= bound <= 2_000_000 + 2 * bought.half_width
        bought, bound = count_until_sharp(counts, 300, seed)
        assert bought == SeveralCounts(counts)
        assert 300 <= bound <= 300 + 2 * counts[-1].half_width
    twice = (PrivateCount(0.01, 1e-4),) * 2
    assert len({count_until_sharp(twice, 50, seed)[1] - drawn(twice[0], 50, seed)
                for seed in range(5)}) > 1  # fmt: skip
