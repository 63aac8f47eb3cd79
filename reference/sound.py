"""The sound bucketer: it groups a stream of named weights into buckets of bounded size.

Every tensor is *compacted* the moment it arrives, before the producer is advanced and may overwrite what it
lent: a tensor that owns its memory is passed on in place, any other is copied into memory of its own.

How does it know what it owns? Not by what a tensor looks like: a view that covers a receive buffer exactly
looks the same as an owner. It counts who else can reach the memory (other tensors, a base, a storage object,
an autograd graph, an exported array) and compares the counts with those of tensors that are owned for
certain, because they were made for the comparison when the module was imported. Where that gives no answer,
it copies. `bucketproof.reference.ownership` has the details, and the few cases that no count can show.

It holds its open bucket and the item that comes after it, nothing else. A flushed bucket is the consumer's:
no variable here names it, and none names the last tensor while the producer works.
"""

from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Callable, Generator, Iterable
from typing import TypeAlias

import torch

from bucketproof.reference.ownership import compact

__all__ = ["get_named_tensor_buckets", "get_named_tensor_buckets_sync"]

NamedTensor: TypeAlias = tuple[str, torch.Tensor]
Bucket: TypeAlias = list[NamedTensor]
Weights: TypeAlias = Iterable[NamedTensor] | AsyncIterable[NamedTensor]
Compaction: TypeAlias = Callable[[torch.Tensor], torch.Tensor]


async def get_named_tensor_buckets(
    weights: Weights, bucket_bytes: float, *, compaction: Compaction = compact
) -> AsyncGenerator[Bucket, None]:
    """Yield the ``(name, tensor)`` pairs of ``weights`` in order, in lists of at most ``bucket_bytes`` bytes.

    A bucket is closed when the next item no longer fits; an item larger than the limit gets a bucket to
    itself. No bucket is empty. ``compaction`` is applied to each tensor as it arrives.

    ``weights`` is exhausted before the last bucket is yielded. An exception that it raises passes through
    unchanged, and drops the open bucket. Closing this generator early closes ``weights`` as well, by its
    ``aclose`` or ``close`` if it has one.

    Raises ValueError, before ``weights`` is touched, if ``bucket_bytes`` is zero, negative or NaN.
    """
    bucket = _OpenBucket(bucket_bytes)
    producer = _async_iterator(weights)
    try:
        async for name, tensor in producer:
            tensor = compaction(tensor)
            if not bucket.has_room_for(tensor):
                yield bucket.take()
            bucket.add(name, tensor)
            del name, tensor
        if bucket:
            yield bucket.take()
    finally:
        bucket.take()  # the traceback of an exception would keep it alive
        await _aclose(producer)


def get_named_tensor_buckets_sync(
    weights: Iterable[NamedTensor], bucket_bytes: float, *, compaction: Compaction = compact
) -> Generator[Bucket, None, None]:
    """Yield what `get_named_tensor_buckets` does, without an event loop."""
    bucket = _OpenBucket(bucket_bytes)
    producer = iter(weights)
    try:
        for name, tensor in producer:
            tensor = compaction(tensor)
            if not bucket.has_room_for(tensor):
                yield bucket.take()
            bucket.add(name, tensor)
            del name, tensor
        if bucket:
            yield bucket.take()
    finally:
        bucket.take()
        _close(producer)


class _OpenBucket:
    """The bucket that is being filled: where it ends is decided here alone."""

    def __init__(self, limit: float) -> None:
        if not limit > 0:  # a NaN is not above zero either
            raise ValueError(f"bucket_bytes must be positive, got {limit!r}")
        self._limit = limit
        self._items: Bucket = []
        self._used = 0

    def __len__(self) -> int:
        return len(self._items)

    def has_room_for(self, tensor: torch.Tensor) -> bool:
        return not self._items or self._used + _nbytes(tensor) <= self._limit

    def add(self, name: str, tensor: torch.Tensor) -> None:
        self._items.append((name, tensor))
        self._used += _nbytes(tensor)

    def take(self) -> Bucket:
        """Hand the items over, and start afresh."""
        items, self._items, self._used = self._items, [], 0
        return items


class _SteppedIterator:
    """An iterator in the form of an async one. It keeps no item, which an async generator around it would."""

    def __init__(self, weights: Iterable[NamedTensor]) -> None:
        self._iterator = iter(weights)

    def __aiter__(self) -> "_SteppedIterator":
        return self

    async def __anext__(self) -> NamedTensor:
        try:
            return next(self._iterator)
        except StopIteration:
            raise StopAsyncIteration from None

    async def aclose(self) -> None:
        _close(self._iterator)


def _async_iterator(weights: Weights) -> AsyncIterator[NamedTensor]:
    return aiter(weights) if isinstance(weights, AsyncIterable) else _SteppedIterator(weights)


async def _aclose(producer: object) -> None:
    if hasattr(producer, "aclose"):
        await producer.aclose()


def _close(producer: object) -> None:
    if hasattr(producer, "close"):
        producer.close()


def _nbytes(tensor: torch.Tensor) -> int:
    return tensor.numel() * tensor.element_size()
