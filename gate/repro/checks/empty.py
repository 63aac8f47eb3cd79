"""boundaries.no-empty-bucket"""

from __future__ import annotations

from typing import Any

from bucketproof.repro.parts.seeing import pairs
from bucketproof.repro.parts.slots import Broken, buckets, consumed, weights


def check(bucketer: Any) -> None:
    """No bucket is empty."""
    sizes: list[int] = []
    for bucket in buckets(bucketer, weights()):
        sizes.append(len(pairs(bucket)))
        consumed(bucket)
    if 0 in sizes:
        raise Broken(f"the buckets have {sizes} members")
