"""Hypothesis's profiles, and the command line, called in the test's own process.

The same examples every time where a landing is judged; others in ``make test-all``, which sets
``HYPOTHESIS_PROFILE=random``.
"""

import os
import sys

import pytest
from hypothesis import settings

from dplateau.cli import main

settings.register_profile("fixed", derandomize=True, deadline=None)
settings.register_profile("random", deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fixed"))


# Ten seconds and more each, with quicker siblings that stay: run by ``make test-all``.
LONG = (
    "test_our_own_trainer_passes_where_the_broken_ones_fail[batches_reused]",
    "test_our_own_trainer_passes_where_the_broken_ones_fail[average_released]",
    "test_extreme_arguments_fail_closed",
    "test_search.py::test_the_scikit_learn_contract",
    "test_scikit_learns_own_checks_pass_or_are_explained[quantile]",
    "test_scikit_learns_own_checks_pass_or_are_explained[regression]",
    "test_scikit_learns_own_checks_pass_or_are_explained[svc]",
    "test_a_forged_plan_is_found_whenever_it_changes_the_guarantee[2]",
    "test_a_forged_plan_is_found_whenever_it_changes_the_guarantee[3]",
    "test_verify_agrees_with_account_on_random_plans[2]",
    "test_every_benchmark_runs_and_makes_a_page",
    "test_least_noise[4.0-200-poisson]",
    "test_least_noise[4.0-200-fixed]",
    "test_least_noise[4.0-inf-poisson]",
    "test_least_noise[0.3-inf-poisson]",
    "test_walk_reaches_sixty_percent_of_the_exact_epsilon",
    "test_audit_own_code.py::test_batch_kind_passes_its_audit[Poisson",
    "test_audit_own_code.py::test_batch_kind_passes_its_audit[FixedSize",
    "test_every_choice_of_the_user_reaches_the_plan",
    "test_the_units_of_the_target_do_not_matter",
    "test_quantiles_cover_their_share",
    "test_a_run_killed_at_a_random_moment_resumes_and_ends_with_its_plan",
)


def pytest_collection_modifyitems(items):
    for item in items:
        if any(part in item.nodeid for part in LONG):
            item.add_marker(pytest.mark.slow)


@pytest.fixture
def dplateau(monkeypatch, capsys):
    """Call the command line: exit code, standard output, standard error."""

    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["dplateau", *map(str, arguments)])
        try:
            main()
            code = 0
        except SystemExit as end:
            code = end.code or 0
        return code, *capsys.readouterr()

    return call
