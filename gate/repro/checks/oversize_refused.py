"""boundaries.oversize, where such an item is to be refused."""

from __future__ import annotations

from typing import Any

import torch

from bucketproof.repro.parts.slots import LIMIT, Broken, buckets, consumed, weights

GIVEN: list[int] = []  # the bytes of each weight


def note(name: str, tensor: torch.Tensor) -> None:
    GIVEN.append(tensor.nbytes)


def check(bucketer: Any) -> None:
    """A weight above the limit is refused, and none that is not."""
    try:
        for bucket in buckets(bucketer, weights()):
            consumed(bucket)
    except Exception as error:
        if max(GIVEN, default=0) <= LIMIT:
            raise Broken(f"a stream without a weight above the limit was refused: {error!r}") from error
        return
    if max(GIVEN, default=0) > LIMIT:
        raise Broken(f"a weight of {max(GIVEN)} bytes was accepted, with a limit of {LIMIT}")
