"""What is refused or warned of, and the words it is refused with."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

NOTHING = "Nothing is released."


class PlanError(ValueError):
    """A plan, or a part of one, that no theorem covers.

    The message always says what was found, what is allowed, and the way out.
    """


class DataError(ValueError):
    """Data whose public shape does not fit the plan (never the content of one record)."""


class CertificateError(ValueError):
    """A certificate that cannot be read, or whose claims do not hold."""


class ClusterError(RuntimeError):
    """A cluster that does not answer, or lost too much: the run was ended, nothing released."""


class PrivacyWarning(UserWarning):
    """Something outside the model spends privacy that its certificate does not count."""


class StoppedEarlyWarning(UserWarning):
    """A run that Ctrl-C ended before its plan did; its guarantee is for the steps it made."""


class UtilityWarning(UserWarning):
    """Public facts say that what was asked for will hardly pay; privacy is not in question."""


class LeftoverWarning(UserWarning):
    """An interrupted run left a file or directory behind, which is named and removed."""


@contextmanager
def nothing_released() -> Iterator[None]:
    """Have every refusal of data say so.

    Examples
    --------
    >>> with nothing_released():
    ...     raise DataError("t.csv is empty.")
    Traceback (most recent call last):
    ...
    dplateau.errors.DataError: t.csv is empty. Nothing is released.
    """
    try:
        yield
    except DataError as refusal:
        said = str(refusal)
        if NOTHING in said:
            raise
        raise type(refusal)(f"{said} {NOTHING}") from None


__all__ = [
    "NOTHING",
    "CertificateError",
    "ClusterError",
    "DataError",
    "LeftoverWarning",
    "PlanError",
    "PrivacyWarning",
    "StoppedEarlyWarning",
    "UtilityWarning",
    "nothing_released",
]
