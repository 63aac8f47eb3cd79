"""boundaries.greedy"""

from __future__ import annotations

from typing import Any

import torch

from bucketproof.repro.parts.seeing import pairs
from bucketproof.repro.parts.slots import Broken, buckets, consumed, expected, weights

GIVEN: dict[str, int] = {}  # the number of each weight in the stream


def note(name: str, tensor: torch.Tensor) -> None:
    GIVEN.setdefault(name, len(GIVEN))


def check(bucketer: Any) -> None:
    """The weights lie in the buckets in which first-fit in the order of the stream puts them."""
    found = []
    for bucket in buckets(bucketer, weights()):
        found.append(sorted((name for name, tensor in pairs(bucket) if tensor.nbytes), key=GIVEN.__getitem__))
        consumed(bucket)
    found = [members for members in found if members]  # a weight of no byte may lie on either side of a boundary
    if found != expected():
        raise Broken(f"the weights were put together as {found}; first-fit gives {expected()}")
