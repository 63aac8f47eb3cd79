"""The producer: how a weight is made and handed over, and in which kinds of iterables weights come."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Generator, Iterator
from typing import Any

import torch

from bucketproof.repro.parts.memory import Build
from bucketproof.repro.parts.slots import GRAD, note

Pair = tuple[str, torch.Tensor]


def hand_over(name: str, build: Build, shape: tuple[int, ...], dtype: torch.dtype, memory: Any) -> Pair:
    """A new weight, as the producer yields it. It is noted what it is; nothing here holds it."""
    with torch.inference_mode(False), torch.set_grad_enabled(GRAD):
        tensor = build(shape, dtype, memory)
        note(name, tensor)
    return name, tensor


class OneByOne:
    """Weights as an iterator that is no generator."""

    def __init__(self, pairs: Iterator[Pair]) -> None:
        self.pairs = pairs

    def __iter__(self) -> OneByOne:
        return self

    def __next__(self) -> Pair:
        return next(self.pairs)


class AwaitedOneByOne:
    """Weights as an asynchronous iterator that is no generator."""

    def __init__(self, pairs: Iterator[Pair]) -> None:
        self.pairs = pairs

    def __aiter__(self) -> AwaitedOneByOne:
        return self

    async def __anext__(self) -> Pair:
        for pair in self.pairs:
            return pair
        raise StopAsyncIteration


async def arriving(pairs: Generator[Pair, None, None]) -> AsyncIterator[Pair]:
    """Weights as an asynchronous generator, which waits for each."""
    try:
        while True:
            await asyncio.sleep(0)
            try:
                yield next(pairs)
            except StopIteration:
                return
    finally:
        pairs.close()
