"""The pools there are: one for each number of processes, as long as there is something to judge."""

from __future__ import annotations

import atexit
from importlib import import_module
from multiprocessing import resource_sharer

from bucketproof.properties import limits
from bucketproof.properties.ranks.pool import STARTING, Pool

_POOLS: dict[int, Pool] = {}
_NEEDED = (
    "bucketproof.properties.ranks.trying",
    "torch.distributed._functional_collectives",
    "torch.distributed.fsdp",
    "torch.distributed.tensor",
)


def pool_of(size: int) -> Pool:
    """The pool of so many processes; a new one if there is none, or if it has been lost. Raises `Lost`."""
    if size not in _POOLS or not _POOLS[size].is_open:
        # A run that waits in vain is to be told so by the collective, and not by the end of its time.
        _POOLS[size] = Pool(size, collectives=0.8 * limits.SECONDS)
        if size > 1:
            _POOLS[size].call(get_ready, seconds=STARTING)
    return _POOLS[size]


def get_ready() -> None:
    """Import what runs on ranks will need, which takes seconds that no run has."""
    for name in _NEEDED:
        import_module(name)


@atexit.register
def close_pools() -> None:
    """End all processes, if there are any."""
    while _POOLS:
        _POOLS.popitem()[1].close()
    # What was sent by a file descriptor was handed over by a thread.
    resource_sharer.stop(timeout=1.0)
