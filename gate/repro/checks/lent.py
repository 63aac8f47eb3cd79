"""aliasing.no-lent-memory"""

from __future__ import annotations

from typing import Any

import torch

from bucketproof.repro.parts.seeing import pairs
from bucketproof.repro.parts.slots import JUDGED, Broken, buckets, consumed, weights

GIVEN: list[range] = []  # addresses that lenders have lent


def note_whose(name: str, tensor: torch.Tensor, whose: str) -> None:
    if whose == "lent":
        GIVEN.append(addresses(tensor))


def check(bucketer: Any) -> None:
    """No weight is delivered in memory that a lender may write."""
    for bucket in buckets(bucketer, weights()):
        for name, tensor in pairs(bucket):
            if name in JUDGED and any(overlap(addresses(tensor), lent) for lent in GIVEN):
                raise Broken(f"{name!r} was delivered in the memory of a lender, which may write it")
        consumed(bucket)


def addresses(tensor: torch.Tensor) -> range:
    """Those of its storage."""
    storage = tensor.detach().untyped_storage()
    return range(storage.data_ptr(), storage.data_ptr() + storage.nbytes())


def overlap(one: range, other: range) -> bool:
    return max(one.start, other.start) < min(one.stop, other.stop)
