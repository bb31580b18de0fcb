"""``dplateau schema``, ``train`` and ``predict``: from a table on disk to a certified model."""

from __future__ import annotations

import csv
import io
import json
import math
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from dplateau.certificate.files import check_file, reserved, write_file
from dplateau.cli import app
from dplateau.errors import DataError
from dplateau.plan.batches import ADD_OR_REMOVE_ONE

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]
Table = Annotated[Path, typer.Argument(help="A .csv or .parquet file with a header.")]
Force = Annotated[bool, typer.Option("--force", help="Replace the files that are there.")]


@app.command()
def schema(
    table: Table,
    out: Annotated[Path | None, typer.Option(help="Where to write; standard output.")] = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Write a schema to fill in: column names and types only, never a value."""
    from dplateau.tables.encoding import schema_template
    from dplateau.tables.reading import column_types

    types = column_types(table)
    _check_separator(table, list(types))
    template = schema_template(types)
    if out is None:
        print(json.dumps(template) if as_json else _draft(template))
        return
    write_file(out, _draft(template) + "\n", force=force)
    if as_json:
        print(json.dumps({"schema": str(out), "columns": len(template["columns"])}))
        return
    print(
        f"Wrote {out}: {len(template['columns'])} column names and types, no value of the table. "
        "Fill in bounds and categories from public knowledge."
    )


def _check_separator(table: Path, names: list[str]) -> None:
    """Refuse one column whose name looks like a whole header."""
    found = next((mark for mark in ";\t|" if len(names) == 1 and mark in names[0]), None)
    if table.suffix == ".csv" and found is not None:
        raise DataError(
            f"{table.name} has one column, named {names[0]!r}: its cells seem to be separated by "
            f"{found!r}. Write it with commas."
        )


def _draft(template: dict[str, Any]) -> str:
    """The schema as JSON with one line per column, as one would fill it in."""
    lines = ",\n".join(
        f"    {json.dumps(name)}: {json.dumps(facts)}"
        for name, facts in template["columns"].items()
    )
    about = json.dumps(template["about"])
    return f'{{\n  "about": {about},\n  "columns": {{\n{lines}\n  }}\n}}'


@app.command()
def train(
    table: Table,
    schema: Annotated[Path, typer.Option(help="The public facts about the columns (JSON).")],
    target: Annotated[str, typer.Option(help="The column to predict.")],
    epsilon: Annotated[float, typer.Option(help="The privacy budget.")],
    delta: Annotated[float, typer.Option(help="Far below one over the number of records.")],
    out: Annotated[Path, typer.Option(help="A directory for model and certificate.")],
    relation: Annotated[
        str, typer.Option(help="replace_one, add_or_remove_one or replace_special.")
    ] = "replace_one",
    records: Annotated[
        int | None,
        typer.Option(
            help="Under add_or_remove_one: a public upper bound on the number of rows. Left out, "
            "2 % of the budget buys one."
        ),
    ] = None,
    time_budget: Annotated[
        str | None,
        typer.Option(
            help="Train so long (seconds, or such as 10m), at the same privacy however long it is."
        ),
    ] = None,
    rows: Annotated[
        str,
        typer.Option(
            help="How encoded rows are scaled: unit (to norm 1), bound (all alike, by the largest "
            "norm possible), or auto: chosen by the schema's column types."
        ),
    ] = "auto",
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Train a private model on a table; write it with its certificate, and nothing private."""
    from dplateau.certificate import wording
    from dplateau.tables.encoding import load_schema
    from dplateau.tables.reading import read_table
    from dplateau.tables.table_model import TableModel

    if records is not None and relation != ADD_OR_REMOVE_ONE:
        raise DataError(
            f"--records goes with --relation {ADD_OR_REMOVE_ONE}, where the number of rows is "
            f"private; under {relation} the table's own number is public. Leave --records out."
        )
    facts = load_schema(schema)
    used = [
        name
        for name, column in facts["columns"].items()
        if not (isinstance(column, dict) and column.get("type") == "ignore")
    ]
    with reserved(out, force=force) as place:
        model = TableModel.train(
            read_table(table, [*used, *([target] if target not in used else [])]),
            facts,
            target,
            rows=rows,
            epsilon=epsilon,
            delta=delta,
            neighboring_relation=relation,
            records=records,
            steps=None if time_budget is None else math.inf,
            time_budget=time_budget,
            progress=not as_json and sys.stdout.isatty(),
        )
        files = [str(path) for path in model.write(place)]
    certificate, plan = model.certificate, model.certificate.plan
    if as_json:
        summary: dict[str, Any] = {
            "epsilon": certificate.epsilon,
            "delta": certificate.delta,
            "relation": certificate.relation,
            "records": plan.records,
            "count": certificate.to_dict().get("count"),
            "features": model.estimator.n_features_in_,
            "iterations": plan.iterations,
            "fit_for_release": certificate.fit_for_release,
            "files": files,
        }
        print(json.dumps(summary))
        return
    print(certificate.statement)
    print(f"Trained {plan.iterations:,} steps on {wording.records(plan)}. Wrote:")
    for file in files:
        print(f"  {file}")


@app.command()
def predict(
    directory: Annotated[Path, typer.Argument(help="What `dplateau train --out` wrote.")],
    table: Table,
    out: Annotated[Path | None, typer.Option(help="A CSV file; standard output.")] = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Predict the target for every row of a table, as CSV."""
    from dplateau.tables.reading import read_table
    from dplateau.tables.table_model import TableModel

    if out is not None:
        check_file(out, force=force)
    model = TableModel.read(directory)
    rows = read_table(table, [column.name for column in model.encoder.columns])
    header, records = _predictions(model, rows)
    if out is not None:
        text = io.StringIO()
        csv.writer(text).writerows([header, *records])
        write_file(out, text.getvalue(), force=force)
    if as_json:
        columns = {name: [r[k] for r in records] for k, name in enumerate(header)}
        print(json.dumps({"rows": len(records), "out": str(out)} if out else columns))
    elif out is None:
        csv.writer(sys.stdout).writerows([header, *records])
    else:
        print(f"Wrote {len(records):,} predictions to {out}.")


def _predictions(model: Any, rows: Any) -> tuple[list[str], list[list[Any]]]:
    """A header and one record per row: the prediction, and the classes' probabilities."""
    predicted = model.predict(rows).tolist()
    chances = model.predict_proba(rows)
    if chances is None:
        return [model.target], [[value] for value in predicted]
    header = [model.target, *(f"p({label})" for label in model.estimator.classes_.tolist())]
    return header, [[value, *row] for value, row in zip(predicted, chances.tolist(), strict=True)]
