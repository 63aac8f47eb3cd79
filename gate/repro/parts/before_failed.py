"""A sync that failed."""

from __future__ import annotations

from typing import Any

from bucketproof.repro.parts.slots import buckets, consumed, weights


def before(bucketer: Any) -> None:
    """A sync that fails, for its producer does."""
    try:
        for bucket in buckets(bucketer, weights()):
            consumed(bucket)
    except BaseException:
        pass
