"""The column of a table that says whose each row is."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from dplateau.errors import PlanError
from dplateau.tables.cells import listed

_IDENTIFIER = re.compile(
    r"(?:^|[_\W])(?:id|uuid|guid|ssn|nhs|mrn|pid|uid|email)$"
    r"|^(?:patient|person|customer|client|user|household|employee)"
    r"[_\W]?(?:no|nr|number|key|code)$",
    re.IGNORECASE,
)
_CAMEL = re.compile(r"[a-z]I[dD]$")


def looks_like_identifier(name: str) -> bool:
    """Whether a column's *name* says that it tells people apart; no cell is looked at.

    Examples
    --------
    >>> names = ("patient_id", "userId", "age", "paid", "SSN", "member")
    >>> [name for name in names if looks_like_identifier(name)]
    ['patient_id', 'userId', 'SSN']
    """
    return any(pattern.search(name) for pattern in (_CAMEL, _IDENTIFIER))


def identifiers(names: Iterable[str]) -> list[str]:
    """The columns whose names look like identifiers."""
    return [name for name in names if looks_like_identifier(name)]


def owners(table: Any, person: str) -> list[Any]:
    """Whose each row is."""
    cells = table.column(person) if hasattr(table, "column") else table[person]
    return listed(cells)


def without(schema: Mapping[str, Any], person: str | None) -> dict[str, Any]:
    """The schema without the column of persons, which is no feature."""
    columns = {name: facts for name, facts in schema["columns"].items() if name != person}
    if person is not None and not columns:
        raise PlanError(f"beside the person's column {person!r} the schema has no other.")
    return {**schema, "columns": columns}


__all__ = ["identifiers", "looks_like_identifier", "owners", "without"]
