"""Where the bytes of a hand-over lie: in memory of its own, or in memory that a lender will write again."""

from __future__ import annotations

import ctypes
import math
import os
import tempfile
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from multiprocessing.shared_memory import SharedMemory
from typing import Any, Literal, TypeVar

import numpy as np
import torch
from torch.multiprocessing.reductions import StorageWeakRef

from bucketproof.strategies import content
from bucketproof.strategies.plans import Lender, Shape

Home = Literal[
    "heap",
    "inference",
    "shared",
    "segment",
    "mapped",
    "memmap",
    "meta",
    "received",
    "pinned",
    "aside",
    "captured",
    "opened",
]
"""What a buffer is: torch's own memory, the same made under inference mode, shared memory of torch's or of Python's, a
file that is mapped by torch or by numpy, none, or what collectives of a process group write to. Where there is a CUDA
device: pinned memory of the host, what another stream writes to, what a captured graph writes to, or another
process's, opened by a handle."""

Build = Callable[[Shape, torch.dtype, "Memory"], torch.Tensor]
"""A provenance: makes a tensor of a shape and dtype out of the memory it is given."""

T = TypeVar("T")


class Memory:
    """What a provenance builds from. It takes what it needs, and keeps nothing that it does not say."""

    def __init__(
        self,
        seed: int = 0,
        *,
        finite: bool = False,
        boolean: bool = False,
        device: str = "cpu",
        kept: dict[Hashable, Any] | None = None,
    ) -> None:
        """What is written is legal for what the tensor becomes: `finite` numbers, or `boolean` bytes of 0 and 1."""
        self._device = device
        self._seed = seed
        self._finite = finite
        self._boolean = boolean
        self._kept = {} if kept is None else kept

    def take(self, shape: Shape, dtype: torch.dtype) -> torch.Tensor:
        """A view of this memory, with content written into it."""
        raise NotImplementedError

    def fresh(self, shape: Shape, dtype: torch.dtype) -> torch.Tensor:
        """A new tensor with content, which nobody else holds."""
        tensor = torch.empty(shape, dtype=dtype, device=self._device)
        self._write(tensor.view(-1).view(torch.uint8), dtype)
        return tensor

    def keep(self, key: Hashable, make: Callable[[], T]) -> T:
        """Make a thing once and hold it until the stream is over: whoever shares memory with a bucket."""
        if key not in self._kept:
            self._kept[key] = make()
        kept: T = self._kept[key]
        return kept

    def hold(self, thing: object) -> None:
        """Hold a thing until the stream is over."""
        self._kept[id(thing)] = thing

    def _write(self, raw: torch.Tensor, dtype: torch.dtype) -> None:
        if raw.is_meta:
            return
        content.write(raw, torch.bool if self._boolean else dtype, self._seed)
        if self._finite:
            content.tame(raw, dtype)


class Private(Memory):
    """New memory for each tensor, dropped by the producer: exactly its size, or with padding on both sides."""

    def __init__(self, seed: int = 0, *, padded: bool = False, **options: Any) -> None:
        super().__init__(seed, **options)
        self._padded = padded

    def take(self, shape: Shape, dtype: torch.dtype) -> torch.Tensor:
        if not self._padded:
            return self.fresh(shape, dtype)
        size = math.prod(shape)
        return self.fresh((2 + size + 1,), dtype)[2 : 2 + size].view(shape)


class Through(Memory):
    """Memory as another operation leaves it: this is how operations are chained."""

    def __init__(self, build: Build, source: Memory) -> None:
        options: dict[str, Any] = {"finite": source._finite, "boolean": source._boolean, "device": source._device}
        super().__init__(source._seed, kept=source._kept, **options)
        self._build, self._source = build, source

    def take(self, shape: Shape, dtype: torch.dtype) -> torch.Tensor:
        return self._build(shape, dtype, self._source)


