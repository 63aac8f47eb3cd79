"""lifecycle.leaves-no-trace: the memory of others."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from typing import Any

import torch

from bucketproof.repro.parts.memory import BUFFERS, KEPT
from bucketproof.repro.parts.slots import Broken, buckets, consumed, weights

GIVEN: dict[str, tuple[int, bytes]] = {}  # where the memory of others is, and what was in it
STATES: dict[Any, tuple[bool, int]] = {}  # what torch knew of the tensors of others


def note_whose(name: str, tensor: torch.Tensor, whose: str) -> None:
    storage = tensor.untyped_storage()
    if whose in ("lent", "shared"):
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
            raise Broken(f"requires_grad and version of another's tensor were {STATES[key]}, and are {state(other)}")


def others() -> Iterator[tuple[Any, torch.Tensor]]:
    """The tensors that lenders and others hold."""
    yield from BUFFERS.items()
    for key, kept in KEPT.items():
        held = kept.parameters() if isinstance(kept, torch.nn.Module) else [kept]
        yield from ((key, each) for each in held if isinstance(each, torch.Tensor))


def state(tensor: torch.Tensor) -> tuple[bool, int]:
    return tensor.requires_grad, 0 if tensor.is_inference() else tensor._version
