"""Adapters: make a `Target` of what is no callable `(weights, bucket_bytes)` that returns buckets.

    from bucketproof import conformance
    from bucketproof.adapters import packer
    from mine import pack, unpack

    test_contract = conformance(packer(pack, unpack))

Buckets may be sequences of pairs or mappings, and may come synchronously or asynchronously, without an adapter.
An adapter judges by what it can see: what its form hides from the suite is unpromised, and never a failure.
Whatever a target promises otherwise than its adapter says is given by name: `promises={"order": None}`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

import torch

from bucketproof.properties.buckets import pairs_of
from bucketproof.properties.payload import RoundTrip, entries_of, flat_of
from bucketproof.properties.promises import FAMILIES
from bucketproof.properties.promises import promises as promises_named
from bucketproof.properties.target import Target
from bucketproof.reference.sound import get_named_tensor_buckets_sync

__all__ = ["compaction", "packer", "sender"]

Named = list[tuple[str, torch.Tensor]]
Given = Mapping[str, Any]

_NOTHING: Given = MappingProxyType({})


def compaction(
    function: Callable[[torch.Tensor], torch.Tensor], *, name: str | None = None, promises: Given = _NOTHING
) -> Target:
    """A lone compaction function, which keeps a tensor or copies it. It is called for each tensor as it arrives.

        test_contract = conformance(compaction(compact_for_bucket))

    A plain greedy loop is put around it, so it answers for aliasing, ownership and values, and for nothing else.
    """

    def call(weights: Any, bucket_bytes: float) -> Any:
        return get_named_tensor_buckets_sync(weights, bucket_bytes, compaction=function)

    fixed = {"scope": ("aliasing", "ownership", "values")}
    return Target(name or _name(function), call, promises_named({**promises, **fixed}))


def packer(
    pack: Callable[[Named], Any],
    unpack: Callable[[Any], Any],
    *,
    flat: Callable[[Any], Any] = flat_of,
    entries: Callable[[Any], Any] = entries_of,
    padding: int = 15,
    name: str | None = None,
    promises: Given = _NOTHING,
) -> Target:
    """A packer: `pack(named)` makes a payload of a list of `(name, tensor)`, and `unpack(payload)` gives pairs.

        test_contract = conformance(packer(pack, unpack, padding=255))  # aligned to 256 bytes

    A greedy loop collects what fits `bucket_bytes`, without the padding. A bucket that is full is packed and at once
    unpacked, and what comes out is what the consumer gets. Where a bucket ends is the loop's doing, so the target does
    not answer for boundaries.

    `padding` is how many bytes the payload may have beside those of each item, at most. 15 are enough to align
    any dtype to its own size.

    `flat(payload)` is the payload's bytes (a tensor or bytes), `entries(payload)` its metadata in order: for each
    item `(name, nbytes)`, `(name, nbytes, offset)` in bytes, or a thing with a name, a dtype and a shape. Where
    these are not given, a tensor, bytes, or a pair of either and such metadata is understood. None means that there
    is nothing to be seen, and what cannot be seen is not judged.

    A `scope` that is promised leaves out what else it does not answer for, such as the memory of buffers it is given.

    It promises `copies="always"`, for that is what packing is, and `retention="at-flush"`: bytes are copied when the
    bucket is full, and until then hand-overs are collected as they came. A packer that copies each tensor as it
    arrives has no `pack(named)`: it is a bucketer by itself, and needs no adapter to say so.
    """
    scope = tuple(family for family in promises.get("scope") or FAMILIES if family != "boundaries")
    fixed = {"padding": padding, "scope": scope}
    promised = promises_named({"copies": "always", "retention": "at-flush", **promises, **fixed})
    trip = RoundTrip(pack, unpack, flat, entries, promised.dtype)

    def call(weights: Any, bucket_bytes: float) -> Any:
        # Unlike a loop, a map names no bucket while the next one is collected.
        yield from map(trip, get_named_tensor_buckets_sync(weights, bucket_bytes, compaction=_as_it_came))

    return Target(name or _name(pack), call, promised)


def _as_it_came(tensor: torch.Tensor) -> torch.Tensor:
    return tensor


Deliver = Callable[[Any], None]


def sender(
    send: Callable[[Any, Any, Deliver], Any],
    receive: Callable[[Any], Any] | None = None,
    *,
    name: str | None = None,
    promises: Given = _NOTHING,
) -> Target:
    """A sender and its receiver: `send(weights, bucket_bytes, deliver)` calls `deliver` with each bucket.

        def send(weights, bucket_bytes, deliver):
            Sender(bucket_bytes, channel).send_weights(weights)
            Receiver(channel).receive_weights(on_bucket_received=deliver)

        test_contract = conformance(sender(send))

    What is delivered are pairs or a mapping; with `receive`, it is whatever `receive(message)` makes such a bucket of.
    `send` may be a coroutine function.

    It cannot be stopped between two buckets, so all that it delivers is collected before the consumer sees any of it.
    What a callback is given is its own, but a list or mapping it is given in may be used again: the collection is of
    its members. How far the sender runs ahead (`lookahead`), and so what it keeps of a bucket that was consumed,
    cannot be seen and is unpromised.
    """
    promised = promises_named({**promises, "lookahead": None})
    decode = receive or _as_delivered

    def call(weights: Any, bucket_bytes: float) -> Any:
        return _collected(send, decode, weights, bucket_bytes)

    async def call_async(weights: Any, bucket_bytes: float) -> Iterator[Named]:
        return _replayed(*await _collect_async(send, decode, weights, bucket_bytes))

    return Target(name or _name(send), call_async if _is_async(send) else call, promised)


Collected = tuple[list[Named], Exception | None]


def _collected(send: Any, decode: Any, weights: Any, bucket_bytes: Any) -> Iterator[Named]:
    yield from _replayed(*_collect(send, decode, weights, bucket_bytes))


def _collect(send: Any, decode: Any, weights: Any, bucket_bytes: Any) -> Collected:
    inbox = _Inbox(decode)
    try:
        send(weights, bucket_bytes, inbox)
    except Exception as error:
        return inbox.buckets, error
    return inbox.buckets, None


async def _collect_async(send: Any, decode: Any, weights: Any, bucket_bytes: Any) -> Collected:
    inbox = _Inbox(decode)
    try:
        await send(weights, bucket_bytes, inbox)
    except Exception as error:
        return inbox.buckets, error
    return inbox.buckets, None


class _Inbox:
    """A callback that collects."""

    def __init__(self, decode: Callable[[Any], Any]) -> None:
        self.buckets: list[Named] = []
        self._decode = decode

    def __call__(self, message: Any) -> None:
        self.buckets.append(pairs_of(self._decode(message), len(self.buckets)))


def _replayed(buckets: list[Named], error: Exception | None) -> Iterator[Named]:
    """What was delivered before an error comes before it."""
    while buckets:
        yield buckets.pop(0)
    if error is not None:
        raise error


def _as_delivered(bucket: Any) -> Any:
    return bucket


def _is_async(function: Any) -> bool:
    return any(map(inspect.iscoroutinefunction, (function, type(function).__call__)))


def _name(function: Any) -> str:
    return str(getattr(function, "__qualname__", None) or repr(function))
