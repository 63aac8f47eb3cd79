"""Faults of concurrency: tasks, threads, and syncs that meet."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from typing import Any

import torch

from bucketproof.reference.faults.loop import (
    AsyncBuckets,
    Buckets,
    Stream,
    async_buckets,
    bits,
    buckets,
    closes_its_stream,
    emptied,
    filled,
    fit,
    is_copy,
    raw,
    refuse,
    stepped,
)
from bucketproof.reference.faults.registry import fault
from bucketproof.reference.ownership import compact
from bucketproof.reference.sound import Bucket, NamedTensor, Weights, _aclose

# Streams that make one wait.


@fault("lifecycle.iterables", exposed_by="a stream that is asynchronous")
async def needs_a_stream_that_waits_for_nothing(weights: Any, limit: float) -> AsyncBuckets:
    """Is asynchronous, and takes synchronous streams alone."""
    for bucket in buckets(weights, limit):
        yield bucket
        del bucket


@fault(
    "lifecycle.iterables",
    exposed_by="an asynchronous generator that waits when there is an item in the open bucket",
    also={"boundaries": "a bucket that is sent early ends early"},
)
async def sends_what_it_has_while_it_waits(weights: Weights, limit: float) -> AsyncBuckets:
    """Yields the open bucket when the next item is not there at once."""
    refuse(limit)
    producer = stepped(weights)
    bucket: Bucket = []
    item: asyncio.Future[NamedTensor] | None = None
    try:
        while True:
            item = asyncio.ensure_future(_pulled(producer))
            await asyncio.sleep(0)
            if bucket and not item.done():
                yield emptied(bucket)
            try:
                name, tensor = await item
            except StopAsyncIteration:
                break
            item = None
            tensor = compact(tensor)
            if bucket and not fit(bucket, tensor, limit):
                yield emptied(bucket)
            bucket.append((name, tensor))
            del name, tensor
        if bucket:
            yield emptied(bucket)
    finally:
        bucket.clear()
        await _ended(item)
        await _aclose(producer)


async def _pulled(producer: AsyncIterator[NamedTensor]) -> NamedTensor:
    return await producer.__anext__()


async def _ended(task: asyncio.Future[Any] | None) -> None:
    if task is not None:
        task.cancel()
        with suppress(asyncio.CancelledError, Exception):
            await task


@fault(
    "lifecycle.drains-producer",
    exposed_by="a stream of which an item is not there at once",
    also={"values": "an item that was given up does not arrive"},
)
async def gives_up_an_item_that_is_late(weights: Weights, limit: float) -> AsyncBuckets:
    """Waits for each item for no time, and takes none in time for the end."""
    producer = stepped(weights)

    async def in_time() -> AsyncIterator[NamedTensor]:
        with suppress(StopAsyncIteration, asyncio.TimeoutError):
            while True:
                yield await asyncio.wait_for(_pulled(producer), timeout=0)

    async for bucket in async_buckets(in_time(), limit):
        yield bucket
        del bucket


# Copies that are made elsewhere.


@fault("aliasing.survives-overwrite", exposed_by="a lent item of a stream that never waits")
async def copies_in_a_task(weights: Weights, limit: float) -> AsyncBuckets:
    """Copies each item in a task, which has its turn when the producer waits or the bucket is full."""
    refuse(limit)
    producer = stepped(weights)
    bucket: list[tuple[str, asyncio.Task[torch.Tensor]]] = []
    used = 0
    try:
        async for name, tensor in producer:
            if bucket and used + tensor.nbytes > limit:
                yield await _gathered(bucket)
                used = 0
            used += tensor.nbytes
            bucket.append((name, asyncio.ensure_future(_compacted(tensor))))
            del name, tensor
        if bucket:
            yield await _gathered(bucket)
    finally:
        for _, copy in bucket:
            await _ended(copy)
        bucket.clear()
        await _aclose(producer)


async def _compacted(tensor: torch.Tensor) -> torch.Tensor:
    return compact(tensor)


async def _gathered(bucket: list[tuple[str, asyncio.Task[torch.Tensor]]]) -> Bucket:
    members = [(name, await copy) for name, copy in bucket]
    bucket.clear()
    return members


# Cancellation.


@fault("lifecycle.cancellation", exposed_by="cancellation of the consuming task")
@closes_its_stream
async def swallows_cancellation(weights: Weights, limit: float) -> AsyncBuckets:
    """Takes a cancellation for the end of the stream."""
    with suppress(asyncio.CancelledError):
        async for bucket in async_buckets(weights, limit):
            yield bucket
            del bucket


@fault("lifecycle.cancellation", exposed_by="cancellation when there is an item in the open bucket")
@closes_its_stream
async def finishes_its_bucket_when_cancelled(weights: Weights, limit: float) -> AsyncBuckets:
    """Sends the open bucket when it is cancelled, and ends."""
    number = 0

    async def calm() -> AsyncIterator[NamedTensor]:
        nonlocal number
        try:
            async for pair in stepped(weights):
                number += 1
                yield pair
                del pair
        except asyncio.CancelledError:
            if not number:
                raise

    async for bucket in async_buckets(calm(), limit):
        yield bucket
        del bucket


@fault("lifecycle.cancellation", exposed_by="cancellation of the consuming task")
@closes_its_stream
async def turns_cancellation_into_an_error(weights: Weights, limit: float) -> AsyncBuckets:
    """Raises an error of its own when it is cancelled."""
    try:
        async for bucket in async_buckets(weights, limit):
            yield bucket
            del bucket
    except asyncio.CancelledError:
        raise TimeoutError("the sync was cancelled") from None


@fault("lifecycle.cancellation", exposed_by="cancellation while an item is awaited")
async def leaves_a_prefetch(weights: Weights, limit: float) -> AsyncBuckets:
    """Awaits each item in a task that it shields from cancellation, and forgets."""
    refuse(limit)
    producer = stepped(weights)
    bucket: Bucket = []
    while True:
        try:
            name, tensor = await asyncio.shield(asyncio.ensure_future(_patient(producer)))
        except StopAsyncIteration:
            break
        tensor = compact(tensor)
        if bucket and not fit(bucket, tensor, limit):
            yield emptied(bucket)
        bucket.append((name, tensor))
        del tensor
    if bucket:
        yield emptied(bucket)


async def _patient(producer: AsyncIterator[NamedTensor]) -> NamedTensor:
    for _ in range(4):
        await asyncio.sleep(0)
    return await producer.__anext__()


class _Pump:
    """A task that pulls the items, each when it is asked for."""

    def __init__(self, weights: Weights) -> None:
        self._producer = stepped(weights)
        self._items: asyncio.Queue[NamedTensor | BaseException] = asyncio.Queue()
        self._wanted = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self, *, tells_errors: bool = True) -> None:
        self._task = asyncio.ensure_future(self._work(tells_errors))

    async def _work(self, tells_errors: bool) -> None:
        try:
            while True:
                await self._wanted.wait()
                self._wanted.clear()
                name, tensor = await self._producer.__anext__()
                self._items.put_nowait((name, compact(tensor)))
                del name, tensor
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            if tells_errors or isinstance(error, StopAsyncIteration):
                self._items.put_nowait(error)

    def __aiter__(self) -> _Pump:
        return self

    async def __anext__(self) -> NamedTensor:
        self._wanted.set()
        item = await self._items.get()
        if isinstance(item, BaseException):
            raise item
        return item

    async def stop(self) -> None:
        await _ended(self._task)
        await _aclose(self._producer)


def _as_it_is(tensor: torch.Tensor) -> torch.Tensor:
    return tensor


@fault("lifecycle.cancellation", exposed_by="cancellation while an item is awaited")
async def forgets_its_pump(weights: Weights, limit: float) -> AsyncBuckets:
    """Has a task pull the items, and stops it only when the stream has ended."""
    refuse(limit)
    pump = _Pump(weights)
    pump.start()
    async for bucket in async_buckets(pump, limit, keep=_as_it_is):
        yield bucket
        del bucket
    await pump.stop()


@fault("lifecycle.early-close", exposed_by="closing before the end, of an asynchronous kind")
@closes_its_stream
async def leaves_a_task_when_closed(weights: Weights, limit: float) -> AsyncBuckets:
    """Starts a task to clean up when it is closed, that never ends."""
    try:
        async for bucket in async_buckets(weights, limit):
            yield bucket
            del bucket
    except GeneratorExit:
        _STARTED[:] = [asyncio.ensure_future(asyncio.sleep(3600))]
        raise


# Other syncs, before or meanwhile.

_CACHE: dict[Any, bytes] = {}
_BUSY: list[bool] = []
_FAILURES: list[Exception] = []
_SENT: set[str] = set()
_OPEN_IN: defaultdict[int, Bucket] = defaultdict(list)
_STARTED: list[asyncio.Future[Any]] = []
_USED = [0]
_LIMIT: list[float] = [0]
_TABLE: dict[tuple[int, str], torch.Tensor] = {}


@fault(
    "lifecycle.reusable",
    exposed_by="a copied item of which the name came in an earlier sync",
    also={"values": "what is left of any sync reaches all that follow"},
)
@closes_its_stream
def caches_by_name(weights: Stream, limit: float) -> Buckets:
    """Copies what it has read in an earlier sync."""

    def remembered(name: str, tensor: torch.Tensor) -> NamedTensor:
        copy = compact(tensor)
        if is_copy(copy, tensor):
            known = _CACHE.setdefault((name, tensor.shape, tensor.dtype), bits(copy))
            raw(copy).copy_(torch.frombuffer(bytearray(known), dtype=torch.uint8))
        return name, copy

    return buckets(itertools.starmap(remembered, weights), limit, keep=_as_it_is)


@fault("lifecycle.reusable", exposed_by="a sync after one that failed or was closed")
def stays_busy(weights: Stream, limit: float) -> Buckets:
    """Takes one sync at a time, and does not notice when one is broken off."""
    refuse(limit)
    if _BUSY:
        _BUSY.clear()
        raise RuntimeError("another sync is under way")
    _BUSY.append(True)
    yield from buckets(weights, limit)
    _BUSY.clear()


@fault("lifecycle.reusable", exposed_by="a sync after one that failed")
def raises_an_old_error(weights: Stream, limit: float) -> Buckets:
    """Remembers why a sync has failed, and says so to the next one again."""
    refuse(limit)
    if _FAILURES:
        raise _FAILURES.pop()
    try:
        yield from buckets(weights, limit)
    except Exception as error:
        _FAILURES.append(error.with_traceback(None))
        raise


@fault("lifecycle.reusable", exposed_by="a sync after one that failed or was closed behind its first bucket")
@closes_its_stream
def goes_on_where_another_was_broken_off(weights: Stream, limit: float) -> Buckets:
    """Leaves out the names that the last sync has delivered, if that was not completed."""
    refuse(limit)
    known = frozenset(_SENT)

    def give(bucket: Bucket) -> Bucket:
        _SENT.update(name for name, _ in bucket)
        return emptied(bucket)

    _SENT.clear()
    yield from buckets((pair for pair in weights if pair[0] not in known), limit, give=give)
    _SENT.clear()


@fault(
    "lifecycle.reusable", exposed_by="a sync after one that was broken off when there was an item in the open bucket"
)
def shares_its_count(weights: Stream, limit: float) -> Buckets:
    """Has one count of bytes for all syncs, which is set to zero when one of them is completed."""

    def fits(bucket: Bucket, tensor: torch.Tensor, limit: float) -> bool:
        has_room = not bucket or _USED[0] + tensor.nbytes <= limit
        _USED[0] = (_USED[0] if has_room else 0) + tensor.nbytes
        return has_room

    yield from buckets(weights, limit, fits=fits)
    _USED[0] = 0


@fault("lifecycle.concurrent-syncs", exposed_by="two syncs with limits of their own")
def has_one_limit_for_all_syncs(weights: Stream, limit: float) -> Buckets:
    """Sets the limit for all syncs when one of them begins."""
    refuse(limit)
    _LIMIT[0] = limit
    return buckets(weights, limit, fits=lambda bucket, tensor, _: fit(bucket, tensor, _LIMIT[0]))


@fault("lifecycle.concurrent-syncs", exposed_by="two syncs of one thread with open buckets")
def has_a_bucket_for_each_thread(weights: Stream, limit: float) -> Buckets:
    """Keeps syncs apart by the thread that they are in."""
    bucket = _OPEN_IN[threading.get_ident()]
    bucket.clear()
    try:
        yield from filled(weights, limit, bucket)
    finally:
        bucket.clear()


@fault("lifecycle.concurrent-syncs", exposed_by="two syncs with one name at one place in their open buckets")
@closes_its_stream
def has_a_table_for_all_syncs(weights: Stream, limit: float) -> Buckets:
    """Keeps the tensors of open buckets in one table, by the number and the name of the item."""
    refuse(limit)
    keys: list[tuple[int, str]] = []

    def flushed() -> Bucket:
        members = [(name, _TABLE.pop((number, name))) for number, name in keys]
        keys.clear()
        return members

    def is_full(tensor: torch.Tensor) -> bool:
        return bool(keys) and not fit([(name, _TABLE[number, name]) for number, name in keys], tensor, limit)

    try:
        for number, name, tensor in _numbered(weights):
            full = flushed() if is_full(tensor) else []
            keys.append((number, name))
            _TABLE[number, name] = tensor
            del tensor
            if full:
                yield emptied(full)
        if keys:
            yield flushed()
    finally:
        for key in keys:
            _TABLE.pop(key, None)


def _numbered(weights: Stream) -> Iterator[tuple[int, str, torch.Tensor]]:
    numbers = itertools.count()
    return ((next(numbers), name, compact(tensor)) for name, tensor in weights)


# Waiting that does not end.


@fault("lifecycle.terminates", exposed_by="a bucket of four items")
@closes_its_stream
async def waits_for_ever(weights: Weights, limit: float) -> AsyncBuckets:
    """Awaits what never comes."""
    async for bucket in async_buckets(weights, limit):
        if len(bucket) > 3:
            await asyncio.get_running_loop().create_future()
        yield bucket
        del bucket


@fault("lifecycle.terminates", exposed_by="an error of the producer")
async def waits_for_a_pump_that_has_failed(weights: Weights, limit: float) -> AsyncBuckets:
    """Has a task pull the items, and is told when the stream ends, but not when it fails."""
    refuse(limit)
    pump = _Pump(weights)
    pump.start(tells_errors=False)
    try:
        async for bucket in async_buckets(pump, limit, keep=_as_it_is):
            yield bucket
            del bucket
    finally:
        await pump.stop()


_LOCK = threading.Lock()


@fault("lifecycle.terminates", exposed_by="a sync after one that failed")
def unlocks_only_at_a_good_end(weights: Stream, limit: float) -> Buckets:
    """Holds a lock for each sync, and does not release it when the sync fails."""
    refuse(limit)
    _LOCK.acquire()
    yield from buckets(weights, limit)
    _LOCK.release()


@fault("lifecycle.terminates", exposed_by="closing before the end")
def deadlocks_when_closed(weights: Stream, limit: float) -> Buckets:
    """Takes the lock that it holds to clean up when it is closed."""
    lock = threading.Lock()
    with lock:
        try:
            yield from buckets(weights, limit)
        except GeneratorExit:
            with lock:
                raise


@fault("lifecycle.terminates", exposed_by="cancellation of the consuming task")
@closes_its_stream
async def hangs_when_cancelled(weights: Weights, limit: float) -> AsyncBuckets:
    """Waits for a sign of its producer when it is cancelled."""
    try:
        async for bucket in async_buckets(weights, limit):
            yield bucket
            del bucket
    except asyncio.CancelledError:
        await asyncio.Event().wait()
