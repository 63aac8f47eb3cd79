"""How the weights were put together."""

from __future__ import annotations

from typing import Any

from bucketproof.repro.parts.seeing import pairs
from bucketproof.repro.parts.slots import GIVEN, buckets, consumed, weights


def filled(bucketer: Any) -> list[list[str]]:
    """The names in each bucket, in the order of the stream. One of no byte may lie on either side of a boundary."""
    found = []
    for bucket in buckets(bucketer, weights()):
        found.append(sorted((name for name, tensor in pairs(bucket) if tensor.nbytes), key=GIVEN.__getitem__))
        consumed(bucket)
    return [members for members in found if members]
