"""aliasing.no-lent-memory"""

from __future__ import annotations

from typing import Any

import torch

from bucketproof.repro.parts.seeing import addresses, overlap, pairs
from bucketproof.repro.parts.slots import JUDGED, Broken, buckets, consumed, weights

GIVEN: list[range] = []  # addresses that lenders have lent


def note_whose(name: str, tensor: torch.Tensor, whose: str) -> None:
    if whose == "lent":
        GIVEN.append(addresses(tensor))


def check(bucketer: Any) -> None:
    """No weight is delivered in memory that a lender may write."""
    for bucket in buckets(bucketer, weights()):
        look(pairs(bucket))
        consumed(bucket)


def look(members: list[tuple[str, torch.Tensor]]) -> None:
    for name, tensor in members:
        if name in JUDGED and any(overlap(addresses(tensor), lent) for lent in GIVEN):
            raise Broken(f"{name!r} was delivered in the memory of a lender, which may write it")
