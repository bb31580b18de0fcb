"""Checking a ledger: the chain, the balances, and every price computed anew."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from dplateau.certificate.verify import Check
from dplateau.errors import DataError, PlanError
from dplateau.ledger.budget import ADAPTIVE, REFUNDED, Account, Charge, Decision, Entry, Pool
from dplateau.ledger.chain import Link, breaks
from dplateau.ledger.mechanisms import Mechanism
from dplateau.ledger.replay import applied, opened

_UNREADABLE = (KeyError, ValueError, TypeError, AttributeError, IndexError, AssertionError)
_TOLERANCE = 1e-5  # two machines may differ in the last digits of a numerical composition


def checks(
    links: Sequence[Link], last: tuple[int, str], head: str | None, *, prices: bool
) -> Iterator[Check]:
    """Every check of a ledger, passed or not."""
    broken = list(breaks(links, last))
    found = "; ".join(broken[:5]) if broken else f"{len(links)} events, each tied to the last"
    yield Check("chain", not broken, found)
    if head is None:
        text = "no earlier hash was given to compare with (--head)"
        yield Check("head", True, text, checked=False)
    else:
        known = any(link.hash == head for link in links)
        yield Check("head", known, "is in the chain" if known else "is not in this chain")
    accounts: dict[str, Account] = {}
    wrong: list[str] = []
    for link in links:
        try:
            wrong += _event(link, accounts, prices=prices)
        except _UNREADABLE as trouble:
            wrong.append(f"event {link.sequence} is not one that a ledger writes ({trouble})")
            break
    found = "; ".join(wrong[:5]) if wrong else "every release was within what was left"
    yield Check("balances", not wrong, found)
    refunded = sum(e.status == REFUNDED for a in accounts.values() for e in a.entries.values())
    yield _rounding([entry for account in accounts.values() for entry in account.live])
    if refunded:
        found = f"{refunded} given back, for reasons that were looked at then and are not here"
        yield Check("refunds", True, found, checked=False)
    if not prices:
        yield Check("prices", True, "not computed anew", checked=False)


def _rounding(live: Sequence[Entry]) -> Check:
    """What the figures say of floating point: of others' programs no ledger knows it."""
    released = [entry for entry in live if entry.mechanism is not None]
    try:
        paid = sum(entry.rounded for entry in released)
    except _UNREADABLE as trouble:
        return Check("rounding", False, f"an entry is not one that a ledger writes ({trouble})")
    found = f"{paid} of {len(released)} releases are priced as programs, every rounding counted"
    if paid < len(released):
        found += f"; {len(released) - paid} of others, as they were stated"
    return Check("rounding", True, found, checked=paid == len(released))


def _event(link: Link, accounts: dict[str, Account], *, prices: bool) -> Iterator[str]:
    body = link.read()
    name = body["dataset"]
    if body["event"] == "init":
        if name in accounts:
            yield f"event {link.sequence} opens {name!r} a second time"
        accounts[name] = opened(body)
        return
    before = accounts[name]
    accounts[name] = applied(before, body)
    if body["event"] == "refund":
        return
    charge = Charge(*body["charge"])
    number = body["entry"] if body["entry"] in before.entries else None
    inside = body.get("pool") is None and charge.kind == before.pool.shape
    if before.plans == ADAPTIVE and inside and not before.fits(charge, number):
        yield f"event {link.sequence} spends more than was left"
    if prices:
        yield from _price(link.sequence, before, body, number)


def _price(
    sequence: int, before: Account, body: dict[str, Any], number: int | None
) -> Iterator[str]:
    """The decision made again: what is recorded must not be cheaper, nor leave more."""
    try:
        decision = _again(before, body, number)
    except (PlanError, DataError) as trouble:
        yield f"event {sequence} would be refused today ({trouble})"
        return
    charge, pool = Charge(*body["charge"]), body.get("pool")
    cheaper = charge.kind == decision.charge.kind and not (
        charge.amount >= decision.charge.amount * (1 - _TOLERANCE)
        and charge.failure >= decision.charge.failure * (1 - _TOLERANCE)
    )
    wider = pool is not None and (decision.pool is None or not _within(Pool(*pool), decision.pool))
    if cheaper or wider or charge.kind != decision.charge.kind:
        yield f"event {sequence} is not charged what its release costs"


def _again(before: Account, body: dict[str, Any], number: int | None) -> Decision:
    if body["event"] == "reserve":
        return before.reserve(*body["requested"], counted=body["counted"])
    if body["event"] == "settle" and number is not None:
        entry = before.entries[number]
        if entry.mechanism == body["mechanism"]:
            return Decision(entry.charge)
    mechanism = Mechanism.from_dict(body["mechanism"])
    if body.get("certificate") is not None:
        mechanism = mechanism.as_released()
    return before.buy(mechanism, number)


def _within(recorded: Pool, allowed: Pool) -> bool:
    return recorded.shape == allowed.shape and (
        recorded.amount <= allowed.amount * (1 + _TOLERANCE)
        and recorded.failure <= allowed.failure * (1 + _TOLERANCE)
    )
