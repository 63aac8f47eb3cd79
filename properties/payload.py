"""What a packer did to one bucket, as data: what it was given, what it made of that, and what came out again."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

from bucketproof.properties.buckets import pairs_of
from bucketproof.properties.evidence import Facts, bits, facts
from bucketproof.strategies import DTYPES

Named = list[tuple[str, torch.Tensor]]
NamedFacts = tuple[tuple[str, Facts], ...]


@dataclass(frozen=True)
class Entry:
    """What a payload's metadata says of one item."""

    name: str
    nbytes: int
    offset: int | None = None
    """Where its bytes begin in the payload, if the metadata says so."""


@dataclass
class Packing:
    """The evidence of one bucket. It holds no tensor."""

    given: NamedFacts
    """What was packed, cast to the dtype that the target promises."""
    unpacked: NamedFacts | None = None
    """What came out; None if nothing did."""
    payload: bytes | None = None
    """The bytes in between, if they can be seen."""
    entries: tuple[Entry, ...] | None = None
    """The metadata, in its order, if it can be seen."""
    error: str = ""
    """What packing or unpacking raised."""


class PackingFailed(Exception):
    """Packing or unpacking raised."""

    def __init__(self, packing: Packing) -> None:
        super().__init__(packing.error)
        self.packing = packing


class Unpacked(list[tuple[str, torch.Tensor]]):
    """A bucket that was packed and unpacked, with the evidence of that."""

    def __init__(self, pairs: Named, packing: Packing) -> None:
        super().__init__(pairs)
        self.packing = packing


@dataclass(frozen=True)
class RoundTrip:
    """Packs a bucket, unpacks it, and takes notes. Raises `PackingFailed`."""

    pack: Callable[[Named], Any]
    unpack: Callable[[Any], Any]
    flat: Callable[[Any], Any]
    entries: Callable[[Any], Any]
    dtype: str | None

    def __call__(self, named: Named) -> Unpacked:
        """The bucket as it comes out."""
        packing = Packing(_read(named, DTYPES.get(self.dtype or "")))
        payload = _attempt("pack", self.pack, named, packing)
        with _disable_current_modes():  # the notes are not the target's work
            packing.payload = _bytes_of(self.flat(payload))
            packing.entries = _entries_of(self.entries(payload))
        pairs = _attempt("unpack", self._unpacked, payload, packing)
        packing.unpacked = _read(pairs)
        return Unpacked(pairs, packing)

    def _unpacked(self, payload: Any) -> Named:
        return pairs_of(self.unpack(payload), 0)


def _attempt(what: str, step: Callable[[Any], Any], argument: Any, packing: Packing) -> Any:
    try:
        return step(argument)
    except Exception as error:
        first = str(error).strip().split("\n")[0]
        packing.error = f"{what}() raised {type(error).__name__}: {first}"
    raise PackingFailed(packing)


def _read(named: Named, cast: torch.dtype | None = None) -> NamedFacts:
    with _disable_current_modes():
        return tuple((name, facts(tensor if cast is None else tensor.detach().to(cast))) for name, tensor in named)


def flat_of(payload: Any) -> Any:
    """The bytes of a payload, as far as its form tells: a tensor or bytes, alone or in a pair with metadata."""
    parts = [each for each in _parts(payload) if isinstance(each, (torch.Tensor, bytes, bytearray))]
    return parts[0] if len(parts) == 1 else None


def entries_of(payload: Any) -> Any:
    """The metadata of a payload, as far as its form tells: beside the bytes, with names, dtypes and shapes."""
    others = [each for each in _parts(payload) if not isinstance(each, (torch.Tensor, bytes, bytearray))]
    if len(others) != 1 or len(_parts(payload)) != 2 or not isinstance(others[0], Iterable):
        return None
    found = [_described(*each) for each in _keyed(others[0])]
    return None if None in found else found


def _parts(payload: Any) -> tuple[Any, ...]:
    return tuple(payload) if isinstance(payload, (tuple, list)) else (payload,)


def _keyed(metadata: Any) -> Iterator[tuple[Any, str | None]]:
    if isinstance(metadata, Mapping):
        return ((entry, name) for name, entry in metadata.items())
    return ((entry, None) for entry in metadata)


def _described(entry: Any, name: str | None = None) -> Entry | None:
    """What an entry says, if it names a dtype and a shape. Numbers are not read: they may be bytes or elements."""
    parts = _fields(entry)
    name = name if name is not None else next((each for each in parts if isinstance(each, str)), None)
    dtypes = [each for each in parts if isinstance(each, torch.dtype)]
    shapes = [each for each in parts if _is_shape(each)]
    if name is None or len(dtypes) != 1 or len(shapes) != 1:
        return None
    return Entry(name, math.prod(shapes[0]) * dtypes[0].itemsize)


def _fields(entry: Any) -> tuple[Any, ...]:
    if isinstance(entry, (tuple, list)):
        return tuple(entry)
    if isinstance(entry, Mapping):
        return tuple(entry.get(key) for key in ("name", "dtype", "shape"))
    return tuple(getattr(entry, key, None) for key in ("name", "dtype", "shape"))


def _is_shape(part: Any) -> bool:
    return isinstance(part, (tuple, list)) and all(isinstance(side, int) for side in part)


def _entries_of(found: Any) -> tuple[Entry, ...] | None:
    return None if found is None else tuple(map(_entry, found))


def _entry(found: Any) -> Entry:
    if isinstance(found, Entry):
        return found
    if isinstance(found, tuple) and len(found) in (2, 3) and isinstance(found[1], int):
        return Entry(*found)
    if entry := _described(found):
        return entry
    raise TypeError(
        f"entries() gave {found!r}: give (name, bytes), (name, bytes, offset in bytes), or a thing "
        "with a name, a dtype and a shape"
    )


def _bytes_of(flat: Any) -> bytes | None:
    if flat is None:
        return None
    return bits(flat) if isinstance(flat, torch.Tensor) else bytes(flat)
