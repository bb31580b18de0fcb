"""``dplateau account`` and ``dplateau calibrate``: what a plan costs, without any data."""

from __future__ import annotations

import json
import math
from typing import Annotated, Any

import typer

from dplateau.cli import app
from dplateau.errors import PlanError
from dplateau.plan.batches import KINDS, RELATIONS, Batches, FullBatch
from dplateau.plan.domains import Domain, Everywhere, L2Ball
from dplateau.plan.plan import Plan

_TARGETS = ("noise", "noise_multiplier", "iterations", "radius")

Records = Annotated[int, typer.Option(help="Number of records in the data.")]
BatchKind = Annotated[str, typer.Option("--batches", help=f"One of {', '.join(KINDS)}.")]
BatchSize = Annotated[
    float | None, typer.Option(help="Records per step (not for full batches; a mean for poisson).")
]
Iterations = Annotated[str, typer.Option(help="Number of steps, or inf.")]
StepSize = Annotated[float, typer.Option(help="Learning rate.")]
Lipschitz = Annotated[float, typer.Option(help="Bound on every record's gradient norm.")]
Smoothness = Annotated[
    float | None, typer.Option(help="Bound on every record's curvature (hidden state needs it).")
]
StrongConvexity = Annotated[float, typer.Option(help="Strong convexity of every record's loss.")]
Regularization = Annotated[float, typer.Option(help="Weight of the L2 regulariser.")]
Diameter = Annotated[
    float | None, typer.Option(help="Diameter of the domain; none without this option.")
]
Relation = Annotated[str, typer.Option(help=f"One of {', '.join(RELATIONS)}.")]
Delta = Annotated[float, typer.Option(help="The delta of (epsilon, delta)-privacy.")]
Released = Annotated[
    bool, typer.Option(help="Only the last iterate is released (else: claim composition only).")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]


@app.command()
def account(
    records: Records,
    batches: BatchKind,
    iterations: Iterations,
    step_size: StepSize,
    noise_multiplier: Annotated[
        float, typer.Option(help="Noise on the summed gradient, in units of lipschitz.")
    ],
    lipschitz: Lipschitz,
    delta: Delta,
    smoothness: Smoothness = None,
    batch_size: BatchSize = None,
    strong_convexity: StrongConvexity = 0.0,
    regularization: Regularization = 0.0,
    diameter: Diameter = None,
    relation: Relation = RELATIONS[0],
    hidden_state: Released = True,
    as_json: AsJson = False,
) -> None:
    """Tell what releasing the last iterate of a plan costs in privacy."""
    plan = plan_of(
        batches,
        batch_size,
        iterations,
        diameter,
        records=records,
        step_size=step_size,
        noise_multiplier=noise_multiplier,
        lipschitz=lipschitz,
        smoothness=smoothness,
        strong_convexity=strong_convexity,
        regularization=regularization,
        neighboring_relation=relation,
        hidden_state=hidden_state,
    )
    found = summary(plan, delta)
    print(to_json(found)) if as_json else show(plan, found)


@app.command()
def calibrate(
    records: Records,
    batches: BatchKind,
    iterations: Iterations,
    step_size: StepSize,
    lipschitz: Lipschitz,
    epsilon: Annotated[float, typer.Option(help="The epsilon to reach.")],
    delta: Delta,
    smoothness: Smoothness = None,
    batch_size: BatchSize = None,
    strong_convexity: StrongConvexity = 0.0,
    regularization: Regularization = 0.0,
    diameter: Diameter = None,
    relation: Relation = RELATIONS[0],
    hidden_state: Released = True,
    solve_for: Annotated[
        str,
        typer.Option(help=f"What to find: {', '.join(_TARGETS[1:])} (the last two need noise)."),
    ] = "noise",
    noise_multiplier: Annotated[
        float, typer.Option(help="The noise, when iterations or radius are to be found.")
    ] = 1.0,
    as_json: AsJson = False,
) -> None:
    """Find the least noise (or most iterations, or largest radius) for a target epsilon."""
    from dplateau.accounting import calibration

    plan = plan_of(
        batches,
        batch_size,
        iterations,
        diameter,
        records=records,
        step_size=step_size,
        noise_multiplier=noise_multiplier,
        lipschitz=lipschitz,
        smoothness=smoothness,
        strong_convexity=strong_convexity,
        regularization=regularization,
        neighboring_relation=relation,
        hidden_state=hidden_state,
    )
    if solve_for not in _TARGETS:
        raise PlanError(f"--solve-for must be one of {list(_TARGETS)}; found {solve_for!r}.")
    if solve_for == "radius" and diameter is None:
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


def plan_of(
    kind: str, size: float | None, iterations: str, diameter: float | None, **fields: Any
) -> Plan:
    """The plan that the options describe; ``fields`` are its fields as they are."""
    released = "hidden_state" in fields  # whether the command has the option
    if fields.get("smoothness") is None and fields.get("hidden_state", True):
        way_out = ", or pass --no-hidden-state to claim composition only" if released else ""
        raise PlanError(
            "--smoothness is missing: a bound on every record's curvature, which a hidden state "
            f"needs. Give it{way_out}."
        )
    parts: dict[str, Any] = {
        "batches": batches_of(kind, size),
        "iterations": iterations_of(iterations),
        "domain": domain_of(diameter),
    }
    try:
        return Plan(**parts, **fields)
    except PlanError as refusal:
        raise PlanError(_in_options(str(refusal), released)) from None


def _in_options(text: str, released: bool) -> str:
    """A refusal's way out in the words of the command line, not of Python."""
    text = text.replace("math.inf", "inf")
    if released:
        text = text.replace("hidden_state=False, --no-hidden-state", "--no-hidden-state")
        text = text.replace("hidden_state=False", "--no-hidden-state")
    return text


def batches_of(kind: str, size: float | None) -> Batches:
    """The batches that the options describe."""
    if kind not in KINDS:
        raise PlanError(f"--batches must be one of {list(KINDS)}; found {kind!r}.")
    if kind == FullBatch.kind:
        if size is not None:
            raise PlanError("--batch-size says nothing with --batches full: leave it out.")
        return FullBatch()
    if size is None:
        raise PlanError(f"--batches {kind} needs --batch-size.")
    return KINDS[kind].of_size(size)


def iterations_of(text: str) -> float:
    """A whole number, or inf."""
    try:
        return math.inf if text.strip().lower() in {"inf", "infinity"} else int(float(text))
    except (ValueError, OverflowError):
        raise PlanError(f"--iterations must be a whole number or inf; found {text!r}.") from None


def domain_of(diameter: float | None) -> Domain:
    """A ball of that diameter, or no domain."""
    return Everywhere() if diameter is None or diameter == math.inf else L2Ball(diameter / 2)


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
            other = plan.replace(neighboring_relation=relation)
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
