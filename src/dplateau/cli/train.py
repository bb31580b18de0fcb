"""``dplateau schema`` and ``train``: from a table on disk to a certified model."""

from __future__ import annotations

import contextlib
import json
import shlex
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Annotated, Any

import typer

from dplateau.certificate.files import reserved, write_file
from dplateau.cli import app, options
from dplateau.cli.terminal import say
from dplateau.errors import DataError, PrivacyWarning, nothing_released
from dplateau.plan.batches import ADD_OR_REMOVE_ONE
from dplateau.tables import MODELS


@app.command()
def schema(
    table: options.Table,
    out: Annotated[Path | None, typer.Option(help="Where to write; standard output.")] = None,
    separator: options.Separator = None,
    header: options.Header = False,
    force: options.Force = False,
    as_json: options.AsJson = False,
) -> None:
    """Write a schema to fill in: column names and types only, never a value."""
    from dplateau.tables.encoding import schema_template
    from dplateau.tables.reading import column_types

    template = schema_template(column_types(table, separator=separator, header=header))
    if out is None:
        ascii_only = (sys.stdout.encoding or "").lower() not in ("utf-8", "utf8")
        print(json.dumps(template) if as_json else _draft(template, ascii_only))
        return
    write_file(out, _draft(template) + "\n", force=force)
    if as_json:
        print(json.dumps({"schema": str(out), "columns": len(template["columns"])}))
        return
    say(
        f"Wrote {out}: {len(template['columns'])} column names and types, no value of the table. "
        "Fill in bounds and categories from public knowledge."
    )


def _draft(template: dict[str, Any], ascii_only: bool = False) -> str:
    """The schema as JSON with one line per column, as one would fill it in."""
    lines = ",\n".join(
        f"    {json.dumps(name, ensure_ascii=ascii_only or not name.isprintable())}: "
        f"{json.dumps(facts)}"
        for name, facts in template["columns"].items()
    )
    about = json.dumps(template["about"])
    return f'{{\n  "about": {about},\n  "columns": {{\n{lines}\n  }}\n}}'


