"""``dplateau compare``: one setting, every account of it, as numbers and as a picture."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated, Any

import typer

from dplateau.cli import app
from dplateau.cli.account import to_json
from dplateau.cli.options import AsJson, Delta, PlanOptions, takes_a_plan
from dplateau.cli.terminal import say
from dplateau.errors import PlanError
from dplateau.plan.plan import Plan

_EXAMPLES = ("convex", "cyclic", "strongly_convex", "readme")  # of comparison.example_settings


@app.command()
@takes_a_plan(without=["hidden_state"])
def compare(
    described: PlanOptions,
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
    as_json: AsJson = False,
) -> None:
    """Compare what composition, the paper, its peers and dplateau say about one setting."""
    from dplateau.report import comparison

    if example is not None:
        plan = _example(example, described)
    else:
        described = dataclasses.replace(described, iterations=described.iterations or "inf")
        plan = described.plan("Give them, or an --example.", released=False)
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


def _example(name: str, described: PlanOptions) -> Plan:
    from dplateau.report.comparison import example_settings

    settings = example_settings()
    if name not in settings:
        raise PlanError(f"--example must be one of {sorted(settings)}; found {name!r}.")
    if described.given():
        raise PlanError(f"--example says it all: leave out {', '.join(described.given())}.")
    return settings[name]


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
        say(f"picture: {out}")
