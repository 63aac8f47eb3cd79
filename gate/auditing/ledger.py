"""What an audit has found so far, and who is told."""

from __future__ import annotations

import sys
import warnings
from collections import Counter
from collections.abc import Callable, Collection
from typing import Any, Literal

from bucketproof.auditing.findings import SENTENCES, AuditError, AuditWarning, Finding, Kind

OnFinding = Literal["warn", "raise"] | Callable[[Finding], object]

_MOST_ALIKE = 8
"""Findings of one kind in one place that are kept. The others are counted."""
_MOST = 256
"""Findings that are kept and told, whatever they are."""


class Ledger:
    """Counts every finding, keeps a few of those that are alike, and tells of the first."""

    def __init__(self, on_finding: OnFinding) -> None:
        if on_finding not in ("warn", "raise") and not callable(on_finding):
            raise ValueError(f"on_finding={on_finding!r} is none of 'warn', 'raise', a callable, or None for no audit")
        self._on_finding = on_finding
        self.findings: list[Finding] = []
        self.counts: Counter[Kind] = Counter()
        self.groups: Counter[tuple[Kind, int | None]] = Counter()
        self.troubles: list[str] = []
        """What went wrong in the audit itself, and in what it called."""
        self.refusal: AuditError | None = None
        """What is to be raised as soon as that can be done."""

    def refused(self) -> AuditError | None:
        """What is to be raised now, once."""
        refusal, self.refusal = self.refusal, None
        return refusal

    def wants(self, kind: Kind) -> bool:
        """Whether one more finding of this kind would be kept, wherever it is."""
        return self.counts[kind] < _MOST_ALIKE

    def found(self, kind: Kind, make: Callable[[], Finding], *, place: int | None = None) -> None:
        """Count a finding. It is made only if it is kept."""
        self.counts[kind] += 1
        self.groups[kind, place] += 1
        if self.groups[kind, place] > _MOST_ALIKE or len(self.findings) >= _MOST:
            return
        finding = make()
        self.findings.append(finding)
        if self.groups[kind, place] == 1:
            self._tell(finding)

    def told(self, lent: Collection[int]) -> dict[str, Any]:
        """Counts, bytes and findings for a summary. What a lender lends again and again is not tied."""
        withdrawn = [group for group in self.groups if group[0] in ("tied", "overlap") and group[1] in lent]
        counts = self.counts.copy()
        for group in withdrawn:
            counts[group[0]] -= self.groups[group]
        return {
            "counts": {str(kind): count for kind, count in counts.items() if count},
            "findings": tuple(each for each in self.findings if each.group not in withdrawn),
        }

    def _tell(self, finding: Finding) -> None:
        if callable(self._on_finding):
            self._call(self._on_finding, finding)
        elif SENTENCES[finding.kind].level == "SHOULD":
            return
        elif self._on_finding == "raise":
            self.refusal = self.refusal or AuditError(finding)
        else:
            self.warn(finding.what)

    def _call(self, told: Callable[[Finding], object], finding: Finding) -> None:
        try:
            told(finding)
        except AuditError as error:
            self.refusal = self.refusal or AuditError(error.finding)
        except Exception as error:
            self.trouble("on_finding", error)

    def warn(self, text: str) -> None:
        """Warn. A filter that makes an error of it does not reach the sync."""
        try:
            warnings.warn(f"bucketproof: {text}", AuditWarning, stacklevel=_depth())
        except Exception as error:
            self.troubles.append(f"a warning was made an error: {error}")

    def trouble(self, where: str, error: BaseException) -> None:
        """Something went wrong that is not the producer's fault, and not to be its trouble."""
        if len(self.troubles) < _MOST_ALIKE:
            self.troubles.append(f"{where}: {type(error).__name__}: {error}")


def _depth() -> int:
    """How many calls lie between the one who warns and the first that is not the audit's."""
    depth, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith(_HERE):
        depth, frame = depth + 1, frame.f_back
    return depth


_HERE = __name__.rpartition(".")[0]
