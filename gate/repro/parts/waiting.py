"""Consuming what an asynchronous bucketer makes, step by step."""

from __future__ import annotations

import asyncio
from typing import Any


async def step(run: Any) -> Any:
    """The next bucket, or None."""
    return await anext(run, None)


async def close(run: Any) -> None:
    """Close what makes the buckets."""
    if hasattr(run, "aclose"):
        await run.aclose()


def tasks_left() -> int:
    """How many tasks there are beside this one."""
    return len(asyncio.all_tasks()) - 1
