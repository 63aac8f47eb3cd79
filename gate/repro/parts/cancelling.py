"""A stream at which the consumer is cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Generator

from bucketproof.repro.parts.producing import Pair
from bucketproof.repro.parts.slots import STOP

TASKS: list[asyncio.Future[None]] = []
CLOSED: list[bool] = []


async def arriving(pairs: Generator[Pair, None, None]) -> AsyncIterator[Pair]:
    """Weights as an asynchronous generator. The consumer is cancelled while one of them is awaited."""
    pulled = 0
    try:
        while True:
            if pulled == STOP:
                TASKS[0].cancel()
            await asyncio.sleep(0)
            try:
                yield next(pairs)
            except StopIteration:
                return
            pulled += 1
    finally:
        pairs.close()
        CLOSED.append(True)
