"""lifecycle.leaves-no-trace: the state of the process."""

from __future__ import annotations

import random
from typing import Any

import torch

from bucketproof.properties.surroundings import changed, changed_in_the_end, surroundings
from bucketproof.repro.parts.slots import Broken, buckets, consumed, weights


def check(bucketer: Any) -> None:
    """The process is as it was before the sync, also while its consumer is at work."""
    random.random()
    torch.rand(())  # to seed with what a process begins with is a change, too
    before = surroundings()
    for bucket in buckets(bucketer, weights()):
        for what in changed(before):
            raise Broken(f"the {what} was not as before while a bucket was consumed")
        consumed(bucket)
    for what in (*changed(before), *changed_in_the_end(before)):
        raise Broken(f"the {what} was not as before when the sync was over")
