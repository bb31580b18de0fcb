"""A figure's description as an SVG element: the picture for readers that run no script.

Colours come from ``figure.css``, so one drawing serves light, dark and print. Lines have the dashes
and markers that ``figure.js`` gives them.
"""

from __future__ import annotations

import html
import math
from collections.abc import Callable, Iterable, Iterator
from importlib import resources

from dplateau.report.figures.describe import Spec

# As in figure.js.
DASHES = ("", "2 3", "9 4", "9 3 2 3", "5 3", "", "1.5 4", "12 3 2 3 2 3", "4 2")
SHAPES = ("", "square", "triangle", "diamond", "down", "circle", "", "cross", "plus")

# Letters of 12 units on 420: still readable on a telephone 400 pixels wide.
_WIDTH, _PLOT = 420.0, 300.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 58.0, 396.0, 14.0, 256.0
_LEGEND = 20.0  # height of a line of the legend
_LETTER = 6.6  # width of a letter, on average


def still(spec: Spec) -> str:
    """The figure as SVG text, to stand inside a page.

    Examples
    --------
    >>> from dplateau.report.figures.describe import attack_figure
    >>> still(attack_figure([0.01, 1.0], [0.02, 1.0], summary="")).startswith("<svg")
    True
    """
    x, y = _scale(spec["x"], _LEFT, _RIGHT), _scale(spec["y"], _BOTTOM, _TOP)
    legend, height = _legend(spec["series"])
    parts = [
        f'<svg class="drawing" viewBox="0 0 {_WIDTH:g} {_PLOT + height:g}" aria-hidden="true">',
        f'<clipPath id="{_identity(spec)}"><rect x="{_LEFT:g}" y="{_TOP - 4:g}" '
        f'width="{_RIGHT - _LEFT:g}" height="{_BOTTOM - _TOP + 4:g}"/></clipPath>',
        *_axes(spec, x, y),
        f'<g clip-path="url(#{_identity(spec)})">',
        *_areas(spec, x, y),
        *(part for series in spec["series"] for part in _line(series, x, y)),
        "</g>",
        *_marks(spec, x),
        *_here(spec, x, y),
        *legend,
        "</svg>",
    ]
    return "".join(parts)


Place = Callable[[float], float]


def _scale(axis: Spec, start: float, end: float) -> Place:
    low, high = math.log(axis["min"]), math.log(axis["max"])
    return lambda value: start + (math.log(value) - low) / (high - low) * (end - start)


def _ticks(axis: Spec) -> list[float]:
    """1, 10, 100 or, where that is too few, 1, 2, 5 of every power of ten."""
    decades = math.log10(axis["max"] / axis["min"])
    digits = (1, 2, 5) if decades < 2.2 else (1,)
    stride = max(1, math.ceil(decades / 6))
    first, last = math.floor(math.log10(axis["min"])), math.ceil(math.log10(axis["max"]))
    found = [d * 10.0**k for k in range(first, last + 1) if k % stride == 0 for d in digits]
    return [t for t in found if axis["min"] * 0.999 <= t <= axis["max"] * 1.001]


def _written(value: float, kind: str) -> str:
    if kind == "percent":
        return f"{100 * value:g} %"
    if kind == "steps":
        for unit, letter in ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "k")):
            if value >= unit:
                return f"{value / unit:g}{letter}"
    return f"{value:g}"


def _axes(spec: Spec, x: Place, y: Place) -> Iterator[str]:
    yield '<g class="grid">'
    for t in _ticks(spec["x"]):
        yield f'<line x1="{x(t):.1f}" x2="{x(t):.1f}" y1="{_TOP:g}" y2="{_BOTTOM:g}"/>'
    for t in _ticks(spec["y"]):
        yield f'<line x1="{_LEFT:g}" x2="{_RIGHT:g}" y1="{y(t):.1f}" y2="{y(t):.1f}"/>'
    yield f'</g><path class="frame" d="M{_LEFT:g} {_TOP:g}V{_BOTTOM:g}H{_RIGHT:g}"/>'
    yield '<g class="ticks">'
    for t in _ticks(spec["x"]):
        yield _text(x(t), _BOTTOM + 17, _written(t, spec["x"]["kind"]), "middle")
    for t in _ticks(spec["y"]):
        yield _text(_LEFT - 6, y(t) + 4, _written(t, spec["y"]["kind"]), "end")
    yield "</g>"
    yield _text((_LEFT + _RIGHT) / 2, _PLOT - 8, spec["x"]["label"], "middle", "axis")
    middle = (_TOP + _BOTTOM) / 2
    turned = f' transform="rotate(-90 13 {middle:g})"'
    yield _text(13, middle, spec["y"]["label"], "middle", "axis", turned)


def _line(series: Spec, x: Place, y: Place) -> Iterator[str]:
    look = series["look"] % len(DASHES)
    strong = " strong" if series.get("strong") else ""
    dashes = DASHES[look] or "none"
    yield (
        f'<path class="line look-{look}{strong}" stroke-dasharray="{dashes}" '
        f'd="{_path(series["points"], x, y)}"/>'
    )
    seen = [(a, b) for a, b in series["points"] if b is not None and b > 0]
    stride = max(1, math.ceil(len(seen) / 7))
    for i, (a, b) in enumerate(seen):
        if SHAPES[look] and (i % stride == 0 or i == len(seen) - 1):
            yield f'<path class="marker look-{look}" d="{_marker(SHAPES[look], x(a), y(b))}"/>'


