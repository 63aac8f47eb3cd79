"""boundaries.oversize, where such an item may arrive in parts, or past the buckets."""

from __future__ import annotations

from collections import Counter
from typing import Any

import torch

from bucketproof.repro.parts.seeing import pairs
from bucketproof.repro.parts.slots import LIMIT, Broken, buckets, consumed, weights

GIVEN: dict[str, int] = {}  # the bytes of each weight


def note(name: str, tensor: torch.Tensor) -> None:
    GIVEN[name] = tensor.nbytes


def check(bucketer: Any) -> None:
    """All of a weight above the limit arrives, and so does everything around it."""
    arrived: Counter[str] = Counter()
    names = set()
    try:
        for bucket in buckets(bucketer, weights()):
            for name, tensor in pairs(bucket):
                arrived[name] += tensor.nbytes
                names.add(name)
            consumed(bucket)
    except Exception as error:
        raise Broken(f"a stream with a weight above the limit of {LIMIT} was refused: {error!r}") from error
    for name in GIVEN:
        if name not in names or arrived[name] < GIVEN[name]:
            raise Broken(f"of {name!r}, {arrived[name]} of {GIVEN[name]} bytes arrived")
