"""The ledger: which storages are born inside the bucketer, and out of whose bytes.

It counts on any device, the same each time, and sees what torch's operators do; what is allocated past torch, by
numpy for instance, it does not see. It is suspended while control is in the producer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode


@dataclass(frozen=True)
class Copy:
    """Bytes of a hand-over, written into another storage."""

    index: int
    """Which hand-over."""
    nbytes: int
    op: str


class Ledger(TorchDispatchMode):
    """Counts while it is entered. `grown(nbytes)` is called with what is alive of the bucketer's own, each time it
    has allocated more.
    """

    def __init__(self, grown: Callable[[int], None] = lambda nbytes: None) -> None:
        super().__init__()
        self.copies: list[Copy] = []
        self.births: list[tuple[StorageWeakRef, int]] = []
        self._grown = grown
        self._own: dict[int, tuple[StorageWeakRef, int]] = {}
        self._handed_over: dict[int, tuple[int, int]] = {}

    def handed_over(self, index: int, storage_id: int, nbytes: int) -> None:
        """From now on this storage is known as a hand-over's."""
        self._handed_over[storage_id] = index, nbytes

    def delivered(self, storage_id: int) -> None:
        """This storage is the consumer's now."""
        self._own.pop(storage_id, None)

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Not to import torch's compiler, which takes seconds, only so that it skips what nobody compiles."""
        return False

    @contextmanager
    def suspended(self) -> Iterator[None]:
        """While the producer works. Its operators pay nothing."""
        if _get_current_dispatch_mode() is not self:  # a target that pulls from another thread, for one
            yield
            return
        self.__exit__(None, None, None)
        try:
            yield
        finally:
            self.__enter__()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        read = {storage._cdata for storage in _storages((*args, *(kwargs or {}).values()))}
        for storage in _storages((result,)):
            self._written(storage, read, str(func))
        return result

    def _written(self, storage: torch.UntypedStorage, read: set[int], op: str) -> None:
        written, nbytes = storage._cdata, storage.nbytes()
        if written not in read and not self._is_own(written):
            self._born(storage, nbytes)
        for source in read - {written}:
            index, size = self._handed_over.get(source, (-1, 0))
            if index >= 0 and nbytes >= size > 0:
                self.copies.append(Copy(index, size, op))

    def _born(self, storage: torch.UntypedStorage, nbytes: int) -> None:
        # An address that is used again is not the hand-over's any more.
        self._handed_over.pop(storage._cdata, None)
        born = StorageWeakRef(storage), nbytes
        self.births.append(born)
        self._own[storage._cdata] = born
        self._own = {key: own for key, own in self._own.items() if not own[0].expired()}
        self._grown(sum(nbytes for _, nbytes in self._own.values()))

    def _is_own(self, storage_id: int) -> bool:
        return storage_id in self._own and not self._own[storage_id][0].expired()


def _storages(values: Any) -> Iterator[torch.UntypedStorage]:
    """Storages of the tensors among an operator's arguments or results, in lists too."""
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value.untyped_storage()
        elif isinstance(value, (list, tuple)):
            yield from _storages(value)