class Lent(Memory):
    """Memory that belongs to a lender."""

    def __init__(
        self, lending: Lending, seed: int = 0, *, home: Home = "heap", exact: bool = False, **options: Any
    ) -> None:
        super().__init__(seed, **options)
        self._lending, self._exact = lending, exact
        self._home: Home = "meta" if self._device == "meta" else home

    def take(self, shape: Shape, dtype: torch.dtype) -> torch.Tensor:
        nbytes = math.prod(shape) * dtype.itemsize
        raw = self._lending.lend(nbytes, dtype, home=self._home, where=self._device, exact=self._exact)
        raw = raw.narrow(0, 0, nbytes)
        self._write(raw, dtype)
        return raw.view(dtype).view(shape)


class Buffer:
    """One buffer of a lender, and whether what it has lent is still to be respected."""

    def __init__(self, nbytes: int, home: Home, where: str = "cpu") -> None:
        self.raw = self._allocated(nbytes, home, where)
        self.place = _place(self.raw)
        """The addresses from its first byte to behind its last, as it is lent."""
        self._other: StorageWeakRef | None = None
        self.is_remote = home == "shared"
        """Whether it lies elsewhere each time that it is lent, and may be gone from there."""
        self.lent_at: int | None = None
        self.touched = False
        """Whether somebody else has written to what was lent, or has told autograd that it has."""
        self._sealed: tuple[bytes, int] = b"", 0

    def _allocated(self, nbytes: int, home: Home, where: str) -> torch.Tensor:
        return _ALLOCATE[home](nbytes, where)

    def lend(self) -> torch.Tensor:
        """All of it, as a hand-over's memory: for one between processes, as another process has it."""
        if not self.is_remote or not self.raw.numel():
            return self.raw
        # The lender has a mapping of its own, so that in this process nobody holds the memory but who it is lent to.
        lent: torch.Tensor = torch.empty_like(self.raw).share_memory_()
        storage = lent.untyped_storage()
        handle = storage._share_fd_cpu_()
        mapped = torch.UntypedStorage._new_shared_fd_cpu(*handle)  # type: ignore[attr-defined]
        self.raw = torch.empty(0, dtype=torch.uint8).set_(mapped)
        self.place, self._other = _place(lent), StorageWeakRef(storage)
        return lent

    def reaches(self, start: int, end: int) -> bool:
        """Whether it still lies where it was lent, and some of these addresses are among its own."""
        is_gone = self._other is not None and self._other.expired()
        return not is_gone and max(start, self.place[0]) < min(end, self.place[1])

    def seal(self) -> None:
        """Remember what is lent."""
        self._sealed = self._bytes(), version(self.raw)

    def _bytes(self) -> bytes:
        return b"" if self.raw.is_meta else read(self.raw.data_ptr(), self.raw.numel(), self.raw.device)

    def overwrite(self) -> None:
        """Write all of the buffer, as its next use would."""
        self.touched |= self._sealed != (self._bytes(), version(self.raw))
        self._write()
        self.lent_at = None

    def _write(self) -> None:
        content.poison(self.raw)

    def settle(self) -> None:
        """Wait until what is being written has been."""


BUFFERS: dict[Home, type[Buffer]] = {}
"""Buffers that are written in a way of their own."""


def read(start: int, nbytes: int, device: torch.device) -> bytes:
    """The bytes at an address of a device, once what the current stream writes to them is there."""
    if device.type == "cpu":
        # Not through numpy: memory that was exported is no longer to be resized, which a bucketer could see.
        return ctypes.string_at(start, nbytes)
    return _read_there(start, nbytes, device) if nbytes else b""


def _read_there(start: int, nbytes: int, device: torch.device) -> bytes:
    # By its address: whoever held a tensor or a storage of it would be one of those whom a bucketer can see.
    storage = torch._C._construct_storage_from_data_pointer(start, device, nbytes)
    seen = torch.empty(0, dtype=torch.uint8, device=device).set_(storage)
    return seen.clone().cpu().numpy().tobytes()


