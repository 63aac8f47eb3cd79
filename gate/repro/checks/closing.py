"""lifecycle.early-close: what is seen at once."""

from __future__ import annotations

from typing import Any

import torch

from bucketproof.repro.parts.slots import STOP, Broken, buckets, close, consumed, step, tasks_left, weights

GIVEN: list[str] = []
CLOSED: list[bool] = []


def note(name: str, tensor: torch.Tensor) -> None:
    GIVEN.append(name)


def check(bucketer: Any) -> None:
    """Whoever closes the bucketer early closes the producer with it."""
    stream = weights()  # whoever relies on it to be let go of is seen
    run = buckets(bucketer, stream)
    for _ in range(STOP):
        bucket = step(run)
        if bucket is None:
            return
        consumed(bucket)
        del bucket
    try:
        close(run)
    except Exception as error:
        raise Broken(f"closing raised {error!r}") from error
    if GIVEN and not CLOSED:
        raise Broken("the bucketer was closed, and the producer was not")
    if left := tasks_left():
        raise Broken(f"{left} tasks were left after closing")
