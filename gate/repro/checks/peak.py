"""memory.peak"""

from __future__ import annotations

from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode

from bucketproof.properties.ledger import _storages
from bucketproof.repro.parts.seeing import pairs
from bucketproof.repro.parts.slots import BUFFER, Broken, buckets, consumed, largest, needed, weights

PENDING: dict[str, tuple[int, int]] = {}  # of each weight that is not delivered: bytes to allocate for it, and its own


def note_whose(name: str, tensor: torch.Tensor, whose: str) -> None:
    PENDING[name] = needed(tensor, whose), largest(tensor)


def check(bucketer: Any) -> None:
    """The bucketer never has more memory of its own than it has to copy for the open bucket, and one weight."""
    with Ledger() as ledger:
        for bucket in buckets(bucketer, weights()):
            for name, tensor in pairs(bucket):
                PENDING.pop(name, None)
                ledger.own.pop(tensor.untyped_storage()._cdata, None)  # it is the consumer's now
                del tensor
            consumed(bucket)
            del bucket
    for line in ledger.lines:
        raise Broken(line)


class Ledger(TorchDispatchMode):
    """Counts what the bucketer allocates, for as long as it lives."""

    def __init__(self) -> None:
        super().__init__()
        self.own: dict[int, tuple[StorageWeakRef, int]] = {}
        self.lines: list[str] = []

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # else torch would import its compiler

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        read = {storage._cdata for storage in _storages((*args, *(kwargs or {}).values()))}
        for storage in _storages((result,)):
            if storage._cdata not in read:
                self.own[storage._cdata] = StorageWeakRef(storage), storage.nbytes()
                self.look(str(func))
        return result

    def look(self, what: str) -> None:
        alive = sum(nbytes for storage, nbytes in self.own.values() if not storage.expired())
        owed = max(BUFFER, sum(nbytes for nbytes, _ in PENDING.values()))
        beside = max((nbytes for _, nbytes in PENDING.values()), default=0)
        if alive > owed + beside:
            self.lines.append(f"after {what} it had {alive} bytes of its own; {owed} and {beside} beside are allowed")
