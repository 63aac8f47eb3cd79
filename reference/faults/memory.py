"""Faults of memory: what is held or allocated that need not be."""

from __future__ import annotations

import asyncio
import itertools
import math
import operator
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable, Generator, Iterator
from functools import lru_cache
from typing import Any

import torch

from bucketproof.reference.faults.loop import (
    AsyncBuckets,
    Buckets,
    Stream,
    async_buckets,
    buckets,
    closes_its_stream,
    copied,
    emptied,
    filled,
    fit,
    is_copy,
    is_marked,
    marked,
    raw,
    refuse,
    rule,
    total,
)
from bucketproof.reference.faults.registry import fault
from bucketproof.reference.ownership import compact
from bucketproof.reference.sound import Bucket, Compaction, NamedTensor, Weights, _close


def _as_it_is(tensor: torch.Tensor) -> torch.Tensor:
    return tensor


def _compacted(pair: NamedTensor) -> NamedTensor:
    return pair[0], compact(pair[1])


def _closed_when_full(weights: Stream, limit: float, *, keep: Compaction = compact) -> Generator[Bucket, None, None]:
    """A sound bucketer that yields a bucket as soon as it is full to the byte, and not when the next item comes."""
    refuse(limit)
    bucket: Bucket = []
    producer = iter(weights)
    try:
        for name, tensor in producer:
            tensor = keep(tensor)
            if bucket and not fit(bucket, tensor, limit):
                yield emptied(bucket)
            bucket.append((name, tensor))
            del name, tensor
            if total(bucket) >= limit:
                yield emptied(bucket)
        if bucket:
            yield emptied(bucket)
    finally:
        bucket.clear()
        _close(producer)


# Peaks.


@fault("memory.peak", exposed_by="a bucket of two copied items")
def holds_copies_twice(weights: Stream, limit: float) -> Buckets:
    """Holds a second copy of everything it has copied, until the bucket is full."""
    spare: list[torch.Tensor] = []

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        copy = compact(tensor)
        if is_copy(copy, tensor):
            spare.append(copy.clone())
        return copy

    def give(bucket: Bucket) -> Bucket:
        spare.clear()
        return emptied(bucket)

    return buckets(weights, limit, keep=keep, give=give)


@fault("memory.peak", exposed_by="a bucket whose copied items are more than the largest item")
def copies_again_at_flush(weights: Stream, limit: float) -> Buckets:
    """Gives the consumer copies of its copies, and has all of both at once."""

    def give(bucket: Bucket) -> Bucket:
        again = [(name, copied(tensor) if is_marked(tensor) else tensor) for name, tensor in bucket]
        bucket.clear()
        return again

    return buckets(weights, limit, keep=marked, give=give)


@rule("memory.peak", exposed_by="a copied item that is not contiguous")
def copies_strides_over_two_stages(tensor: torch.Tensor) -> torch.Tensor:
    """Has the copies of both stages at hand while it makes the third, of what is not contiguous."""
    if tensor.is_contiguous():
        return compact(tensor)
    gathered = copied(tensor)
    staged = copied(gathered)
    return copied(staged)


@rule("memory.peak", exposed_by="a copied item")
def sums_its_copies_in_wide_numbers(tensor: torch.Tensor) -> torch.Tensor:
    """Checks a copy by the sum of its bytes, and makes a number of eight bytes of each of them first."""
    copy = compact(tensor)
    if is_copy(copy, tensor):
        assert raw(copy).to(torch.int64).sum() >= 0
    return copy


@fault("memory.peak", exposed_by="a copied item that is smaller than the bucket")
def stages_in_a_buffer_of_the_buckets_size(weights: Stream, limit: float) -> Buckets:
    """Allocates room for a whole bucket to copy one item over."""

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        copy = compact(tensor)
        if is_copy(copy, tensor):
            staging = torch.empty(max(math.ceil(limit), copy.nbytes), dtype=torch.uint8)
            raw(copy).copy_(staging[: copy.nbytes].copy_(raw(copy)))
        return copy

    return buckets(weights, limit, keep=keep)


@fault("memory.peak", exposed_by="a large copied item, and smaller ones in the buckets that follow")
def keeps_a_stage_for_the_largest(weights: Stream, limit: float) -> Buckets:
    """Copies over a staging buffer as large as the largest item so far, and keeps it to the end."""
    staging: list[torch.Tensor] = []

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        copy = compact(tensor)
        if is_copy(copy, tensor):
            if sum(stage.nbytes for stage in staging) < copy.nbytes:
                staging.clear()
                staging.append(torch.empty(copy.nbytes, dtype=torch.uint8))
            raw(copy).copy_(staging[0][: copy.nbytes].copy_(raw(copy)))
        return copy

    return buckets(weights, limit, keep=keep)


