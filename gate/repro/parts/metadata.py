"""What the metadata of a payload says."""

from __future__ import annotations

from typing import Any

import torch

from bucketproof.properties.payload import Entry, _entries_of, entries_of, flat_of
from bucketproof.repro.parts.slots import bits


def read(payload: Any, entries: Any = entries_of) -> tuple[Entry, ...] | None:
    """What the metadata says."""
    return _entries_of(entries(payload))


def described(payload: Any, *entries: Any) -> list[tuple[str, int, int | None]] | None:
    """Of each weight its name, its bytes and, if that is said, where it begins."""
    found = read(payload, *entries)
    return None if found is None else [(entry.name, entry.nbytes, entry.offset) for entry in found]


def offsets(payload: Any, *entries: Any) -> list[tuple[str, int]]:
    """Where each weight begins, if the metadata says so."""
    return [(name, offset) for name, _, offset in described(payload, *entries) or () if offset]


def payload_bytes(payload: Any) -> bytes | None:
    """The bytes of a payload, if they can be seen."""
    flat = flat_of(payload)
    return bits(flat) if isinstance(flat, torch.Tensor) else flat
