"""What is alive of all that was handed over or allocated."""

from __future__ import annotations

import gc

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from bucketproof.repro.parts.slots import let_go

WATCHED: list[tuple[StorageWeakRef, int]] = []  # all memory that was handed over or allocated, with its bytes


def note_whose(name: str, tensor: torch.Tensor, whose: str) -> None:
    storage = tensor.untyped_storage()
    WATCHED.append((StorageWeakRef(storage), storage.nbytes()))


def born(what: str, storage: torch.UntypedStorage, read: set[int]) -> None:
    """Watch what is allocated."""
    if storage._cdata not in read:
        WATCHED.append((StorageWeakRef(storage), storage.nbytes()))


def alive() -> int:
    """How many bytes are, when the producer has let go of its own."""
    let_go()
    gc.collect()
    return sum(nbytes for storage, nbytes in WATCHED if not storage.expired())
