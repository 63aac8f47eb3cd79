"""How the compaction rules fare on a real stream: what each keeps and copies, and where it is wrong about it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
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
    """Keeps the records of some rules. Hand-overs are few of a kind: they are counted by kind, and told at the end."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self.names = names
        self._decided: defaultdict[_Kind, list[int]] = defaultdict(lambda: [0, 0])
        self._disproved: defaultdict[_Kind, list[int]] = defaultdict(lambda: [0, 0])

    def decided(self, record: Record, *, owned: bool) -> None:
        """A hand-over was looked at. `owned` says whether a copy of it is needless."""
        _count(self._decided[record.kept_by, owned and record.layout.dense], record)

    def disproved(self, record: Record) -> None:
        """What was handed over was written."""
        owned = record.exclusive and record.layout.dense and record.layout.nbytes == record.region.nbytes
        _count(self._disproved[record.kept_by, owned], record)

    def records(self) -> tuple[RuleRecord, ...]:
        """How each has fared by now."""
        return tuple(map(self._record, self.names))

    def _record(self, rule: str) -> RuleRecord:
        kept = _total(counts for (by, _), counts in self._decided.items() if rule in by)
        copied = _total(counts for (by, _), counts in self._decided.items() if rule not in by)
        needless = _total(counts for (by, owned), counts in self._decided.items() if owned and rule not in by)
        needed = _total(counts for (by, owned), counts in self._disproved.items() if owned and rule not in by)
        return RuleRecord(
            rule=rule,
            kept=kept[0],
            kept_bytes=kept[1],
            copied=copied[0],
            copied_bytes=copied[1],
            spoiled=_total(counts for (by, _), counts in self._disproved.items() if rule in by)[0],
            needless=needless[0] - needed[0],
            needless_bytes=needless[1] - needed[1],
        )


_Kind = tuple[tuple[str, ...], bool]
"""Which rules keep a hand-over, and whether a copy of it is needless."""


def _count(counts: list[int], record: Record) -> None:
    counts[0] += 1
    counts[1] += record.layout.nbytes


def _total(counts: Iterable[list[int]]) -> tuple[int, int]:
    """How many, and how many bytes."""
    found = list(counts)
    return sum(each[0] for each in found), sum(each[1] for each in found)
