"""Attack a handful of plans, for the table of docs/audit.md: the room left under each bound.

Run with ``python benchmarks/audit.py`` (about fifteen minutes on two cores; ``--quick`` for a
tenth of the models). Real tables are read from ``../shared/data``; a plan whose table is missing
is audited on a synthetic one of the same shape, and the page says so.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import dplateau as dp
from dplateau.auditing import AuditResult, audit
from dplateau.auditing.synthetic import synthetic_table

ROOT = Path(__file__).resolve().parents[1]
DATA = ROOT.parent / "shared" / "data"
PAGE = ROOT / "docs" / "audit.md"
FIGURE = ROOT / "docs" / "audit.svg"
DELTA = 1e-5
CONFIDENCE = 0.95
START, END = "<!-- measured: python benchmarks/audit.py -->", "<!-- end -->"
COLUMNS = (
    "plan",
    "relation",
    "models",
    "found: ε ≥",
    "found: μ ≥",
    "as Gaussian: ε",
    "exact: ε ≥",
    "guaranteed: ε ≤",
    "by",
    "composition: ε ≤",
    "verdict",
    "minutes",
)


@dataclass(frozen=True)
class Case:
    """One row of the page."""

    name: str
    story: str
    plan: dp.Plan
    loss: Any
    canary: str
    repeats: int
    table: tuple[Any, Any] | None = None


def cases(scale: float) -> Iterator[Case]:
    """The plans, easiest to attack first."""
    huber = dp.Huber()
    linear = {"loss": huber, "data_norm": 1.0, "dimension": 1}
    yield Case(
        "strongly convex, full batch",
        "Gaussian in both worlds: the exact answer is known and equals the guarantee.",
        dp.Plan(
            records=100,
            batches=dp.FullBatch(),
            iterations=200,
            step_size=0.5,
            noise_multiplier=30.0,
            regularization=0.02,
            **linear,
        ),
        huber,
        "walk",
        int(4000 * scale),
    )
    yield Case(
        "strongly convex, cyclic",
        "Ten batches in fixed order, the canary in the last one.",
        dp.Plan(
            records=100,
            batches=dp.Cyclic(10),
            iterations=500,
            step_size=0.5,
            noise_multiplier=2.0,
            regularization=0.02,
            **linear,
        ),
        huber,
        "walk",
        int(4000 * scale),
    )
    yield Case(
        "walk between walls, full batch",
        "The paper's lower-bound construction, past its burn-in.",
        dp.Plan(
            records=100,
            batches=dp.FullBatch(),
            iterations=2000,
            step_size=0.01,
            noise_multiplier=10.0,
            domain=dp.L2Ball(0.005),
            neighboring_relation="add_or_remove_one",
            **linear,
        ),
        huber,
        "walk",
        int(6000 * scale),
    )
    yield Case(
        "walk between walls, Poisson",
        "The same with a tenth of the records in every step.",
        dp.Plan(
            records=100,
            batches=dp.Poisson(10),
            iterations=2000,
            step_size=0.01,
            noise_multiplier=2.0,
            domain=dp.L2Ball(0.01),
            neighboring_relation="add_or_remove_one",
            **linear,
        ),
        huber,
        "walk",
        int(6000 * scale),
    )
    yield from _suggested(scale)


def _suggested(scale: float) -> Iterator[Case]:
    """What the planner proposes for real tables."""
    for epsilon, canary in ((1.0, "dense"), (8.0, "unused")):
        loss = dp.Logistic()
        X, y, what = _adult()
        plan = dp.suggest_plan(
            loss,
            len(X),
            X.shape[1],
            epsilon=epsilon,
            delta=DELTA,
            data_norm=1.0,
            neighboring_relation="add_or_remove_one",
            work=2e8,
        )
        yield Case(
            f"logistic, Adult, ε = {epsilon:g}",
            f"The planner's own choice; {what}, canary '{canary}'.",
            plan,
            plan.loss,
            canary,
            int(200 * scale),
            (X, y),
        )


def _adult() -> tuple[np.ndarray, np.ndarray, str]:
    """Adult's numeric columns and one-hot categories, rows scaled to norm one."""
    path = DATA / "adult_train.parquet"
    if not path.exists():
        shape = dp.Plan(
            records=32_561,
            batches=dp.FullBatch(),
            iterations=1,
            step_size=1.0,
            noise_multiplier=1.0,
            loss=dp.Logistic(),
            data_norm=1.0,
        )
        return *synthetic_table(shape, dp.Logistic(), 108), "a synthetic table of its shape"
    import pandas as pd

    frame = pd.read_parquet(path)
    target = frame.columns[-1]
    y = (frame[target].astype(str).str.contains(">50K")).astype(int).to_numpy()
    X = pd.get_dummies(frame.drop(columns=target)).to_numpy(dtype=float)
    X /= np.maximum(np.abs(X).max(axis=0), 1.0)
    return X / np.maximum(np.linalg.norm(X, axis=1, keepdims=True), 1.0), y, "the real table"


