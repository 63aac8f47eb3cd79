"""values.duplicates, where they are to arrive, and values.tied"""

from __future__ import annotations

from typing import Any

import torch

from bucketproof.repro.parts.seeing import pairs
from bucketproof.repro.parts.slots import Broken, buckets, consumed, promised, seen, weights

GIVEN: list[tuple[str, dict[str, Any]]] = []  # what is still to arrive


def note(name: str, tensor: torch.Tensor) -> None:
    GIVEN.append((name, seen(promised(tensor))))


def check(bucketer: Any) -> None:
    """Each of several weights of one name arrives."""
    try:
        for bucket in buckets(bucketer, weights()):
            receive(pairs(bucket))
            consumed(bucket)
    except Exception as error:
        raise Broken(f"the bucketer refused them: {error!r}") from error
    for name, facts in GIVEN:
        raise Broken(f"a weight called {name!r} never arrived: {facts}")


def receive(members: list[tuple[str, torch.Tensor]]) -> None:
    for name, tensor in members:
        if (name, seen(tensor)) in GIVEN:
            GIVEN.remove((name, seen(tensor)))
