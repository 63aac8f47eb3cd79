"""Another process, which lends its memory by CUDA IPC handles and writes it when it is told to."""

from __future__ import annotations

import weakref
from collections import defaultdict
from collections.abc import Callable
from multiprocessing.reduction import ForkingPickler
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import torch

# What torch registers there is how tensors are sent.
import torch.multiprocessing

from bucketproof.properties import limits
from bucketproof.strategies import DEVICES, content
from bucketproof.strategies.memory import BUFFERS, Buffer, Home

if TYPE_CHECKING:
    from bucketproof.properties.ranks.pool import Pool

_FREE: WeakKeyDictionary[Pool, dict[int, list[int]]] = WeakKeyDictionary()
"""Numbers of another process's buffers that nobody here has open, by their bytes."""


class Opened(Buffer):
    """A buffer of the other process."""

    def _allocated(self, nbytes: int, home: Home, where: str) -> torch.Tensor:
        free = _FREE.setdefault(_other(), defaultdict(list))[nbytes]
        self._number, sent = _told(lend, free.pop() if free else -1, nbytes, where)
        weakref.finalize(self, free.append, self._number)
        opened: torch.Tensor = ForkingPickler.loads(sent)
        return opened

    def _write(self) -> None:
        # Streams are of one process: whoever tells another one that it may write has waited for what it was reading.
        torch.cuda.synchronize()
        _told(write_again, self._number)


BUFFERS["opened"] = Opened


def get_ready(device: str) -> None:
    """Start the other process, which takes seconds. Raises `Lost`."""
    _told(_get_ready, device)


def _told(function: Callable[..., Any], *arguments: Any) -> Any:
    return _other().call(function, *arguments, seconds=3 * limits.SECONDS)[0]


def _other() -> Pool:
    """The other process; a new one, whose buffers are other ones, if the last was lost."""
    # Only now, for few runs need it.
    from bucketproof.properties.ranks.pools import pool_of

    return pool_of(1)


# What the other process does.

_LENT: list[torch.Tensor] = []


def _get_ready(device: str) -> None:
    DEVICES[device].get_ready()


def lend(number: int, nbytes: int, where: str) -> tuple[int, bytes]:
    """The buffer of that number, or a new one for -1, and how it is opened."""
    if number < 0:
        number = len(_LENT)
        _LENT.append(torch.zeros(nbytes, dtype=torch.uint8, device=where))
    return number, bytes(ForkingPickler.dumps(_LENT[number]))


def write_again(number: int) -> None:
    """Write over all of a buffer, and wait until that is done."""
    content.poison(_LENT[number])
    if _LENT[number].is_cuda:
        torch.cuda.synchronize()
