"""A few bytes of a hand-over, read without holding it: at its address on a CPU, by a kernel elsewhere.

Samples are taken at the same elements whatever the strides are, so that those of a copy can be compared. Nothing but
the tensor's own bytes is read: what lies between the elements of a strided tensor may be written by whoever owns it.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from ctypes import c_char, string_at
from functools import lru_cache
from typing import Any, NamedTuple

import torch

_CHUNK = 16
"""Bytes that are read at each of four places; a smaller tensor is read whole."""
_Chunk = c_char * _CHUNK

Digest = Any
"""Bytes or, on a device, a tensor of them that is compared there; None for what cannot be read."""
Changed = Any
"""Whether two digests differ, or a tensor on a device that will tell."""


class Layout(NamedTuple):
    """Where the elements of a tensor lie in its storage."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int
    """In bytes."""
    dense: bool
    """Whether it is contiguous."""
    nbytes: int
    reach: int
    """From its first byte to behind its last, as its strides reach."""
    on_host: bool
    """Whether its memory has an address here."""


def layout_of(tensor: torch.Tensor) -> Layout:
    """Where the tensor's elements lie."""
    shape, stride, nbytes, dense = tensor.shape, tensor.stride(), tensor.nbytes, tensor.is_contiguous()
    size = tensor.itemsize
    reach = nbytes if dense or not nbytes else size * (1 + sum(s * (n - 1) for s, n in zip(stride, shape, strict=True)))
    offset = int(tensor.storage_offset()) * size
    return Layout(tensor.dtype, shape, stride, offset, dense, nbytes, reach, tensor.device.type in ON_HOST)


def read(storage: torch.UntypedStorage, layout: Layout, *, whole: bool = False) -> Digest:
    """Samples of a tensor's bytes, or a checksum of all of them; None if its storage has given them up.

    A sharded parameter is freed by setting its storage to no byte while the tensor lives on.
    """
    if layout.offset + layout.reach > storage.nbytes():
        return None
    if not layout.on_host:
        return _on_device(storage, layout, whole)
    address = storage.data_ptr() + layout.offset
    if whole:
        return _checksum(storage, layout, address)
    return peek(address, layout.nbytes) if layout.dense else _scattered(address, layout)


ON_HOST = {"cpu"}
"""Devices whose memory has an address here."""


def peek(address: int, nbytes: int) -> Digest:
    """Samples of a contiguous tensor on a CPU."""
    if nbytes <= 4 * _CHUNK:
        return string_at(address, nbytes)
    first, second, last = _offsets(nbytes)
    return (
        _Chunk.from_address(address).raw,
        _Chunk.from_address(address + first).raw,
        _Chunk.from_address(address + second).raw,
        _Chunk.from_address(address + last).raw,
    )


@lru_cache(maxsize=4096)
def _offsets(nbytes: int) -> tuple[int, int, int]:
    """Behind the first place. No element is cut, for every element's size divides that of a place."""
    last = nbytes - _CHUNK
    return last // 3 // _CHUNK * _CHUNK, last * 2 // 3 // _CHUNK * _CHUNK, last


def _scattered(address: int, layout: Layout) -> Digest:
    """The same samples of a tensor whose elements are apart."""
    size = layout.dtype.itemsize
    if layout.nbytes <= 4 * _CHUNK:
        return _elements(address, layout, 0, layout.nbytes // size)
    starts = (0, *_offsets(layout.nbytes))
    return tuple(_elements(address, layout, start // size, _CHUNK // size) for start in starts)


def _elements(address: int, layout: Layout, first: int, count: int) -> bytes:
    size = layout.dtype.itemsize
    places = (_offset_of(number, layout) * size for number in range(first, first + count))
    return b"".join(string_at(address + place, size) for place in places)


def _offset_of(number: int, layout: Layout) -> int:
    """Where an element lies, in elements from the first: elements are numbered in their order, not in memory's."""
    place = 0
    for size, stride in zip(reversed(layout.shape), reversed(layout.stride), strict=True):
        number, index = divmod(number, size)
        place += index * stride
    return place


def _checksum(storage: torch.UntypedStorage, layout: Layout, address: int) -> int:
    if layout.dense:
        return zlib.crc32((c_char * layout.nbytes).from_address(address))
    from bucketproof.properties.evidence import bits

    return zlib.crc32(bits(_tensor(storage, layout)))


def _tensor(storage: torch.UntypedStorage, layout: Layout) -> torch.Tensor:
    start = layout.offset // layout.dtype.itemsize
    empty = torch.empty(0, dtype=layout.dtype, device=storage.device)
    return empty.set_(storage, start, layout.shape, layout.stride)


def _on_device(storage: torch.UntypedStorage, layout: Layout, whole: bool) -> torch.Tensor:
    """A copy of evenly spread bytes, or of all, made by a kernel in the current stream: nobody waits for it.

    Of a tensor that is not contiguous, it is the diagonal: a single stride, whatever the strides are.
    """
    if whole:
        return _tensor(storage, layout).clone(memory_format=torch.contiguous_format).view(-1)
    raw = torch.empty(0, dtype=torch.uint8, device=storage.device)
    if layout.dense:
        count = min(layout.nbytes, 4 * _CHUNK)
        step = layout.nbytes // count
        # An odd step, so that not only one byte of each element is seen.
        return raw.set_(storage, layout.offset, (count,), (max(step - 1 + step % 2, 1),)).clone()
    size = layout.dtype.itemsize
    diagonal = min(layout.shape, default=1), size
    return raw.set_(storage, layout.offset, diagonal, (sum(layout.stride) * size, 1)).clone()


def changed(before: Digest, after: Digest) -> Changed:
    """Whether two digests of one tensor differ. On a device, it is a tensor that will tell."""
    if before is None or after is None:
        return False
    if isinstance(before, torch.Tensor):
        return before.view(torch.uint8).ne(after.view(torch.uint8)).any()
    return bool(before != after)


class Pending:
    """Questions whose answers are still on a device, and what is to be done once they are known."""

    def __init__(self) -> None:
        self._asked: list[tuple[torch.Tensor, Callable[[bool], None]]] = []

    def ask(self, answer: Changed, then: Callable[[bool], None]) -> None:
        """Call `then` with the answer, at once if it is known."""
        if isinstance(answer, torch.Tensor):
            self._asked.append((answer, then))
        else:
            then(answer)

    def settle(self) -> None:
        """Wait for all answers. They are fetched together, once for each device."""
        asked, self._asked = self._asked, []
        for device in dict.fromkeys(answer.device for answer, _ in asked):
            here = [(answer, then) for answer, then in asked if answer.device == device]
            told = torch.stack([answer for answer, _ in here]).tolist()
            for (_, then), is_so in zip(here, told, strict=True):
                then(is_so)
