"""Sums that looks ask for: the same in whatever parts, order and layout they are taken."""

import functools
from fractions import Fraction

import numpy as np
import pytest
import scipy.sparse

from dplateau.training import asking
from dplateau.training.asking import Lengths, Means, Places, Products, Spreads
from dplateau.training.partitions import Part

N, D = 500, 3
LOW, HIGH = np.full(D, -2.0), np.full(D, 3.0)
QUESTIONS = [
    Places(LOW, HIGH),
    Spreads(LOW, HIGH, np.full(D, 0.25), np.full(D, 0.75)),
    Products(np.full(D, 0.1), np.full(D, 0.7)),
    Lengths(2.5),
    Means(2.5, 0.6),
]


def problem(kind=np.float64):
    rng = np.random.default_rng(3)
    X = rng.normal(size=(N, D)) * 10.0 ** rng.integers(-3, 2, (N, D))
    X[7, 1], X[9, 0], X[11, 2] = np.nan, np.inf, -np.inf
    X[13], X[15] = 0.0, 1e38
    y = rng.random(N)
    y[[3, 9, 20]] = np.nan
    return X.astype(kind), y


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda q: type(q).__name__)
@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_parts_add_up_to_the_whole_without_rounding(question, kind, monkeypatch):
    X, y = problem(kind)
    whole = question.of(Part(X, y))
    assert whole.dtype == np.int64
    assert whole.any()
    order = np.random.default_rng(1).permutation(N)
    for rows in (np.asfortranarray(X)[order], X[order], np.repeat(X[order], 2, axis=0)[::2]):
        for cuts in ((), (1, 2, 400), tuple(range(0, N, 7))):
            parts = zip(np.split(rows, cuts), np.split(y[order], cuts), strict=True)
            found = functools.reduce(np.add, (question.of(Part(*part)) for part in parts))
            np.testing.assert_array_equal(found, whole)
    monkeypatch.setattr(asking, "_PIECE", 64)
    np.testing.assert_array_equal(question.of(Part(X, y)), whole)
    by_columns = [np.array(column) for column in X[np.isfinite(y)].T]
    if not isinstance(question, (Lengths, Means)):
        np.testing.assert_array_equal(question.of(Part(by_columns, None)), whole)


@pytest.mark.parametrize("question", QUESTIONS[3:], ids=lambda q: type(q).__name__)
def test_sparse_rows_have_lengths(question):
    X, y = problem()
    found, dense = question.of(Part(scipy.sparse.csr_array(X), y)), question.of(Part(X, y))
    np.testing.assert_array_equal(found[-1:], dense[-1:])
    assert isinstance(question, Lengths) or not found[:-1].any()


def test_more_records_than_floats_count_are_added_up():
    """A sum of ten thousand million records, by its parts: whole numbers are not rounded."""
    matrix = Products(np.zeros(1), np.full(1, 2.0))
    one = matrix.of(Part(np.array([[1.0]]), None))
    many = one * 10**10 + one  # as a cluster adds them up
    assert Fraction(int(many[1, 1])) == Fraction(int(one[1, 1])) * (10**10 + 1)
    assert (many * matrix.unit)[1, 1] == pytest.approx(0.25 * (10**10 + 1), rel=1e-15)


def test_a_person_is_seen_by_the_first_row():
    X, _ = problem()
    owners = np.arange(N) % 40
    for question in QUESTIONS:
        found = question.of(Part(X, np.zeros(N), None, owners))
        np.testing.assert_array_equal(found, question.of(Part(X[:40], None)))
