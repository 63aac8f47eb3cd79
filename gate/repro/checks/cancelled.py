"""lifecycle.cancellation"""

from __future__ import annotations

import asyncio
from typing import Any

from bucketproof.repro.parts.cancelling import CLOSED, TASKS
from bucketproof.repro.parts.slots import STOP, Broken, buckets, consumed, weights


async def check(bucketer: Any) -> None:
    """A consumer that is cancelled while a weight is awaited ends so, and leaves nothing behind."""
    before = asyncio.all_tasks()
    TASKS.append(asyncio.ensure_future(consume(bucketer)))
    await asyncio.wait(TASKS)
    await asyncio.sleep(0)  # what was cancelled may need a turn to end
    if not TASKS[0].cancelled():
        raise Broken(f"the consumer was cancelled while weight {STOP} was awaited, and {how(TASKS[0].exception())}")
    if left := asyncio.all_tasks() - before:
        raise Broken(f"{len(left)} tasks were left after the consumer was cancelled")
    if not CLOSED:
        raise Broken("the producer was not closed when the consumer was cancelled")


async def consume(bucketer: Any) -> None:
    async for bucket in buckets(bucketer, weights()):
        consumed(bucket)
        await asyncio.sleep(0)


def how(error: BaseException | None) -> str:
    return "ended as if nothing had happened" if error is None else f"saw {error!r}"
