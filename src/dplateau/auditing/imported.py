"""Reading an audit that was written by somebody else.

What was counted is taken from the file; everything that follows from it, the guarantee, the limits
of epsilon and the verdict, is computed here.
"""

from __future__ import annotations

import math
from typing import Any

from dplateau._json import loads, number
from dplateau._validate import as_number, probability, whole
from dplateau.auditing.attackers import ATTACKERS
from dplateau.auditing.canaries import CANARIES
from dplateau.auditing.procedure import AIMS, held_against
from dplateau.auditing.result import AuditResult, Curve
from dplateau.auditing.statistics import Look
from dplateau.errors import DataError, PlanError
from dplateau.plan.plan import Plan

_MOST_LOOKS = 20
_MOST_POINTS = 1000
_OWN = "a record of the auditor's own"


def read_audit(text: str, name: str) -> AuditResult:
    """The audit in a JSON text, as ``dplateau audit --out`` or `AuditResult.to_json` wrote it.

    Parameters
    ----------
    text : str
        The JSON.
    name : str
        What it is called in a refusal, such as the file's name.

    Raises
    ------
    DataError
        When it is no audit, or does not say what its own counts say.
    """
    stored = loads(text, name, DataError, "Write one with: dplateau audit --out FILE.")
    try:
        found = _read(stored)
    except (PlanError, KeyError, TypeError, ValueError, ArithmeticError, AttributeError):
        raise DataError(
            f"{name} is not an audit. Write one with: dplateau audit --out FILE."
        ) from None
    if stored.get("verdict") != found.verdict:
        raise DataError(
            f"{name} was edited after it was written: its counts say {found.verdict!r}. Write it "
            "again with: dplateau audit --out FILE."
        )
    return found


def _read(stored: dict[str, Any]) -> AuditResult:
    plan = Plan.from_dict(stored["plan"])
    looks = tuple(_look(each) for each in stored["looks"][:_MOST_LOOKS])
    if not looks or len(looks) != len(stored["looks"]):
        raise ValueError("looks")
    canary = stored["canary"]
    seconds = as_number("seconds", stored["seconds"])
    return held_against(
        plan,
        probability("delta", stored["delta"]),
        looks,
        canary=canary if canary in CANARIES else _OWN,
        repeats=whole("repeats", stored["repeats"], least=20),
        confidence=probability("confidence", stored["confidence"]),
        roc=_curve(stored["roc"]),
        seconds=seconds if math.isfinite(seconds) else 0.0,
    )


def _look(stored: dict[str, Any]) -> Look:
    if stored["aim"] not in AIMS or stored["attacker"] not in ATTACKERS:
        raise ValueError("aim or attacker")
    threshold = stored["threshold"]
    return Look(
        aim=stored["aim"],
        attacker=stored["attacker"],
        threshold=-math.inf if threshold == "-inf" else number(threshold),
        false_alarms=probability("false_alarms", stored["false_alarms"], closed=True),
        misses=probability("misses", stored["misses"], closed=True),
    )


def _curve(stored: list[list[float]]) -> Curve:
    first, second = (
        tuple(probability("an error", value, closed=True) for value in axis) for axis in stored
    )
    if len(first) != len(second) or not 0 < len(first) <= _MOST_POINTS:
        raise ValueError("roc")
    return first, second
