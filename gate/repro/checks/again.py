"""lifecycle.reusable: what arrives."""

from __future__ import annotations

from typing import Any

import torch

from bucketproof.repro.parts.seeing import differences, pairs
from bucketproof.repro.parts.slots import Broken, before, buckets, elsewhere, promised, seen

GIVEN: dict[str, dict[str, Any]] = {}  # what is still to arrive


def note(name: str, tensor: torch.Tensor) -> None:
    GIVEN[name] = seen(promised(tensor))


def check(bucketer: Any) -> None:
    """Whatever sync went before, every weight arrives once, as it was handed over."""
    before(bucketer)
    GIVEN.clear()
    try:
        for bucket in buckets(bucketer, elsewhere()):
            for name, tensor in pairs(bucket):
                receive(name, tensor)
    except Broken:
        raise
    except Exception as error:
        raise Broken(f"in the second sync, the bucketer raised {error!r}") from error
    for name in GIVEN:
        raise Broken(f"in the second sync, {name!r} never arrived")


def receive(name: str, tensor: torch.Tensor) -> None:
    if name not in GIVEN:
        raise Broken(f"in the second sync, {name!r} arrived, though it was not handed over or had arrived before")
    given, now = GIVEN.pop(name), seen(tensor)
    for line in differences(given, now):
        raise Broken(f"in the second sync, {name!r} arrived with other {line}")
