"""A sync that nobody takes notes of: what takes notes waits for the device, and allocates."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import Any

import torch

from bucketproof.properties.buckets import buckets_of, pairs_of
from bucketproof.properties.limits import seconds_for, time_limit
from bucketproof.properties.target import Target, is_asynchronous
from bucketproof.strategies import Plan

Receive = Callable[[list[tuple[str, torch.Tensor]]], object]
"""Is given the members of a bucket, in a list of its own, which nobody else holds."""


def drive(target: Target, weights: Any, plan: Plan, receive: Receive) -> None:
    """Give a target weights, and each bucket to `receive`. Raises what the target does, and `Hang`."""
    with time_limit(seconds_for(len(plan.items))):
        if target.is_async:
            asyncio.run(_drive(target, weights, plan, receive))
        else:
            _pass_on(target.call(weights, plan.bucket_bytes), receive)


async def _drive(target: Target, weights: Any, plan: Plan, receive: Receive) -> None:
    result = target.call(weights, plan.bucket_bytes)
    if inspect.isawaitable(result):
        result = await result
    if not is_asynchronous(result):
        _pass_on(result, receive)
        return
    async for bucket in result:
        pairs = pairs_of(bucket, 0)
        del bucket
        receive(pairs)
        del pairs


def _pass_on(result: Any, receive: Receive) -> None:
    for bucket in buckets_of(result):
        pairs = pairs_of(bucket, 0)
        del bucket
        receive(pairs)
        del pairs
