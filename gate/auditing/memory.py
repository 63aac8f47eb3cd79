"""What is remembered of the memory that was handed over: addresses, samples and weak references, and no tensor.

A weak reference to a storage tells a reused buffer from an allocator that gives out an address again: as long as it is
held, no other storage has the same identity, and it says whether the memory was released in between.
"""

from __future__ import annotations

import sys
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator
from types import CodeType
from typing import Any
from weakref import ref

import torch

from bucketproof.auditing.findings import HandedOver
from bucketproof.auditing.reading import Digest, Layout

Where = tuple[tuple[CodeType, int] | str, ...]


class Place:
    """A piece of memory that hand-overs lie in, however many storages show it."""

    __slots__ = ("again", "device", "names", "nbytes", "number", "start", "turns", "written")

    def __init__(self, number: int, storage: torch.UntypedStorage, start: int, nbytes: int) -> None:
        self.number = number
        self.start, self.nbytes, self.device = start, nbytes, storage.device
        self.turns = 0
        """How often something was handed over from it."""
        self.names: list[str] = []
        """The first of these."""
        self.again: list[int] = []
        """How many hand-overs later its memory was handed over again with other bytes."""
        self.written = 0


class Region:
    """A storage that something was handed over from, while it may still be there."""

    __slots__ = ("_weak", "foreign", "key", "nbytes", "place", "records", "shown", "start", "starts", "widest")

    def __init__(self, storage: torch.UntypedStorage, number: int) -> None:
        self._weak = storage._weak_ref()
        self.key = storage._cdata
        self.foreign = is_foreign(storage)
        self.start = storage.data_ptr()
        self.nbytes = storage.nbytes()
        self.place = Place(number, storage, self.start, self.nbytes)
        self.starts: list[int] = []
        """Addresses at which hand-overs begin, in order, and `records` beside them."""
        self.records: list[Record] = []
        self.widest: Record | None = None
        self.shown = 0
        """Bytes that were handed over from it, each once, as far as they do not overlap."""

    def __del__(self, free: Any = torch.UntypedStorage._free_weak_ref, is_ending: Any = sys.is_finalizing) -> None:
        if not is_ending():
            free(self._weak)

    def locked(self) -> torch.UntypedStorage | None:
        """The storage, for as long as it is looked at; None if it was released."""
        storage: torch.UntypedStorage | None = torch.UntypedStorage._new_with_weak_ptr(self._weak)
        return storage

    def add(self, record: Record) -> None:
        """Remember a hand-over, in the place of one that began at the same address."""
        at = bisect_left(self.starts, record.start)
        if at < len(self.starts) and self.starts[at] == record.start:
            self.records[at] = record
        else:
            self.starts.insert(at, record.start)
            self.records.insert(at, record)
            self.shown += record.layout.nbytes
        self.place.turns += 1
        if len(self.place.names) < _NAMED:
            self.place.names.append(record.name)
        if self.widest is None or record.end - record.start >= self.widest.end - self.widest.start:
            self.widest = record

    def forget(self, record: Record) -> None:
        """Remember it no longer."""
        at = bisect_left(self.starts, record.start)
        if at < len(self.starts) and self.records[at] is record:
            del self.starts[at], self.records[at]
        if self.widest is record:
            self.widest = None

    def overlapping(self, start: int, end: int) -> Iterator[Record]:
        """What was handed over from some of these addresses: its neighbours in the order, and the largest."""
        first = max(bisect_right(self.starts, start) - 1, 0)
        last = bisect_left(self.starts, end)
        near = self.records[first : min(last, first + _MOST)]
        if self.widest is not None and self.widest not in near:
            near.append(self.widest)
        return (each for each in near if each.start < end and start < each.end)


_NAMED = 4
_MOST = 64
"""Overlapping hand-overs that are compared with a new one."""


