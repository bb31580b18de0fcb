"""The accounts that a ledger's events lead to; an event that no ledger writes is refused."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from dplateau.errors import DataError
from dplateau.ledger.budget import (
    REFUNDED,
    RELEASED,
    RESERVED,
    RUNNING,
    STATED,
    Account,
    Charge,
    Entry,
    Pool,
)

# What may happen to an entry: the event, the states it may come in, the state it leaves.
_EVENTS: dict[str, tuple[tuple[str, ...], str]] = {
    "reserve": ((), RESERVED),
    "spend": ((), RELEASED),
    "confirm": ((RESERVED,), RUNNING),
    "settle": ((RESERVED, RUNNING), RELEASED),
    "refund": ((RESERVED, RUNNING), REFUNDED),
}


def opened(body: Mapping[str, Any]) -> Account:
    """The account that an ``init`` event opens."""
    return Account(
        dataset=body["dataset"],
        epsilon=body["epsilon"],
        delta=body["delta"],
        unit=body["unit"],
        relation=body["relation"],
        plans=body["plans"],
        pools=(Pool(STATED, body["epsilon"], body["delta"]),),
    )


def applied(account: Account, body: Mapping[str, Any]) -> Account:
    """The account after an event, as it was recorded; one that no ledger writes is refused."""
    number = int(body["entry"])
    old = account.entries.get(number)
    _check_event(account, body, old)
    pools = account.pools
    if body.get("pool") is not None:
        pools = (*pools, Pool(*body["pool"]))
    if body["event"] == "refund":
        assert old is not None
        entry = replace(old, status=REFUNDED)
    else:
        charge = Charge(*body["charge"])
        context = body.get("context")
        same = old is not None and old.charge.kind == charge.kind and body.get("pool") is None
        entry = Entry(
            number=number,
            status=body["status"],
            requested=tuple(body["requested"]) if old is None else old.requested,
            charge=charge,
            pool=old.pool if old is not None and same else len(pools) - 1,
            mechanism=body.get("mechanism"),
            note=body.get("note", "") if old is None else old.note,
            counted=bool(body.get("counted", False)) if old is None else old.counted,
            certificate=body.get("certificate"),
            context=tuple(context) if context else (old.context if old else None),
            fingerprint=body.get("fingerprint") or (old.fingerprint if old else None),
        )
    entries = {**account.entries, number: entry}
    after = replace(account, pools=pools, entries=entries)
    if not after.live:  # nothing was ever released: all of it may be chosen anew
        after = replace(after, pools=(*pools, Pool(STATED, account.epsilon, account.delta)))
    return after


def _check_event(account: Account, body: Mapping[str, Any], old: Entry | None) -> None:
    """An entry is opened once, changes only as it may, and nothing is released without a price."""
    before, after = _EVENTS.get(body["event"], ((), ""))
    follows = old.status in before if old is not None else not before
    new = old is not None or body["entry"] == len(account.entries) + 1
    stated = body["event"] == "refund" or body["status"] == after
    priced = after not in (RUNNING, RELEASED) or bool(body.get("mechanism"))
    if not (after and follows and new and stated and priced):
        raise DataError(
            f"{body['event']!r} of entry {body['entry']!r} of {account.dataset!r} is nothing that "
            "a ledger writes: this one was tampered with. See `dplateau ledger verify`."
        )


def replayed(bodies: Iterable[Mapping[str, Any]]) -> dict[str, Account]:
    """All accounts, from all events; refused where one is nothing that a ledger writes."""
    accounts: dict[str, Account] = {}
    try:
        for body in bodies:
            name = body["dataset"]
            if body["event"] != "init":
                accounts[name] = applied(accounts[name], body)
            elif name in accounts:
                raise DataError(
                    f"the budget of {name!r} is opened twice: this ledger was tampered with. See "
                    "`dplateau ledger verify`."
                )
            else:
                accounts[name] = opened(body)
    except DataError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError):
        raise DataError(
            "this ledger holds what no ledger writes: it was tampered with. See `dplateau ledger "
            "verify`."
        ) from None
    return accounts
