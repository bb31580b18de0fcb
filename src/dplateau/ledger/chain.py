"""Events in a chain: each holds the hash of the one before, so that no past can be changed alone.

What a chain cannot show: that *all* of it was written anew, or that the file is an old copy. For
that the last hash is kept elsewhere (`Ledger.verify(head=...)`, ``ledger verify --head``).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

START = "0" * 64


@dataclass(frozen=True)
class Link:
    """One event as it is stored."""

    sequence: int
    at: str
    body: str
    previous: str
    hash: str

    @classmethod
    def after(cls, last: Link | None, at: str, body: Mapping[str, Any]) -> Link:
        """The next link of a chain."""
        sequence = 1 if last is None else last.sequence + 1
        previous = START if last is None else last.hash
        text = json.dumps(body, sort_keys=True, separators=(",", ":"), allow_nan=False)
        return cls(sequence, at, text, previous, link_hash(sequence, at, text, previous))

    def read(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.body)
        return found


def link_hash(sequence: int, at: str, body: str, previous: str) -> str:
    """SHA-256 over everything a link holds.

    Examples
    --------
    >>> link_hash(1, "2026-01-01", "{}", START)[:8]
    '65462bdd'
    """
    text = json.dumps([sequence, at, body, previous], separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def breaks(links: Sequence[Link], head: tuple[int, str] | None) -> Iterator[str]:
    """Every place where a chain is broken, in words; nothing for a whole one."""
    previous, expected = START, 1
    for link in links:
        if link.sequence != expected:
            yield f"event {expected} is missing: {link.sequence} follows {expected - 1}"
            expected = link.sequence
        if link.hash != link_hash(link.sequence, link.at, link.body, link.previous):
            yield f"event {link.sequence} was edited"
        elif link.previous != previous:
            yield f"event {link.sequence} does not follow the one before it"
        previous, expected = link.hash, expected + 1
    last = (links[-1].sequence, links[-1].hash) if links else (0, START)
    if head is not None and head != last:
        yield f"the last event on record is {head[0]}, and the chain ends at {last[0]}"
