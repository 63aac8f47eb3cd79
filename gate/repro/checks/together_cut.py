"""lifecycle.concurrent-syncs: where buckets end."""

from __future__ import annotations

from typing import Any

from bucketproof.repro.parts.seeing import pairs
from bucketproof.repro.parts.slots import Broken, buckets, elsewhere, step, weights


def check(bucketer: Any) -> None:
    """Of two syncs that take turns, each has the buckets that it has alone."""

    def wider(stream: Any, limit: float) -> Any:
        return bucketer(stream, 2 * limit)

    alone = [partition(buckets(bucketer, weights())), partition(buckets(wider, elsewhere()))]
    turns = [buckets(bucketer, weights()), buckets(wider, elsewhere())]
    found: list[list[list[str]]] = [[], []]
    going = [0, 1]
    while going:
        for number in list(going):
            bucket = step(turns[number])
            if bucket is None:
                going.remove(number)
            else:
                found[number].append(sorted(name for name, _ in pairs(bucket)))
    if found != alone:
        raise Broken(f"two syncs that take turns put the weights together as {found}, and each alone as {alone}")


def partition(run: Any) -> list[list[str]]:
    found = []
    while (bucket := step(run)) is not None:
        found.append(sorted(name for name, _ in pairs(bucket)))
    return found