# Flushed buckets that are kept.


@fault("memory.released-after-flush", exposed_by="a bucket before the last", origin="verl #7139")
@closes_its_stream
async def names_the_flushed_bucket(weights: Weights, limit: float) -> AsyncBuckets:
    """Has a variable that still names the last bucket while the next item is produced."""
    async for flushed in async_buckets(weights, limit):
        yield flushed


@fault("memory.released-after-flush", exposed_by="the last item of a bucket before the last")
def notes_the_last_tensor_it_sent(weights: Stream, limit: float) -> Buckets:
    """Has a list of the tensor that it sent last, to compare the next with."""
    recent: deque[torch.Tensor] = deque(maxlen=1)

    def give(bucket: Bucket) -> Bucket:
        recent.append(bucket[-1][1])
        return emptied(bucket)

    return buckets(weights, limit, give=give)


@fault("memory.released-after-flush", exposed_by="a bucket that is full to the byte, before the last")
@closes_its_stream
def compacts_in_a_generator_expression(weights: Stream, limit: float) -> Buckets:
    """Closes a bucket when it is full, though the expression that its items come from names the last of them."""
    return _closed_when_full(((name, compact(tensor)) for name, tensor in weights), limit, keep=_as_it_is)


@fault("memory.released-after-flush", exposed_by="a bucket that is full to the byte, before the last")
@closes_its_stream
def numbers_its_items(weights: Stream, limit: float) -> Buckets:
    """Closes a bucket when it is full, though `enumerate` keeps the last pair that it gave."""
    return _closed_when_full(map(operator.itemgetter(1), enumerate(weights)), limit)


@fault("memory.released-after-flush", exposed_by="an oversize item before the last")
@closes_its_stream
def names_an_oversize_item(weights: Stream, limit: float) -> Buckets:
    """Yields an oversize item past the open bucket, and does not let go of its name."""
    refuse(limit)
    bucket: Bucket = []
    for name, tensor in weights:
        tensor = compact(tensor)
        if bucket and not fit(bucket, tensor, limit):
            yield emptied(bucket)
        if tensor.nbytes > limit:
            yield [(name, tensor)]
            continue
        bucket.append((name, tensor))
        del name, tensor
    if bucket:
        yield emptied(bucket)


def _check_dtypes(bucket: Bucket) -> None:
    if len({tensor.dtype for _, tensor in bucket}) > 1:
        raise TypeError("several dtypes in one bucket")


@fault("memory.released-after-flush", exposed_by="a bucket of several dtypes before the last")
def keeps_a_complaint(weights: Stream, limit: float) -> Buckets:
    """Keeps the exceptions of its checks for a report, and with their frames what these have looked at."""
    complaints: list[TypeError] = []

    def give(bucket: Bucket) -> Bucket:
        flushed = emptied(bucket)
        try:
            _check_dtypes(flushed)
        except TypeError as error:
            complaints.append(error)
        return flushed

    return buckets(weights, limit, give=give)


@fault("memory.released-after-flush", exposed_by="a bucket before the last")
@closes_its_stream
def keeps_a_second_reader(weights: Stream, limit: float) -> Buckets:
    """Splits the stream in two and reads one half, while the other waits for all that went by."""
    read, spare = itertools.tee(map(_compacted, weights))
    yield from buckets(read, limit, keep=_as_it_is)
    del spare


@fault("memory.released-after-flush", exposed_by="a bucket before the last")
def caches_sizes_by_tensor(weights: Stream, limit: float) -> Buckets:
    """Caches the sizes of tensors, with the tensors as keys."""

    @lru_cache(maxsize=64)
    def size(tensor: torch.Tensor) -> int:
        return tensor.nbytes

    def fits(bucket: Bucket, tensor: torch.Tensor, limit: float) -> bool:
        return sum(size(each) for _, each in bucket) + size(tensor) <= limit

    return buckets(weights, limit, fits=fits)