@app.command()
def train(
    table: options.Table,
    schema: options.Schema,
    target: options.Target,
    epsilon: Annotated[float, typer.Option(help="The privacy budget.")],
    delta: options.SmallDelta,
    out: options.Out,
    relation: options.Relation = "replace_one",
    records: Annotated[
        int | None,
        typer.Option(
            help="Under add_or_remove_one: a public upper bound on the number of rows. Left out, "
            "0.05 to 2.5 % of the budget buys one."
        ),
    ] = None,
    time_budget: Annotated[
        str | None,
        typer.Option(
            help="Train so long (seconds, or such as 10m): the plan is made for what this machine "
            "does in that time."
        ),
    ] = None,
    rows: Annotated[
        str,
        typer.Option(
            help="How encoded rows are scaled: unit (to norm 1), bound (all alike, by the largest "
            "norm possible), or auto: chosen by the schema's column types."
        ),
    ] = "auto",
    model: Annotated[
        str | None,
        typer.Option(
            help=f"What to train: {', '.join(MODELS)}. Left out, the target's type chooses: "
            "logistic for a category or boolean, linear for a number."
        ),
    ] = None,
    quantile: Annotated[
        float | None, typer.Option(help="With --model quantile: which one; 0.5.")
    ] = None,
    scaling: Annotated[
        str,
        typer.Option(
            help="Whether a share of the budget buys narrower bounds for numbers: standard, whiten "
            "(and a map that makes them uncorrelated), public (the schema's as they are), or auto: "
            "standard where rows are many enough."
        ),
    ] = "auto",
    search: Annotated[
        list[str] | None,
        typer.Option(
            help="Choose a setting privately, out of the same budget: radius=0.5,1,2,4. May be "
            "repeated. `dplateau search` has more to say."
        ),
    ] = None,
    intervals: Annotated[
        float | None,
        typer.Option(
            help="The share of the budget that buys confidence intervals, such as 0.3; see "
            "`dplateau intervals`."
        ),
    ] = None,
    name: Annotated[
        str, typer.Option(help="What the table is called in the report; its path never is.")
    ] = "",
    separator: options.Separator = None,
    header: options.Header = False,
    person: Annotated[
        str | None,
        typer.Option(
            help="The column that says whose each row is: the guarantee is then for a person with "
            "all their rows."
        ),
    ] = None,
    ledger: Annotated[
        str | None, typer.Option(help="The ledger that keeps this data set's budget.")
    ] = None,
    dataset: options.Dataset = None,
    checkpoint: Annotated[
        Path | None, typer.Option(help="Keep a private resume file there while training.")
    ] = None,
    scratch: Annotated[
        Path | None,
        typer.Option(
            help="Encode the table into files without a name in this directory, and train from "
            "there. Done by itself, beside the table, where it does not fit into memory."
        ),
    ] = None,
    refund: Annotated[
        bool,
        typer.Option(
            "--refund",
            help="First give back what a run that died had reserved, if --checkpoint proves that "
            "it released nothing.",
        ),
    ] = False,
    cluster: Annotated[
        str | None,
        typer.Option(
            help="The address of a Dask scheduler, such as tls://host:8786: its workers read the "
            "files (at the same paths as here) and train on them."
        ),
    ] = None,
    force: options.Force = False,
    as_json: options.AsJson = False,
) -> None:
    """Train a private model on a table; write it with its certificate, and nothing private."""
    from dplateau.accounting.rounding import provable
    from dplateau.accounting.spending import PrivacyBudget
    from dplateau.certificate import wording
    from dplateau.cli.ledger import held_back
    from dplateau.cli.search import chosen_of, parsed_grid
    from dplateau.tables.encoding import PublicTableEncoder, columns_used, load_schema
    from dplateau.tables.reading import column_names
    from dplateau.tables.scaling import scaled_columns
    from dplateau.tables.scattered import TableElsewhere
    from dplateau.tables.streaming import TableStream, open_table
    from dplateau.tables.table_model import TableModel
    from dplateau.training.dask_workers import connected

    if records is not None and relation != ADD_OR_REMOVE_ONE:
        raise DataError(
            f"--records goes with --relation {ADD_OR_REMOVE_ONE}, where the number of rows is "
            f"private; under {relation} the table's own number is public. Leave --records out."
        )
    if cluster is not None and scratch is not None:
        raise DataError("--scratch is for this machine; workers hold their part of the table.")
    if quantile is not None and model != "quantile":
        raise DataError("--quantile goes with --model quantile.")
    if refund and checkpoint is None:
        raise DataError("--refund needs the file that proves it: name it with --checkpoint.")
    PrivacyBudget.of(epsilon, delta)  # refused before anything is read
    facts, local = load_schema(schema), cluster is None
    used = [name for name in columns_used(facts) if name != person]
    wanted = [*used, *([target] if target not in used else [])]
    wanted += [] if person is None else [person]
    if person is None:
        with nothing_released():
            found = column_names(table, separator=separator, header=header) if local else []
        warn_of_identifiers([*facts["columns"], *found])
    counted = relation == ADD_OR_REMOVE_ONE and records is None
    proof = checkpoint if refund else None
    # Out's place is taken and the budget held back before any row is read.
    with (
        reserved(out, force=force) as place,
        held_back(ledger, dataset, epsilon, delta, counted, proof) as reservation,
        contextlib.nullcontext() if cluster is None else connected(cluster),
    ):
        shown = not as_json and sys.stdout.isatty()
        features = len(PublicTableEncoder(facts).get_feature_names_out())
        source: Any = TableElsewhere(table, wanted, separator, header)
        if cluster is None:
            source = open_table(
                *(table, wanted, features),
                separator=separator,
                header=header,
                scratch=scratch,
                progress=shown,
            )
            if isinstance(source, TableStream) and not as_json:
                numbers = 0 if scaling == "public" or search else len(scaled_columns(facts, target))
                say(source.announcement(features, numbers))
        if shown:
            say(_planned_time(time_budget))
        trained = TableModel.train(
            source,
            facts,
            target,
            rows=rows,
            model=model,
            name=name,
            person=person,
            reservation=reservation,
            checkpoint=checkpoint,
            scaling=scaling,
            search=None if not search else {"param_grid": parsed_grid(search)},
            epsilon=epsilon,
            delta=delta,
            neighboring_relation=relation,
            records=records,
            time_budget=time_budget,
            progress=shown,
            **({} if intervals is None else {"intervals": intervals}),
            **({} if quantile is None else {"quantile": quantile}),
        )
        files = [str(path) for path in _written(trained, place)]
    certificate, plan = trained.certificate, trained.certificate.plan
    if as_json:
        summary: dict[str, Any] = {
            "epsilon": certificate.epsilon,
            "delta": certificate.delta,
            "relation": certificate.relation,
            "records": plan.records,
            "unit": plan.unit,
            "count": certificate.to_dict().get("count"),
            "features": trained.estimator.n_features_in_,
            "iterations": plan.iterations,
            "fit_for_release": certificate.fit_for_release,
            "files": files,
        }
        print(json.dumps(summary))
        return
    if not shown:  # nobody watched: with the rest, so that trouble is one line
        say(_planned_time(time_budget))
    say(certificate.statement)
    if provable(epsilon) < epsilon:
        say(
            f"Of epsilon = {epsilon:g} no more than {provable(epsilon):g} was spent: a program in "
            "floating point proves little beyond."
        )
    if search:
        say(f"Chosen: {chosen_of(trained.estimator, parsed_grid(search))}.")
    say(f"Trained {plan.iterations:,} steps on {wording.records(plan)}. Wrote:")
    for file in files:
        say(f"  {file}")
    say(way_to_check(table, schema, separator, header=header))