def measured(found: list[tuple[Case, AuditResult]]) -> str:
    """The part of docs/audit.md that is measured: a table, a picture and what the plans are."""
    header = f"| {' | '.join(COLUMNS)} |\n|{'---|' * len(COLUMNS)}"
    rows = "\n".join(_row(case, result) for case, result in found)
    stories = "\n".join(f"- **{case.name}**: {case.story}" for case, _ in found)
    return (
        f"At δ = {DELTA:g}; what is found holds with {CONFIDENCE:.0%} confidence per row.\n\n"
        f"{header}\n{rows}\n\n![The same numbers as a picture](audit.svg)\n\n{stories}\n"
    )


def rewrite(text: str, part: str) -> str:
    """The page with everything between its two marks replaced."""
    start = text.index(START) + len(START)
    return f"{text[:start]}\n\n{part}\n{text[text.index(END) :]}"


def _row(case: Case, result: AuditResult) -> str:
    exact = "–" if result.exact_lower is None else f"{result.exact_lower:.3g}"
    cells = [
        case.name,
        result.plan.neighboring_relation.replace("_", " "),
        f"2 × {result.repeats:,}",
        f"{result.epsilon_lower:.3g}",
        f"{result.mu_lower:.3g}",
        f"{result.epsilon_if_gaussian:.3g}",
        exact,
        f"**{result.epsilon:.3g}**",
        result.bound,
        f"{result.composition:.3g}",
        result.verdict,
        f"{result.seconds / 60:.1f}",
    ]
    return f"| {' | '.join(cells)} |"


def draw(found: list[tuple[Case, AuditResult]]) -> None:
    """One line per plan: the interval in which the true epsilon lies."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context({"svg.hashsalt": "dplateau"}):
        figure = Figure(figsize=(8.0, 0.6 * len(found) + 1.4), layout="constrained")
        ax = figure.subplots()
        marks = {
            "found by attack": ("o", "#d9822b", lambda r: r.epsilon_lower),
            "exact worst case": ("D", "#555555", lambda r: r.exact_lower or math.nan),
            "guaranteed": ("|", "#1f4e79", lambda r: r.epsilon),
            "composition": ("x", "#999999", lambda r: r.composition),
        }
        heights = np.arange(len(found))[::-1]
        for label, (marker, color, read) in marks.items():
            values = [read(result) for _, result in found]
            ax.plot(values, heights, marker, color=color, label=label, markersize=9, mew=2)
        for height, (_, result) in zip(heights, found, strict=True):
            ax.plot(
                [max(result.epsilon_lower, 1e-2), result.epsilon],
                [height] * 2,
                color="#1f4e79",
                alpha=0.25,
                linewidth=5,
                zorder=0,
            )
        ax.set(xscale="log", xlabel=f"ε at δ = {DELTA:g}", ylim=(-0.6, len(found) - 0.4))
        ax.set_yticks(heights, [case.name for case, _ in found])
        ax.legend(loc="upper center", bbox_to_anchor=(0.4, 1.2), ncols=4, frameon=False)
        figure.savefig(FIGURE, metadata={"Date": None})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the models, no page")
    quick = parser.parse_args().quick
    found = []
    for case in cases(0.1 if quick else 1.0):
        X, y = case.table or (None, None)
        result = audit(
            case.plan,
            case.loss,
            X,
            y,
            canary=case.canary,
            repeats=case.repeats,
            confidence=CONFIDENCE,
            delta=DELTA,
            random_state=0,
        )
        print(_row(case, result), file=sys.stderr, flush=True)
        found.append((case, result))
    if quick:
        print(measured(found))
        return
    PAGE.write_text(rewrite(PAGE.read_text(encoding="utf-8"), measured(found)), encoding="utf-8")
    draw(found)


if __name__ == "__main__":
    main()
