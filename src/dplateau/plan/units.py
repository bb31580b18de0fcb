"""Whose privacy is meant: a record, or a person with all their rows."""

from __future__ import annotations

import re

RECORD, PERSON = "record", "person"
UNITS = (RECORD, PERSON)

_WORDS = {"records": "people", "record": "person", "Records": "People", "Record": "Person"}
_FOUND = re.compile(r"\b(?:records?|Records?)\b")


def in_units(text: str, unit: str) -> str:
    """A sentence about records, said of the unit that is meant.

    Examples
    --------
    >>> in_units("One record among 10 records is replaced by any other", PERSON)
    'One person among 10 people is replaced by any other'
    """
    return _FOUND.sub(lambda word: _WORDS[word[0]], text) if unit == PERSON else text
