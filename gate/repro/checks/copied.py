"""ownership.no-copy: what was delivered lies elsewhere."""

from __future__ import annotations

from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from bucketproof.repro.parts.seeing import pairs
from bucketproof.repro.parts.slots import JUDGED, Broken, buckets, consumed, weights

GIVEN: dict[str, tuple[int, StorageWeakRef]] = {}  # where each weight lay that is to stay there


def note(name: str, tensor: torch.Tensor) -> None:
    if name in JUDGED and tensor.is_contiguous() and tensor.numel() and not (tensor.is_conj() or tensor.is_neg()):
        GIVEN[name] = tensor.data_ptr(), StorageWeakRef(tensor.untyped_storage())


def check(bucketer: Any) -> None:
    """A weight that nobody else holds is delivered in the very memory that it was handed over in."""
    for bucket in buckets(bucketer, weights()):
        look(pairs(bucket))
        consumed(bucket)


def look(members: list[tuple[str, torch.Tensor]]) -> None:
    for name, tensor in members:
        if name in GIVEN and is_elsewhere(tensor, *GIVEN[name]):
            raise Broken(f"{name!r} was copied, {tensor.nbytes} bytes, though nobody else holds its memory")


def is_elsewhere(tensor: torch.Tensor, place: int, storage: StorageWeakRef) -> bool:
    return tensor.untyped_storage()._cdata != storage.cdata or tensor.data_ptr() != place or storage.expired()