@fault("memory.released-after-flush", exposed_by="a bucket before the last")
def sums_up_in_the_end(weights: Stream, limit: float) -> Buckets:
    """Counts the bytes it has sent when all are sent, by expressions that wait with their buckets until then."""
    sent: list[Iterator[int]] = []

    def give(bucket: Bucket) -> Bucket:
        flushed = emptied(bucket)
        sent.append(tensor.nbytes for _, tensor in flushed)
        return flushed

    yield from buckets(weights, limit, give=give)
    sum(map(sum, sent))


_LAST: Bucket = []


def _with_a_note(weights: Stream, limit: float, noted: Callable[[Bucket], Bucket]) -> Buckets:
    """Sound, but for what it notes of the last bucket of a sync until another begins."""
    _LAST.clear()
    is_over = False

    def to_the_end() -> Iterator[NamedTensor]:
        nonlocal is_over
        yield from weights
        is_over = True

    def give(bucket: Bucket) -> Bucket:
        if is_over:
            _LAST.extend(noted(bucket))
        return emptied(bucket)

    return buckets(to_the_end(), limit, keep=marked, give=give)


@fault(
    "memory.released-after-flush",
    exposed_by="the last bucket, when the sync is over",
    also={"aliasing": "what was kept in place lives on when the producer lets go"},
)
def keeps_the_last_bucket_until_the_next_sync(weights: Stream, limit: float) -> Buckets:
    """Keeps what it yielded last, of a sync that is over, until another begins."""
    return _with_a_note(weights, limit, lambda bucket: bucket)


@fault("memory.released-after-flush", exposed_by="a copied item in the last bucket, when the sync is over")
def keeps_the_last_copies_until_the_next_sync(weights: Stream, limit: float) -> Buckets:
    """Keeps the copies in the last bucket, of a sync that is over, until another begins."""
    return _with_a_note(weights, limit, lambda bucket: [each for each in bucket if is_marked(each[1])])


# Items that are pulled too early.


@fault("memory.lookahead", exposed_by="a stream of two items more than a bucket", origin="verl #6002")
def pulls_everything_first(weights: Stream, limit: float) -> Buckets:
    """Copies the whole stream before it makes a bucket."""
    refuse(limit)
    everything = deque((name, compact(tensor)) for name, tensor in weights)
    return buckets((everything.popleft() for _ in range(len(everything))), limit, keep=_as_it_is)


@fault("memory.lookahead", exposed_by="a stream of two items more than a bucket")
def looks_for_the_last(weights: Stream, limit: float) -> Buckets:
    """Pulls one more item than it has to place, to know whether that is the last."""
    return buckets(_one_ahead(weights), limit, keep=_as_it_is)


@closes_its_stream
def _one_ahead(weights: Stream) -> Iterator[NamedTensor]:
    waiting: Bucket = []
    for name, tensor in weights:
        waiting.append((name, compact(tensor)))
        del tensor
        if len(waiting) > 1:
            yield waiting.pop(0)
    while waiting:
        yield waiting.pop()


@fault("memory.lookahead", exposed_by="a bucket of two items behind another", origin="RLinf #1540")
def collects_a_bucket_ahead(weights: Stream, limit: float) -> Buckets:
    """Fills the next bucket before it yields one."""
    ready: deque[Bucket] = deque()
    for bucket in buckets(weights, limit):
        ready.append(bucket)
        del bucket
        if len(ready) > 1:
            yield ready.popleft()
    while ready:
        yield ready.popleft()


@fault("memory.lookahead", exposed_by="an oversize item with buckets behind it")
def pulls_the_rest_at_an_oversize_item(weights: Stream, limit: float) -> Buckets:
    """Goes by streams as long as items fit, and takes all that is left at once behind one that does not."""
    refuse(limit)
    return buckets(_all_behind_oversize(iter(weights), limit), limit, keep=_as_it_is)


@closes_its_stream
def _all_behind_oversize(weights: Iterator[NamedTensor], limit: float) -> Iterator[NamedTensor]:
    waiting: deque[NamedTensor] = deque()
    for name, tensor in weights:
        waiting.append((name, compact(tensor)))
        if tensor.nbytes > limit:
            del tensor
            waiting.extend(map(_compacted, weights))
        else:
            del tensor
        while waiting:
            yield waiting.popleft()


@fault("memory.lookahead", exposed_by="two items or more of one dtype behind a bucket")
@closes_its_stream
def pulls_a_run_of_one_dtype(weights: Stream, limit: float) -> Buckets:
    """Takes the items that come with one dtype together, however many they are."""
    refuse(limit)
    runs = itertools.groupby(map(_compacted, weights), key=lambda pair: pair[1].dtype)
    return buckets(itertools.chain.from_iterable(deque(run) for _, run in runs), limit, keep=_as_it_is)


