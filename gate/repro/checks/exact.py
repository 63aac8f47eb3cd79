"""boundaries.exact-fit"""

from __future__ import annotations

from typing import Any

import torch

from bucketproof.repro.parts.filled import filled
from bucketproof.repro.parts.slots import LIMIT, Broken, expected

GIVEN: dict[str, int] = {}  # the number of each weight in the stream


def note(name: str, tensor: torch.Tensor) -> None:
    GIVEN.setdefault(name, len(GIVEN))


def check(bucketer: Any) -> None:
    """The first weights, which have exactly the bytes of the limit, are the first bucket."""
    found = filled(bucketer)
    if found[:1] != expected():
        raise Broken(f"{expected()[0]} have exactly {LIMIT} bytes, and the buckets are {found}")
