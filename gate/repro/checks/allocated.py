"""ownership.no-copy: memory was allocated for what was passed on."""

from __future__ import annotations

from typing import Any

import torch

from bucketproof.repro.parts.operators import Operators
from bucketproof.repro.parts.slots import JUDGED, Broken, buckets, consumed, weights

GIVEN: dict[int, tuple[str, int]] = {}  # the storages of the weights that are to stay where they are
COPIES: list[str] = []  # what was done to them, in words


def note_whose(name: str, tensor: torch.Tensor, whose: str) -> None:
    storage = tensor.untyped_storage()
    GIVEN.pop(storage._cdata, None)
    if name in JUDGED and tensor.is_contiguous() and tensor.numel() and not (tensor.is_conj() or tensor.is_neg()):
        GIVEN[storage._cdata] = name, storage.nbytes()


def check(bucketer: Any) -> None:
    """Nobody copies a weight that nobody else holds, not even for a while."""
    with Operators(look):
        for bucket in buckets(bucketer, weights()):
            consumed(bucket)
    for line in COPIES:
        raise Broken(line)


def look(what: str, storage: torch.UntypedStorage, read: set[int]) -> None:
    """Whether an operator has read one of these storages, and written another one that has room for it."""
    if storage._cdata not in read:
        GIVEN.pop(storage._cdata, None)  # it is new, at an address that was used before
    for name, nbytes in [GIVEN[each] for each in read - {storage._cdata} if each in GIVEN]:
        if storage.nbytes() >= nbytes:
            COPIES.append(f"{nbytes} bytes were allocated by {what} to copy {name!r}, which nobody else holds")
