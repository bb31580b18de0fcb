"""Contract: the map of the code shows the rooms that there are; the tree keeps to the design."""

import re
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "dplateau"
MAP = (ROOT / "docs" / "design.md").read_text(encoding="utf-8")
# The same word for the same thing in two rooms: a theorem and its draws, a command and its room.
SAME_THING = {
    "allocation", "base", "engine", "evaluation", "intervals", "ledger", "normals", "persons",
    "projections", "record_count", "scaling", "search", "selection",
}  # fmt: skip


def test_the_map_shows_every_room_and_no_other():
    shown = set(re.findall(r"^\| `([\w/]+)/` \|", MAP, flags=re.MULTILINE))
    rooms = {
        str(path.parent.relative_to(PACKAGE))
        for path in PACKAGE.rglob("__init__.py")
        if path.parent != PACKAGE
    }
    assert shown == rooms


def test_every_file_that_the_map_names_is_there():
    named = re.findall(r"`([\w/]+\.py)`", MAP)
    assert named
    assert [name for name in named if not (PACKAGE / name).is_file()] == []


def test_the_corridor_is_short():
    assert len([path for path in PACKAGE.glob("*.py") if path.name != "__init__.py"]) <= 4


def test_no_two_modules_of_the_same_name_mean_different_things():
    names = Counter(path.stem for path in PACKAGE.rglob("*.py") if path.stem != "__init__")
    assert {name for name, times in names.items() if times > 1} <= SAME_THING
