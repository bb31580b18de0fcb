"""Hypothesis's profiles, and the command line, called in the test's own process.

The same examples every time where a landing is judged; others in ``make test-all``, which sets
``HYPOTHESIS_PROFILE=random``.
"""

import gc
import os
import sys
from functools import cache

import pytest
import typer.main
from hypothesis import settings

from dplateau.cli import main

settings.register_profile("fixed", derandomize=True, deadline=None)
settings.register_profile("random", deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fixed"))


def pytest_configure():
    """Workers share the cores: threads for small matrix products would wait for each other."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items):
    """Groups count: xdist 3.8 writes them where pytest 9.2 no longer looks (pytest-xdist#1386)."""
    for item in items:
        grouped = getattr(item, "_nodeid", item.nodeid)
        if grouped != item.nodeid:
            item._id = type(item._id).parse(grouped)


def pytest_collection_finish():
    """Modules and tests stay: no later collection, nor a look for what holds a model, walks them.

    A million objects are there by now, and every fit looks for a pipeline around it.
    """
    gc.collect()
    gc.freeze()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """A file that names no group is one: its fixtures and accounts are worked out by one worker."""
    if config.getvalue("dist") != "loadgroup":
        return None
    from xdist.scheduler import LoadGroupScheduling

    class ByFile(LoadGroupScheduling):
        def _split_scope(self, nodeid):
            scope = super()._split_scope(nodeid)
            return nodeid.split("::")[0] if scope == nodeid else scope

    return ByFile(config, log)


@cache
def _made(app, *registered, make=typer.main.get_command):
    return make(app)


def _command(app):
    """typer makes the whole tree of options anew for every call: once will do."""
    return _made(app, len(app.registered_commands), len(app.registered_groups))


typer.main.get_command = _command


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
