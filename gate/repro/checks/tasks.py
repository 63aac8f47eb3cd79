"""memory.steady: tasks."""

from __future__ import annotations

import asyncio
from typing import Any

from bucketproof.repro.parts.slots import Broken, buckets, weights


async def check(bucketer: Any) -> None:
    """No task is left when a sync is over."""
    before = asyncio.all_tasks()
    async for bucket in buckets(bucketer, weights()):
        del bucket
        await asyncio.sleep(0)
    await asyncio.sleep(0)  # what was cancelled may need a turn to end
    if left := asyncio.all_tasks() - before:
        raise Broken(f"{len(left)} tasks were left when the sync was over")
