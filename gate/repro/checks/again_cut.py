"""lifecycle.reusable: where buckets end."""

from __future__ import annotations

from typing import Any

from bucketproof.repro.parts.seeing import pairs
from bucketproof.repro.parts.slots import Broken, before, buckets, elsewhere


def check(bucketer: Any) -> None:
    """Whatever sync went before, buckets end where they end else."""
    before(bucketer)
    after, calm = partition(bucketer), partition(bucketer)
    if after != calm:
        raise Broken(f"the second sync puts the weights together as {after}, and the third as {calm}")


def partition(bucketer: Any) -> list[list[str]]:
    found = []
    for bucket in buckets(bucketer, elsewhere()):
        found.append(sorted(name for name, _ in pairs(bucket)))
    return found
