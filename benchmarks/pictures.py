"""The pictures of the README and the documentation: ``python -m benchmarks.pictures``.

Numbers are kept beside the pictures as JSON; with ``--redraw`` they are read, where they are
there, instead of computed.
"""

from __future__ import annotations

import argparse
import json
import math
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dplateau.plan.batches import Poisson
from dplateau.plan.plan import Plan
from dplateau.report import plots
from dplateau.report.comparison import Comparison, compare, example_settings

if TYPE_CHECKING:
    from matplotlib.figure import Figure

IMAGES = Path(__file__).resolve().parent.parent / "docs" / "images"
DELTA = 1e-6


def main() -> None:
    """Draw every picture."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--redraw", action="store_true", help="use the stored numbers")
    kept = partial(numbers, stored=parser.parse_args().redraw)
    settings = example_settings()
    readme = settings["readme"]
    panels = [
        kept("plateau", readme, points=15, title="bounded weights, little noise per step"),
        kept("mini_batch", mini_batch(), points=13, title="plain mini-batch training"),
    ]
    draw("plateau", plots.side_by_side(panels))
    titles = {
        "convex": "convex, random batches",
        "cyclic": "convex, cyclic batches",
        "strongly_convex": "strongly convex, random batches",
    }
    figures = [kept(f"paper_{name}", settings[name], title=title) for name, title in titles.items()]
    draw("paper_figures", plots.side_by_side(figures))
    trained = readme.replace(iterations=100_000)
    choices = [
        kept(f"along_{axis}", trained, along=axis, points=11, strongest=False)
        for axis in ("diameter", "step_size", "batch_size")
    ]
    draw("choices", plots.side_by_side(choices))


def mini_batch() -> Plan:
    """Small batches, a small penalty, noise as people use it: no domain at all."""
    return Plan(
        records=1_000_000,
        batches=Poisson(1_000),
        iterations=math.inf,
        step_size=2.0,
        noise_multiplier=0.7,
        lipschitz=1.0,
        smoothness=0.25,
        regularization=0.0005,
        neighboring_relation="add_or_remove_one",
    )


def numbers(name: str, plan: Plan, *, stored: bool, **options: Any) -> Comparison:
    """The comparison, computed, or read from beside the pictures."""
    path = IMAGES / f"{name}.json"
    if stored and path.exists():
        return Comparison.from_dict(json.loads(path.read_text()))
    found = compare(plan, DELTA, **options)
    path.write_text(json.dumps(found.to_dict(), indent=1) + "\n")
    return found


def draw(name: str, figure: Figure) -> None:
    """Write a picture as PNG and SVG."""
    for kind in ("png", "svg"):
        print(plots.save(figure, IMAGES / f"{name}.{kind}"))


if __name__ == "__main__":
    main()
