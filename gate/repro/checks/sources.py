"""lifecycle.leaves-no-trace: the memory of others."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from typing import Any

import torch

from bucketproof.repro.parts.memory import BUFFERS, KEPT
from bucketproof.repro.parts.slots import Broken, bits, buckets, consumed, weights

GIVEN: dict[str, tuple[int, bytes]] = {}  # where memory is that others hold to the end, and what was in it
STATES: dict[Any, tuple[Any, ...]] = {}  # what the tensors of others were like


def note_whose(name: str, tensor: torch.Tensor, whose: str) -> None:
    storage = tensor.untyped_storage()
    if whose == "shared":
        GIVEN[name] = storage.data_ptr(), ctypes.string_at(storage.data_ptr(), storage.nbytes())
    STATES.update({key: state(other) for key, other in others() if key not in STATES})


def check(bucketer: Any) -> None:
    """Memory that others hold is as it was, and so are their tensors, when the sync is over."""
    for bucket in buckets(bucketer, weights()):
        consumed(bucket)
    for name, (place, before) in GIVEN.items():
        if ctypes.string_at(place, len(before)) != before:
            raise Broken(f"somebody has written to the memory in which {name!r} was handed over, and others hold it")
    for key, other in others():
        if state(other) != STATES[key]:
            raise Broken("a tensor that others hold has other bytes, or another version, or requires grad otherwise")


def others() -> Iterator[tuple[Any, torch.Tensor]]:
    """The tensors that lenders and others hold."""
    yield from BUFFERS.items()
    for key, kept in KEPT.items():
        held = kept.parameters() if isinstance(kept, torch.nn.Module) else [kept]
        yield from ((key, each) for each in held if isinstance(each, torch.Tensor))


def state(tensor: torch.Tensor) -> tuple[Any, ...]:
    return tensor.requires_grad, 0 if tensor.is_inference() else tensor._version, bits(tensor)
