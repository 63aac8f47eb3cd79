"""aliasing.no-pinned-storage"""

from __future__ import annotations

import gc
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from bucketproof.repro.parts.seeing import pairs
from bucketproof.repro.parts.slots import HELD, JUDGED, PADDING, Broken, buckets, consumed, let_go, weights

GIVEN: dict[str, StorageWeakRef] = {}  # the memory that each weight was handed over in


def note(name: str, tensor: torch.Tensor) -> None:
    GIVEN[name] = StorageWeakRef(tensor.untyped_storage())


def check(bucketer: Any) -> None:
    """A bucket holds the bytes that it shows, and no other memory lives on once the producer has let go."""
    for bucket in buckets(bucketer, weights()):
        compare(pairs(bucket))
        consumed(bucket)
        del bucket
    let_go()
    gc.collect()
    needed = {tensor.untyped_storage()._cdata for _, members in HELD for _, tensor in members}
    for name, storage in GIVEN.items():
        if name in JUDGED and storage.cdata not in needed and not storage.expired():
            raise Broken(
                f"the memory that {name!r} was handed over in is still alive, though the producer let go of it"
            )


def compare(members: list[tuple[str, torch.Tensor]]) -> None:
    for name, tensor in members:
        storage = tensor.untyped_storage()
        inside = [each for _, each in members if each.untyped_storage()._cdata == storage._cdata]
        due = covered(inside) + PADDING * len(inside)
        if name in JUDGED and storage.nbytes() > due:
            raise Broken(f"the bucket holds {storage.nbytes()} bytes of memory to show {due} of {name!r}")
        if name in JUDGED and tensor.is_leaf and tensor.grad is not None:
            raise Broken(f"{name!r} carries a gradient of {tensor.grad.nbytes} bytes")


def covered(tensors: list[torch.Tensor]) -> int:
    """How many bytes of one storage tensors show, each from its first to its last."""
    total = reached = 0
    for start, end in sorted(map(span, tensors)):
        total += max(0, end - max(start, reached))
        reached = max(reached, end)
    return total


def span(tensor: torch.Tensor) -> tuple[int, int]:
    first = int(tensor.storage_offset())
    reach = sum(stride * (size - 1) for stride, size in zip(tensor.stride(), tensor.shape, strict=True))
    last = first + int(reach) + 1 if tensor.numel() else first
    return first * tensor.itemsize, last * tensor.itemsize
