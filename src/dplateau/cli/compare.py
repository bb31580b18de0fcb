"""``dplateau compare``: one setting, every account of it, as numbers and as a picture."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from dplateau.cli import app
from dplateau.cli.account import (
    AsJson,
    BatchSize,
    Delta,
    Diameter,
    Regularization,
    Relation,
    Smoothness,
    StrongConvexity,
    plan_of,
    to_json,
)
from dplateau.errors import PlanError
from dplateau.plan.batches import KINDS, RELATIONS
from dplateau.plan.plan import Plan

_EXAMPLES = ("convex", "cyclic", "strongly_convex", "readme")  # of comparison.example_settings
_REQUIRED = ("records", "batches", "step_size", "noise_multiplier", "lipschitz")


@app.command()
def compare(
    delta: Delta = 1e-6,
    example: Annotated[
        str | None,
        typer.Option(help=f"A built-in setting instead of options: {', '.join(_EXAMPLES)}."),
    ] = None,
    along: Annotated[
        str, typer.Option(help="What varies: iterations, diameter, step_size or batch_size.")
    ] = "iterations",
    values: Annotated[
        str | None, typer.Option(help="Its values, separated by commas; a range by default.")
    ] = None,
    points: Annotated[int, typer.Option(help="How many values the default range has.")] = 13,
    out: Annotated[
        Path | None, typer.Option(help="Write the picture here, as .png or .svg.")
    ] = None,
    strongest: Annotated[
        bool, typer.Option(help="Search for the strongest lower bound (slower).")
    ] = False,
    records: Annotated[int | None, typer.Option(help="Number of records in the data.")] = None,
    batches: Annotated[str | None, typer.Option(help=f"One of {', '.join(KINDS)}.")] = None,
    batch_size: BatchSize = None,
    iterations: Annotated[str, typer.Option(help="Number of steps, or inf.")] = "inf",
    step_size: Annotated[float | None, typer.Option(help="Learning rate.")] = None,
    noise_multiplier: Annotated[
        float | None, typer.Option(help="Noise on the summed gradient, in units of lipschitz.")
    ] = None,
    lipschitz: Annotated[
        float | None, typer.Option(help="Bound on every record's gradient norm.")
    ] = None,
    smoothness: Smoothness = None,
    strong_convexity: StrongConvexity = 0.0,
    regularization: Regularization = 0.0,
    diameter: Diameter = None,
    relation: Relation = RELATIONS[0],
    as_json: AsJson = False,
) -> None:
    """Compare what composition, the paper, its peers and dplateau say about one setting."""
    from dplateau.report import comparison

    given = {
        "records": records,
        "batches": batches,
        "step_size": step_size,
        "noise_multiplier": noise_multiplier,
        "lipschitz": lipschitz,
    }
    if example is not None:
        plan = _example(example, given)
    else:
        plan = _plan(
            given,
            batch_size=batch_size,
            iterations=iterations,
            diameter=diameter,
            smoothness=smoothness,
            strong_convexity=strong_convexity,
            regularization=regularization,
            neighboring_relation=relation,
        )
    found = comparison.compare(
        plan,
        delta,
        along=along,
        values=None if values is None else _numbers(values),
        points=points,
        strongest=strongest,
    )
    if out is not None:
        from dplateau.report import plots

        plots.save(plots.epsilon_curves(found), out)
    print(to_json(found.to_dict())) if as_json else _show(found, out)


def _example(name: str, given: dict[str, Any]) -> Plan:
    from dplateau.report.comparison import example_settings

    settings = example_settings()
    if name not in settings:
        raise PlanError(f"--example must be one of {sorted(settings)}; found {name!r}.")
    said = [f"--{key.replace('_', '-')}" for key, value in given.items() if value is not None]
    if said:
        raise PlanError(f"--example says it all: leave out {', '.join(said)}.")
    return settings[name]


def _plan(given: dict[str, Any], **more: Any) -> Plan:
    missing = [f"--{key.replace('_', '-')}" for key in _REQUIRED if given[key] is None]
    if missing:
        raise PlanError(f"compare needs {', '.join(missing)}, or --example.")
    fields = {key: value for key, value in given.items() if key != "batches"}
    size, steps, diameter = more.pop("batch_size"), more.pop("iterations"), more.pop("diameter")
    return plan_of(given["batches"], size, steps, diameter, **fields, **more)


def _numbers(text: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise PlanError(f"--values must be numbers separated by commas; found {text!r}.") from None


def _show(found: Any, out: Path | None) -> None:
    from rich.console import Console
    from rich.table import Table

    from dplateau.report.plots import SHORT

    console = Console()
    table = Table(title=f"epsilon at delta = {found.delta:g}, {found.plan.neighboring_relation}")
    table.add_column(found.along.replace("_", " "), justify="right")
    for name in found.epsilons:
        table.add_column(SHORT[name], justify="right")
    for i, value in enumerate(found.values):
        row = [curve[i] for curve in found.epsilons.values()]
        table.add_row(f"{value:g}", *(f"{v:.4g}" if v == v else "-" for v in row))
    console.print(table)
    if found.burn_in is not None:
        console.print(f"From {found.burn_in:,.0f} steps on, dplateau's epsilon no longer grows.")
    if out is not None:
        console.print(f"picture: {out}")
