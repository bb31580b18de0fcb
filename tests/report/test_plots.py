"""Pictures: drawn without a screen, the same every time, and readable in grey."""

import math
import subprocess
import sys
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest

import dplateau as dp
from dplateau.report import plots
from dplateau.report.comparison import ACCOUNTANTS, Comparison

PLAN = dp.Plan(
    records=1000,
    batches=dp.FullBatch(),
    iterations=math.inf,
    step_size=1.0,
    noise_multiplier=60.0,
    lipschitz=1.0,
    smoothness=1.0,
    domain=dp.L2Ball(0.25),
)


@pytest.fixture
def comparison():
    rising = (0.1, 1.0, 10.0)
    curves = dict.fromkeys(ACCOUNTANTS, rising) | {"bok_su_altschuler": (math.nan,) * 3}
    return Comparison(PLAN, 1e-6, "iterations", (1.0, 10.0, 100.0), curves, 20.0, "a title")


def test_axes_are_labelled_and_lines_named(comparison):
    (axes,) = plots.epsilon_curves(comparison).axes
    assert axes.get_xlabel() == "iterations T"
    assert axes.get_ylabel() == "ε at δ = 10⁻⁶"
    words = " ".join(text.get_text() for text in axes.texts)
    for name in ("composition", "dplateau", "lower bound", "burn-in 20"):
        assert name in words
    assert "Bok" not in words  # nothing to show for it


def test_labels_do_not_touch(comparison):
    (axes,) = plots.epsilon_curves(comparison).axes
    heights = sorted(t.xy[1] for t in axes.texts if "burn-in" not in t.get_text())
    assert min(np.diff(heights)) > 0.05
    assert heights[0] >= 0
    assert heights[-1] <= 1


def test_lines_differ_without_colour():
    styles = {
        (str(style["linestyle"]), style["marker"], style.get("linewidth"))
        for style in plots.STYLES.values()
    }
    assert len(styles) == len(plots.STYLES)


def test_svg_is_valid_and_reproducible(comparison, tmp_path):
    first = plots.to_svg(plots.epsilon_curves(comparison))
    assert first == plots.to_svg(plots.epsilon_curves(comparison))
    assert ElementTree.fromstring(first).tag.endswith("svg")
    assert plots.save(plots.epsilon_curves(comparison), tmp_path / "a.svg").read_text() == first


def test_png_and_refused_kinds(comparison, tmp_path):
    figure = plots.side_by_side([comparison, comparison])
    assert plots.save(figure, tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(dp.DataError, match=r"\.png or \.svg"):
        plots.save(figure, tmp_path / "a.gif")


def test_tradeoff_curve():
    figure = plots.tradeoff(dp.account(PLAN), observed=[(0.1, 0.9)])
    (axes,) = figure.axes
    curve = axes.lines[1].get_xydata()
    assert np.all(curve[:, 1] <= 1 - curve[:, 0] + 1e-12)
    assert np.all(np.diff(curve[:, 1]) <= 1e-12)
    assert "miss" in axes.get_ylabel()


def test_tightness_marks_geometric_means():
    figure = plots.tightness({"a": [0.5, 2.0, math.nan], "b": [0.1, 0.4], "none": [math.inf]})
    words = [text.get_text() for text in figure.axes[0].texts]
    assert words == ["1.00", "0.20"]


def test_importing_dplateau_does_not_import_matplotlib():
    code = (
        "import sys, dplateau, dplateau.report.plots; sys.exit(any(m.startswith('matplotlib') "
        "for m in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
