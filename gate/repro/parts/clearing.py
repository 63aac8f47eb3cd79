"""A consumer that writes over what it was given."""

from __future__ import annotations

from typing import Any

import torch

from bucketproof.repro.parts.seeing import pairs
from bucketproof.repro.parts.slots import note
from bucketproof.strategies.content import POISON

OTHERS: list[int] = []  # memory that somebody else holds


def note_whose(name: str, tensor: torch.Tensor, whose: str) -> None:
    if whose in ("lent", "shared"):
        OTHERS.append(tensor.untyped_storage()._cdata)
    note(name, tensor)


def consumed(bucket: Any) -> None:
    """The consumer writes over its tensors, and empties the bucket."""
    for _, tensor in pairs(bucket):
        storage: Any = tensor.untyped_storage()
        if storage._cdata not in OTHERS:
            storage.fill_(POISON)
    if hasattr(bucket, "clear"):
        bucket.clear()
