"""Devices: where the weights of a plan are made. A plan says nothing of it, and is the same on each of them.

Nothing here calls CUDA before a device other than the host is asked for.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch

from bucketproof.strategies.content import POISON
from bucketproof.strategies.provenances.registry import Provenance

CPU = "cpu"
CUDA = "cuda"


@dataclass(frozen=True)
class Device:
    """The host: its memory is ready as soon as it is written, and nothing has to be waited for."""

    id: str
    where: str
    """What torch calls it."""

    def lacks(self) -> str:
        """What this machine lacks for it, in one line; nothing if plans can be built on it."""
        return ""

    def get_ready(self) -> None:
        """Do what the first use takes, which may be seconds and is nobody's doing."""

    def settle(self) -> None:
        """Wait for all that it has been given to do."""

    def state(self) -> tuple[Any, ...]:
        """What of it a bucketer must leave as it was."""
        return ()

    def restore(self, state: tuple[Any, ...]) -> None:
        """Make it so again."""

    def reuse(self, sizes: Iterable[int]) -> None:
        """Allocate as many bytes as each of these says, and write over what was free."""


class Accelerator(Device):
    """A device that does what it is given in the order of streams, later."""

    def lacks(self) -> str:
        return _lacks_cuda()

    def get_ready(self) -> None:
        _start(self.where)

    def settle(self) -> None:
        torch.cuda.synchronize()

    def state(self) -> tuple[Any, ...]:
        return torch.cuda.current_device(), torch.cuda.current_stream()

    def restore(self, state: tuple[Any, ...]) -> None:
        device, stream = state
        torch.cuda.set_device(device)
        torch.cuda.set_stream(stream)

    def reuse(self, sizes: Iterable[int]) -> None:
        taken = [torch.full((nbytes,), POISON, dtype=torch.uint8, device=self.where) for nbytes in sizes]
        self.settle()
        taken.clear()


DEVICES: dict[str, Device] = {CPU: Device(CPU, "cpu"), CUDA: Accelerator(CUDA, "cuda")}
"""Every device, by its id: the host first."""


def _lacks_cuda() -> str:
    if not torch.backends.cuda.is_built():
        return f"torch {torch.__version__} is built without CUDA"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that there is no driver is said in a line, below
        seen = torch.cuda.is_available()
    return (
        ""
        if seen
        else "torch sees no CUDA device: is there a card with a driver, and does CUDA_VISIBLE_DEVICES hide it?"
    )


@cache
def _start(where: str) -> None:
    """A context, and the kernels that are used first."""
    torch.full((1,), POISON, dtype=torch.uint8, device=where).clone().cpu()
    torch.cuda.synchronize()


# What there is on which device.

HOST_HOMES = ("shared", "segment", "mapped", "memmap", "received")
"""Memory that only the host has: other processes, files, and what collectives of gloo write to."""
HOST_ALONE = ("numpy", "frombuffer", "exported-to-numpy")
"""Provenances, and operations of chains, that go through numpy or Python's buffers."""
HOST_GROUPS = ("files", "safetensors", "distributed")
"""Groups whose provenances are of the host."""


def exists_on(provenance: Provenance, device: str) -> bool:
    """Whether a weight can come to be in this way on a device."""
    if device == CPU:
        return provenance.group != CUDA
    is_of_the_host = provenance.home in HOST_HOMES or provenance.group in HOST_GROUPS
    return not is_of_the_host and provenance.id not in HOST_ALONE
