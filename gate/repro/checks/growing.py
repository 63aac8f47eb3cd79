"""memory.steady: memory."""

from __future__ import annotations

import gc
import itertools
from collections.abc import Iterator
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode

from bucketproof.properties.ledger import _storages
from bucketproof.repro.parts.slots import STOP, Broken, buckets, let_go, weights

WATCHED: list[tuple[StorageWeakRef, int]] = []  # all memory that was handed over or allocated, with its bytes


def note_whose(name: str, tensor: torch.Tensor, whose: str) -> None:
    storage = tensor.untyped_storage()
    WATCHED.append((StorageWeakRef(storage), storage.nbytes()))


def check(bucketer: Any) -> None:
    """After many syncs there is as much memory as after one."""
    sync(bucketer, weights())  # what is made only once is made now
    WATCHED.clear()
    sync(bucketer, weights())
    before = alive()
    for _ in range(2):
        sync(bucketer, weights())
        sync(bucketer, failing())
    if alive() > before:
        raise Broken(f"{before} bytes were alive after one sync, and {alive()} after four more")


def failing() -> Iterator[tuple[str, torch.Tensor]]:
    """The same stream, whose producer fails on the way."""
    yield from itertools.islice(weights(), STOP)
    raise ValueError("the producer fails")


def sync(bucketer: Any, stream: Any) -> None:
    try:
        with Births():
            for bucket in buckets(bucketer, stream):
                del bucket
    except Exception:
        pass
    let_go()


def alive() -> int:
    gc.collect()
    return sum(nbytes for storage, nbytes in WATCHED if not storage.expired())


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
