"""ownership.no-copy: memory was allocated for what was passed on."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from bucketproof.properties.ledger import _storages
from bucketproof.repro.parts.slots import JUDGED, Broken, buckets, consumed, weights

GIVEN: dict[int, tuple[str, int]] = {}  # the storages of the weights that are to stay where they are


def note_whose(name: str, tensor: torch.Tensor, whose: str) -> None:
    storage = tensor.untyped_storage()
    GIVEN.pop(storage._cdata, None)
    if name in JUDGED and tensor.is_contiguous() and tensor.numel() and not (tensor.is_conj() or tensor.is_neg()):
        GIVEN[storage._cdata] = name, storage.nbytes()


def check(bucketer: Any) -> None:
    """Nobody copies a weight that nobody else holds, not even for a while."""
    with Copies() as copies:
        for bucket in buckets(bucketer, weights()):
            consumed(bucket)
    for line in copies.made:
        raise Broken(line)


class Copies(TorchDispatchMode):
    """Sees every operator that reads one of these storages and writes another one that has room for it."""

    def __init__(self) -> None:
        super().__init__()
        self.made: list[str] = []

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # else torch would import its compiler

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        read = {storage._cdata for storage in _storages((*args, *(kwargs or {}).values()))}
        for storage in _storages((result,)):
            if storage._cdata not in read:
                GIVEN.pop(storage._cdata, None)  # it is new, at an address that was used before
            for name, nbytes in [GIVEN[each] for each in read - {storage._cdata} if each in GIVEN]:
                if storage.nbytes() >= nbytes:
                    self.made.append(
                        f"{nbytes} bytes were allocated by {func} to copy {name!r}, which nobody else holds"
                    )
        return result
