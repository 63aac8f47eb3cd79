"""memory.released-after-flush"""

from __future__ import annotations

import gc
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from bucketproof.repro.parts.seeing import pairs
from bucketproof.repro.parts.slots import Broken, buckets, weights

OTHERS: dict[int, StorageWeakRef] = {}  # memory that somebody else holds
DROPPED: dict[str, StorageWeakRef] = {}  # memory of what the consumer has dropped
STALE: list[str] = []


def note_whose(name: str, tensor: torch.Tensor, whose: str) -> None:
    if whose in ("lent", "shared"):
        storage = tensor.untyped_storage()
        OTHERS[storage._cdata] = StorageWeakRef(storage)


def check(bucketer: Any) -> None:
    """What a consumer has dropped is gone when the producer is advanced, or the sync is over."""
    for bucket in buckets(bucketer, weights()):
        drop(pairs(bucket))
        del bucket
    look_back()
    for name in STALE:
        raise Broken(f"{name!r} was still alive when the producer was advanced, though its consumer had dropped it")


def drop(members: list[tuple[str, torch.Tensor]]) -> None:
    for name, tensor in members:
        storage = tensor.untyped_storage()
        if storage._cdata not in OTHERS:
            DROPPED[name] = StorageWeakRef(storage)


def look_back() -> None:
    """The producer is advanced."""
    if not all(storage.expired() for storage in DROPPED.values()):
        gc.collect()  # what only a cycle holds is not kept
    STALE.extend(name for name, storage in DROPPED.items() if not storage.expired())
    DROPPED.clear()
