"""What the signer of a report is asked to confirm: every fact that a person declared, to sign."""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping
from typing import Any

_WORDS = {
    "bounds": "between {}",
    "categories": "one of {}",
    "bins": "in {} intervals of equal width",
}
_MOVES = {1: "raises", -1: "lowers"}


def section(model: Mapping[str, Any], *, narrowed: bool = False) -> str:
    """The declared facts of a model file (``model.json``), and a line to sign on.

    ``narrowed``: a share of the budget bought narrower bounds; the declared ones are shown.
    """
    target = str(model.get("target", ""))
    rows = [
        ("table", str(model.get("name") or "no name was given (dplateau train --name)")),
        ("trained on", str(model.get("date") or "not recorded")),
        ("predicts", f"{target}: {_target(model)}"),
        *_columns(model),
    ]
    table = "\n".join(
        f"<tr><th>{html.escape(name)}</th><td>{html.escape(fact)}</td></tr>" for name, fact in rows
    )
    bought = (
        "<p>Within these bounds narrower ones were found for some numbers, with noise, for a share "
        "of the budget: nobody has to vouch for those.</p>"
    )
    parts = [
        "<section>",
        "<h2>What was declared about the table</h2>",
        "<p>Each of these was stated by a person. The guarantee rests on their being public "
        "knowledge, or having been written down before anybody looked at the records.</p>",
        *([bought] if narrowed else []),
        f'<table class="declared">\n{table}\n</table>',
        '<p class="signature">Confirmed by (name, date, signature):<br><br>'
        "_______________________________________________</p>",
        "</section>",
    ]
    return "\n".join(parts)


def lead(model: Mapping[str, Any] | None) -> str:
    """The table's name, what is predicted and the day, to begin a page with."""
    if model is None:
        return ""
    said = [str(model["name"])] if model.get("name") else []
    said += [f"predicts {model['target']}"] if model.get("target") else []
    said += [str(model["date"])] if model.get("date") else []
    return "".join(f"{each}; " for each in said)


def _target(model: Mapping[str, Any]) -> str:
    if "classes" in model:
        return _fact("categories", model["classes"])
    return _fact("bounds", model["target_bounds"]) if "target_bounds" in model else ""


def _columns(model: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    for name, facts in model.get("schema", {}).get("columns", {}).items():
        if not isinstance(facts, Mapping):
            continue
        kind = str(facts.get("type"))
        stated = {**facts, "bounds": facts.get("declared") or facts.get("bounds")}
        said = [_fact(key, stated[key]) for key in _WORDS if stated.get(key) is not None]
        if facts.get("log"):
            said.append("on a logarithmic scale")
        if facts.get("monotonic"):
            said.append(_direction(kind, facts["monotonic"]))
        yield name, ", ".join(["not used" if kind == "ignore" else kind, *said])


def _fact(name: str, value: Any) -> str:
    """A declared fact in words, complete: whoever signs has seen all of it."""
    if name == "bounds":
        return _WORDS[name].format(" and ".join(map(_plain, value)))
    if name == "categories":
        return _WORDS[name].format(", ".join(str(one) for one in value))
    return _WORDS[name].format(value)


def _direction(kind: str, monotonic: Any) -> str:
    """Which way a column moves what is predicted, or which of its categories do."""
    if not isinstance(monotonic, Mapping):
        what = {"boolean": "true", "date": "a later day"}.get(kind, "a larger value")
        return f"{what} only {_MOVES[monotonic]} what is predicted"
    known = [f"{value} only {_MOVES[sign]}" for value, sign in monotonic.items() if sign]
    return f"{', '.join(known)} what is predicted" if known else "no direction known"


def _plain(bound: Any) -> str:
    """A bound as a person writes it: 18 rather than 18.0, 200,000 rather than 200000."""
    if isinstance(bound, float) and bound.is_integer() and abs(bound) < 1e15:
        bound = int(bound)
    return f"{bound:,}" if isinstance(bound, int) else str(bound)
