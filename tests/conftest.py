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
