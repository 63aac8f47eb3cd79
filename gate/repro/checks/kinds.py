"""lifecycle.iterables"""

from __future__ import annotations

from typing import Any

from bucketproof.repro.parts.seeing import pairs
from bucketproof.repro.parts.slots import Broken, buckets, elsewhere, weights


def check(bucketer: Any) -> None:
    """The same weights give the same buckets, in whatever kind of iterable they come."""
    found = names(bucketer, weights())
    try:
        other = names(bucketer, elsewhere())
    except Exception as error:
        raise Broken(f"it takes the weights as one kind of iterable, and as another it raises {error!r}") from error
    if found != other:
        raise Broken(f"two kinds of iterables give other buckets: {found} and {other}")


def names(bucketer: Any, stream: Any) -> list[list[str]]:
    found = []
    for bucket in buckets(bucketer, stream):
        found.append([name for name, _ in pairs(bucket)])
    return found
