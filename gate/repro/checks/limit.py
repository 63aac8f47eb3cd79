"""boundaries.limit"""

from __future__ import annotations

from typing import Any

import torch

from bucketproof.repro.parts.seeing import pairs
from bucketproof.repro.parts.slots import LIMIT, Broken, buckets, consumed, is_over, weights

GIVEN: dict[str, int] = {}  # the number of each weight in the stream


def note(name: str, tensor: torch.Tensor) -> None:
    GIVEN.setdefault(name, len(GIVEN))


def check(bucketer: Any) -> None:
    """No bucket is larger than the limit, but for a weight alone that is."""
    for bucket in buckets(bucketer, weights()):
        members = [(name, tensor.nbytes) for name, tensor in pairs(bucket) if tensor.nbytes]
        members.sort(key=lambda member: GIVEN.get(member[0], 0))
        if len(members) > 1 and is_over(members):
            total = sum(nbytes for _, nbytes in members)
            raise Broken(f"a bucket holds {total} bytes in {len(members)} weights; the limit is {LIMIT}")
        consumed(bucket)
