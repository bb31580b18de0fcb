"""What is refused or warned of, and the words it is refused with."""

from __future__ import annotations


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


class LeftoverWarning(UserWarning):
    """An interrupted run left a file or directory behind, which is named and removed."""


__all__ = [
    "CertificateError",
    "ClusterError",
    "DataError",
    "LeftoverWarning",
    "PlanError",
    "PrivacyWarning",
    "StoppedEarlyWarning",
]
