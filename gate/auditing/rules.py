"""How the compaction rules fare on a real stream: what each keeps and copies, and where it is wrong about it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from bucketproof.auditing.memory import Record


@dataclass(frozen=True)
class RuleRecord:
    """What one rule decides about the hand-overs that were looked at closely, and what was then seen."""

    rule: str
    kept: int
    kept_bytes: int
    copied: int
    copied_bytes: int
    spoiled: int
    """Kept, and then written: the rule was wrong."""
    needless: int
    """Copied, though nobody else could reach the memory, it had no byte beyond the tensor's, and was not written."""
    needless_bytes: int


class Rules:
    """Keeps the records of some rules."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self.names = names
        self._counts: Counter[tuple[str, str]] = Counter()

    def decided(self, record: Record, *, owned: bool) -> None:
        """A hand-over was looked at. `owned` says whether a copy of it is needless."""
        nbytes = record.layout.nbytes
        counts = self._counts
        for rule in self.names:
            what = "kept" if rule in record.kept_by else "copied"
            counts[rule, what] += 1
            counts[rule, f"{what}_bytes"] += nbytes
            if owned and what == "copied" and record.layout.dense:
                counts[rule, "needless"] += 1
                counts[rule, "needless_bytes"] += nbytes

    def disproved(self, record: Record) -> None:
        """What was handed over was written."""
        owned = record.exclusive and record.layout.dense and record.layout.nbytes == record.region.nbytes
        for rule in self.names:
            if rule in record.kept_by:
                self._counts[rule, "spoiled"] += 1
            elif owned:
                self._counts[rule, "needless"] -= 1
                self._counts[rule, "needless_bytes"] -= record.layout.nbytes

    def records(self) -> tuple[RuleRecord, ...]:
        """How each has fared by now."""
        fields = [name for name in RuleRecord.__dataclass_fields__ if name != "rule"]
        return tuple(RuleRecord(rule, **{name: self._counts[rule, name] for name in fields}) for rule in self.names)
