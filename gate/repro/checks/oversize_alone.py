"""boundaries.oversize, where such an item has a bucket to itself."""

from __future__ import annotations

from typing import Any

import torch

from bucketproof.repro.parts.seeing import pairs
from bucketproof.repro.parts.slots import LIMIT, Broken, buckets, consumed, is_shared, weights

GIVEN: dict[str, int] = {}  # the number of each weight in the stream


def note(name: str, tensor: torch.Tensor) -> None:
    GIVEN.setdefault(name, len(GIVEN))


def check(bucketer: Any) -> None:
    """A weight above the limit has a bucket to itself, and loses nothing around it."""
    arrived: set[str] = set()
    try:
        for bucket in buckets(bucketer, weights()):
            members = [(name, tensor.nbytes) for name, tensor in pairs(bucket) if tensor.nbytes]
            members.sort(key=lambda member: GIVEN.get(member[0], 0))
            if len(members) > 1 and is_shared(members):
                raise Broken(f"a weight above the limit of {LIMIT} shares a bucket: {members}")
            arrived.update(name for name, _ in pairs(bucket))
            consumed(bucket)
    except Broken:
        raise
    except Exception as error:
        raise Broken(f"a stream with a weight above the limit of {LIMIT} was refused: {error!r}") from error
    for name in GIVEN:
        if name not in arrived:
            raise Broken(f"{name!r} was lost in a stream with a weight above the limit of {LIMIT}")
