"""How tight is it? ``python -m benchmarks.tightness`` writes the table, the numbers, the picture.

A fixed grid of plans as people train them: logistic regression (L = 1, M = 1/4) on 300 to a million
records, every batch kind, with the noise calibrated for an epsilon from 0.1 to 8. For each plan
dplateau's epsilon is divided by that of dp_accounting (composition; PLD, or RDP for batches of
fixed size, which its PLD lacks), of the paper, of Bok et al., and by the lower bound.

Every plan's numbers are stored as they are found, so an interrupted run goes on where it stopped;
``--anew`` forgets what is stored, ``--same-noise`` keeps every plan as it is stored, noise and all,
and asks dplateau's accountant alone. All 120 plans take about ten minutes on one core.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dp_accounting
import numpy as np
from dp_accounting.pld import PLDAccountant
from dp_accounting.rdp import RdpAccountant

import dplateau as dp
from benchmarks.store import source
from dplateau.report import plots

ROOT = Path(__file__).resolve().parent.parent
NUMBERS = ROOT / "benchmarks" / "results" / "tightness.json"
TABLE = ROOT / "docs" / "tightness.md"
IMAGES = ROOT / "docs" / "images"
# records: (batch size, iterations of full batches, epochs of the others)
SIZES = {
    300: (30, 1_000, 200),
    3_000: (100, 1_000, 100),
    30_000: (300, 1_000, 100),
    1_000_000: (1_000, 1_000, 20),
}
CALIBRATED = 1e-3  # a noise is the least if it misses epsilon by less than this share
EPSILONS = (0.1, 0.5, 1.0, 2.0, 4.0, 8.0)
# What is trained: weights, radius, regularisation.
TABULAR = {"dimension": 100, "domain": dp.L2Ball(1.0), "regularization": 0.0}
EMBEDDING = {"dimension": 768, "domain": dp.L2Ball(4.0), "regularization": 0.002}
OTHERS = {
    "dp_accounting": "ours ÷ dp_accounting",
    "paper": "ours ÷ Altschuler & Talwar",
    "bok": "ours ÷ Bok et al.",
    "lower": "ours ÷ lower bound",
}


def grid() -> Iterator[tuple[str, dp.Plan, float, float]]:
    """Name, plan without its final noise, target epsilon, delta: 120 of them."""
    for n, (b, full_steps, epochs) in SIZES.items():
        kinds = {
            "full, replace-one": (dp.FullBatch(), "replace_one"),
            "cyclic, replace-one": (dp.Cyclic(b), "replace_one"),
            "fixed size, replace-one": (dp.FixedSize(b), "replace_one"),
            "Poisson, replace-one": (dp.Poisson(b), "replace_one"),
            "Poisson, add/remove": (dp.Poisson(b), "add_or_remove_one"),
        }
        for place, (kind, (batches, relation)) in enumerate(kinds.items()):
            for turn, epsilon in enumerate(EPSILONS):
                model = TABULAR if (place + turn) % 2 == 0 else EMBEDDING
                steps = full_steps if kind.startswith("full") else epochs * n // b
                plan = dp.Plan(
                    records=n,
                    batches=batches,
                    iterations=steps,
                    step_size=2.0,
                    noise_multiplier=1.0,
                    lipschitz=1.0,
                    smoothness=0.25,
                    neighboring_relation=relation,
                    **model,
                )
                size = "tabular" if model is TABULAR else "embedding"
                yield f"n={n:,}, {kind}, {size}, ε={epsilon:g}", plan, epsilon, 0.1 / n


def composed_by_dp_accounting(plan: dp.Plan, delta: float) -> float:
    """What dp_accounting reports when every iterate counts."""
    relation = getattr(dp_accounting.NeighboringRelation, plan.neighboring_relation.upper())
    noise = plan.noise_multiplier.largest(1)
    gaussian = dp_accounting.GaussianDpEvent(noise)
    steps = int(plan.iterations)
    if isinstance(plan.batches, dp.FixedSize):
        # Its convention there: noise relative to what replacing a record changes, 2L.
        event = dp_accounting.SampledWithoutReplacementDpEvent(
            plan.records, int(plan.batch_size), dp_accounting.GaussianDpEvent(noise / 2)
        )
        accountant = RdpAccountant(neighboring_relation=relation)
        return float(accountant.compose(event, steps).get_epsilon(delta))
    accountant = PLDAccountant(relation)
    if isinstance(plan.batches, dp.Poisson):
        event = dp_accounting.PoissonSampledDpEvent(plan.inclusion_probability, gaussian)
        accountant.compose(event, steps)
    else:
        period = plan.batches.per_epoch(plan.records)
        hits = steps if isinstance(plan.batches, dp.FullBatch) else math.ceil(steps / period)
        accountant.compose(gaussian, hits)
    return float(accountant.get_epsilon(delta))


def calibrated(plan: dp.Plan, epsilon: float, delta: float, noise: float | None) -> dp.Plan:
    """The plan with the least noise; what was the least before is tried first."""
    if noise is not None:
        known = plan.replace(noise_multiplier=noise)
        if epsilon * (1 - CALIBRATED) <= dp.account(known, delta).epsilon(delta) <= epsilon:
            return known
    return dp.calibrate(plan, epsilon, delta)


def measure(
    plan: dp.Plan, epsilon: float, delta: float, noise: float | None = None
) -> dict[str, Any]:
    """Everybody's epsilon for the plan with the noise that dplateau needs."""
    plan = calibrated(plan, epsilon, delta, noise)
    guarantee = dp.account(plan, delta)
    published = {}
    for name, bound in (
        ("paper", dp.published.altschuler_talwar),
        ("bok", dp.published.bok_su_altschuler),
    ):
        try:
            published[name] = bound(plan).epsilon(delta)
        except dp.PlanError:
            published[name] = None
    return {
        "plan": plan.to_dict(),
        "delta": delta,
        "bound": guarantee.at(delta).bound,
        "ours": guarantee.epsilon(delta),
        "dp_accounting": composed_by_dp_accounting(plan, delta),
        **published,
        "lower": dp.lower_bound(plan, delta, strongest=True),
        "source": source(),
    }


