"""Contract: every bound says where on the theory page it is stated, and the place exists.

A module whose statements all stand in one section says so once, in its own docstring.
"""

import importlib
import inspect
import pkgutil
import re
from pathlib import Path

import pytest

from dplateau import accounting

PAGE = Path(__file__).resolve().parents[2] / "docs" / "theory.md"
LINK = re.compile(r"docs/theory\.md#([\w-]+)")
# What computes, checks or arranges, but states nothing, in modules of more than one section.
# A new public name must have a link or be put here, by somebody who has thought about it.
PLUMBING = {
    "bounds.minimise": {"lowest_between", "minimise_over_integers", "nearest_valley"},
    "bounds.composition": {"ratio", "step_ratios", "grouped"},
    "record_count": {"PrivateCount"},  # not part of training: its statement is its docstring
    "privacy_loss.distribution": {"log_against_standard"},
    "published.bound": {"refuse"},
    "privacy_loss.sampled_rdp": {"check_orders"},
}
MODULES = sorted(
    module.name.removeprefix("dplateau.accounting.")
    for module in pkgutil.walk_packages(accounting.__path__, "dplateau.accounting.")
)


def public_names(module):
    return {
        name: thing
        for name, thing in vars(module).items()
        if not name.startswith("_")
        and (inspect.isfunction(thing) or inspect.isclass(thing))
        and thing.__module__ == module.__name__
    }


@pytest.mark.parametrize("name", MODULES)
def test_every_bound_links_to_its_statement(name):
    module = importlib.import_module(f"dplateau.accounting.{name}")
    things = public_names(module)
    plumbing = PLUMBING.get(name, set())
    assert plumbing <= things.keys(), f"gone from {name}: {sorted(plumbing - things.keys())}"
    missing = [
        thing
        for thing, what in things.items()
        if thing not in plumbing and not LINK.search(f"{what.__doc__} {module.__doc__}")
    ]
    assert not missing, f"{name}: no docs/theory.md#section-N in the docstring of {missing}"


@pytest.mark.parametrize("name", MODULES)
def test_every_link_leads_somewhere(name):
    module = importlib.import_module(f"dplateau.accounting.{name}")
    anchors = set(re.findall(r'<a id="([\w-]+)"></a>', PAGE.read_text(encoding="utf-8")))
    assert {f"section-{n}" for n in range(1, 13)} <= anchors
    source = Path(module.__file__).read_text(encoding="utf-8")
    assert set(LINK.findall(source)) <= anchors
