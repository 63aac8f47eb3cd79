"""What each compaction rule decides about a hand-over, without carrying it out."""

from __future__ import annotations

from collections.abc import Iterable

from bucketproof.auditing.memory import Record

RULES = ("base-guard", "storage-size", "reference")


def known(rules: Iterable[str]) -> tuple[str, ...]:
    """The rules by name. Raises `ValueError` for a name that is none."""
    names = (rules,) if isinstance(rules, str) else tuple(rules)
    for name in names:
        if name not in RULES:
            raise ValueError(f"no compaction rule {name!r}; choose from {', '.join(RULES)}")
    return names


def kept_by(record: Record, rules: tuple[str, ...], *, owned: bool) -> tuple[str, ...]:
    """Which of the rules keep a hand-over where it lies. `owned` is what the reference asks for, and is costly."""
    dense, has_base = record.layout.dense, record.facts[0]
    decided = {
        "base-guard": not has_base,
        "storage-size": dense and record.region.nbytes == record.layout.nbytes,
        "reference": owned and dense and not record.is_lazy,
    }
    return tuple(rule for rule in rules if decided[rule])
