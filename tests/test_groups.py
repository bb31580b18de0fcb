"""Contract: tests of one group are run by one worker, so that they share what was worked out."""

import pytest


@pytest.mark.xdist_group("heard")
def test_groups_are_heard(request):
    if not getattr(request.config.option, "loadgroup", False):
        pytest.skip("tests are not distributed by groups")
    assert request.node.nodeid.endswith("@heard")
