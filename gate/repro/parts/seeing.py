"""What can be seen of buckets and tensors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from bucketproof.repro.parts.slots import CAST


def pairs(bucket: Any) -> list[tuple[str, torch.Tensor]]:
    """The members of a bucket, which is a sequence of pairs, or a mapping."""
    return list(bucket.items() if hasattr(bucket, "items") else bucket)


def difference(was: bytes, now: bytes) -> str:
    """Where two of them differ, and how."""
    first = next((i for i, (a, b) in enumerate(zip(was, now, strict=False)) if a != b), min(len(was), len(now)))
    return f"from byte {first} it was {was[first : first + 8].hex(' ')}, and is {now[first : first + 8].hex(' ')}"


def differences(given: dict[str, Any], now: dict[str, Any]) -> Iterator[str]:
    """What of a weight is not as it was handed over, in words."""
    for what in given:
        if given[what] != now[what]:
            are_bytes = isinstance(given[what], bytes)
            yield f"{what}: " + (difference if are_bytes else "it was {}, and is {}".format)(given[what], now[what])


def promised(tensor: torch.Tensor) -> torch.Tensor:
    """A weight as it should arrive."""
    return tensor.detach().to(CAST)


def addresses(tensor: torch.Tensor) -> range:
    """Those of its storage."""
    storage = tensor.detach().untyped_storage()
    return range(storage.data_ptr(), storage.data_ptr() + storage.nbytes())


def overlap(one: range, other: range) -> bool:
    """Whether there is an address in both."""
    return max(one.start, other.start) < min(one.stop, other.stop)
