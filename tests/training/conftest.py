"""Which engine runs a test: by default the plain one, since the plans of tests are small."""

import pytest

from dplateau.training import engine


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