def way_to_check(table: Path, schema: Path, separator: str | None, *, header: bool) -> str:
    """Where to see what the schema made of the table; no count of it is printed."""
    asked = ["dplateau", "check", table, "--schema", schema]
    asked += [] if separator is None else ["--separator", separator]
    asked += ["--header"] if header else []
    return f"Does the schema fit the table? {shlex.join(map(str, asked))}"


def _planned_time(time_budget: str | None) -> str:
    """How long training may take, said before it begins."""
    from dplateau.estimators.effort import ANNOUNCED
    from dplateau.training.stopping import seconds

    if time_budget is not None:
        return f"Planned for {seconds(time_budget):g} seconds on this machine."
    return (
        f"Planned for at most {ANNOUNCED:g} seconds on one ordinary core; --time-budget asks for "
        "another time."
    )


def warn_of_identifiers(names: list[str], command: str = "") -> None:
    """Several rows of one person would weaken what is promised to them: ask whose rows are."""
    from dplateau.tables.people import identifiers

    found = identifiers(names)
    if found:
        way = f"{command}pass --person {found[0]}"
        warnings.warn(
            f"the column {found[0]!r} looks like an identifier. If a person can have "
            f"several rows, {way}: without it the guarantee is for one row, and "
            "weaker for whoever has more.",
            PrivacyWarning,
            stacklevel=2,
        )


def _written(trained: Any, place: Any) -> list[Path]:
    """The files of the model; its budget is spent, so where writing fails it is kept elsewhere."""
    try:
        return list(trained.write(place))
    except DataError as trouble:
        kept = Path(tempfile.mkdtemp(prefix="dplateau-model-"))
        trained.write(kept)
        raise DataError(f"{trouble} The model was kept: move it from {str(kept)!r}.") from None
