"""A consumer in a process of its own: it is sent buckets through torch's shared memory, and reads them late."""

from __future__ import annotations

from multiprocessing.reduction import ForkingPickler

import torch

# What torch registers there is how tensors are sent.
import torch.multiprocessing

from bucketproof.properties import limits
from bucketproof.properties.evidence import Facts, facts
from bucketproof.properties.ranks.pool import Lost
from bucketproof.properties.ranks.pools import pool_of
from bucketproof.strategies import DEVICES
from bucketproof.strategies.devices import CPU

_RECEIVED: list[torch.Tensor] = []
"""What the other process has mapped."""


class Shipment:
    """The buckets of one run, on their way."""

    def __init__(self, device: str = CPU) -> None:
        self._lost: Lost | None = None
        self._call(begin, device)

    def send(self, tensors: list[torch.Tensor]) -> None:
        """Send a bucket. Its tensors' storages come to lie in shared memory, in this process too."""
        try:
            # torch sends nothing that carries a graph, and no subclass: whose class it keeps is another matter.
            plain = [tensor.detach().as_subclass(torch.Tensor) for tensor in tensors]
            sent = bytes(ForkingPickler.dumps(plain))
        except Exception as error:
            self._lost = self._lost or Lost(f"a bucket cannot be sent: {type(error).__name__}: {error}")
        else:
            self._call(receive, sent)

    def read(self) -> list[Facts]:
        """What the other process has now of all that was sent, in that order. Raises `Lost`."""
        seen = self._call(tell)
        if self._lost:
            raise self._lost  # only now, lest the target is blamed
        assert isinstance(seen, list)
        return seen

    def _call(self, *work: object) -> object:
        function, *arguments = work
        assert callable(function)
        try:
            return None if self._lost else pool_of(1).call(function, *arguments, seconds=3 * limits.SECONDS)[0]
        except Lost as lost:
            self._lost = lost
            return None


# What the other process does.


def receive(sent: bytes) -> None:
    """Map what was sent, and hold it."""
    _RECEIVED.extend(ForkingPickler.loads(sent))


def tell() -> list[Facts]:
    """Read all that is held, and let go of it."""
    seen = [facts(tensor) for tensor in _RECEIVED]
    _RECEIVED.clear()
    return seen


def begin(device: str) -> None:
    """Get the device ready, and let go of what a run has left that was cut short."""
    DEVICES[device].get_ready()
    _RECEIVED.clear()
