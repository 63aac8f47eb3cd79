"""boundaries.atomic-groups, where a group is not whole."""

from __future__ import annotations

from typing import Any

from bucketproof.repro.parts.slots import GROUPS, Broken, buckets, consumed, weights


def check(bucketer: Any) -> None:
    """A stream in which a member of a group is missing is refused."""
    try:
        for bucket in buckets(bucketer, weights()):
            consumed(bucket)
    except Exception:
        return
    raise Broken(f"a stream in which one of {GROUPS} is not whole was accepted")
