"""Sound bucketers of other kinds than the reference: nothing that they do is wrong, given what they promise.

Each differs from the reference in one thing that a bucketer is free to choose. A suite that flags one of them is wrong.
"""

from collections.abc import AsyncIterator, Generator, Iterable

import torch

from bucketproof.reference.ownership import _copied, compact
from bucketproof.reference.sound import (
    Bucket,
    NamedTensor,
    Weights,
    _aclose,
    _async_iterator,
    _close,
    _OpenBucket,
    get_named_tensor_buckets_sync,
)

__all__ = [
    "ClassIterator",
    "copy_at_flush",
    "copy_on_arrival",
    "flush_when_full",
    "mapping_buckets",
    "pack_aligned",
    "unpack_aligned",
]

ALIGNMENT = 16
"""Bytes at a multiple of which an item of a payload begins: the size of the largest element of any dtype."""

Payload = tuple[torch.Tensor, list[tuple[str, torch.dtype, torch.Size]]]
"""A flat tensor of bytes, and what lies in it, in order."""


class ClassIterator:
    """Yield the reference's buckets from an asynchronous iterator that is no generator, and keeps its own state."""

    def __init__(self, weights: Weights, bucket_bytes: float) -> None:
        self._bucket = _OpenBucket(bucket_bytes)
        self._producer = _async_iterator(weights)
        self._next: NamedTensor | None = None
        self._is_over = False

    def __aiter__(self) -> AsyncIterator[Bucket]:
        return self

    async def __anext__(self) -> Bucket:
        try:
            while await self._pull():
                if self._is_full():
                    return self._bucket.take()
        except BaseException:
            await self.aclose()
            raise
        if not self._bucket:
            raise StopAsyncIteration
        return self._bucket.take()

    async def aclose(self) -> None:
        """End here. What was collected is dropped, and the producer is closed."""
        self._is_over, self._next = True, None
        self._bucket.take()
        await _aclose(self._producer)

    async def _pull(self) -> bool:
        """Put the item that is waiting into the bucket, and wait for one more. False if there is none."""
        if self._next is not None:
            self._bucket.add(*self._next)
            self._next = None
        try:
            if not self._is_over:
                name, tensor = await self._producer.__anext__()
                self._next = name, compact(tensor)
        except StopAsyncIteration:
            self._is_over = True
        return not self._is_over

    def _is_full(self) -> bool:
        return self._next is not None and not self._bucket.has_room_for(self._next[1])


def mapping_buckets(
    weights: Iterable[NamedTensor], bucket_bytes: float
) -> Generator[dict[str, torch.Tensor], None, None]:
    """Yield mappings of names to tensors, and refuse a name that comes twice in one of them."""
    # A loop would name a bucket while the next one is collected; a map does not.
    yield from map(_as_mapping, get_named_tensor_buckets_sync(weights, bucket_bytes))


def _as_mapping(bucket: Bucket) -> dict[str, torch.Tensor]:
    mapping = dict(bucket)
    if len(mapping) < len(bucket):
        raise ValueError("a name came twice in one bucket")
    return mapping


def flush_when_full(weights: Iterable[NamedTensor], bucket_bytes: float) -> Generator[Bucket, None, None]:
    """Yield a bucket that is exactly full at once, not when the next item comes and finds no room."""
    bucket = _OpenBucket(bucket_bytes)
    producer = iter(weights)
    try:
        for name, tensor in producer:
            tensor = compact(tensor)
            if not bucket.has_room_for(tensor):
                yield bucket.take()
            bucket.add(name, tensor)
            del name, tensor
            if bucket._used >= bucket_bytes:
                yield bucket.take()
        if bucket:
            yield bucket.take()
    finally:
        bucket.take()
        _close(producer)


def copy_on_arrival(weights: Iterable[NamedTensor], bucket_bytes: float) -> Generator[Bucket, None, None]:
    """Copy every tensor as it arrives, whoever owns it: needless at times, and never wrong."""
    return get_named_tensor_buckets_sync(weights, bucket_bytes, compaction=_copied)


def copy_at_flush(weights: Iterable[NamedTensor], bucket_bytes: float) -> Generator[Bucket, None, None]:
    """Collect tensors as they come, and copy all of a bucket when it is full: lenders must wait until then."""
    yield from map(_all_copied, get_named_tensor_buckets_sync(weights, bucket_bytes, compaction=_as_it_came))


def _all_copied(bucket: Bucket) -> Bucket:
    return [(name, _copied(tensor)) for name, tensor in bucket]


def _as_it_came(tensor: torch.Tensor) -> torch.Tensor:
    return tensor


def pack_aligned(named: Bucket) -> Payload:
    """Pack a bucket into one flat tensor, in which each item begins where a tensor of any dtype may."""
    sizes = [_aligned(tensor) for _, tensor in named]
    flat = torch.zeros(sum(sizes), dtype=torch.uint8, device=named[0][1].device)
    for (_, tensor), part in zip(named, flat.split(sizes), strict=True):
        _fill(part, tensor)
    return flat, [(name, tensor.dtype, tensor.shape) for name, tensor in named]


def _fill(part: torch.Tensor, tensor: torch.Tensor) -> None:
    # In a function of its own, lest the copy of one item is still there when the next one is made.
    source = _copied(tensor).view(-1).view(torch.uint8)
    part[: source.numel()].copy_(source)


def unpack_aligned(payload: Payload) -> Bucket:
    """Views of the payload's bytes, one for each item."""
    flat, metadata = payload
    named, start = [], 0
    for name, dtype, shape in metadata:
        end = start + shape.numel() * dtype.itemsize
        named.append((name, flat[start:end].view(dtype).view(shape)))
        start = end + -end % ALIGNMENT
    return named


def _aligned(tensor: torch.Tensor) -> int:
    nbytes = tensor.numel() * tensor.element_size()
    return nbytes + -nbytes % ALIGNMENT
