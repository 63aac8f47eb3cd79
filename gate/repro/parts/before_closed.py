"""A sync that was closed."""

from __future__ import annotations

from typing import Any

from bucketproof.repro.parts.slots import STOP, buckets, close, consumed, step, weights


def before(bucketer: Any) -> None:
    """A sync that is closed on the way."""
    run = buckets(bucketer, weights())
    try:
        for _ in range(STOP):
            bucket = step(run)
            if bucket is None:
                break
            consumed(bucket)
            del bucket
        close(run)
    except Exception:
        pass
