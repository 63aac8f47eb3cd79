"""boundaries.rank-agreement"""

from __future__ import annotations

from typing import Any

from bucketproof.repro.parts.seeing import pairs
from bucketproof.repro.parts.slots import Broken, buckets, consumed, elsewhere, weights


def check(bucketer: Any) -> None:
    """Two ranks have the same weights, but other values in other memory. Their buckets end at the same places."""
    here = partition(bucketer, weights())
    there = partition(bucketer, elsewhere())
    if here != there:
        raise Broken(f"one rank puts the weights together as {here}, another as {there}")


def partition(bucketer: Any, stream: Any) -> list[list[str]]:
    found = []
    for bucket in buckets(bucketer, stream):
        found.append(sorted(name for name, _ in pairs(bucket)))
        consumed(bucket)
    return found
