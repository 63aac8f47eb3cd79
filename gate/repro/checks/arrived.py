"""values.conserved"""

from __future__ import annotations

from typing import Any

import torch

from bucketproof.repro.parts.seeing import differences, pairs
from bucketproof.repro.parts.slots import JUDGED, Broken, buckets, consumed, promised, seen, weights

GIVEN: dict[str, dict[str, Any]] = {}  # what is still to arrive


def note(name: str, tensor: torch.Tensor) -> None:
    GIVEN[name] = seen(promised(tensor))


def check(bucketer: Any) -> None:
    """Every weight arrives once, as it was handed over."""
    try:
        for bucket in buckets(bucketer, weights()):
            if bucket is iter(bucket):
                raise Broken(f"a bucket is a {type(bucket).__name__}, which can be read but once")
            receive(pairs(bucket))
            consumed(bucket)
    except Broken:
        raise
    except Exception as error:
        raise Broken(f"the bucketer raised {error!r}") from error
    lost = [name for name in GIVEN if name in JUDGED]
    if lost:
        raise Broken(f"{lost[0]!r} never arrived")


def receive(members: list[tuple[str, torch.Tensor]]) -> None:
    for name, tensor in members:
        if name not in GIVEN:
            raise Broken(f"{name!r} arrived, though it was not handed over or had arrived before")
        given = GIVEN.pop(name)
        for line in differences(given, seen(tensor)):
            if name in JUDGED and line:
                raise Broken(f"{name!r} arrived with other {line}")
