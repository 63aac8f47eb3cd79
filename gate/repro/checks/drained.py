"""lifecycle.drains-producer"""

from __future__ import annotations

from typing import Any

import torch

from bucketproof.repro.parts.slots import Broken, buckets, consumed, weights

GIVEN: list[str] = []
EXHAUSTED: list[bool] = []


def note(name: str, tensor: torch.Tensor) -> None:
    GIVEN.append(name)


def check(bucketer: Any) -> None:
    """A sync that has ended has pulled every weight, and asked for one more."""
    for bucket in buckets(bucketer, weights()):
        consumed(bucket)
    if not EXHAUSTED:
        raise Broken(
            f"the sync ended when {len(GIVEN)} weights had been pulled, and never asked whether there are more"
        )
