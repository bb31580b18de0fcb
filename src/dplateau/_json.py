"""Strict JSON, the word ``inf`` and digests: each written once.

What is read here was written by somebody else. A name that occurs twice, a number that no float
holds, text that cannot be encoded and nesting without end are refused before anything is made of
them; all of it in time and memory proportional to the text.
"""

from __future__ import annotations

import hashlib
import json
import math
from typing import Any

import numpy as np

DEEPEST = 32  # nested objects and lists; ours need 6
MOST_CONTAINERS = 1_000_000  # objects and lists: each costs some 60 bytes where text needs two
LONGEST_INTEGER = 20  # digits: what 64 bits can count


class StrictError(ValueError):
    """A text that is not JSON as we read it; the message goes on from the name of what was read."""


def loads(text: str, what: str, error: type[ValueError], way_out: str = "") -> Any:
    """The value of a JSON text, read strictly.

    Parameters
    ----------
    text : str
        The JSON.
    what : str
        What it is called in a refusal, such as a file's name.
    error : type of ValueError
        What to raise.
    way_out : str
        A last sentence of every refusal.

    Examples
    --------
    >>> loads('{"a": [1, 2.5, "inf"]}', "this", ValueError)
    {'a': [1, 2.5, 'inf']}
    >>> loads('{"a": 1, "a": 2}', "model.json", ValueError, "Train again.")
    Traceback (most recent call last):
    ...
    ValueError: model.json names 'a' more than once. Train again.
    >>> loads('[1e400]', "model.json", ValueError)
    Traceback (most recent call last):
    ...
    ValueError: model.json holds a number that is too large (1e400).
    """
    try:
        return _loads(text)
    except StrictError as found:
        reason = str(found)
    except json.JSONDecodeError as found:
        reason = f"is not valid JSON ({found.msg}, line {found.lineno})"
    except (RecursionError, UnicodeError):
        reason = "is not valid JSON"
    raise error(f"{what} {reason}.{f' {way_out}' if way_out else ''}")


def _loads(text: str) -> Any:
    if text.count("[") + text.count("{") > MOST_CONTAINERS:
        raise StrictError(f"holds more than {MOST_CONTAINERS:,} lists and objects")
    found = json.loads(
        text,
        object_pairs_hook=_once,
        parse_constant=_refuse_constant,
        parse_int=_integer,
        parse_float=_float,
    )
    _inspect(found)
    return found


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        seen: set[str] = set()
        twice = next(name for name, _ in pairs if name in seen or seen.add(name))  # type: ignore[func-returns-value]
        raise StrictError(f"names {twice[:60]!a} more than once")
    return found


def _refuse_constant(word: str) -> float:
    raise StrictError(f"holds {word}, which is no JSON number")


def _integer(digits: str) -> int:
    if len(digits.lstrip("-")) > LONGEST_INTEGER:
        raise StrictError(f"holds an integer of more than {LONGEST_INTEGER} digits")
    return int(digits)


def _float(digits: str) -> float:
    found = float(digits)
    if not math.isfinite(found):
        raise StrictError(f"holds a number that is too large ({digits[:20]})")
    return found


def _inspect(found: Any) -> None:
    """Refuse nesting that later readers would stumble over, and text that is no text."""
    level, depth = [found], 0
    while level:
        if depth > DEEPEST:
            raise StrictError(f"nests objects or lists more than {DEEPEST} deep")
        below: list[Any] = []
        for value in level:
            if isinstance(value, dict):
                below.extend(value.values())
                for name in value:
                    _check_text(name)
            elif isinstance(value, list):
                below.extend(inner for inner in value if isinstance(inner, (str, list, dict)))
            elif isinstance(value, str):
                _check_text(value)
        level, depth = below, depth + 1


def _check_text(value: str) -> None:
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise StrictError("holds text that no encoding has (a lone surrogate)") from None


def amount(value: float) -> float | int | str:
    """A number as JSON holds it; what is not finite fails closed, as the word ``inf``.

    Examples
    --------
    >>> amount(2.5), amount(7), amount(math.inf), amount(math.nan)
    (2.5, 7, 'inf', 'inf')
    """
    if not math.isfinite(value):
        return "inf"
    return int(value) if isinstance(value, (int, np.integer)) else float(value)


def number(value: float | str) -> float:
    """The inverse of `amount`."""
    return math.inf if value == "inf" else float(value)


def plain(value: Any) -> Any:
    """Nested values with every infinity as a word, which strict readers accept.

    Examples
    --------
    >>> plain({"a": [1.0, math.inf], "b": -math.inf, "c": None})
    {'a': [1.0, 'inf'], 'b': '-inf', 'c': None}
    """
    if isinstance(value, dict):
        return {name: plain(inner) for name, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(inner) for inner in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "-inf" if value == -math.inf else "inf"  # what is not a number fails closed
    return value


def dumps(value: Any) -> str:
    """One line of strict JSON, infinities as words."""
    return json.dumps(plain(value), allow_nan=False)


def canonical(value: Any) -> str:
    """The one text of a value: sorted names, no spaces."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def digest(value: Any) -> str:
    """SHA-256 of the canonical JSON, in hexadecimal.

    Examples
    --------
    >>> digest({"a": 1, "b": 2}) == digest({"b": 2, "a": 1})
    True
    """
    return hashlib.sha256(canonical(value).encode()).hexdigest()
