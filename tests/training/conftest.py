"""Which engine runs a test: by default the plain one, since the plans of tests are small.

The quick suite compiles for rows of float64, dense in order or sparse; other layouts are ten more
seconds of compilation each, through the same code: ``make test-all``.
"""

import numpy as np
import pytest

from dplateau.training import engine

COMPILED_QUICKLY = {"float64 C", "strided", "CSR float64", "CSC"}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    for item in items:
        given = item.callspec.params if hasattr(item, "callspec") else {}
        if "native" in (given.get("either_engine"), *getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.xdist_group("compiled"))  # by one worker, once
        layout = given.get("layout", "float64 C")
        other = layout not in COMPILED_QUICKLY or given.get("dtype") is np.float32
        if given.get("either_engine") == "native" and other:
            item.add_marker(pytest.mark.slow)


@pytest.fixture
def native(monkeypatch):
    """Everything is large enough to be compiled."""
    monkeypatch.setattr(engine, "PLAIN_SECONDS", -1.0)


@pytest.fixture(params=["plain", "native"])
def either_engine(request):
    """The test is run by both engines."""
    if request.param == "native":
        request.getfixturevalue("native")
    return request.param
