"""Coefficients with their confidence intervals, as a table of the report."""

from __future__ import annotations

import html

from dplateau.estimators.intervals import Intervals


def section(found: Intervals | None) -> str:
    """The table, in the order of the features; nothing where no intervals were bought."""
    if found is None:
        return ""
    ends = zip(found.estimate, found.low, found.high, found.released, strict=True)
    rows = "\n".join(
        f"<tr><th>{html.escape(name)}</th>"
        + "".join(f"<td>{value:.4g}</td>".replace("-", "\u2212") for value in values)
        + "</tr>"
        for name, values in zip(found.names, ends, strict=True)
    )
    return (
        "<section>\n<h2>How sure the coefficients are</h2>\n"
        f"<p>Each interval covers with a chance of {100 * found.level:g}\u00a0%, counting sampling "
        "and privacy noise. It is for the coefficient without penalty, early stopping or clipped "
        "gradients, and lies around an estimate of its own; the released coefficients predict "
        "better under the noise.</p>\n"
        '<table class="aligned">\n<tr><th>feature</th><td>estimate</td><td>from</td><td>to</td>'
        f"<td>released</td></tr>\n{rows}\n</table>\n</section>"
    )
