"""The memory that weights are made in."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Hashable
from typing import Any

import torch

from bucketproof.repro.parts.slots import write
from bucketproof.strategies.content import POISON

Build = Callable[[tuple[int, ...], torch.dtype, Any], torch.Tensor]
Write = Callable[[torch.Tensor, torch.dtype, int], None]


def content(nbytes: int, seed: int) -> torch.Tensor:
    """Bytes that are others at each place and in each weight, none of them the poison."""
    words = (torch.arange(nbytes // 4 + 1) + 617 * (seed + 1)) % 2**16 * 2_654_435_761 % 255**4
    digits = torch.stack([words // 255**place % 255 for place in range(4)], dim=1)
    return (digits + (digits >= POISON)).to(torch.uint8).view(-1)[:nbytes]


def booleans(raw: torch.Tensor, dtype: torch.dtype, seed: int) -> None:
    """Write bytes of 0 and 1."""
    raw.data.copy_(content(raw.numel(), seed) & 1)


def finite(raw: torch.Tensor, dtype: torch.dtype, seed: int) -> None:
    """Write numbers that are finite, for what is still to be computed may change a NaN."""
    write(raw, dtype, seed)
    masks = {2: (torch.int16, ~0x6000), 4: (torch.int32, ~0x6000_0000), 8: (torch.int64, ~0x6000_0000_0000_0000)}
    number, mask = masks[dtype.to_real().itemsize if dtype.is_complex else dtype.itemsize]
    raw.data.view(number).bitwise_and_(mask)


class Memory:
    """New memory for each weight, which nobody else holds."""

    def __init__(self, seed: int, write: Write = write) -> None:
        self.seed, self.write = seed, write

    def fresh(self, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        tensor = torch.empty(shape, dtype=dtype)
        self.write(tensor.view(-1).view(torch.uint8), dtype, self.seed)
        return tensor

    take = fresh


class Padded(Memory):
    """New memory that is larger than what is taken of it."""

    def take(self, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        size = math.prod(shape)
        return self.fresh((2 + size + 1,), dtype)[2 : 2 + size].view(shape)


KEPT: dict[Hashable, Any] = {}  # what others hold until the stream is over


class Shared(Memory):
    """New memory that somebody else holds, too."""

    def keep(self, key: Hashable, make: Callable[[], Any]) -> Any:
        if key not in KEPT:
            KEPT[key] = make()
        return KEPT[key]

    def hold(self, thing: object) -> None:
        KEPT[id(thing)] = thing


BUFFERS: dict[int, torch.Tensor] = {}  # what lenders lend, by number


class Lent:
    """Memory of a lender: its buffer of that number and size, which is used again."""

    def __init__(self, number: int, nbytes: int, seed: int, write: Write = write) -> None:
        self.number, self.nbytes, self.seed, self.write = number, nbytes, seed, write

    def take(self, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        buffer = BUFFERS.setdefault(self.number, torch.empty(self.nbytes, dtype=torch.uint8))
        raw = buffer[: math.prod(shape) * dtype.itemsize]
        self.write(raw, dtype, self.seed)
        return raw.view(dtype).view(shape)

    def fresh(self, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        return Memory(self.seed, self.write).fresh(shape, dtype)


class Between(Lent):
    """The same, in memory that another process has: the lender maps it on its own, and nobody else here holds it."""

    def take(self, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        lent: torch.Tensor = torch.empty(self.nbytes, dtype=torch.uint8).share_memory_()
        handle = lent.untyped_storage()._share_fd_cpu_()
        mapped = torch.UntypedStorage._new_shared_fd_cpu(*handle)  # type: ignore[attr-defined]
        BUFFERS[self.number] = torch.empty(0, dtype=torch.uint8).set_(mapped)
        raw = lent[: math.prod(shape) * dtype.itemsize]
        self.write(raw, dtype, self.seed)
        return raw.view(dtype).view(shape)


class Mapped(Lent):
    """The same, in a file that is mapped into memory."""

    def take(self, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        if self.number not in BUFFERS:
            with tempfile.NamedTemporaryFile() as file:
                file.truncate(self.nbytes)
                BUFFERS[self.number] = torch.from_file(file.name, True, self.nbytes, dtype=torch.uint8)
        return super().take(shape, dtype)


class Through:
    """Memory as another operation leaves it."""

    def __init__(self, build: Build, source: Any) -> None:
        self.build, self.source = build, source

    def take(self, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        return self.build(shape, dtype, self.source)


def overwrite(number: int) -> None:
    """The lender writes over a buffer, as a collective does: autograd does not notice."""
    BUFFERS[number].data.fill_(POISON)
