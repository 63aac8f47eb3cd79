"""lifecycle.bucket-is-the-consumers: a consumer that clears buckets, and where they end."""

from __future__ import annotations

from typing import Any

from bucketproof.repro.parts.seeing import pairs
from bucketproof.repro.parts.slots import Broken, buckets, consumed, elsewhere, weights


def check(bucketer: Any) -> None:
    """Buckets end at the same places, whatever the consumer does with them."""
    alone = []
    for bucket in buckets(bucketer, elsewhere()):
        alone.append(sorted(name for name, _ in pairs(bucket)))
    found = []
    for bucket in buckets(bucketer, weights()):
        found.append(sorted(name for name, _ in pairs(bucket)))
        consumed(bucket)
    if found != alone:
        raise Broken(f"the weights were put together as {found} for one who clears buckets, and else as {alone}")
