"""Pictures: epsilon against what one can choose, and what an attacker can do.

Every function returns a matplotlib `Figure` and draws nothing on a screen. Lines differ in style
and marker, and are labelled where they end, so that the pictures survive a black-and-white printer.
matplotlib is imported when the first picture is drawn.
"""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dplateau.certificate.files import write_file
from dplateau.errors import DataError
from dplateau.report.comparison import (
    BOK,
    COMPOSITION,
    LOWER,
    OURS,
    PAPER,
    Comparison,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from dplateau.accounting.guarantee import Guarantee

LABELS = {
    COMPOSITION: "composition (Opacus, dp_accounting)",
    PAPER: "Altschuler & Talwar 2022",
    BOK: "Bok, Su & Altschuler 2024",
    OURS: "dplateau",
    LOWER: "lower bound (an attack)",
}
SHORT = {
    COMPOSITION: "composition",
    PAPER: "Altschuler & Talwar",
    BOK: "Bok et al.",
    OURS: "dplateau",
    LOWER: "lower bound",
}
# Colours of clearly different lightness, and a marker and dash pattern each.
STYLES: dict[str, dict[str, Any]] = {
    COMPOSITION: {"color": "#8a8a8a", "linestyle": (0, (1, 1.2)), "marker": "s"},
    PAPER: {"color": "#d08a1d", "linestyle": (0, (5, 1.5)), "marker": "^"},
    BOK: {"color": "#4f9d69", "linestyle": (0, (5, 1.5, 1, 1.5)), "marker": "v"},
    OURS: {"color": "#0b2a6b", "linestyle": "-", "marker": "o", "linewidth": 2.6, "zorder": 5},
    LOWER: {"color": "#5b5b5b", "linestyle": "-", "marker": None, "linewidth": 1.0},
}
AXIS = {
    "iterations": "iterations T",
    "diameter": "diameter D of the domain",
    "step_size": "step size η",
    "batch_size": "batch size b",
}


def epsilon_curves(comparison: Comparison, *, width: float = 7.2, height: float = 4.4) -> Figure:
    """Epsilon by every accountant along one quantity, with the burn-in marked.

    Parameters
    ----------
    comparison : Comparison
        From `dplateau.report.comparison.compare`.
    width, height : float
        Size in inches.

    Returns
    -------
    matplotlib.figure.Figure
    """
    figure = _figure(width, height)
    axes = figure.add_subplot()
    _draw(axes, comparison, label_lines=True)
    return figure


def side_by_side(
    comparisons: Sequence[Comparison], *, columns: int | None = None, height: float = 3.9
) -> Figure:
    """Several comparisons next to each other under one legend."""
    columns = columns or len(comparisons)
    rows = math.ceil(len(comparisons) / columns)
    figure = _figure(3.8 * columns, height * rows + 0.4)
    grid = np.atleast_1d(figure.subplots(rows, columns, squeeze=False)).ravel()
    seen: dict[str, Any] = {}
    for axes, comparison in zip(grid, comparisons, strict=False):
        seen |= _draw(axes, comparison, label_lines=False)
        if axes is not grid[0]:
            axes.set_ylabel("")
    for axes in grid[len(comparisons) :]:
        axes.set_visible(False)
    figure.legend(
        list(seen.values()),
        [LABELS[name] for name in seen],
        loc="outside lower center",
        ncols=min(len(seen), 3 if columns < 3 else 5),
        frameon=False,
        fontsize=8.5,
    )
    return figure


def tradeoff(
    guarantee: Guarantee,
    *,
    observed: Sequence[tuple[float, float]] = (),
    width: float = 4.6,
    height: float = 4.4,
) -> Figure:
    """What the best attack can do: false alarms against misses.

    Parameters
    ----------
    guarantee : Guarantee
        Its trade-off function is drawn; every attack lies above it.
    observed : sequence of (type I error, type II error)
        Measured attacks, drawn as crosses.

    Returns
    -------
    matplotlib.figure.Figure
    """
    figure = _figure(width, height)
    axes = figure.add_subplot()
    near_zero = np.geomspace(1e-4, 0.05, 15)
    a = np.unique(np.r_[0.0, near_zero, np.linspace(0.05, 1.0, 39)])
    least = guarantee.tradeoff(a)
    axes.plot([0, 1], [1, 0], color="#8a8a8a", linestyle=(0, (1, 1.5)), linewidth=1.2)
    axes.text(0.52, 0.5, "guessing", rotation=-45, color="#6a6a6a", fontsize=9, ha="center")
    axes.fill_between(a, 0, least, color="#0b2a6b", alpha=0.12, linewidth=0)
    axes.plot(a, least, color="#0b2a6b", linewidth=2.4)
    axes.text(0.03, 0.04, "no attack can be here", fontsize=9, color="#0b2a6b")
    if len(observed):
        found = np.asarray(observed, dtype=np.float64)
        axes.plot(found[:, 0], found[:, 1], "kx", markersize=6, label="measured attack")
        axes.legend(frameon=False, fontsize=9, loc="upper right")
    axes.set(
        xlim=(0, 1),
        ylim=(0, 1),
        xlabel="false alarms: absent record called present",
        ylabel="misses: present record called absent",
        aspect="equal",
    )
    return figure


def tightness(ratios: dict[str, Sequence[float]], *, width: float = 7.2) -> Figure:
    """How dplateau's epsilon relates to others', over many plans: one row of dots each.

    Parameters
    ----------
    ratios : dict of str to sequence of float
        Label to ratios (dplateau divided by the other); geometric means are marked.
    """
    figure = _figure(width, 0.75 * len(ratios) + 1.2)
    axes = figure.add_subplot()
    for row, values in enumerate(ratios.values()):
        array = np.asarray([v for v in values if math.isfinite(v) and v > 0])
        if not array.size:
            continue
        spread = 0.22 * np.sin(np.arange(array.size) * 2.4)
        axes.plot(
            array, row + spread, "o", color="#5b7bb4", alpha=0.65, markersize=4, markeredgewidth=0
        )
        mean = float(np.exp(np.mean(np.log(array))))
        axes.plot([mean, mean], [row - 0.36, row + 0.36], color="black", linewidth=2.2)
        axes.annotate(
            f"{mean:.2f}",
            (mean, row - 0.36),
            xytext=(0, 3),
            textcoords="offset points",
            ha="center",
            fontsize=9,
            fontweight="bold",
        )
    axes.axvline(1, color="#8a8a8a", linewidth=1, linestyle=(0, (1, 1.5)))
    axes.set_xscale("log")
    axes.set_yticks(range(len(ratios)), list(ratios))
    axes.set_ylim(len(ratios) - 0.4, -0.7)
    axes.set_xlabel("ε of dplateau ÷ ε of the other (black bar: geometric mean)")
    _plain_numbers(axes.xaxis)
    return figure


def to_svg(figure: Figure) -> str:
    """The picture as SVG text for a page; the same picture always gives the same text."""
    import matplotlib

    buffer = io.StringIO()
    with matplotlib.rc_context({"svg.hashsalt": "dplateau", "svg.fonttype": "path"}):
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    text = buffer.getvalue()
    return text[text.index("<svg") :]


def to_png(figure: Figure, *, dpi: int = 160) -> bytes:
    """The picture as PNG."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=dpi)
    return buffer.getvalue()


def save(figure: Figure, path: str | Path) -> Path:
    """Write the picture as PNG or SVG, whichever the name ends with."""
    path = Path(path)
    draw: dict[str, Callable[[Figure], str | bytes]] = {".svg": to_svg, ".png": to_png}
    if path.suffix not in draw:
        raise DataError(f"a picture is written as .png or .svg; found {path.name!r}.")
    return write_file(path, draw[path.suffix](figure), force=True)


# -- how a comparison is drawn ----------------------------------------------------------------


def _figure(width: float, height: float) -> Figure:
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise DataError(
            "pictures need matplotlib, which is not installed. Install dplateau[plots]."
        ) from None
    return Figure(figsize=(width, height), layout="constrained")


def _draw(axes: Axes, comparison: Comparison, *, label_lines: bool) -> dict[str, Any]:
    """Draw the lines; the handles by name are returned for a legend."""
    x = np.asarray(comparison.values, dtype=np.float64)
    handles: dict[str, Any] = {}
    ends: list[tuple[str, float]] = []
    for name, values in comparison.epsilons.items():
        y = np.asarray(values, dtype=np.float64)
        shown = np.isfinite(y) & (y > 0)
        if not shown.any():
            continue
        style = {"linewidth": 1.6, "markersize": 4.5, "markevery": 2, **STYLES[name]}
        (handles[name],) = axes.plot(x[shown], y[shown], **style)
        if name == LOWER:
            axes.fill_between(x[shown], 1e-9, y[shown], color="#d9d9d9", alpha=0.6, linewidth=0)
        ends.append((name, float(y[shown][-1])))
    axes.set_xscale("log")
    axes.set_yscale("log")
    _limits(axes, comparison)
    axes.set_xlabel(AXIS[comparison.along])
    axes.set_ylabel(f"ε at δ = {_power(comparison.delta)}")
    if comparison.title:
        axes.set_title(comparison.title, fontsize=10)
    _plain_numbers(axes.yaxis)
    axes.grid(visible=True, which="major", color="#e6e6e6", linewidth=0.7)
    axes.spines[["top", "right"]].set_visible(False)
    if comparison.burn_in is not None and x.min() < comparison.burn_in < x.max():
        _mark_burn_in(axes, comparison.burn_in)
    if label_lines:
        _label_ends(axes, ends)
    return handles


def _limits(axes: Axes, comparison: Comparison) -> None:
    known = [
        v for curve in comparison.epsilons.values() for v in curve if math.isfinite(v) and v > 0
    ]
    if known:
        axes.set_ylim(0.6 * min(known), 1.8 * max(known))
    axes.set_xlim(min(comparison.values), max(comparison.values))


def _mark_burn_in(axes: Axes, steps: float) -> None:
    axes.axvline(steps, color="#0b2a6b", linewidth=0.9, linestyle=(0, (2, 3)))
    axes.annotate(
        f"burn-in {steps:,.0f}",
        (steps, 0.02),
        xycoords=("data", "axes fraction"),
        xytext=(-4, 2),
        textcoords="offset points",
        rotation=90,
        ha="right",
        va="bottom",
        fontsize=8,
        color="#0b2a6b",
    )


def _label_ends(axes: Axes, ends: list[tuple[str, float]]) -> None:
    """Write each line's name to the right of its end, pushed apart where they would touch."""
    low, high = axes.get_ylim()
    span = math.log(high / low)
    gap = 0.062
    wanted = sorted((math.log(y / low) / span, name, y) for name, y in ends)
    places: list[float] = []
    for place, _, _ in wanted:
        places.append(max(place, places[-1] + gap) if places else place)
    overshoot = max(0.0, places[-1] - 0.98) if places else 0.0
    for i in range(len(places) - 1, -1, -1):
        ceiling = places[i + 1] - gap if i + 1 < len(places) else places[i] - overshoot
        places[i] = min(places[i], ceiling)
    for place, (_, name, value) in zip(places, wanted, strict=True):
        axes.annotate(
            f"{SHORT[name]}  {value:.3g}",
            (1.015, place),
            xycoords="axes fraction",
            va="center",
            fontsize=9,
            color=STYLES[name]["color"] if name != COMPOSITION else "#5f5f5f",
            fontweight="bold" if name == OURS else "normal",
            annotation_clip=False,
        )


def _plain_numbers(axis: Any) -> None:
    """0.1, 1, 10 rather than powers of ten, where these are as short."""
    from matplotlib.ticker import FuncFormatter, NullFormatter

    axis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:g}"))
    axis.set_minor_formatter(NullFormatter())


def _power(value: float) -> str:
    exponent = round(math.log10(value))
    if not math.isclose(value, 10.0**exponent, rel_tol=1e-9):
        return f"{value:g}"
    digits = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
    return "10" + str(exponent).translate(digits)
