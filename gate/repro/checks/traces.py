"""lifecycle.leaves-no-trace: the state of the process."""

from __future__ import annotations

import random
from typing import Any

import torch

from bucketproof.properties.surroundings import _READ, _READ_AT_THE_END
from bucketproof.repro.parts.slots import Broken, buckets, consumed, weights


def check(bucketer: Any) -> None:
    """The process is as it was before the sync, also while its consumer is at work."""
    random.random()
    torch.rand(())  # to seed with what a process begins with is a change, too
    before = state()
    for bucket in buckets(bucketer, weights()):
        compare(before, "while a bucket was consumed")
        consumed(bucket)
    compare(before, "when the sync was over")


def state() -> dict[str, Any]:
    return {what: read() for what, read in {**_READ, **_READ_AT_THE_END}.items()}


def compare(before: dict[str, Any], when: str) -> None:
    for what, value in state().items():
        if value != before[what]:
            raise Broken(f"the {what} was not as before {when}")
