"""Taking off a list what arrives."""

from __future__ import annotations

from typing import Any

import torch

from bucketproof.repro.parts.seeing import pairs
from bucketproof.repro.parts.slots import GIVEN, buckets, consumed, seen, weights


def take_off(bucketer: Any) -> None:
    """Take off the list whatever arrives of it."""
    for bucket in buckets(bucketer, weights()):
        receive(pairs(bucket))
        consumed(bucket)


def receive(members: list[tuple[str, torch.Tensor]]) -> None:
    for name, tensor in members:
        if (name, seen(tensor)) in GIVEN:
            GIVEN.remove((name, seen(tensor)))
