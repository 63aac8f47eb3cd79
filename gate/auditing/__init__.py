"""Watching a real producer, or a real bucketer, at run time.

    from bucketproof import audit

    weights = audit(weights, on_summary=print)

No bucketer can prevent a producer from writing to what it has handed over, but it can be seen. What is watched keeps
its custody: nothing here holds a tensor, only addresses, sizes, a few bytes, and weak references.
"""

from __future__ import annotations

from bucketproof.auditing.bucketer import audit_bucketer
from bucketproof.auditing.findings import AuditError, AuditWarning, Finding, HandedOver
from bucketproof.auditing.rules import RuleRecord
from bucketproof.auditing.streams import audit
from bucketproof.auditing.summary import Lent, Summary

__all__ = [
    "AuditError",
    "AuditWarning",
    "Finding",
    "HandedOver",
    "Lent",
    "RuleRecord",
    "Summary",
    "audit",
    "audit_bucketer",
]
