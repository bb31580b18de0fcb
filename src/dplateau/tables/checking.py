"""A schema held against a table: how many cells it cannot use. For the table's owner alone.

These shares are computed from the data without noise. They belong on the machine that holds the
table, and nowhere else.
"""

from __future__ import annotations

import html
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from string import Template
from typing import Any

import numpy as np

from dplateau.certificate.wording import visible
from dplateau.errors import DataError
from dplateau.tables.cells import as_label, day_of, distinct
from dplateau.tables.columns import Column, Reading, column_from_dict
from dplateau.tables.encoding import columns_of, columns_used, load_schema

PRIVATE = "Not for release: this page never leaves this machine."
_MUCH = 0.05  # a share of cells that deserves a second look

_SHAPES = {
    "amounts with a currency sign": re.compile(r"[-+(]?\s*[$€£¥]\s*[\d.,]+\)?|[\d.,]+\s*[$€£¥]"),
    "percentages": re.compile(r"[-+]?[\d.,]+\s*%"),
    "numbers with thousands separators": re.compile(r"[-+]?\d{1,3}([,' ]\d{3})+(\.\d+)?"),
    "numbers with a decimal comma": re.compile(r"[-+]?\d+,\d+"),
    "dates in another order": re.compile(r"\d{1,4}[./-]\d{1,2}[./-]\d{1,4}.*"),
}
_ADVICE = {
    "amounts with a currency sign": "take the sign and the separators off",
    "percentages": "take the sign off, and state bounds in percent",
    "numbers with thousands separators": "take the separators off",
    "numbers with a decimal comma": "write a decimal point",
    "dates": "set the type to 'date'",
    "dates in another order": "write dates as 2020-12-31",
    "text": "set the type to 'category', or clean the cells",
}


@dataclass(frozen=True)
class ColumnCheck:
    """What a schema makes of one column, as shares of its cells."""

    name: str
    kind: str
    missing: float
    unreadable: float
    clipped: float
    unknown: float
    looks_like: str
    advice: str

    @property
    def suspicious(self) -> bool:
        """Whether many cells are lost, or one kind of spelling explains what is."""
        lost = max(self.unreadable, self.clipped, self.unknown)
        return bool(lost > _MUCH or self.looks_like or self.missing == 1.0)


@dataclass(frozen=True)
class SchemaCheck:
    """What a schema makes of a table: private, like the table itself.

    Attributes
    ----------
    rows : int
        Rows of the table.
    columns : tuple of ColumnCheck
        One per column that the schema uses.
    """

    rows: int
    columns: tuple[ColumnCheck, ...]

    @property
    def suspicious(self) -> tuple[str, ...]:
        """The columns that deserve a second look."""
        return tuple(column.name for column in self.columns if column.suspicious)

    def to_dict(self) -> dict[str, Any]:
        """Everything as JSON values."""
        columns = {column.name: dict(vars(column)) for column in self.columns}
        return {
            "private": PRIVATE,
            "rows": self.rows,
            "suspicious": list(self.suspicious),
            "columns": columns,
        }

    def __str__(self) -> str:
        lines = [
            PRIVATE,
            f"{'column':<20} {'missing':>9} {'unread':>9} {'clipped':>9} {'unknown':>9}",
        ]
        for c in self.columns:
            shares = (c.missing, c.unreadable, c.clipped, c.unknown)
            shown = " ".join(f"{_percent(share):>9}" for share in shares)
            lines.append(f"{c.name[:20]:<20} {shown}  {_advice(c)}".rstrip())
        return "\n".join(lines)

    def to_html(self) -> str:
        """The page, complete in itself."""
        rows = "\n".join(
            f"<tr{' class=look' if c.suspicious else ''}><th>{html.escape(c.name)}</th>"
            f"<td>{c.kind}</td>"
            + "".join(
                f"<td class='n{' zero' if share == 0 else ' much' if share > _MUCH else ''}'>"
                f"{html.escape(_percent(share))}</td>"
                for share in (c.missing, c.unreadable, c.clipped, c.unknown)
            )
            + f"<td>{html.escape(_advice(c))}</td></tr>"
            for c in self.columns
        )
        page = Template(_PAGE).substitute(private=PRIVATE, count=f"{self.rows:,}", rows=rows)
        return visible(page)

    def _repr_html_(self) -> str:
        return self.to_html()


def check_schema(frame: Any, schema: Mapping[str, Any] | str | Path) -> SchemaCheck:
    """How well a schema fits a table: the share of cells that it clips or cannot use.

    Parameters
    ----------
    frame : pandas DataFrame, pyarrow Table, or mapping of column name to values
    schema : mapping or path of a JSON file
        As for `PublicTableEncoder`.

    Returns
    -------
    SchemaCheck
        Per column the shares of cells that are missing, that cannot be read, that lie outside the
        bounds, and that are none of the categories; and what unreadable cells look like.

    Notes
    -----
    The shares are computed from the records without noise: they are for whoever may see the table
    anyway. A bound or category that is changed because of them is a fact learned from the data;
    correct mistakes (a wrong type, a wrong unit, a misspelt category), and do not fit bounds to
    what was found.

    Examples
    --------
    >>> schema = {"columns": {"pay": {"type": "number", "bounds": [0, 10]}}}
    >>> found = check_schema({"pay": [1, 99, "$1,234", None]}, schema).columns[0]
    >>> found.clipped, found.unreadable, found.missing, found.looks_like
    (0.25, 0.25, 0.25, 'amounts with a currency sign')
    """
    return check_parts([frame], schema)


