"""values.order"""

from __future__ import annotations

from typing import Any

import torch

from bucketproof.repro.parts.seeing import pairs
from bucketproof.repro.parts.slots import Broken, buckets, consumed, weights

GIVEN: dict[str, int] = {}  # the number of each weight in the stream


def note(name: str, tensor: torch.Tensor) -> None:
    GIVEN[name] = len(GIVEN)


def check(bucketer: Any) -> None:
    """Weights arrive in the order in which they were handed over."""
    before = ""
    for bucket in buckets(bucketer, weights()):
        for name, _ in pairs(bucket):
            if name in GIVEN and GIVEN[name] < GIVEN.get(before, 0):
                raise Broken(f"{name!r} was handed over before {before!r}, and arrived behind it")
            before = name
        consumed(bucket)