# What grows from sync to sync.

_LEAKED: list[torch.Tensor] = []
_STARTED: list[asyncio.Future[Any]] = []


@fault("memory.steady", exposed_by="a copied item")
def leaks_its_copies(weights: Stream, limit: float) -> Buckets:
    """Keeps a list of all copies it has ever made."""

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        copy = compact(tensor)
        if is_copy(copy, tensor):
            _LEAKED.append(copy)
        return copy

    return buckets(weights, limit, keep=keep)


@fault("memory.steady", exposed_by="an oversize item that is copied")
def leaks_its_oversize_copies(weights: Stream, limit: float) -> Buckets:
    """Keeps the copies of oversize items for a report that nobody asks for."""

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        copy = compact(tensor)
        if is_copy(copy, tensor) and copy.nbytes > limit:
            _LEAKED.append(copy)
        return copy

    return buckets(weights, limit, keep=keep)


@fault("memory.steady", exposed_by="two syncs")
def leaks_a_little(weights: Stream, limit: float) -> Buckets:
    """Keeps a note of each sync, in a tensor."""
    _LEAKED.append(torch.zeros(1))
    return buckets(weights, limit)


@fault("memory.steady", exposed_by="a completed sync of an asynchronous kind")
@closes_its_stream
async def leaves_a_task(weights: Weights, limit: float) -> AsyncBuckets:
    """Starts a task for each completed sync that never ends."""
    async for bucket in async_buckets(weights, limit):
        yield bucket
        del bucket
    _STARTED.append(asyncio.ensure_future(asyncio.sleep(3600)))


_FAILED: list[Bucket] = []
_FILES: list[int] = []
_IDLE: list[threading.Event] = []
_MANY = 100


@fault("memory.steady", exposed_by="a sync that failed when there was an item in the open bucket")
def keeps_the_open_bucket_of_each_failed_sync(weights: Stream, limit: float) -> Buckets:
    """Keeps what it had when the producer failed, to look at later."""
    bucket: Bucket = []
    try:
        yield from filled(weights, limit, bucket)
    except Exception:
        _FAILED.append(emptied(bucket))
        raise
    finally:
        bucket.clear()


@fault("memory.steady", exposed_by="three syncs")
def leaves_a_file_open(weights: Stream, limit: float) -> Buckets:
    """Opens a log for each sync, and closes them all when there are a hundred."""
    if len(_FILES) == _MANY:
        for file in _FILES:
            os.close(file)
        _FILES.clear()
    _FILES.append(os.open(os.devnull, os.O_WRONLY))
    return buckets(weights, limit)


@fault("memory.steady", exposed_by="three completed syncs")
def leaves_a_thread(weights: Stream, limit: float) -> Buckets:
    """Starts a thread for each completed sync, and ends them all when there are a hundred."""
    yield from buckets(weights, limit)
    if len(_IDLE) == _MANY:
        for event in _IDLE:
            event.set()
        _IDLE.clear()
    _IDLE.append(threading.Event())
    threading.Thread(target=_IDLE[-1].wait, daemon=True).start()


# Sources that live as long as what was copied from them.


@rule("aliasing.no-pinned-storage", exposed_by="a copied item that is held")
def notes_the_end_of_a_copy(tensor: torch.Tensor) -> torch.Tensor:
    """Calls a function when a copy is dropped, and keeps the source for it until then."""
    copy = compact(tensor)
    if is_copy(copy, tensor):
        weakref.finalize(copy, _check_off, tensor).atexit = False
    return copy


def _check_off(source: torch.Tensor) -> None:
    pass


class _BucketOfSources(Bucket):
    sources: list[torch.Tensor]


@fault("aliasing.no-pinned-storage", exposed_by="a bucket with a copied item that is held")
def gives_the_sources_along(weights: Stream, limit: float) -> Buckets:
    """Yields a list with one attribute more: the tensors as they came."""
    sources: list[torch.Tensor] = []

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        sources.append(tensor)
        return compact(tensor)

    def give(bucket: Bucket) -> Bucket:
        yielded = _BucketOfSources(emptied(bucket))
        yielded.sources = sources[: len(yielded)]
        del sources[: len(yielded)]
        return yielded

    try:
        yield from buckets(weights, limit, keep=keep, give=give)
    finally:
        sources.clear()