def check_parts(parts: Iterable[Any], schema: Mapping[str, Any] | str | Path) -> SchemaCheck:
    """The same of a table that comes in parts, one after the other."""
    facts = load_schema(schema)
    used = columns_used(facts)
    tallies = [_Tally(column_from_dict(name, facts["columns"][name])) for name in used]
    rows = 0
    for part in parts:
        cells = columns_of(part)
        absent = [name for name in used if name not in cells]
        if absent:
            raise DataError(
                f"the table has no column {', '.join(map(repr, absent))}. "
                "Correct the schema, or mark the column as 'ignore'."
            )
        for tally in tallies:
            tally.count(cells[tally.column.name])
        rows += len(cells[used[0]]) if used else 0
    return SchemaCheck(rows, tuple(tally.found(rows) for tally in tallies))


class _Tally:
    """How many cells of a column are lost, in which way, and what they look like."""

    def __init__(self, column: Column) -> None:
        self.column = column
        self._lost: Counter[str] = Counter()
        self._votes: Counter[str] = Counter()

    def count(self, cells: Any) -> None:
        reading = self.column.reading(cells)
        for name, flags in reading._asdict().items():
            self._lost[name] += int(np.sum(flags))
        values, which = distinct(cells)
        counts = np.bincount(which[reading.unreadable | reading.unknown], minlength=len(values))
        for value, count in zip(values, counts, strict=True):
            if count:
                self._votes[_named(as_label(value))] += int(count)

    def found(self, rows: int) -> ColumnCheck:
        looks, column = self._shape(), self.column
        shares = {name: self._lost[name] / max(rows, 1) for name in Reading._fields}
        return ColumnCheck(column.name, column.kind, **shares, looks_like=looks, advice=_way(looks))

    def _shape(self) -> str:
        """What most of the lost cells look like, where they look alike; else nothing."""
        if not self._votes:
            return ""
        kind, ((name, most),) = self.column.kind, self._votes.most_common(1)
        if 2 * most < self._votes.total() or (kind == "category" and name == "text"):
            return ""
        return "" if kind == "date" and name == "dates" else name


def _named(label: str) -> str:
    if not math.isnan(day_of(label)):
        return "dates"
    return next((name for name, shape in _SHAPES.items() if shape.fullmatch(label)), "text")


def _percent(share: float) -> str:
    """A share in words: one that is not zero never looks like it."""
    return f"{share:.1%}" if share == 0 or share >= 0.0005 else "<0.1%"


def _way(looks: str) -> str:
    return f"They look like {looks}: {_ADVICE[looks]}." if looks else ""


def _advice(column: ColumnCheck) -> str:
    if column.missing == 1.0:
        return "All cells are missing: mark it as 'ignore'."
    if column.advice:
        return column.advice
    if column.unknown > _MUCH:
        return "Are all categories declared, and spelt as in the table?"
    return "Are the bounds in the table's unit?" if column.clipped > _MUCH else ""


_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; \
style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'">
<meta name="robots" content="noindex">
<meta name="color-scheme" content="light dark">
<title>Schema check (private)</title>
<style>
:root { --ink: #1c2430; --soft: #5a6675; --paper: #fff; --line: #d9dfe7; --bad: #b3261e; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6ebf2; --soft: #8b97a6; --paper: #12171e; --line: #323c49; --bad: #ff8a80; }
}
body { font: 16px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem;
  color: var(--ink); background: var(--paper); }
h1 { font-size: 1.65rem; }
p { max-width: 46rem; }
.private { background: #b3261e; color: #fff; padding: .8rem 1rem; font-weight: 700;
  max-width: none; border-radius: .4rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; padding: .35rem .8rem .35rem 0; border-bottom: 1px solid var(--line);
  vertical-align: top; }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; }
td.zero { color: var(--soft); }
td.much { font-weight: 700; }
tr.look th, tr.look td.much { color: var(--bad); }
</style>
</head>
<body>
<p class="private">$private</p>
<h1>What the schema makes of the table</h1>
<p>$count rows. Shares of cells, counted without noise. Correct mistakes with them: a wrong type, a
wrong unit, a misspelt category. Do not fit bounds or categories to what was found here: that would
be learned from the data, and no certificate covers it.</p>
<div class="wide">
<table>
<tr><th>column</th><th>type</th><th class=n>missing</th><th class=n>unreadable</th>
<th class=n>clipped</th><th class=n>unknown</th><th>what may help</th></tr>
$rows
</table>
</div>
</body>
</html>
"""

__all__ = ["PRIVATE", "ColumnCheck", "SchemaCheck", "check_parts", "check_schema"]
