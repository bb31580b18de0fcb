"""The ledger for the ledger view: read by its public interface, never written."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from dplateau.errors import DataError

Emit = Callable[[dict[str, Any]], None]


def check_ledger(path: Path) -> None:
    """Refuse a ledger that cannot be read, before a page is opened for it."""
    if not path.is_file():
        raise DataError(f"there is no ledger {str(path)!r}. Make one with `dplateau ledger init`.")
    _ledger(path).accounts()


def tell_budgets(path: str, emit: Emit) -> None:
    """Every data set at once, with its releases; then the sums, which take a second each."""
    ledger = _ledger(Path(path))
    accounts = ledger.accounts()
    when = _times(ledger.export()["events"])
    for name, account in accounts.items():
        emit(
            {
                "kind": "budget",
                "dataset": name,
                "epsilon": account.epsilon,
                "delta": account.delta,
                "unit": account.unit,
                "relation": account.relation,
                "releases": [
                    {
                        "number": number,
                        "status": entry.status,
                        "live": entry.live,
                        "epsilon": entry.requested[0],
                        "delta": entry.requested[1],
                        "note": entry.note,
                        "at": when.get((name, number)),
                    }
                    for number, entry in account.entries.items()
                ],
            }
        )
    for name, account in accounts.items():
        left, plain = account.remaining(), account.plain()
        emit(
            {
                "kind": "sums",
                "dataset": name,
                "left": left.epsilon,
                "left_delta": left.delta,
                "plain": plain[0],
                "plain_delta": plain[1],
                "tight": account.tight(),
            }
        )


def _times(events: list[dict[str, Any]]) -> dict[tuple[str, int], str]:
    """When each release was first entered."""
    found: dict[tuple[str, int], str] = {}
    for event in events:
        body = event["body"]
        if "entry" in body:
            found.setdefault((body["dataset"], int(body["entry"])), event["at"])
    return found


def _ledger(path: Path) -> Any:
    try:
        from dplateau.ledger import Ledger
    except ImportError as missing:
        raise DataError(
            f"a ledger needs {missing.name}, which is not installed. "
            "Install it with: pip install 'dplateau[ledger]'"
        ) from None
    return Ledger(path)
