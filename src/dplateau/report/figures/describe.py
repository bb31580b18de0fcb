"""Descriptions of the two figures that a release is shown with."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

Spec = dict[str, Any]

LABELS = {
    "reported": "reported",
    "composition": "composition",
    "paper": "the paper",
    "shift": "shift",
    "patterns": "patterns",
    "forgetting": "forgetting",
    "lower": "lower bound",
    "coupling": "coupling",
}
_HOW = "Point at the figure, or use the arrow keys in it, to read values."
LOOKS = {name: look for look, name in enumerate(LABELS)}  # as in curves.js


def epsilon_figure(
    steps: Sequence[float],
    curves: Mapping[str, Sequence[float]],
    reported: Sequence[float],
    *,
    here: tuple[float, float],
    delta: str,
    summary: str,
) -> Spec:
    """Epsilon against steps: every bound, and the reported one as a thick line.

    Parameters
    ----------
    steps : sequence of float
        Numbers of steps, ascending.
    curves : mapping of str to sequence of float
        Epsilon by bound: ``inf`` where there is none, ``nan`` where it was not worked out.
    reported : sequence of float
        The least of the bounds.
    here : tuple of float
        The steps and the epsilon of this run.
    delta, summary : str
        For the axis, and for whoever cannot see the figure.
    """
    largest = max(v for v in (*reported, here[1]) if math.isfinite(v))
    least = min(v for v in (*reported, here[1]) if v > 0)
    known = [v for curve in curves.values() for v in curve if math.isfinite(v) and v > 0]
    top = min(max([largest, *known]) * 1.4, largest * 12)
    bottom = max(min([least, *known]) * 0.7, least / 50)
    series = [
        _series(name, steps, curve)
        for name, curve in sorted(curves.items(), key=lambda item: look_of(item[0]))
    ]
    series.append({**_series("reported", steps, reported), "strong": True})
    return {
        "title": "Epsilon against training length",
        "summary": summary,
        "rest": _HOW,
        "aspect": 0.75,
        "x": {
            "label": "training steps",
            "says": "After {} steps",
            "scale": "log",
            "kind": "steps",
            "min": min(steps),
            "max": max(max(steps), 2 * min(steps)),
        },
        "y": {
            "label": f"ε at δ = {delta} (less is better)",
            "scale": "log",
            "kind": "number",
            "min": bottom,
            "max": max(top, 2 * bottom),
        },
        "series": series,
        "areas": [{"points": _points(steps, reported), "label": ""}],
        "here": {"x": here[0], "y": here[1], "label": "this run"},
    }


def attack_figure(false_alarms: Sequence[float], found: Sequence[float], *, summary: str) -> Spec:
    """What the best attack finds against its false alarms, beside guessing."""
    percent = {"scale": "log", "kind": "percent", "min": 1e-4, "max": 1.0}
    return {
        "title": "What the best attack on one record achieves",
        "summary": summary,
        "rest": _HOW,
        "aspect": 0.75,
        "x": {"label": "false alarms", "says": "At {} false alarms", **percent},
        "y": {"label": "records found", **percent},
        "series": [
            {**_series("guessing", false_alarms, false_alarms), "look": 1},
            {
                **_series("attack", false_alarms, found),
                "label": "best attack",
                "look": 0,
                "strong": True,
            },
        ],
        "areas": [{"points": _points(false_alarms, found), "label": "what attacks can reach"}],
        "marks": [{"x": 0.01, "label": "1 %"}],
    }


def look_of(name: str) -> int:
    """The dashes and marker of a line; bounds that are new share the last two."""
    return LOOKS.get(name, 7 + sum(map(ord, name)) % 2)


def _series(name: str, xs: Sequence[float], ys: Sequence[float]) -> Spec:
    label = LABELS.get(name, name.replace("_", " "))
    return {"name": name, "label": label, "look": look_of(name), "points": _points(xs, ys)}


def _points(xs: Sequence[float], ys: Sequence[float]) -> list[list[float | None]]:
    return [
        [float(x), float(f"{y:.6g}") if math.isfinite(y) else None]
        for x, y in zip(xs, ys, strict=True)
        if not math.isnan(y)
    ]