def with_the_same_noise() -> dict[str, dict[str, Any]]:
    """The stored plans with dplateau's present epsilon; what others say of them stays."""
    found = json.loads(NUMBERS.read_text())
    for each in found.values():
        result = dp.account(dp.Plan.from_dict(each["plan"])).at(each["delta"])
        each.setdefault("before", each["ours"])
        each |= {"ours": result.epsilon, "bound": result.bound, "source": source()}
    NUMBERS.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")
    return {name: found[name] for name, *_ in grid() if name in found}


def gather(limit: int | None, *, anew: bool = False) -> dict[str, dict[str, Any]]:
    """All measurements, those not stored yet made now."""
    stored = json.loads(NUMBERS.read_text()) if NUMBERS.exists() else {}
    found = {} if anew else dict(stored)
    wanted = list(grid())
    made = 0
    # Every other epsilon first, so that an unfinished run covers all sizes and batches.
    for name, plan, epsilon, delta in sorted(wanted, key=lambda w: EPSILONS.index(w[2]) % 2):
        if name in found or (limit is not None and made >= limit):
            continue
        known = stored.get(name, {}).get("plan", {}).get("noise_multiplier")
        found[name] = measure(plan, epsilon, delta, known)
        made += 1
        NUMBERS.parent.mkdir(exist_ok=True)
        NUMBERS.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")
        print(f"{len(found)}/{len(wanted)} {name}", flush=True)
    return {name: found[name] for name, *_ in wanted if name in found}


def ratios(found: dict[str, dict[str, Any]], other: str) -> list[float]:
    """Ours divided by the other's, where the other says something."""
    return [
        each["ours"] / each[other] if each[other] else math.nan
        for each in found.values()
        if each[other] is not None
    ]


def geometric_mean(values: list[float]) -> float:
    """Of the finite values."""
    array = np.asarray([v for v in values if math.isfinite(v)])
    return float(np.exp(np.log(array).mean())) if array.size else math.nan


