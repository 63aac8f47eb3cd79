"""lifecycle.concurrent-syncs: what arrives."""

from __future__ import annotations

from typing import Any

import torch

from bucketproof.repro.parts.seeing import differences, pairs
from bucketproof.repro.parts.slots import Broken, buckets, elsewhere, promised, seen, step, weights

GIVEN: dict[tuple[str, str], dict[str, Any]] = {}  # what is still to arrive, by sync and name


def note_whose(name: str, tensor: torch.Tensor, sync: str) -> None:
    GIVEN[sync, name] = seen(promised(tensor))


def check(bucketer: Any) -> None:
    """Of two syncs that take turns, each gets its own weights."""

    def wider(stream: Any, limit: float) -> Any:
        return bucketer(stream, 2 * limit)

    runs = {"first": buckets(bucketer, weights()), "second": buckets(wider, elsewhere())}
    while runs:
        for sync in list(runs):
            try:
                bucket = step(runs[sync])
            except Exception as error:
                raise Broken(f"the {sync} sync raised {error!r}") from error
            if bucket is None:
                del runs[sync]
            else:
                receive(sync, pairs(bucket))
    for sync, name in GIVEN:
        raise Broken(f"in the {sync} sync, {name!r} never arrived")


def receive(sync: str, members: list[tuple[str, torch.Tensor]]) -> None:
    for name, tensor in members:
        if (sync, name) not in GIVEN:
            raise Broken(f"in the {sync} sync, {name!r} arrived, though it was not handed over or had arrived before")
        given, now = GIVEN.pop((sync, name)), seen(tensor)
        for line in differences(given, now):
            raise Broken(f"in the {sync} sync, {name!r} arrived with other {line}")
