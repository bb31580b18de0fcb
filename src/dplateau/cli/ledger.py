"""``dplateau ledger``: the budget of a data set over many releases."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dplateau import _disk as disk
from dplateau._json import loads
from dplateau.certificate.files import write_file
from dplateau.cli import app, options
from dplateau.cli.terminal import clean, say
from dplateau.errors import DataError

if TYPE_CHECKING:
    from dplateau.ledger import Reservation
    from dplateau.ledger.budget import Account

commands = typer.Typer(no_args_is_help=True, help="Budgets of data sets over many releases.")
app.add_typer(commands, name="ledger")

Address = Annotated[str, typer.Argument(help="A file, or postgresql://user@host/database.")]
DataSet = Annotated[str, typer.Option("--dataset", help="The data set's name.")]

_LARGEST = 16_000_000  # bytes of a history or event


@commands.command()
def init(
    address: Address,
    dataset: DataSet,
    epsilon: Annotated[float, typer.Option(help="What all releases together may cost.")],
    delta: options.SmallDelta,
    unit: Annotated[str, typer.Option(help="Whose privacy: record or person.")] = "record",
    relation: options.Relation = "replace_one",
    plans: Annotated[
        str,
        typer.Option(
            help="adaptive: plans may be chosen in view of earlier releases. fixed: signs that "
            "none is, and adds up the privacy losses themselves."
        ),
    ] = "adaptive",
    as_json: options.AsJson = False,
) -> None:
    """Agree on a data set's budget; it cannot be changed afterwards."""
    from dplateau.ledger import Ledger

    ledger = Ledger(address)
    ledger.init(dataset, epsilon=epsilon, delta=delta, unit=unit, relation=relation, plans=plans)
    if as_json:
        say(json.dumps(_summary(ledger.account(dataset))))
        return
    say(
        f"Budget of {dataset!r}: epsilon = {epsilon:g} at delta = {delta:g} per {unit}, under "
        f"{relation}. Train with: dplateau train … --ledger {ledger.name} --dataset {dataset}"
    )


@commands.command()
def show(
    address: Address,
    dataset: Annotated[str | None, typer.Option(help="One data set only.")] = None,
    as_json: options.AsJson = False,
) -> None:
    """What was released from each data set, what it costs together, and what is left."""
    from dplateau.ledger import Ledger

    ledger = Ledger(address)
    accounts = ledger.accounts() if dataset is None else {dataset: ledger.account(dataset)}
    if as_json:
        found = {"datasets": [_summary(one) for one in accounts.values()], "head": ledger.head()}
        say(json.dumps(found))
        return
    for account in accounts.values():
        _print_account(account)
    say(f"Last hash, to be noted elsewhere: {ledger.head()}")


@commands.command()
def verify(
    address: Address,
    head: Annotated[
        str | None, typer.Option(help="A hash noted earlier, which must be in the chain.")
    ] = None,
    as_json: options.AsJson = False,
) -> None:
    """Check the chain, every balance, and every price anew; exit code 1 if one does not hold."""
    from dplateau.ledger import Ledger

    checks = Ledger(address).verify(head)
    holds = all(check.passed for check in checks)
    if as_json:
        say(json.dumps({"verified": holds, "checks": [vars(check) for check in checks]}))
    else:
        for check in checks:
            say(str(check))
        say("This ledger holds." if holds else "This ledger does NOT hold.")
    if not holds:
        raise typer.Exit(1)


@commands.command()
def export(
    address: Address,
    out: Annotated[Path | None, typer.Option(help="Where to write; standard output.")] = None,
    as_json: options.AsJson = False,
) -> None:
    """All events as JSON: no data, no path of a table, only the names that were given."""
    from dplateau.ledger import Ledger

    found = Ledger(address).export()
    if out is None:
        say(json.dumps(found) if as_json else json.dumps(found, indent=2))
        return
    write_file(out, json.dumps(found, indent=2) + "\n")
    told = {"out": str(out), "events": len(found["events"])}
    say(json.dumps(told) if as_json else f"Wrote {told['events']} events to {out}.")


@commands.command()
def spend(
    address: Address,
    dataset: DataSet,
    certificate: Annotated[
        Path | None, typer.Option(help="A certificate, or the directory that holds one.")
    ] = None,
    epsilon: Annotated[float | None, typer.Option(help="A release known by its epsilon.")] = None,
    delta: Annotated[float, typer.Option(help="And its delta.")] = 0.0,
    gaussian: Annotated[
        float | None, typer.Option(help="A query with Gaussian noise of this deviation.")
    ] = None,
    laplace: Annotated[
        float | None, typer.Option(help="A query with Laplace noise of this scale.")
    ] = None,
    sensitivity: Annotated[
        float, typer.Option(help="What one unit can change in the query, under the relation.")
    ] = 1.0,
    count: Annotated[int, typer.Option(help="How many such queries.")] = 1,
    opacus: Annotated[
        Path | None,
        typer.Option(help="An Opacus accountant's history as JSON: [[noise, rate, steps], …]."),
    ] = None,
    event: Annotated[
        Path | None,
        typer.Option(help="A dp_accounting event, as `dplateau export --format dp_accounting`."),
    ] = None,
    note: Annotated[str, typer.Option(help="A few words; no data belongs in them.")] = "",
    as_json: options.AsJson = False,
) -> None:
    """Enter a release that was made elsewhere, or refuse it."""
    from dplateau.ledger import GaussianQuery, LaplaceQuery, Ledger

    ways = {
        "--certificate": certificate,
        "--epsilon": epsilon,
        "--gaussian": gaussian,
        "--laplace": laplace,
        "--opacus": opacus,
        "--event": event,
    }
    given = [name for name, value in ways.items() if value is not None]
    if len(given) != 1:
        raise DataError(
            f"give exactly one of {', '.join(ways)}; found {', '.join(given) or 'none'}."
        )
    release: Any = None
    unit: Any = None  # whose privacy an event is about, where its file says so
    if certificate is not None:
        release = _read_certificate(certificate)
    elif gaussian is not None:
        release = GaussianQuery(gaussian, sensitivity, count)
    elif laplace is not None:
        release = LaplaceQuery(laplace, sensitivity, count)
    elif opacus is not None:
        release = _read_json(opacus)
    elif event is not None:
        from dplateau.export.dp_events import event_from_dict

        stored = _read_json(event)
        release = event_from_dict(stored)
        unit = stored.get("unit", unit)
    ledger = Ledger(address)
    if unit is not None:
        ledger.check_unit(dataset, unit)
    number = ledger.spend(dataset, release, epsilon=epsilon, delta=delta, note=note)
    left = ledger.remaining(dataset)
    if as_json:
        say(json.dumps({"entry": number, "remaining": left._asdict()}))
        return
    say(f"Entry {number} of {dataset!r}. Left: epsilon = {left.epsilon:.4g} at {left.delta:g}.")