class Record:
    """A hand-over, as long as it is remembered."""

    __slots__ = (
        "digest",
        "end",
        "exclusive",
        "facts",
        "index",
        "is_lazy",
        "kept_by",
        "layout",
        "name",
        "region",
        "settled",
        "start",
        "tensor",
        "version",
        "where",
    )

    def __init__(
        self,
        index: int,
        name: str,
        tensor: torch.Tensor,
        layout: Layout,
        region: Region,
        where: Where,
    ) -> None:
        self.index, self.name, self.layout, self.region, self.where = index, name, layout, region, where
        self.digest: Digest = None
        self.start = region.start + layout.offset
        self.end = self.start + layout.reach
        self.tensor = ref(tensor)
        self.version = -1 if tensor.is_inference() else tensor._version
        self.facts = _facts(tensor)
        self.exclusive = False
        self.kept_by: tuple[str, ...] = ()
        self.is_lazy = tensor.is_conj() or tensor.is_neg()
        self.settled = False
        """Whether nothing more is to be found out about its memory."""

    @property
    def is_whole(self) -> bool:
        """Whether it shows every byte of its storage, so that its version counter is told of no other."""
        return self.layout.nbytes == self.region.nbytes == self.end - self.start

    def version_now(self) -> int:
        """How often autograd has seen it written by now; as it was, if that cannot be known."""
        tensor = self.tensor()
        return self.version if tensor is None or self.version < 0 else tensor._version

    def handed_over(self) -> HandedOver:
        """The same as plain data."""
        has_base, inference, requires_grad, graph, device, kind = self.facts
        layout = self.layout
        return HandedOver(
            index=self.index,
            name=self.name,
            dtype=str(layout.dtype).removeprefix("torch."),
            shape=tuple(layout.shape),
            stride=tuple(layout.stride),
            device=str(device),
            nbytes=layout.nbytes,
            storage_bytes=self.region.nbytes,
            offset=layout.offset,
            type=kind.__name__,
            has_base=has_base,
            inference=inference,
            foreign=self.region.foreign,
            requires_grad=requires_grad,
            graph=graph,
            exclusive=self.exclusive,
            kept_by=self.kept_by,
            where=_in_words(self.where),
        )


def _facts(tensor: torch.Tensor) -> tuple[bool, bool, bool, str, torch.device, type]:
    graph = tensor.grad_fn
    return (
        tensor._base is not None,
        tensor.is_inference(),
        tensor.requires_grad,
        "" if graph is None else type(graph).__name__,
        tensor.device,
        type(tensor),
    )


def is_foreign(storage: torch.UntypedStorage) -> bool:
    """Whether torch did not allocate it, or has exported it, or shares it with another process."""
    return not storage.resizable() or (storage.is_shared() and storage.device.type == "cpu")


def _in_words(where: Where) -> tuple[str, ...]:
    return tuple(
        each if isinstance(each, str) else f"{each[0].co_filename}:{each[1]} in {each[0].co_name}" for each in where
    )


class Foreign:
    """The regions that torch does not know to be its own: two of them may show the same memory."""

    def __init__(self) -> None:
        self._regions: list[tuple[int, int, Region]] = []

    def add(self, region: Region) -> None:
        """From now on it is compared with others."""
        insort(self._regions, (region.start, region.key, region))

    def near(self, region: Region) -> list[Region]:
        """Those that may lie in the same memory."""
        at = bisect_left(self._regions, (region.start, 0))
        last = bisect_left(self._regions, (region.start + region.nbytes, 0))
        around = self._regions[max(at - _NEIGHBOURS, 0) : max(last, at + 1)][: _NEIGHBOURS + _MOST]
        end = region.start + region.nbytes
        return [
            other
            for start, _, other in around
            if other is not region and start < end and region.start < start + other.nbytes
        ]

    def forget(self, region: Region) -> None:
        """It is compared no longer."""
        at = bisect_left(self._regions, (region.start, region.key))
        if at < len(self._regions) and self._regions[at][2] is region:
            del self._regions[at]


_NEIGHBOURS = 8
"""Regions that begin before another one and are looked at all the same."""
