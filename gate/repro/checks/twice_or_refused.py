"""values.duplicates, where they may be refused, and values.tied"""

from __future__ import annotations

from typing import Any

import torch

from bucketproof.repro.parts.seeing import pairs
from bucketproof.repro.parts.slots import Broken, buckets, consumed, promised, seen, weights

GIVEN: list[tuple[str, dict[str, Any]]] = []  # what is still to arrive


def note(name: str, tensor: torch.Tensor) -> None:
    GIVEN.append((name, seen(promised(tensor))))


def check(bucketer: Any) -> None:
    """Each of the weights arrives, or all of them are refused."""
    try:
        for bucket in buckets(bucketer, weights()):
            receive(pairs(bucket))
            consumed(bucket)
    except Exception:
        return
    for name, facts in GIVEN:
        raise Broken(f"a weight called {name!r} never arrived: {facts}")


def receive(members: list[tuple[str, torch.Tensor]]) -> None:
    for name, tensor in members:
        if (name, seen(tensor)) in GIVEN:
            GIVEN.remove((name, seen(tensor)))
