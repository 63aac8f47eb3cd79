"""What ranks do together with each bucket: a rollout gathers it from all of them, in one collective."""

from __future__ import annotations

import zlib
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from bucketproof.strategies.provenances.distributed import leaving

if TYPE_CHECKING:
    from bucketproof.properties.run import Delivered


class Meeting:
    """One rank's part. Once ranks differ they no longer meet, for each would wait for another bucket."""

    def __init__(self) -> None:
        self._is_on = dist.is_available() and dist.is_initialized()

    def over_bucket(self, members: list[Delivered]) -> None:
        """Meet over a bucket. Raises what torch does when somebody does not come in time."""
        names = zlib.crc32(repr([each.name for each in members]).encode())
        self._meet([1, len(members), sum(each.facts.nbytes for each in members), names])

    def at_the_end(self) -> None:
        """Meet once more, with no bucket. Who does not come has something else to tell."""
        with suppress(RuntimeError):
            self._meet([0, 0, 0, 0])

    def _meet(self, mine: list[int]) -> None:
        if not (self._is_on and dist.is_initialized()):  # else this rank has left, in the producer
            return
        self._is_on = False  # whoever has waited in vain does not wait again
        theirs = torch.empty((dist.get_world_size(), len(mine)), dtype=torch.int64)
        with leaving():
            dist.all_gather_into_tensor(theirs.view(-1), torch.tensor(mine), group=_CIRCLE[0])
        self._is_on = all(each == mine for each in theirs.tolist())


_CIRCLE: list[Any] = []


def open_circle(patience: timedelta) -> None:
    """Make a group of all ranks for this alone: collectives of the producers are not to mix with it."""
    _CIRCLE[:] = [dist.new_group(timeout=patience)]
