"""Attack our own guarantee: many models with and without a canary, seen as an attacker would."""

from dplateau.auditing.canaries import Record
from dplateau.auditing.procedure import audit
from dplateau.auditing.result import AuditResult

__all__ = ["AuditResult", "Record", "audit"]
