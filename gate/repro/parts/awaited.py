"""A bucketer that has to be awaited itself, before there is anything to ask for buckets."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from bucketproof.repro.parts.slots import LIMIT


async def buckets(bucketer: Any, weights: Any) -> AsyncIterator[Any]:
    """The buckets of a bucketer that is a coroutine."""
    result = await bucketer(weights, LIMIT)
    try:
        if hasattr(result, "__aiter__"):
            async for bucket in result:
                yield bucket
                del bucket
        else:
            for bucket in result:
                yield bucket
                del bucket
    finally:
        if hasattr(result, "aclose"):
            await result.aclose()
