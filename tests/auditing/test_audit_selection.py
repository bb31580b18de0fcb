"""Adversarial: the audit of a search is content with ours, and finds the two classical mistakes."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import dplateau as dp
from dplateau.accounting.search import Search
from dplateau.accounting.trials import NegativeBinomial
from dplateau.auditing import audit_selection

PLAN = dp.Plan(
    records=1000,
    batches=dp.FullBatch(),
    iterations=10,
    step_size=1.0,
    noise_multiplier=100.0,
    lipschitz=1.0,
    smoothness=0.25,
)


class AlwaysMany(NegativeBinomial):
    """The mistake: as many trials as are expected, every time."""

    def draw(self, generator: np.random.Generator) -> int:
        return 100


@pytest.fixture
def search() -> Search:
    return Search(NegativeBinomial(1.0, 1 / 100), (PLAN,), 0.4, 1.0, 0.2)


def test_a_random_number_of_trials_keeps_its_promise(search: Search) -> None:
    found = audit_selection(search, 1e-2, runs=2000, random_state=1)
    assert found.verdict == "consistent"
    assert found.epsilon_lower < found.epsilon


def test_a_fixed_number_of_trials_is_found_out(search: Search) -> None:
    wrong = dataclasses.replace(search, trials=AlwaysMany(1.0, 1 / 100))
    found = audit_selection(wrong, 1e-2, runs=12_000, random_state=1)
    assert found.verdict == "violated"


def test_showing_the_losers_is_found_out(search: Search) -> None:
    def all_scores(shown: Search, moved: float, generator: np.random.Generator) -> float:
        """The likelihood ratio of every trial's score instead of the best one alone."""
        number = shown.trials.draw(generator)
        return float((moved + generator.standard_normal(number)).sum())

    found = audit_selection(search, 1e-2, runs=3000, random_state=1, released=all_scores)
    assert found.verdict == "violated"
