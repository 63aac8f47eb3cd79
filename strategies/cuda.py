"""Memory that there is only where there is CUDA: what lenders lend there, and how they write it again.

Nothing here is called unless a weight is made on such a device.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import torch

from bucketproof.strategies import content
from bucketproof.strategies.content import POISON
from bucketproof.strategies.memory import BUFFERS, Buffer, Home


@cache
def aside() -> torch.cuda.Stream:
    """A stream beside the current one, always the same. What both may do, this one does first."""
    return torch.cuda.Stream(priority=-1)


@contextmanager
def on(other: torch.cuda.Stream) -> Iterator[None]:
    """What is done in here waits for what the current stream was given before, and what comes next there for it."""
    here = torch.cuda.current_stream()
    other.wait_stream(here)
    with torch.cuda.stream(other):
        yield
    here.wait_stream(other)


class Aside(Buffer):
    """A receive buffer that another stream writes to, once the current one is done with it: as a collective does."""

    def lend(self) -> torch.Tensor:
        self.settle()
        return super().lend()

    def _write(self) -> None:
        other = aside()
        other.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(other):
            _receive(self.raw)

    def settle(self) -> None:
        torch.cuda.current_stream().wait_stream(aside())


def _receive(raw: torch.Tensor) -> None:
    """Poison, sent by NCCL where there is another device to send it from."""
    if torch.cuda.device_count() < 2 or not raw.numel():
        content.poison(raw)
        return
    from torch.cuda import nccl

    there = (torch.cuda.current_device() + 1) % torch.cuda.device_count()
    sent = torch.full(raw.shape, POISON, dtype=torch.uint8, device=f"cuda:{there}")
    content.unseen(raw, lambda ink: nccl.broadcast([sent, ink], root=0))


class Pinned(Buffer):
    """Pinned memory of the host, which a device copies into without being waited for."""

    def _allocated(self, nbytes: int, home: Home, where: str) -> torch.Tensor:
        self._where = where
        return super()._allocated(nbytes, home, where)

    def lend(self) -> torch.Tensor:
        self.settle()
        return super().lend()

    def _write(self) -> None:
        sent = torch.full(self.raw.shape, POISON, dtype=torch.uint8, device=self._where)
        content.unseen(self.raw, lambda ink: ink.copy_(sent, non_blocking=True))

    def settle(self) -> None:
        torch.cuda.current_stream().synchronize()


class Captured(Buffer):
    """What a captured graph writes, whenever it is replayed."""

    def _allocated(self, nbytes: int, home: Home, where: str) -> torch.Tensor:
        self._graph = torch.cuda.CUDAGraph()
        torch.full((nbytes,), POISON, dtype=torch.uint8, device=where)  # a kernel is not to be loaded while captured
        with torch.cuda.graph(self._graph):
            written = torch.full((nbytes,), POISON, dtype=torch.uint8, device=where)
        self._graph.replay()
        return written

    def _write(self) -> None:
        self._graph.replay()


BUFFERS["aside"], BUFFERS["pinned"], BUFFERS["captured"] = Aside, Pinned, Captured


@contextmanager
def expandable_segments() -> Iterator[None]:
    """What is allocated in here lies in segments that the driver maps bit by bit."""
    before = torch._C._accelerator_getAllocatorSettings()
    torch._C._accelerator_setAllocatorSettings("expandable_segments:True")
    try:
        # The allocator has memory of each stream for itself, and all of this one's is of that kind.
        with on(_of_expandable_segments()):
            yield
    finally:
        # A setting that is not named stays as it is.
        other = "" if "expandable_segments" in before else "expandable_segments:False"
        torch._C._accelerator_setAllocatorSettings(",".join(filter(None, (before, other))))


@cache
def _of_expandable_segments() -> torch.cuda.Stream:
    return torch.cuda.Stream(priority=-1)  # of these there are few, and no bucketer is given the same one


class _Exporter:
    """An array of another library, as far as torch can see: bytes of a device."""

    def __init__(self, raw: torch.Tensor) -> None:
        self._raw = raw

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {
            "shape": tuple(self._raw.shape),
            "typestr": "|u1",
            "data": (self._raw.data_ptr(), False),
            "strides": None,
            "version": 2,
        }

    def __dlpack__(self, **options: Any) -> object:
        return self._raw.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[Any, int]:
        return self._raw.__dlpack_device__()


def exported(raw: torch.Tensor) -> Any:
    """The bytes (uint8, one dimension) of a tensor as an array of cupy or, without it, of nobody in particular."""
    raw = raw.detach()
    return import_module("cupy").asarray(raw) if raw.is_cuda and find_spec("cupy") else _Exporter(raw)
