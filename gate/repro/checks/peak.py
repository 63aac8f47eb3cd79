"""memory.peak"""

from __future__ import annotations

from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from bucketproof.repro.parts.operators import Operators
from bucketproof.repro.parts.seeing import pairs
from bucketproof.repro.parts.slots import BUFFER, Broken, buckets, consumed, largest, needed, weights

PENDING: dict[str, tuple[int, int]] = {}  # of each weight that is not delivered: bytes to allocate for it, and its own
OWN: dict[int, tuple[StorageWeakRef, int]] = {}  # what the bucketer has allocated, with its bytes
LINES: list[str] = []  # when that was too much, in words


def note_whose(name: str, tensor: torch.Tensor, whose: str) -> None:
    PENDING[name] = needed(tensor, whose), largest(tensor)


def check(bucketer: Any) -> None:
    """The bucketer never has more memory of its own than it has to copy for the open bucket, and one weight."""
    with Operators(look):
        for bucket in buckets(bucketer, weights()):
            for name, tensor in pairs(bucket):
                PENDING.pop(name, None)
                OWN.pop(tensor.untyped_storage()._cdata, None)  # it is the consumer's now
                del tensor
            consumed(bucket)
            del bucket
    for line in LINES:
        raise Broken(line)


def look(what: str, storage: torch.UntypedStorage, read: set[int]) -> None:
    if storage._cdata in read:
        return
    OWN[storage._cdata] = StorageWeakRef(storage), storage.nbytes()
    alive = sum(nbytes for storage, nbytes in OWN.values() if not storage.expired())
    owed = max(BUFFER, sum(nbytes for nbytes, _ in PENDING.values()))
    beside = max((nbytes for _, nbytes in PENDING.values()), default=0)
    if alive > owed + beside:
        LINES.append(f"after {what} it had {alive} bytes of its own; {owed} and {beside} beside are allowed")
