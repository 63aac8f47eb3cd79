"""A sync whose consumer was cancelled."""

from __future__ import annotations

import asyncio
from typing import Any

from bucketproof.repro.parts.cancelling import TASKS
from bucketproof.repro.parts.slots import buckets, consumed, weights


async def before(bucketer: Any) -> None:
    """A sync whose consumer is cancelled on the way."""
    TASKS[:] = [asyncio.ensure_future(consume(bucketer))]
    await asyncio.wait(TASKS)


async def consume(bucketer: Any) -> None:
    async for bucket in buckets(bucketer, weights()):
        consumed(bucket)
