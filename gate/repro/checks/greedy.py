"""boundaries.greedy"""

from __future__ import annotations

from typing import Any

import torch

from bucketproof.repro.parts.filled import filled
from bucketproof.repro.parts.slots import Broken, expected

GIVEN: dict[str, int] = {}  # the number of each weight in the stream


def note(name: str, tensor: torch.Tensor) -> None:
    GIVEN.setdefault(name, len(GIVEN))


def check(bucketer: Any) -> None:
    """The weights lie in the buckets in which first-fit in the order of the stream puts them."""
    found = filled(bucketer)
    if found != expected():
        raise Broken(f"the weights were put together as {found}; first-fit gives {expected()}")