def table(found: dict[str, dict[str, Any]]) -> str:
    """The page: means by batch kind, then every plan."""
    kinds = dict.fromkeys(name.split(", ")[1] for name in found)
    lines = [
        "# How tight the bounds are",
        "",
        f"{len(found)} plans; every number is dplateau's ε divided by another's, so below 1 is "
        "better (for the lower bound: 1 would be perfect). The plans are logistic regressions on "
        "300 to a million records with the least noise that version 0.1 of dplateau allowed for an "
        "ε from 0.1 to 8, δ = 0.1/n: the ε of their names, which the present bounds may undercut. "
        "dp_accounting composes all steps, by PLD, or by RDP for batches of fixed "
        "size, which its PLD lacks. Where another library's bound does not apply there is a dash. "
        "The lower bound is `lower_bound(plan, delta, strongest=True)`. Regenerate this page with "
        "`python -m benchmarks.tightness`; " + _versions(found),
        "",
        "![ratios](images/tightness.png)",
        "",
        "## Geometric means",
        "",
        "| batches | " + " | ".join(OTHERS.values()) + " |",
        "|---" * (len(OTHERS) + 1) + "|",
    ]
    for kind in [*kinds, "all"]:
        part = {k: v for k, v in found.items() if kind in ("all", k.split(", ")[1])}
        means = " | ".join(_cell(geometric_mean(ratios(part, other))) for other in OTHERS)
        lines.append(f"| {kind} | {means} |")
    lines += ["", *_above_the_paper(found), *_far_from_the_lower_bound(found)]
    lines += [
        "## Every plan",
        "",
        "| plan | noise multiplier | won by | ours | dp_accounting | Altschuler & Talwar "
        "| Bok et al. | lower bound |",
        "|---" * 8 + "|",
    ]
    for name, each in found.items():
        numbers = [each["ours"], *(each[other] for other in OTHERS)]
        cells = " | ".join(_cell(v) for v in numbers)
        noise = each["plan"]["noise_multiplier"]
        lines.append(f"| {name} | {noise:.4g} | {each['bound']} | {cells} |")
    return "\n".join(lines) + "\n"


def _versions(found: dict[str, dict[str, Any]]) -> str:
    """Which code the rows are of."""
    sources = sorted({each.get("source", "unknown") for each in found.values()})
    return f"these rows are of commit {', '.join(sources)}."


def _above_the_paper(found: dict[str, dict[str, Any]]) -> list[str]:
    """Where a published bound is smaller than ours, and why it is not taken."""
    above = [
        f"{name} ({each['ours']:.3f} against {each['paper']:.3f})"
        for name, each in found.items()
        if each["paper"] is not None and each["ours"] > each["paper"] * (1 + 1e-6)
    ]
    if not above:
        return []
    return [
        "## Where the paper's number is smaller",
        "",
        "; ".join(above) + ".",
        "",
        "The paper's formula for batches of fixed size prices each step as a Gaussian against a "
        "mixture, always in the same order. That is not proved "
        "([misprint 6](theory.md#section-8)): "
        "under replace-one either neighbour may be the mixture, and an attacker who sees one "
        "iterate may choose the order of the next. What is proved, `C_q` of "
        "[section 3](theory.md#section-3), "
        "pays for both orders at once. For *n=30,000, ε=4* the paper's pair composed numerically "
        "would give 3.26 and `C_q` gives 4.00; the paper's 3.98 lies between them because its "
        "Rényi conversion loses most of the difference again. No split of the noise changes this: "
        "here composition wins, which splits nothing.",
        "",
    ]


def _far_from_the_lower_bound(found: dict[str, dict[str, Any]]) -> list[str]:
    """The plans with the largest gaps."""
    gaps = {
        name: each["ours"] / each["lower"]
        for name, each in found.items()
        if each["lower"] and each["ours"] > 5 * each["lower"]
    }
    if not gaps:
        return []
    worst = sorted(gaps, key=lambda name: -gaps[name])
    return [
        "## Where most is unknown",
        "",
        f"On {len(gaps)} plans ours is more than five times the lower bound: "
        + "; ".join(f"{name} ({gaps[name]:.2g}×)" for name in worst)
        + ".",
        "",
        "There a record is in one batch of a hundred or a thousand, and the regulariser lets a "
        "walk forget a hit after some hundred steps, while shift prices every step as if it were "
        "shown by "
        "itself. For batches of fixed size it also pays for a change of `2L`, as if the record "
        "could stand on the far side of all others; the walks that we know of attain `L` on either "
        "side. Which of the two sides of the gap is nearer to the truth is open.",
        "",
    ]


def _cell(value: float | None) -> str:
    return "–" if value is None or not math.isfinite(value) else f"{value:.3g}"


def main() -> None:
    """Measure what is missing, then write table and picture."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--limit", type=int, help="measure at most so many new plans")
    parser.add_argument("--anew", action="store_true", help="measure every plan, stored or not")
    parser.add_argument("--same-noise", action="store_true", help="account the stored plans anew")
    asked = parser.parse_args()
    found = with_the_same_noise() if asked.same_noise else gather(asked.limit, anew=asked.anew)
    TABLE.write_text(table(found), encoding="utf-8")
    figure = plots.tightness({label: ratios(found, other) for other, label in OTHERS.items()})
    for kind in ("png", "svg"):
        plots.save(figure, IMAGES / f"tightness.{kind}")
    for other, label in OTHERS.items():
        print(f"{label}: geometric mean {geometric_mean(ratios(found, other)):.3f}")


if __name__ == "__main__":
    main()