def _path(points: Iterable[tuple[float, float | None]], x: Place, y: Place) -> str:
    found, pen = [], "M"
    for a, b in points:
        if b is None or b <= 0:
            pen = "M"
            continue
        found.append(f"{pen}{x(a):.1f} {min(max(y(b), -2000.0), 3000.0):.1f}")
        pen = "L"
    return "".join(found)


def _marker(shape: str, x: float, y: float, s: float = 3.6) -> str:
    drawn = {
        "square": f"M{x - s:.1f} {y - s:.1f}h{2 * s:g}v{2 * s:g}h{-2 * s:g}z",
        "triangle": f"M{x:.1f} {y - 1.2 * s:.1f}L{x + s:.1f} {y + s:.1f}H{x - s:.1f}z",
        "down": f"M{x:.1f} {y + 1.2 * s:.1f}L{x + s:.1f} {y - s:.1f}H{x - s:.1f}z",
        "diamond": f"M{x:.1f} {y - 1.3 * s:.1f}L{x + s:.1f} {y:.1f}L{x:.1f} {y + 1.3 * s:.1f}"
        f"L{x - s:.1f} {y:.1f}z",
        "circle": f"M{x - s:.1f} {y:.1f}a{s:g} {s:g} 0 1 0 {2 * s:g} 0a{s:g} {s:g} 0 1 0 "
        f"{-2 * s:g} 0z",
        "cross": f"M{x - s:.1f} {y - s:.1f}l{2 * s:g} {2 * s:g}m0 {-2 * s:g}l{-2 * s:g} {2 * s:g}",
        "plus": f"M{x - s:.1f} {y:.1f}h{2 * s:g}M{x:.1f} {y - s:.1f}v{2 * s:g}",
    }
    return drawn[shape]


def _areas(spec: Spec, x: Place, y: Place) -> Iterator[str]:
    for area in spec.get("areas", ()):
        points = [(a, b) for a, b in area["points"] if b is not None and b > 0]
        if len(points) < 2:
            continue
        left, right = x(points[0][0]), x(points[-1][0])
        under = f"L{right:.1f} {_BOTTOM:g}L{left:.1f} {_BOTTOM:g}z"
        yield f'<path class="area area-0" d="{_path(points, x, y)}{under}"/>'
        if area["label"]:
            yield _text((left + right) / 2, _BOTTOM - 8, area["label"], "middle", "area-name")


def _marks(spec: Spec, x: Place) -> Iterator[str]:
    for mark in spec.get("marks", ()):
        at = x(mark["x"])
        yield f'<line class="mark" x1="{at:.1f}" x2="{at:.1f}" y1="{_TOP:g}" y2="{_BOTTOM:g}"/>'
        yield _text(at + 5, _TOP + 10, mark["label"], "start", "mark-name")


def _here(spec: Spec, x: Place, y: Place) -> Iterator[str]:
    here = spec.get("here")
    if here is None or not here["y"] > 0:
        return
    a, b = min(x(here["x"]), _RIGHT), min(max(y(here["y"]), _TOP), _BOTTOM)
    yield f'<circle class="here" cx="{a:.1f}" cy="{b:.1f}" r="6.5"/>'
    yield f'<circle class="here-core" cx="{a:.1f}" cy="{b:.1f}" r="2.5"/>'
    side, anchor = (-11, "end") if a > (_LEFT + _RIGHT) / 2 else (11, "start")
    yield _text(a + side, max(b - 11, _TOP + 12), here["label"], anchor, "here-name")


def _legend(series: list[Spec]) -> tuple[list[str], float]:
    """Samples of the lines with their names, in as many rows as they need; and their height."""
    drawn, left, row = [], 12.0, 0
    for each in series:
        width = 40 + _LETTER * len(each["label"]) + 14
        if left + width > _WIDTH and left > 12:
            left, row = 12.0, row + 1
        look = each["look"] % len(DASHES)
        y = _PLOT + 10 + _LEGEND * row
        strong = " strong" if each.get("strong") else ""
        drawn.append(
            f'<path class="line look-{look}{strong}" stroke-dasharray="{DASHES[look] or "none"}" '
            f'd="M{left:g} {y:g}h32"/>'
        )
        if SHAPES[look]:
            shape = _marker(SHAPES[look], left + 16, y)
            drawn.append(f'<path class="marker look-{look}" d="{shape}"/>')
        drawn.append(_text(left + 38, y + 4, each["label"], "start"))
        left += width
    return drawn, _LEGEND * (row + 1)


def _text(x: float, y: float, text: str, anchor: str, name: str = "", more: str = "") -> str:
    kind = f' class="{name}"' if name else ""
    return (
        f'<text{kind} x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{more}>'
        f"{html.escape(text)}</text>"
    )


def _identity(spec: Spec) -> str:
    return "clip-" + "".join(c if c.isalnum() else "-" for c in spec["title"].lower())


def page_parts() -> tuple[str, str]:
    """The style of the figures, and the script that makes them interactive, to stand in a page."""
    room = resources.files("dplateau.report.figures")
    return (
        room.joinpath("figure.css").read_text("utf-8"),
        room.joinpath("figure.js").read_text("utf-8") + _BRING_TO_LIFE,
    )


_BRING_TO_LIFE = """
for (const holder of document.querySelectorAll("[data-figure]")) {
  new Figure(holder, JSON.parse(holder.dataset.figure));
}
"""
