"""``dplateau audit``: attack a plan's guarantee with many trained models."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dplateau import _disk as disk
from dplateau._json import loads
from dplateau.certificate.files import check_file, write_file
from dplateau.cli import app
from dplateau.cli.options import AsJson, PlanOptions, iterations_of, takes_a_plan
from dplateau.cli.terminal import say
from dplateau.errors import DataError, PlanError
from dplateau.plan.losses import Huber, Loss
from dplateau.plan.plan import Plan

if TYPE_CHECKING:
    from dplateau.auditing import AuditResult


Source = Annotated[
    Path | None,
    typer.Argument(
        exists=True,
        help="A plan (JSON), a certificate, or the directory of a trained model; "
        "or describe the plan by options. With one of these, --iterations replaces its own.",
    ),
]


@app.command()
@takes_a_plan(without=["strong_convexity"])
def audit(
    described: PlanOptions,
    source: Source = None,
    data: Annotated[
        Path | None,
        typer.Option(help="Other records: an .npz file with X and y. Default: a synthetic table."),
    ] = None,
    features: Annotated[
        int | None, typer.Option(min=1, help="Columns of the synthetic table.")
    ] = None,
    canary: Annotated[
        str | None,
        typer.Option(help="dense, unused, opposite, or walk (where the exact answer is known)."),
    ] = None,
    repeats: Annotated[int, typer.Option(help="Models per data set.")] = 1000,
    confidence: Annotated[float, typer.Option(help="Of all statements together.")] = 0.95,
    delta: Annotated[float | None, typer.Option(help="Where epsilon is read off.")] = None,
    seed: Annotated[int | None, typer.Option(help="Make the audit reproducible.")] = None,
    out: Annotated[
        Path | None, typer.Option(help="Write the audit here (JSON), for `report --audit`.")
    ] = None,
    html: Annotated[Path | None, typer.Option(help="Write it as HTML here, to be read.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the files there.")] = False,
    as_json: AsJson = False,
) -> None:
    """Train models with and without a canary; exit code 1 if they contradict the guarantee."""
    for path in (out, html):
        if path is not None:
            check_file(path, force=force)
    stored: dict[str, Any] = {}
    if source is None:
        plan = described.plan(
            "Give them, or pass a plan, a certificate or the directory of a trained model instead."
        )
    else:
        plan, stored = _read(source, described.iterations)
    result = _attack(
        plan,
        stored,
        data,
        features,
        canary,
        repeats=repeats,
        confidence=confidence,
        delta=delta or stored.get("guarantee", {}).get("delta", 1e-5),
        random_state=seed,
        progress=not as_json,
    )
    if out is not None:
        write_file(out, result.to_json() + "\n", force=force)
    if html is not None:
        write_file(html, result.to_html(), force=force)
    say(result.to_json() if as_json else result.summary())
    if result.violations:
        raise typer.Exit(1)


def _attack(
    plan: Plan,
    stored: dict[str, Any],
    data: Path | None,
    features: int | None,
    canary: str | None,
    **options: Any,
) -> AuditResult:
    """Choose what the options leave open, and audit."""
    from dplateau.auditing import audit as attack

    loss = plan.loss or _steepest(plan)
    canary = canary or ("walk" if data is None and _walks(plan, loss) else "dense")
    X, y = (None, None)
    if canary != "walk":
        X, y = _table(plan, loss, data, features or _features(stored, loss))
    return attack(plan, loss, X, y, canary=canary, **options)


def _read(source: Path, iterations: str | None) -> tuple[Plan, dict[str, Any]]:
    """The plan of a file, and what was stored with it."""
    stored = _stored(source)
    plan = Plan.from_dict(stored.get("plan", stored))
    if iterations is not None:
        plan = plan.replace(iterations=iterations_of(iterations))
    return plan, stored


def _stored(source: Path) -> dict[str, Any]:
    """The JSON object of a plan or certificate."""
    from dplateau.certificate.record import LARGEST
    from dplateau.report.surrounding import certificate_path

    path = certificate_path(source)
    way_out = (
        "Pass a plan (plan.to_json()), a certificate, or the directory that `dplateau train` wrote."
    )
    try:
        text = disk.read_bytes(path, LARGEST).decode()
    except (OSError, UnicodeDecodeError) as trouble:
        raise PlanError(f"cannot read {path.name}: {disk.reason(trouble)}. {way_out}") from None
    stored = loads(text, path.name, PlanError, way_out)
    if not isinstance(stored, dict):
        raise PlanError(f"{path.name} holds no JSON object, so it is neither plan nor certificate.")
    return stored


def _steepest(plan: Plan) -> Loss:
    """A loss that attains both constants of a plan stated without one."""
    if not 0 < plan.smoothness < math.inf:
        raise PlanError(
            f"no loss of ours attains smoothness={plan.smoothness:g}. Give the plan a loss and its "
            "data_norm, or a finite positive smoothness."
        )
    return Huber(threshold=plan.lipschitz / math.sqrt(plan.smoothness))


def _walks(plan: Plan, loss: Loss) -> bool:
    """Whether the one-dimensional walk can be built for this plan."""
    return loss.linear_far_away and loss.intercept == 0 and plan.dimension in (None, 1)


def _features(stored: dict[str, Any], loss: Loss) -> int:
    """Columns of a certified model's table; 20 where nothing is known."""
    shape = stored.get("model", {}).get("shape")
    return max(1, int(shape[0]) - (loss.intercept > 0)) if shape else 20


def _table(plan: Plan, loss: Loss, data: Path | None, features: int) -> tuple[Any, Any]:
    import numpy as np

    from dplateau.auditing.synthetic import synthetic_table

    if data is None:
        return synthetic_table(plan, loss, features)
    try:
        with np.load(data) as arrays:
            return arrays["X"], arrays["y"]
    except (OSError, ValueError, KeyError):
        raise DataError(
            f"{data.name} is not an .npz file with arrays X and y. Write one with "
            "numpy.savez(path, X=X, y=y), or leave --data out for a synthetic table."
        ) from None
