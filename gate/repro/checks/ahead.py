"""memory.lookahead"""

from __future__ import annotations

from typing import Any

import torch

from bucketproof.repro.parts.seeing import pairs
from bucketproof.repro.parts.slots import LOOKAHEAD, Broken, buckets, consumed, weights

GIVEN: dict[str, int] = {}  # the number of each weight in the stream


def note(name: str, tensor: torch.Tensor) -> None:
    GIVEN[name] = len(GIVEN)


def check(bucketer: Any) -> None:
    """When a bucket comes, few weights behind it have been pulled."""
    arrived: set[str] = set()
    reached, ahead = 0, []
    for bucket in buckets(bucketer, weights()):
        arrived.update(name for name, _ in pairs(bucket))
        reached = max([reached, *(1 + GIVEN[name] for name, _ in pairs(bucket) if name in GIVEN)])
        ahead.append([name for name, number in GIVEN.items() if number >= reached])
        consumed(bucket)
        del bucket
    for number, names in enumerate(ahead):
        pulled = [name for name in names if name in arrived]
        if len(pulled) > LOOKAHEAD:
            raise Broken(f"when bucket {number} came, {len(pulled)} weights behind it had been pulled: {pulled}")