@commands.command()
def refund(
    address: Address,
    dataset: DataSet,
    entry: Annotated[int, typer.Option(help="The entry's number.")],
    checkpoint: Annotated[
        Path | None, typer.Option(help="The resume file that the run left behind.")
    ] = None,
    as_json: options.AsJson = False,
) -> None:
    """Give back what a run that died had reserved, on proof that it released nothing."""
    from dplateau.ledger import Ledger

    ledger = Ledger(address)
    ledger.refund(dataset, entry, checkpoint=checkpoint)
    left = ledger.remaining(dataset)
    if as_json:
        say(json.dumps({"entry": entry, "remaining": left._asdict()}))
        return
    say(f"Gave back entry {entry}. Left: epsilon = {left.epsilon:.4g} at {left.delta:g}.")


@contextlib.contextmanager
def held_back(
    address: str | None,
    dataset: str | None,
    epsilon: float,
    delta: float,
    counted: bool,
    proof: Path | None,
) -> Iterator[Reservation | None]:
    """Budget for a training, held back from here on; None where no ledger was named."""
    if (address is None) != (dataset is None):
        raise DataError("--ledger and --dataset go together: name both, or neither.")
    if address is None or dataset is None:
        if proof is not None:
            raise DataError("--refund gives back to a ledger: name it with --ledger.")
        yield None
        return
    from dplateau.ledger import Ledger

    ledger = Ledger(address)
    if proof is not None:
        ledger.refund_dead(dataset, proof)
    with ledger.reserve(dataset, epsilon=epsilon, delta=delta, counted=counted) as reservation:
        yield reservation


def _summary(account: Account) -> dict[str, Any]:
    """A data set's account as JSON values."""
    left, plain = account.remaining(), account.plain()
    return {
        "dataset": account.dataset,
        "epsilon": account.epsilon,
        "delta": account.delta,
        "unit": account.unit,
        "relation": account.relation,
        "plans": account.plans,
        "remaining": left._asdict(),
        "composed": {"epsilon": account.tight(), "delta": account.delta},
        "sum": {"epsilon": plain[0], "delta": plain[1]},
        "entries": [
            {
                "entry": entry.number,
                "status": entry.status,
                "epsilon": entry.release().stated(account.delta / 10)[0],
                "delta": entry.release().stated(account.delta / 10)[1],
                "what": "reserved" if entry.mechanism is None else entry.release().words,
                "rounding": entry.rounded,
                "note": entry.note,
                "certificate": entry.certificate,
            }
            for entry in account.entries.values()
        ],
    }


def _print_account(account: Account) -> None:
    found = _summary(account)
    say(
        f"{clean(account.dataset)}: epsilon = {account.epsilon:g} at delta = {account.delta:g} per "
        f"{account.unit}, under {account.relation}; plans {account.plans}."
    )
    for entry in found["entries"]:
        note = f" ({clean(entry['note'])})" if entry["note"] else ""
        say(
            f"  {entry['entry']:>4} {entry['status']:<9} epsilon {entry['epsilon']:.4g} at "
            f"{entry['delta']:.2g}: {entry['what']}{note}"
        )
    sure = "" if account.plans == "fixed" else ", if no plan depended on an earlier release"
    say(
        f"  Privacy losses added up: epsilon = {found['composed']['epsilon']:.4g} at delta = "
        f"{account.delta:g}{sure}."
    )
    say(
        f"  Epsilons added up: {found['sum']['epsilon']:.4g} at delta = {found['sum']['delta']:.2g}"
    )
    stated = [entry for entry in account.live if entry.mechanism and not entry.rounded]
    if stated:
        numbers = ", ".join(str(entry.number) for entry in stated)
        say(f"  What floating point adds is counted, but for others' releases: {numbers}.")
    elif account.live:
        say("  What floating point adds is counted.")
    left = found["remaining"]
    say(f"  Left for one more: epsilon = {left['epsilon']:.4g} at delta = {left['delta']:.4g}.")


def _read_certificate(path: Path) -> Any:
    from dplateau.certificate.record import Certificate
    from dplateau.report.surrounding import certificate_path

    return Certificate.read(certificate_path(path))


def _read_json(path: Path) -> Any:
    try:
        text = disk.read_bytes(path, _LARGEST).decode()
    except (OSError, UnicodeDecodeError) as trouble:
        raise DataError(f"cannot read {str(path)!r}: {disk.reason(trouble)}.") from None
    return loads(text, path.name, DataError)
