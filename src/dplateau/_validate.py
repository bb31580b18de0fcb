"""Checks of arguments: a plain number, or a refusal that names the argument."""

from __future__ import annotations

import math
import numbers

from dplateau.errors import PlanError


def as_number(name: str, value: object) -> float:
    """``value`` as a float, or a refusal that names the argument."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise PlanError(f"{name} must be a number; found {value!r}. Pass a plain int or float.")
    return float(value)


def positive(name: str, value: object, *, way_out: str = "") -> float:
    """A finite number above zero."""
    number = as_number(name, value)
    if not (math.isfinite(number) and number > 0):
        raise PlanError(f"{name} must be finite and positive; found {number!r}.{_spaced(way_out)}")
    return number


def non_negative(name: str, value: object, *, way_out: str = "") -> float:
    """A finite number that is zero or more."""
    number = as_number(name, value)
    if not (math.isfinite(number) and number >= 0):
        raise PlanError(
            f"{name} must be finite and zero or more; found {number!r}.{_spaced(way_out)}"
        )
    return number


def whole(name: str, value: object, *, least: int = 1, way_out: str = "") -> int:
    """An integer of at least ``least``; a float is accepted when it is one exactly."""
    number = as_number(name, value)
    if not math.isfinite(number) or number != int(number) or number < least:
        raise PlanError(
            f"{name} must be a whole number of at least {least}; found {value!r}.{_spaced(way_out)}"
        )
    return int(value)  # type: ignore[call-overload, no-any-return]


def probability(name: str, value: object, *, closed: bool = False, way_out: str = "") -> float:
    """A number strictly between 0 and 1 (``closed``: the ends are allowed)."""
    number = as_number(name, value)
    inside = 0 <= number <= 1 if closed else 0 < number < 1
    if not inside:
        ends = "[0, 1]" if closed else "(0, 1)"
        raise PlanError(f"{name} must lie in {ends}; found {number!r}.{_spaced(way_out)}")
    return number


def is_sign(value: object) -> bool:
    """Whether it is 1, -1 or 0, as a number of any kind."""
    return isinstance(value, numbers.Real) and not isinstance(value, bool) and value in (-1, 0, 1)


def _spaced(text: str) -> str:
    return f" {text}" if text else ""
