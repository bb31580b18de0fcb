"""The report's pictures: drawn by matplotlib, coloured by the page they stand in.

Every colour of the drawing is a stand-in that is replaced by a CSS variable of the page, so one
drawing serves light, dark and print.
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from dplateau.accounting.guarantee import account
from dplateau.certificate import wording
from dplateau.certificate.claims import Counting
from dplateau.errors import DataError
from dplateau.plan.plan import Plan

# Colours that no drawing would use by itself, and what the page puts in their place.
_INK, _SOFT, _OURS, _OTHER, _GREY = "#010101", "#010102", "#010103", "#010104", "#010105"
_VARIABLES = {
    _INK: "var(--ink)",
    _SOFT: "var(--line)",
    _OURS: "var(--curve-a)",
    _OTHER: "var(--curve-b)",
    _GREY: "var(--curve-c)",
}
# Drawn at 4.8 inches with 11 point letters: still readable on a telephone 400 pixels wide.
_STYLE: dict[Any, Any] = {
    "figure.figsize": (4.8, 3.6),
    "font.size": 11,
    "font.family": "sans-serif",
    "svg.fonttype": "none",
    "svg.hashsalt": "dplateau",
    "text.color": _INK,
    "axes.edgecolor": _INK,
    "axes.labelcolor": _INK,
    "axes.facecolor": "none",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": _SOFT,
    "xtick.color": _INK,
    "ytick.color": _INK,
    "legend.frameon": False,
    "legend.fontsize": 10,
    "lines.linewidth": 2.2,
}


class Picture(NamedTuple):
    """A drawing with its words."""

    title: str
    svg: str
    caption: str


class Drawn(NamedTuple):
    """The facts of a release that the pictures show."""

    plan: Plan
    epsilon: float
    delta: float
    counting: Counting
    steps_run: int


def epsilon_picture(facts: Drawn) -> Picture:
    """Epsilon against training length, by dplateau and by composition, with this run marked."""
    plan, delta, counting = facts.plan, facts.delta, facts.counting
    lengths = _lengths(plan, facts.steps_run)
    ours, added_up = np.array([_two_bounds(plan, t, delta, counting) for t in lengths]).T
    here = plan.iterations if math.isfinite(plan.iterations) else lengths[-1]

    def draw(ax: Any) -> None:
        shown = np.isfinite(added_up) & (added_up <= 50 * max(ours))
        ax.plot(lengths, ours, color=_OURS, label="this guarantee")
        ax.plot(lengths[shown], added_up[shown], "--", color=_OTHER, label="adding up all steps")
        ax.plot([here], [facts.epsilon], "o", ms=9, color=_OURS, label="this run")
        ax.set(xscale="log", yscale="log", xlabel="training steps", ylabel="ε (less is better)")
        _plain_ticks(ax.yaxis)
        ax.xaxis.set_major_formatter(lambda steps, _: _steps(steps))
        _legend_above(ax)

    return Picture(
        "Epsilon against training length",
        _inline(draw),
        f"The privacy loss ε at δ = {wording.short(delta)} had training been shorter or longer. "
        + _moral(facts.epsilon, ours[-1], int(lengths[-1])),
    )


def _moral(here: float, at_the_end: float, length: int) -> str:
    if at_the_end <= 1.01 * here:
        return "From this run on the line is flat: more training would cost no more privacy."
    return f"Trained for {_steps(length)} steps, it would be {wording.above(at_the_end)}."


def tradeoff_picture(facts: Drawn) -> Picture:
    """True-positive against false-positive rate of the best attack on one record."""
    false_alarms = np.concatenate([np.geomspace(1e-4, 0.02, 40), np.linspace(0.02, 1.0, 80)[1:]])
    found = facts.counting.found(account(facts.plan), false_alarms)

    def draw(ax: Any) -> None:
        ax.plot(false_alarms, found, color=_OURS, label="best possible attack")
        ax.plot(false_alarms, false_alarms, "--", color=_GREY, label="guessing")
        ax.fill_between(false_alarms, false_alarms, found, color=_OURS, alpha=0.15, linewidth=0)
        ax.set(
            xscale="log", yscale="log", xlabel="false-alarm rate", ylabel="share of records found"
        )
        ax.set(xlim=(1e-4, 1.0), ylim=(1e-4, 1.0))
        for axis in (ax.xaxis, ax.yaxis):
            axis.set_major_formatter(lambda rate, _: f"{100 * rate:g} %")
        _legend_above(ax)

    return Picture(
        "What the best attack on one record achieves",
        _inline(draw),
        "No attack can lie above the solid line. The closer it is to guessing, the less the model "
        "tells about any one record.",
    )


def _lengths(plan: Plan, steps_run: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Training lengths to draw: around the run, as far as the schedules say what to do."""
    middle = max(steps_run, 1) if math.isinf(plan.iterations) else int(plan.iterations)
    furthest = min(plan.step_size.length, plan.noise_multiplier.length, 100 * middle)
    around = np.geomspace(max(1, middle // 100), max(1, furthest), 13)
    return np.unique(np.append(around.astype(np.int64), middle))


def _two_bounds(
    plan: Plan, iterations: int, delta: float, counting: Counting
) -> tuple[float, float]:
    """By dplateau and by composition, each with what counting the records costs."""
    delta = counting.training_delta(delta)
    counted = 0.0 if counting.count is None else counting.count.epsilon
    guarantee = account(plan.replace(iterations=int(iterations)))
    added_up = guarantee.bounds(delta).get("composition", math.inf)
    return counted + guarantee.epsilon(delta), counted + added_up


def _steps(count: float) -> str:
    """10, 1k, 100k, 10M: short enough to stand side by side on a telephone."""
    for unit, letter in ((1e9, "B"), (1e6, "M"), (1e3, "k")):
        if count >= unit:
            return f"{count / unit:g}{letter}"
    return f"{count:g}"


def _plain_ticks(axis: Any) -> None:
    """Ticks at 1, 2 and 5 of every power of ten, written as plain numbers."""
    from matplotlib import ticker

    axis.set_major_locator(ticker.LogLocator(subs=(1.0, 2.0, 5.0)))
    axis.set_major_formatter(lambda value, _: f"{value:g}")
    axis.set_minor_formatter(ticker.NullFormatter())


def _legend_above(ax: Any) -> None:
    ax.legend(
        loc="lower left",
        bbox_to_anchor=(-0.02, 1.0),
        ncols=3,
        borderaxespad=0.2,
        columnspacing=1.0,
        handlelength=1.4,
    )


def _inline(draw: Callable[[Any], None]) -> str:
    """The drawing as an SVG element to stand inside a page."""
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ImportError:
        raise DataError(
            "the report's pictures need matplotlib, which is not installed. "
            "Install it with: pip install 'dplateau[plots]'"
        ) from None
    with matplotlib.rc_context(_STYLE):
        figure = Figure(layout="constrained")
        draw(figure.subplots())
        text = io.StringIO()
        figure.savefig(text, format="svg", transparent=True, metadata={"Date": None})
    return _themed(text.getvalue())


def _themed(text: str) -> str:
    svg = text[text.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'<svg([^>]*?) width="[^"]*"', r"<svg\1", svg, count=1)
    svg = re.sub(r'<svg([^>]*?) height="[^"]*"', r"<svg\1", svg, count=1)
    for stand_in, variable in _VARIABLES.items():
        svg = svg.replace(stand_in, variable)
    return svg


__all__ = ["Drawn", "Picture", "epsilon_picture", "tradeoff_picture"]