def _place(raw: torch.Tensor) -> tuple[int, int]:
    return raw.data_ptr(), raw.data_ptr() + raw.numel()


def version(tensor: torch.Tensor) -> int:
    """How often autograd has seen the tensor, or a view of it, written to. Inference tensors do not count it."""
    return 0 if tensor.is_inference() else tensor._version


class Lending:
    """A lender at work: which buffer it lends next, and when it writes the old ones again."""

    def __init__(
        self,
        plan: Lender,
        *,
        bucket_bytes: float = 0,
        patient: bool = False,
        on_overwrite: Callable[[Buffer], None] = lambda buffer: None,
    ) -> None:
        """`patient` lenders write no item's memory before it is delivered. For a list, all of them are made at once."""
        self._plan = plan
        self._at_next = plan.overwrite == "next" and not patient
        self._at_boundary = plan.overwrite == "boundary" or (patient and plan.overwrite == "next")
        self._turns = _TURNS[plan.kind] if self._at_next else None
        self._bucket_bytes = bucket_bytes
        self._rings: dict[Hashable, list[Buffer]] = {}
        self._map = _Map()
        self._remote: list[Buffer] = []
        self._busy: list[Buffer] = []
        """What may still be being written."""
        self._lent: OrderedDict[Buffer, None] = OrderedDict()
        """What is to be respected, in the order in which it was lent: a stream has many items, and looks at few."""
        self._unsealed: list[Buffer] = []
        self._clock = 0
        self._told = on_overwrite

    @property
    def buffers(self) -> Iterator[Buffer]:
        """All buffers there are."""
        return (buffer for ring in self._rings.values() for buffer in ring)

    def reaches(self, start: int, end: int) -> bool:
        """Whether some of these addresses are a buffer's, as it is lent."""
        return self._map.reaches(start, end) or any(buffer.reaches(start, end) for buffer in self._remote)

    def lend(self, nbytes: int, dtype: torch.dtype, *, home: Home, where: str = "cpu", exact: bool) -> torch.Tensor:
        """At least `nbytes` bytes, whose content is free to be written (uint8, one dimension)."""
        capacity = nbytes if exact else self._capacity(nbytes)
        ring = self._rings.setdefault((home, capacity, self._plan.kind == "per-dtype" and dtype), [])
        if self._turns is None or len(ring) < self._turns:
            buffer = self._made(capacity, home, where)
        else:
            buffer = ring.pop(0)
            self._overwrite(buffer)
        if home in BUFFERS and self._turns is not None:
            # What comes next is under way while this is consumed, into whichever buffer has had its turn.
            for each in ring:
                self._overwrite(each)
        ring.append(buffer)
        buffer.lent_at = self._clock
        self._lent[buffer] = None
        self._unsealed.append(buffer)
        return buffer.lend()

    def _made(self, capacity: int, home: Home, where: str) -> Buffer:
        buffer = BUFFERS.get(home, Buffer)(capacity, home, where)
        if home in BUFFERS:
            self._busy.append(buffer)
        if buffer.is_remote:
            self._remote.append(buffer)
        elif home != "meta":
            self._map.add(*buffer.place)
        return buffer

    def seal(self) -> None:
        """What was lent since the producer was advanced is now as it is handed over."""
        while self._unsealed:
            self._unsealed.pop().seal()

    def advance(self) -> None:
        """The producer is advanced: a lender that is not taking turns writes at once."""
        self._clock += 1
        if self._at_next and self._turns in (None, 1):
            self._overwrite_lent()

    def boundary(self, before: int) -> None:
        """A bucket was delivered: what was handed over before item number `before` may be written."""
        if self._at_boundary:
            self._overwrite_lent(before)

    def finish(self, before: float = math.inf) -> None:
        """The stream is over, or done with what was handed over before item number `before`: it may be written."""
        self._overwrite_lent(before)
        for buffer in self._busy:
            buffer.settle()

    def _overwrite_lent(self, before: float = math.inf) -> None:
        while self._lent:
            buffer = next(iter(self._lent))
            if buffer.lent_at is None or buffer.lent_at >= before:
                return
            self._overwrite(buffer)

    def _overwrite(self, buffer: Buffer) -> None:
        if buffer in self._lent:
            del self._lent[buffer]
            buffer.overwrite()
            self._told(buffer)

    def _capacity(self, nbytes: int) -> int:
        if self._plan.size == "exact":
            return nbytes
        if self._plan.size == "bucket" and nbytes < self._bucket_bytes <= _LARGEST:
            return int(self._bucket_bytes)
        return max(_ROOMY, 1 << (nbytes + _SPARE).bit_length())


