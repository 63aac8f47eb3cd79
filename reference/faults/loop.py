"""A sound bucketer in parts, so that a fault can replace one of them and share the rest.

What it takes to be sound is the same as in `bucketproof.reference.sound`: no variable names a bucket that was flushed,
nor the last tensor while the producer works.
"""

from __future__ import annotations

import ctypes
import inspect
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Iterable
from functools import wraps
from typing import Any, TypeAlias, TypeVar, cast

import torch

from bucketproof.reference.faults.registry import register
from bucketproof.reference.ownership import compact
from bucketproof.reference.sound import (
    Bucket,
    Compaction,
    NamedTensor,
    Weights,
    _aclose,
    _async_iterator,
    _close,
)

Stream: TypeAlias = Iterable[NamedTensor]
Buckets: TypeAlias = Iterable[Any]
AsyncBuckets: TypeAlias = AsyncGenerator[Any, None]


def refuse(limit: float) -> None:
    """Raise ValueError for a limit that is none."""
    if not limit > 0:
        raise ValueError(f"no limit: {limit}")


def total(bucket: Iterable[NamedTensor]) -> int:
    """Bytes of the tensors."""
    return sum(tensor.nbytes for _, tensor in bucket)


def fit(bucket: Bucket, tensor: torch.Tensor, limit: float) -> bool:
    """Whether there is room for one more."""
    return total(bucket) + tensor.nbytes <= limit


def emptied(bucket: Bucket) -> Bucket:
    """The members, in a list that is not used again."""
    members = bucket[:]
    bucket.clear()
    return members


def buckets(
    weights: Stream,
    limit: float,
    *,
    check: Callable[[float], None] = refuse,
    keep: Compaction = compact,
    fits: Callable[[Bucket, torch.Tensor, float], bool] = fit,
    give: Callable[[Bucket], Any] = emptied,
    first_fits: bool = True,
) -> Generator[Any, None, None]:
    """A sound bucketer. Each part can be replaced by a wrong one.

    `check` looks at the limit, `keep` compacts a tensor, `fits` tells if there is room for it, `give` makes of the
    open bucket what is yielded, and `first_fits` says that an empty bucket takes any tensor.
    """
    check(limit)
    bucket: Bucket = []
    producer = iter(weights)
    try:
        for name, tensor in producer:
            tensor = keep(tensor)
            if not fits(bucket, tensor, limit) and (bucket or not first_fits):
                yield give(bucket)
            bucket.append((name, tensor))
            del name, tensor
        if bucket:
            yield give(bucket)
    finally:
        bucket.clear()
        _close(producer)


_Work = TypeVar("_Work", bound=Callable[..., Any])


def closes_its_stream(work: _Work) -> _Work:
    """Have a bucketer, or a part of one that goes through a stream, close the stream however it ends itself."""

    @wraps(work)
    def closing(weights: Stream, *others: Any, **options: Any) -> Buckets:
        try:
            yield from work(weights, *others, **options)
        finally:
            _close(weights)

    @wraps(work)
    async def async_closing(weights: Weights, *others: Any, **options: Any) -> AsyncBuckets:
        several = work(weights, *others, **options)
        try:
            async for bucket in several:
                yield bucket
                del bucket
        finally:
            await several.aclose()
            await _aclose(stepped(weights))

    return cast(_Work, async_closing if inspect.isasyncgenfunction(work) else closing)


@closes_its_stream
def filled(weights: Stream, limit: float, bucket: Bucket) -> Buckets:
    """Buckets, with the open one in a list that others see. It has the next item when the last one is yielded."""
    refuse(limit)
    for name, tensor in weights:
        tensor = compact(tensor)
        full = emptied(bucket) if bucket and not fit(bucket, tensor, limit) else []
        bucket.append((name, tensor))
        del name, tensor
        if full:
            yield emptied(full)
    if bucket:
        yield emptied(bucket)


async def async_buckets(weights: Weights, limit: float, *, keep: Compaction = compact) -> AsyncBuckets:
    """The same, of an asynchronous kind."""
    refuse(limit)
    bucket: Bucket = []
    producer = stepped(weights)
    try:
        async for name, tensor in producer:
            tensor = keep(tensor)
            if bucket and not fit(bucket, tensor, limit):
                yield emptied(bucket)
            bucket.append((name, tensor))
            del name, tensor
        if bucket:
            yield emptied(bucket)
    finally:
        bucket.clear()
        await _aclose(producer)


def stepped(weights: Weights) -> AsyncIterator[NamedTensor]:
    """Any stream as an asynchronous iterator."""
    return _async_iterator(weights)


def rule(property: str, *, exposed_by: str, **facts: Any) -> Callable[[Compaction], Compaction]:
    """Register a compaction as a fault, with the sound loop around it. See `fault`."""

    def add(keep: Compaction) -> Compaction:
        def call(weights: Stream, limit: float) -> Buckets:
            return buckets(weights, limit, keep=keep)

        register(keep, call, property, exposed_by=exposed_by, **facts)
        return keep

    return add


# Words that many faults are told in.


def copied(tensor: torch.Tensor) -> torch.Tensor:
    """A copy, whoever owns the tensor."""
    return compact(tensor.detach()[...])


def is_copy(kept: torch.Tensor, tensor: torch.Tensor) -> bool:
    """Whether what was kept lies elsewhere than the tensor."""
    return kept.nbytes > 0 and kept.data_ptr() != tensor.data_ptr()


def marked(tensor: torch.Tensor) -> torch.Tensor:
    """A compacted tensor, with a mark on it if it is a copy."""
    kept = compact(tensor)
    if is_copy(kept, tensor):
        kept.is_copy = True  # type: ignore[attr-defined]
    return kept


def is_marked(kept: torch.Tensor) -> bool:
    """Whether it has that mark."""
    return getattr(kept, "is_copy", False)


def plain(tensor: torch.Tensor) -> bool:
    """Whether its bytes lie in memory as they should be sent."""
    return tensor.is_contiguous() and not tensor.is_conj() and not tensor.is_neg()


def fills_its_storage(tensor: torch.Tensor) -> bool:
    """Whether its storage has exactly its bytes."""
    return tensor.untyped_storage().nbytes() == tensor.nbytes


def raw(tensor: torch.Tensor) -> torch.Tensor:
    """The bytes of a contiguous tensor, as a view."""
    return tensor.view(-1).view(torch.uint8)


def bits(tensor: torch.Tensor) -> bytes:
    """The bytes of a contiguous tensor, as they are now."""
    return ctypes.string_at(tensor.data_ptr(), tensor.nbytes)
