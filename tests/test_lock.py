"""The lock file: every direct dependency of every extra is pinned, in its range, with hashes."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).parent.parent
PIN = re.compile(r"(?P<name>[A-Za-z0-9._-]+)==(?P<version>[^ ;]+)(?P<rest>.*)")
HASH = re.compile(r"--hash=sha256:[0-9a-f]{64}\b")


def normal(name):
    return re.sub(r"[-_.]+", "-", name).lower()


def test_the_lock_pins_what_the_project_asks_for():
    lines = (ROOT / "requirements.lock").read_text().replace("\\\n", " ").splitlines()
    pins = {normal(p["name"]): p for p in map(PIN.match, lines) if p}
    assert len(pins) > 50
    assert all(HASH.search(pin["rest"]) for pin in pins.values())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"].values()
    wanted = [*project["dependencies"], *(one for extra in extras for one in extra)]
    for requirement in map(Requirement, wanted):
        if normal(requirement.name) == project["name"]:
            continue
        pin = pins[normal(requirement.name)]
        assert requirement.specifier.contains(pin["version"], prereleases=True), str(requirement)
