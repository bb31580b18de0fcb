"""``dplateau account`` and ``dplateau calibrate``: what a plan costs, without any data."""

from __future__ import annotations

import json
import math
from typing import Annotated, Any

import typer

from dplateau.cli import app
from dplateau.cli.options import AsJson, Delta, PlanOptions, takes_a_plan
from dplateau.errors import PlanError
from dplateau.plan.batches import RELATIONS
from dplateau.plan.plan import Plan, under_relation

_TARGETS = ("noise", "noise_multiplier", "iterations", "radius")


@app.command()
@takes_a_plan()
def account(described: PlanOptions, delta: Delta, as_json: AsJson = False) -> None:
    """Tell what releasing the last iterate of a plan costs in privacy."""
    plan = described.plan()
    found = summary(plan, delta)
    print(to_json(found)) if as_json else show(plan, found)


@app.command()
@takes_a_plan(noise_multiplier=1.0)
def calibrate(
    described: PlanOptions,
    epsilon: Annotated[float, typer.Option(help="The epsilon to reach.")],
    delta: Delta,
    solve_for: Annotated[
        str,
        typer.Option(
            help=f"What to find: {', '.join(_TARGETS[1:])} (the last two with --noise-multiplier)."
        ),
    ] = "noise",
    as_json: AsJson = False,
) -> None:
    """Find the least noise (or most iterations, or largest radius) for a target epsilon."""
    from dplateau.accounting import calibration

    plan = described.plan()
    if solve_for not in _TARGETS:
        raise PlanError(f"--solve-for must be one of {list(_TARGETS)}; found {solve_for!r}.")
    if solve_for == "radius" and described.diameter is None:
        raise PlanError("--solve-for radius needs a --diameter to start from: any will do.")
    wanted = "noise_multiplier" if solve_for == "noise" else solve_for
    plan = calibration.calibrate(plan, epsilon, delta, solve_for=wanted)
    found = {
        "noise_multiplier": plan.noise_multiplier.largest(1),
        "iterations": plan.iterations,
        "diameter": plan.diameter,
        **summary(plan, delta),
    }
    print(to_json(found)) if as_json else show(plan, found)


def summary(plan: Plan, delta: float) -> dict[str, Any]:
    """Every number that is known of a plan at one delta."""
    from dplateau.accounting import published
    from dplateau.accounting.guarantee import account as account_for
    from dplateau.accounting.lower.lower import lower_bound

    guarantee = account_for(plan, delta)
    result = guarantee.at(delta)
    return {
        "epsilon": result.epsilon,
        "delta": delta,
        "bound": result.bound,
        "last_steps": result.last_steps,
        "bounds": _that_say_something(guarantee.bounds(delta)),
        "published": _that_say_something(
            {name: bound.epsilon(delta) for name, bound in published.applicable(plan).items()}
        ),
        "lower_bound": lower_bound(plan, delta),
        "relation": plan.neighboring_relation,
        "other_relations": other_relations(plan, delta),
        "hypotheses": list(result.hypotheses),
        "explanation": guarantee.explain(),
    }


def _that_say_something(bounds: dict[str, float]) -> dict[str, float]:
    return {name: value for name, value in bounds.items() if math.isfinite(value)}


def other_relations(plan: Plan, delta: float) -> dict[str, float]:
    """Epsilon under every other neighbouring relation that goes with the plan."""
    from dplateau.accounting.guarantee import account as account_for

    found = {}
    for relation in RELATIONS:
        if relation != plan.neighboring_relation and relation in plan.batches.relations:
            other = under_relation(plan, relation)
            found[relation] = account_for(other, delta).epsilon(delta)
    return found


def to_json(found: dict[str, Any]) -> str:
    """One JSON object; infinities become the word "inf", which strict readers accept."""
    return json.dumps(_finite(found), allow_nan=False)


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(each) for key, each in value.items()}
    if isinstance(value, float) and math.isinf(value):
        return "inf"
    return [_finite(each) for each in value] if isinstance(value, list) else value


def show(plan: Plan, found: dict[str, Any]) -> None:
    """The same numbers as tables for people."""
    from rich.console import Console
    from rich.table import Table

    console = Console()
    table = Table(title=f"epsilon at delta = {found['delta']:g}, {found['relation']}")
    table.add_column("what says so")
    table.add_column("epsilon", justify="right")
    for name, value in found["bounds"].items():
        won = name == found["bound"]
        table.add_row(
            f"{name} (reported)" if won else name, _number(value), style="bold" if won else ""
        )
    for name, value in found["published"].items():
        table.add_row(f"published: {name}", _number(value), style="dim")
    table.add_row("lower bound (an attack exists)", _number(found["lower_bound"]), style="dim")
    for name, value in found["other_relations"].items():
        table.add_row(f"reported, if neighbours mean {name}", _number(value), style="dim")
    console.print(table)
    if "noise_multiplier" in found:
        console.print(
            f"noise multiplier {found['noise_multiplier']:.6g}, iterations {plan.iterations}, "
            f"diameter {found['diameter']:g}"
        )
    console.print(found["explanation"])


def _number(value: float) -> str:
    return "inf" if math.isinf(value) else f"{value:.4g}"
