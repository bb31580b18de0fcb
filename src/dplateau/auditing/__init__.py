"""Attack our own guarantee: many models with and without a canary, seen as an attacker would."""

from dplateau.auditing.canaries import Record
from dplateau.auditing.procedure import audit
from dplateau.auditing.result import AuditResult
from dplateau.auditing.selection import SelectionAudit, audit_selection

__all__ = ["AuditResult", "Record", "SelectionAudit", "audit", "audit_selection"]
