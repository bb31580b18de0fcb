"""The picture of an audit: what the attack achieved against what the guarantee allows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dplateau.errors import PlanError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from dplateau.auditing.result import AuditResult

_SIZE = (5.2, 4.6)  # inches
_BLUE, _ORANGE, _RED = "#1f4e79", "#d9822b", "#b3261e"


def draw(result: AuditResult, ax: Axes | None = None) -> Axes:
    """Both curves in the plane of type I and type II errors, with the confidence limits."""
    if ax is None:
        try:
            from matplotlib.figure import Figure
        except ImportError:
            raise PlanError(
                "the picture needs matplotlib: pip install 'dplateau[plots]'. "
                "The numbers are in result.curve and result.roc."
            ) from None
        ax = Figure(figsize=_SIZE, layout="constrained").subplots()
    ax.fill_between(*result.curve, color=_BLUE, alpha=0.12, linewidth=0)
    ax.plot(*result.curve, color=_BLUE, label=f"guaranteed (ε ≤ {result.epsilon:.3g})")
    ax.plot(*result.roc, color=_ORANGE, label="attack, held-out models", drawstyle="steps-post")
    ax.plot(
        [look.false_alarms for look in result.looks],
        [look.misses for look in result.looks],
        "o",
        color=_RED if result.violations else _ORANGE,
        label=f"upper limits at {result.confidence:.0%} (ε ≥ {result.epsilon_lower:.3g})",
    )
    ax.plot([0, 1], [1, 0], ":", color="0.6", linewidth=1)
    ax.set(
        xlim=(0, 1),
        ylim=(0, 1),
        xlabel="false alarms (type I error)",
        ylabel="misses (type II error)",
        title=f"Audit, canary '{result.canary}': {result.verdict}",
    )
    ax.legend(frameon=False, fontsize="small")
    return ax


def svg(result: AuditResult) -> str:
    """`draw` as inline SVG; a sentence where matplotlib is missing."""
    try:
        import matplotlib as mpl
        from matplotlib.figure import Figure
    except ImportError:
        return "<p>The picture needs matplotlib: pip install 'dplateau[plots]'.</p>"
    from io import StringIO

    text = StringIO()
    # A fixed salt and no date: the same audit gives the same bytes.
    with mpl.rc_context({"svg.hashsalt": "dplateau", "svg.fonttype": "path"}):
        figure = Figure(figsize=_SIZE, layout="constrained")
        draw(result, figure.subplots())
        figure.savefig(text, format="svg", metadata={"Date": None})
    drawn = text.getvalue()
    return drawn[drawn.index("<svg") :]
