"""A greedy loop, for targets that are but a part of a bucketer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

from bucketproof.repro.parts.seeing import pairs

Named = list[tuple[str, torch.Tensor]]


def greedy(weights: Any, limit: float, keep: Callable[[Any], Any] = lambda tensor: tensor) -> Iterator[Named]:
    """Lists of weights that fit the limit together, in the order of the stream."""
    if not limit > 0:
        raise ValueError(f"no limit: {limit}")
    bucket: Named = []
    producer = iter(weights)
    try:
        for name, tensor in producer:
            tensor = keep(tensor)
            if bucket and sum(each.nbytes for _, each in bucket) + tensor.nbytes > limit:
                yield taken(bucket)
            bucket.append((name, tensor))
            del name, tensor
        if bucket:
            yield taken(bucket)
    finally:
        bucket.clear()
        if hasattr(producer, "close"):
            producer.close()


def taken(bucket: Named) -> Named:
    """What a bucket holds. It is empty then."""
    members = bucket[:]
    bucket.clear()
    return members


def compacting(compact: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[Any, float], Any]:
    """A bucketer that applies a compaction to each weight as it arrives."""
    return lambda weights, limit: greedy(weights, limit, compact)


def packing(pack: Callable[[Named], Any], unpack: Callable[[Any], Any], *rest: Any) -> Callable[[Any, float], Any]:
    """A bucketer that packs each bucket when it is full, and delivers what is unpacked of that."""

    def round_trip(named: Named) -> Named:
        return pairs(unpack(pack(named)))

    def bucketer(weights: Any, limit: float) -> Iterator[Any]:
        yield from map(round_trip, greedy(weights, limit))  # unlike a loop, a map names no bucket meanwhile

    return bucketer