class _Map:
    """Pieces of memory, none of which overlaps another: they are there as long as this is."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []

    def add(self, start: int, end: int) -> None:
        if start == end:
            return
        place = bisect_left(self._starts, start)
        self._starts.insert(place, start)
        self._ends.insert(place, end)

    def reaches(self, start: int, end: int) -> bool:
        """Whether some of these addresses are in one of the pieces."""
        last = bisect_left(self._starts, end) - 1
        return last >= 0 and max(start, self._starts[last]) < min(end, self._ends[last])


_SPARE = 32
"""Bytes by which a larger buffer is larger, at the least: two elements of the largest dtype."""
_ROOMY = 1 << 11
"""Bytes that a larger buffer has at the least: weights of other sizes come to lie in it one after the other."""
_LARGEST = 1 << 16
"""Bytes above which no buffer of the bucket's size is made: a limit can be huge, a test's memory is not."""
_TURNS: dict[str, int | None] = {"buffer": 1, "ping-pong": 2, "ring": 4, "per-dtype": 1, "module": None}


def _heap(nbytes: int, where: str) -> torch.Tensor:
    return torch.empty(nbytes, dtype=torch.uint8, device=where)


def _inference(nbytes: int, where: str) -> torch.Tensor:
    with torch.inference_mode():
        return torch.empty(nbytes, dtype=torch.uint8, device=where)


def _pinned(nbytes: int, where: str) -> torch.Tensor:
    return torch.empty(nbytes, dtype=torch.uint8, pin_memory=True)


def _mapped(nbytes: int, where: str) -> torch.Tensor:
    with tempfile.NamedTemporaryFile() as file:
        file.truncate(nbytes)
        return torch.from_file(file.name, shared=True, size=nbytes, dtype=torch.uint8)


def _memmap(nbytes: int, where: str) -> torch.Tensor:
    with tempfile.TemporaryFile() as file:
        file.truncate(nbytes)
        return torch.from_numpy(np.memmap(file, dtype=np.uint8, mode="r+", shape=(nbytes,)))


class _Segment(SharedMemory):
    """A segment that is let go of when nobody uses its memory any more, be it after this object is gone."""

    def close(self) -> None:
        try:
            super().close()
        except BufferError:  # the mapping goes with the last tensor in it, but this is no longer there to see it
            os.close(vars(self)["_fd"])
            vars(self)["_fd"] = -1


def _segment(nbytes: int, where: str) -> torch.Tensor:
    segment = _Segment(create=True, size=nbytes)
    segment.unlink()
    # `np.frombuffer` keeps the segment's memory from being unmapped; `torch.frombuffer` and `np.ndarray` do not.
    assert segment.buf is not None  # until it is closed
    return torch.from_numpy(np.frombuffer(segment.buf, np.uint8, nbytes))


_ALLOCATE: dict[Home, Callable[[int, str], torch.Tensor]] = {
    "heap": _heap,
    "inference": _inference,
    "shared": _heap,  # see `Buffer.lend`
    "segment": _segment,
    "mapped": _mapped,
    "memmap": _memmap,
    "meta": _heap,
    "received": _heap,
    "pinned": _pinned,
    "aside": _heap,
}
