"""The ledger: which storages are born inside the bucketer, and out of whose bytes.

It counts on any device, the same each time, and sees what torch's operators do; what is allocated past torch, by
numpy for instance, it does not see. It is suspended while control is in the producer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import cache
from itertools import takewhile
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import (
    TorchDispatchMode,
    _get_current_dispatch_mode,
    _get_current_dispatch_mode_stack,
    _pop_mode,
    _push_mode,
)


@dataclass(frozen=True, slots=True)
class Copy:
    """Bytes of a hand-over, written into another storage."""

    index: int
    """Which hand-over."""
    nbytes: int
    op: str


class Ledger(TorchDispatchMode):
    """Counts while it is entered. `grown()` is called each time that the bucketer has allocated."""

    def __init__(self, grown: Callable[[], None] = lambda: None) -> None:
        super().__init__()
        self.copies: list[Copy] = []
        self.births: list[tuple[StorageWeakRef, int]] = []
        self._grown = grown
        self._own: dict[int, tuple[StorageWeakRef, int]] = {}
        self._young: list[int] = []
        self._at_most = 0
        self._handed_over: dict[int, tuple[int, int]] = {}

    def handed_over(self, index: int, storage_id: int, nbytes: int) -> None:
        """From now on this storage is known as a hand-over's."""
        self._handed_over[storage_id] = index, nbytes

    def delivered(self, storage_id: int) -> None:
        """This storage is the consumer's now."""
        self._forget(storage_id)

    def living(self, enough: int) -> int:
        """Bytes of the bucketer's own that are alive; or some that are not, too, if all of it is not above `enough`.

        To count exactly takes a look at each storage. What has died is mostly of those that came last.
        """
        for suspects in (self._young, self._own):
            if self._at_most > enough:
                for storage_id in [each for each in suspects if not self._is_own(each)]:
                    self._forget(storage_id)
                self._young.clear()
        return self._at_most

    def _forget(self, storage_id: int) -> None:
        _, nbytes = self._own.pop(storage_id, (None, 0))
        self._at_most -= nbytes

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Not to import torch's compiler, which takes seconds, only so that it skips what nobody compiles."""
        return False

    def suspended(self) -> AbstractContextManager[None]:
        """While the producer works. Its operators pay nothing."""
        # Another one is current to a target that pulls from another thread, for one.
        return _Suspended(self) if _get_current_dispatch_mode() is self else nullcontext()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **kwargs) if kwargs else func(*args)
        if _only_views(func):
            return result
        read = {storage._cdata for storage in _storages((*args, *(kwargs or {}).values()))}
        for storage in _storages((result,)):
            if read != {storage._cdata}:  # else it is a view
                self._written(storage, read, func)
        return result

    def _written(self, storage: torch.UntypedStorage, read: set[int], op: object) -> None:
        written, nbytes = storage._cdata, storage.nbytes()
        if written not in read and not self._is_own(written):
            self._born(storage, nbytes)
        for source in read - {written}:
            index, size = self._handed_over.get(source, (-1, 0))
            if index >= 0 and nbytes >= size > 0:
                self.copies.append(Copy(index, size, _in_words(op)))

    def _born(self, storage: torch.UntypedStorage, nbytes: int) -> None:
        # An address that is used again is not the hand-over's any more.
        self._handed_over.pop(storage._cdata, None)
        born = StorageWeakRef(storage), nbytes
        self.births.append(born)
        self._forget(storage._cdata)
        self._own[storage._cdata] = born
        self._young.append(storage._cdata)
        self._at_most += nbytes
        self._grown()

    def _is_own(self, storage_id: int) -> bool:
        return storage_id in self._own and not self._own[storage_id][0].expired()


@contextmanager
def same_modes() -> Iterator[None]:
    """The modes that torch's operators go through are afterwards as they were.

    What hangs is ended wherever it is, also where a ledger was entered and nobody knows of it yet.
    """
    before = _get_current_dispatch_mode_stack()
    try:
        yield
    finally:
        now = _get_current_dispatch_mode_stack()
        same = len([*takewhile(lambda pair: pair[0] is pair[1], zip(before, now, strict=False))])
        for _ in now[same:]:
            _pop_mode()
        for mode in before[same:]:
            _push_mode(mode)


class _Suspended(AbstractContextManager[None]):
    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    # The stack alone, without what else a mode notes when it is entered: it takes a tenth of the time.
    def __enter__(self) -> None:
        _pop_mode()

    def __exit__(self, *raised: object) -> None:
        _push_mode(self._ledger)


_in_words = cache(str)


@cache
def _only_views(func: Any) -> bool:
    """Whether an operator says of itself that it does nothing but show what it is given."""
    returned = [each.alias_info for each in func._schema.returns]
    return bool(returned) and all(alias is not None and not alias.is_write for alias in returned)


def _storages(values: Any) -> Iterator[torch.UntypedStorage]:
    """Storages of the tensors among an operator's arguments or results, in lists too."""
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value.untyped_storage()
        elif isinstance(value, (list, tuple)):
            yield from _storages(value)
