"""Groups that need more than one process."""

from __future__ import annotations

import torch.distributed as dist

from bucketproof.properties.limits import usable_cores
from bucketproof.strategies.groups import group

SIZES = {"distributed": (2, 4)}
"""How many ranks the plans of a group are run on, where that is not this process."""


@group("distributed")
def distributed() -> str:
    """Weights as two and four ranks of a process group on gloo gather and receive them; ranks that must agree."""
    if not (dist.is_available() and dist.is_gloo_available()):
        return "this torch has no gloo"
    return _lacks_cores()


@group("processes")
def processes() -> str:
    """A consumer in a process of its own, to which buckets are sent through shared memory."""
    return _lacks_cores()


def _lacks_cores() -> str:
    return "" if usable_cores() > 1 else "there is but one core, for which processes would have to wait in turn"
