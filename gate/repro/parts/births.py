"""What is alive of all that was handed over or allocated."""

from __future__ import annotations

import gc
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode

from bucketproof.properties.ledger import _storages
from bucketproof.repro.parts.slots import let_go

WATCHED: list[tuple[StorageWeakRef, int]] = []  # all memory that was handed over or allocated, with its bytes


def note_whose(name: str, tensor: torch.Tensor, whose: str) -> None:
    storage = tensor.untyped_storage()
    WATCHED.append((StorageWeakRef(storage), storage.nbytes()))


class Births(TorchDispatchMode):
    """Watches what is allocated."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # else torch would import its compiler

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        read = {storage._cdata for storage in _storages((*args, *(kwargs or {}).values()))}
        for storage in _storages((result,)):
            if storage._cdata not in read:
                WATCHED.append((StorageWeakRef(storage), storage.nbytes()))
        return result


def alive() -> int:
    """How many bytes are, when the producer has let go of its own."""
    let_go()
    gc.collect()
    return sum(nbytes for storage, nbytes in WATCHED if not storage.expired())
