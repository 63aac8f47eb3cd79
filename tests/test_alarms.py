"""Every alarm rings: for each property there are wrong bucketers that break it, and only its family.

Each is the sound loop below with one wrong decision. Where a fault breaks a second family by its nature, the table
says so, and why.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import itertools
import random
import time
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import hypothesis
import pytest
import torch
from hypothesis import Phase, given, settings

from bucketproof.adapters import packer
from bucketproof.properties import PROFILES, PROPERTIES, Cell, Promises, Target, cells, execute, judge, limits
from bucketproof.properties.campaigns import drawn_for, share_of
from bucketproof.properties.judging import without_constants
from bucketproof.properties.limits import Hang
from bucketproof.reference import compact, owns_its_memory
from bucketproof.reference.variants import pack_aligned, unpack_aligned
from bucketproof.strategies import Plan

SMOKE = PROFILES["smoke"]
ELSEWHERE = 4
"""Plans of a campaign that is another property's. A family that is flagged by mistake is mostly flagged at once."""
USUAL = ("fresh", "full-tensor", "slice", "exact-cover", "detach", "numpy", "partial-slice", "tied")
"""Provenances that every alarm is judged on."""


# The table.


@dataclass(frozen=True)
class Alarm:
    """A wrong bucketer, and what must be said of it."""

    property: str
    bucketer: Callable[..., Any] | Target
    promises: Promises = field(default_factory=Promises)
    also: Mapping[str, str] = field(default_factory=dict)
    """Other families that it breaks by its nature, with the reason."""
    where: tuple[str, ...] = ()
    """Provenances that it takes to show, beside the usual ones."""


ALARMS: list[Alarm] = []


def rings(property: str, **options: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Put a wrong bucketer in the table."""

    def add(bucketer: Callable[..., Any]) -> Callable[..., Any]:
        ALARMS.append(Alarm(property, bucketer, **options))
        return bucketer

    return add


# The sound loop, in parts.


def refuse(limit):
    if not limit > 0:
        raise ValueError(f"no limit: {limit}")


def nbytes(bucket):
    return sum(tensor.nbytes for _, tensor in bucket)


def fit(bucket, tensor, limit):
    return nbytes(bucket) + tensor.nbytes <= limit


def emptied(bucket):
    members = bucket[:]
    bucket.clear()
    return members


def close(producer):
    if hasattr(producer, "close"):
        producer.close()


def buckets(weights, limit, *, check=refuse, keep=compact, fits=fit, give=emptied, first_fits=True):
    """A sound bucketer. Each part can be replaced by a wrong one."""
    check(limit)
    bucket = []
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
        close(producer)


async def async_buckets(weights, limit, *, keep=compact):
    """The same, of an asynchronous kind."""
    refuse(limit)
    bucket = []
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
        if hasattr(producer, "aclose"):
            await producer.aclose()


def stepped(weights):
    return weights.__aiter__() if hasattr(weights, "__aiter__") else Stepped(iter(weights))


class Stepped:
    """An iterator as an asynchronous one."""

    def __init__(self, iterator):
        self.iterator = iterator

    def __aiter__(self):
        return self

    async def __anext__(self):
        for pair in self.iterator:
            return pair
        raise StopAsyncIteration

    async def aclose(self):
        close(self.iterator)


def is_copy(copy, tensor):
    return copy.nbytes > 0 and copy.data_ptr() != tensor.data_ptr()


def plain(tensor):
    return tensor.is_contiguous() and not tensor.is_conj() and not tensor.is_neg()


def raw(tensor):
    return tensor.view(-1).view(torch.uint8)


def bits(tensor):
    return ctypes.string_at(tensor.data_ptr(), tensor.nbytes)


# Aliasing.


@rings("aliasing.survives-overwrite")
def keeps_lent_views(weights, limit):
    """Keeps whatever is contiguous."""
    return buckets(weights, limit, keep=lambda tensor: tensor.detach() if plain(tensor) else compact(tensor))


@rings("aliasing.survives-overwrite")
def keeps_what_has_no_base(weights, limit):
    """Takes a tensor without a base for an owner."""

    def keep(tensor):
        return tensor.detach() if tensor._base is None and plain(tensor) else compact(tensor)

    return async_buckets(weights, limit, keep=keep)


@rings("aliasing.survives-overwrite")
def copies_at_flush(weights, limit):
    """Copies when a bucket is full, which is too late."""

    def give(bucket):
        return [(name, compact(tensor)) for name, tensor in emptied(bucket)]

    return buckets(weights, limit, keep=lambda tensor: tensor, give=give)


@rings("aliasing.no-lent-memory")
def keeps_what_fills_its_storage(weights, limit):
    """Takes a tensor of its storage's size for an owner."""

    def keep(tensor):
        fills = tensor.untyped_storage().nbytes() == tensor.nbytes
        return tensor.detach() if fills and plain(tensor) else compact(tensor)

    return buckets(weights, limit, keep=keep)


@rings("aliasing.no-pinned-storage")
def keeps_parts_of_a_larger_storage(weights, limit):
    """Copies what is lent and keeps what is not, whatever the size of its storage."""
    return buckets(weights, limit, keep=lambda tensor: tensor.detach() if is_part(tensor) else compact(tensor))


def is_part(tensor):
    """Whether a view is all that is left of a larger tensor, which nobody names."""
    base = tensor._base
    lonely = base is not None and base._use_count() == 2 and not base.requires_grad
    return lonely and base.nbytes > tensor.nbytes and plain(tensor)


@rings("aliasing.no-pinned-storage")
def remembers_the_source(weights, limit):
    """Notes on each copy what it is a copy of."""

    def keep(tensor):
        copy = compact(tensor)
        if is_copy(copy, tensor):
            copy.source = tensor
        return copy

    return buckets(weights, limit, keep=keep)


@rings(
    "aliasing.no-pinned-storage",
    also={"values": "what holds the source is the graph that the copy carries"},
    where=("requires-grad",),
)
def clones_in_the_graph(weights, limit):
    """Copies a view that requires grad without leaving its graph."""

    def keep(tensor):
        tracked = tensor.requires_grad and not tensor.is_leaf and plain(tensor)
        return tensor.clone() if tracked and not owns_its_memory(tensor) else compact(tensor)

    return buckets(weights, limit, keep=keep)


@rings("aliasing.no-pinned-storage")
def copies_the_whole_storage(weights, limit):
    """Copies all of the storage with each view of it."""

    def keep(tensor):
        if owns_its_memory(tensor) or not plain(tensor):
            return compact(tensor)
        whole = tensor.detach().untyped_storage().clone()
        return torch.empty(0, dtype=tensor.dtype).set_(whole, tensor.storage_offset(), tensor.shape, tensor.stride())

    return buckets(weights, limit, keep=keep)


# Ownership.


def copied(tensor):
    return compact(tensor.detach()[...])


@rings("ownership.no-copy", also={"memory": "copies of what is owned need not be there"})
def copies_everything(weights, limit):
    """Copies what is owned, too."""
    return buckets(weights, limit, keep=copied)


@rings("ownership.no-copy")
def copies_the_first_of_a_bucket(weights, limit):
    """Copies whatever begins a bucket."""

    def give(bucket):
        (name, tensor), *others = emptied(bucket)
        return [(name, copied(tensor)), *others]

    return buckets(weights, limit, give=give)


@rings("ownership.no-copy")
def copies_and_delivers_the_original(weights, limit):
    """Copies what is owned, and does not need the copy."""

    def keep(tensor):
        copied(tensor)
        return compact(tensor)

    return buckets(weights, limit, keep=keep)


@rings("ownership.no-copy")
def copies_what_has_a_base(weights, limit):
    """Takes a view whose base was dropped for lent."""
    return buckets(weights, limit, keep=lambda tensor: compact(tensor) if tensor._base is None else copied(tensor))


# Values.


@rings("values.conserved")
def drops_the_second_of_a_bucket(weights, limit):
    """Loses an item."""
    return buckets(weights, limit, give=lambda bucket: [each for i, each in enumerate(emptied(bucket)) if i != 1])


@rings("values.conserved")
def invents_an_item(weights, limit):
    """Adds an item to each bucket."""
    return buckets(weights, limit, give=lambda bucket: [*emptied(bucket), ("extra", torch.zeros(0))])


@rings("values.conserved")
def delivers_twice(weights, limit):
    """Delivers the first item of each bucket again."""
    return buckets(weights, limit, give=lambda bucket: [*bucket[:1], *emptied(bucket)])


@rings("values.conserved")
def shortens_names(weights, limit):
    """Cuts the first part off a name."""
    return buckets(((name.partition(".")[2] or name, tensor) for name, tensor in weights), limit)


@rings("values.conserved")
def changes_the_dtype(weights, limit):
    """Delivers float32 as int32."""

    def keep(tensor):
        copy = compact(tensor)
        return copy.view(torch.int32) if copy.dtype is torch.float32 else copy

    return buckets(weights, limit, keep=keep)


@rings("values.conserved")
def flattens(weights, limit):
    """Forgets the shape."""
    return buckets(weights, limit, keep=lambda tensor: compact(tensor).view(-1))


@rings("values.conserved")
def flips_a_bit(weights, limit):
    """Flips one bit of each copy."""

    def keep(tensor):
        copy = compact(tensor)
        if is_copy(copy, tensor):
            raw(copy)[-1] ^= 1
        return copy

    return buckets(weights, limit, keep=keep)


@rings("values.conserved")
def quiets_nans(weights, limit):
    """Computes with what it copies, which changes the payload of a NaN."""

    def keep(tensor):
        copy = compact(tensor)
        return copy.mul_(1.0) if is_copy(copy, tensor) and copy.dtype in (torch.float32, torch.float64) else copy

    return buckets(weights, limit, keep=keep)


@rings("values.order")
def reverses_each_bucket(weights, limit):
    """Puts the last item of a bucket first."""
    return buckets(weights, limit, give=lambda bucket: emptied(bucket)[::-1])


@rings("values.order")
def sends_large_items_ahead(weights, limit):
    """Yields an oversize item before the bucket that was open when it came."""
    refuse(limit)
    bucket, producer = [], iter(weights)
    for name, tensor in producer:
        tensor = compact(tensor)
        if tensor.nbytes > limit:
            yield [(name, tensor)]
        else:
            if bucket and not fit(bucket, tensor, limit):
                yield emptied(bucket)
            bucket.append((name, tensor))
        del name, tensor
    if bucket:
        yield emptied(bucket)


@rings("values.duplicates")
def collects_in_a_dict(weights, limit):
    """Loses the first of two items of one name."""
    return buckets(weights, limit, give=lambda bucket: dict(emptied(bucket)))


@rings("values.duplicates")
def refuses_duplicates(weights, limit):
    """Refuses a name that came before, without a promise that it does."""
    return buckets(unique(weights), limit)


def unique(weights):
    seen = set()
    for name, tensor in weights:
        if name in seen:
            raise KeyError(name)
        seen.add(name)
        yield name, tensor
        del tensor


@rings("values.tied")
def delivers_each_memory_once(weights, limit):
    """Leaves out names whose memory has been seen, by its address."""
    return buckets(of_new_addresses(weights), limit)


def of_new_addresses(weights):
    seen = {}
    for name, tensor in weights:
        if seen.setdefault(tensor.data_ptr(), name) == name:
            yield name, tensor
        del tensor


@rings("values.self-contained")
def leaves_a_graph(weights, limit):
    """Delivers the result of an autograd function."""

    def keep(tensor):
        own = compact(tensor).detach()
        return own.requires_grad_().view_as(own) if own.dtype is torch.float32 else own

    return buckets(weights, limit, keep=keep)


@rings("values.self-contained", where=("conj",))
def leaves_the_conjugation_to_do(weights, limit):
    """Copies the memory of a conjugated tensor, and conjugates the copy when it is read."""
    return buckets(
        weights, limit, keep=lambda tensor: compact(tensor.conj()).conj() if tensor.is_conj() else compact(tensor)
    )


@rings("values.self-contained", promises=Promises(layout="contiguous"), where=("transpose",))
def keeps_strides(weights, limit):
    """Promises contiguous tensors, and copies a transposed one as it is."""

    def keep(tensor):
        return compact(tensor) if tensor.is_conj() or tensor.is_neg() or plain(tensor) else tensor.detach().clone()

    return buckets(weights, limit, keep=keep)


@rings("values.self-contained", where=("expand",))
def expands_again(weights, limit):
    """Copies one element of an expanded tensor, and expands it again."""

    def keep(tensor):
        if 0 not in tensor.stride() or plain(tensor):
            return compact(tensor)
        once = tuple(slice(0, 1 if stride == 0 else None) for stride in tensor.stride())
        return compact(tensor[once]).expand(tensor.shape)

    return buckets(weights, limit, keep=keep)


# Boundaries.


@rings("boundaries.limit")
def closes_when_full(weights, limit):
    """Asks whether a bucket is full, not whether the next item fits."""
    return buckets(weights, limit, fits=lambda bucket, tensor, limit: nbytes(bucket) < limit)


@rings("boundaries.limit")
def counts_elements(weights, limit):
    """Counts elements for bytes."""
    return buckets(
        weights,
        limit,
        fits=lambda bucket, tensor, limit: sum(each.numel() for _, each in bucket) + tensor.numel() <= limit,
    )


@rings("boundaries.limit", promises=Promises(bound="strict"))
def fills_to_the_limit(weights, limit):
    """Promises less than the limit, and fills up to it."""
    return buckets(weights, limit)


@rings("boundaries.limit", promises=Promises(bound="soft"))
def never_closes(weights, limit):
    """Promises one item beyond the limit, and puts everything into one bucket."""
    return buckets(weights, limit, fits=lambda bucket, tensor, limit: len(bucket) < 3 or fit(bucket, tensor, limit))


def less(bucket, tensor, limit):
    return nbytes(bucket) + tensor.nbytes < limit


@rings("boundaries.exact-fit")
def leaves_a_byte_free(weights, limit):
    """Has `<` where `<=` is due."""
    return buckets(weights, limit, fits=less)


@rings("boundaries.greedy")
def closes_after_two_items(weights, limit):
    """Closes a bucket that has room."""
    return buckets(weights, limit, fits=lambda bucket, tensor, limit: len(bucket) < 2 and fit(bucket, tensor, limit))


@rings("boundaries.no-empty-bucket")
def ends_with_an_empty_bucket(weights, limit):
    """Yields what is left, also if nothing is."""
    yield from buckets(weights, limit)
    yield []


@rings("boundaries.no-empty-bucket")
def yields_an_empty_bucket_for_an_empty_stream(weights, limit):
    """Yields one bucket at the least."""
    several = False
    for bucket in buckets(weights, limit):
        several = True
        yield bucket
        del bucket
    if not several:
        yield []


@rings("boundaries.no-empty-bucket")
def closes_an_empty_bucket(weights, limit):
    """Closes the open bucket before an oversize item, also if nothing is in it."""
    return buckets(weights, limit, first_fits=False)


@rings("boundaries.bad-limit")
def accepts_any_limit(weights, limit):
    """Makes buckets of one item each of a limit of zero."""
    return buckets(weights, limit, check=lambda limit: None)


@rings("boundaries.bad-limit")
def checks_late(weights, limit):
    """Checks the limit when the first item has come."""

    def keep(tensor):
        refuse(limit)
        return compact(tensor)

    return buckets(weights, limit, check=lambda limit: None, keep=keep)


@rings("boundaries.bad-limit")
def raises_a_type_error(weights, limit):
    """Raises another error than a `ValueError`."""
    if not limit > 0:
        raise TypeError("limit")
    return buckets(weights, limit)


@rings("boundaries.nan-limit")
def lets_nan_pass(weights, limit):
    """Refuses what is zero or less, which a NaN is not."""

    def check(limit):
        if limit <= 0:
            raise ValueError("limit")

    return buckets(weights, limit, check=check)


@rings("boundaries.oversize", also={"values": "what is dropped does not arrive"})
def drops_oversize(weights, limit):
    """Leaves out what is larger than a bucket."""
    return buckets(((name, tensor) for name, tensor in weights if tensor.nbytes <= limit), limit)


@rings("boundaries.oversize", also={"values": "of a stream that is refused nothing arrives"})
def refuses_oversize(weights, limit):
    """Refuses what is larger than a bucket, without a promise that it does."""

    def keep(tensor):
        if tensor.nbytes > limit > 0:
            raise ValueError("too large")
        return compact(tensor)

    return buckets(weights, limit, keep=keep)


@rings("boundaries.oversize")
def shares_an_oversize_bucket(weights, limit):
    """Puts an oversize item into the bucket that is open."""

    def fits(bucket, tensor, limit):
        return tensor.nbytes > limit or fit(bucket, tensor, limit)

    return buckets(weights, limit, fits=fits)


@rings("boundaries.oversize", promises=Promises(oversize="error"))
def accepts_oversize(weights, limit):
    """Promises to refuse what is larger than a bucket, and does not."""
    return buckets(weights, limit)


@rings("boundaries.rank-agreement")
def cuts_by_values(weights, limit):
    """Closes a bucket before what does not compress."""

    def fits(bucket, tensor, limit):
        return fit(bucket, tensor, limit) and not (tensor.nbytes and int(raw(tensor)[0]) % 2)

    return buckets(weights, limit, fits=fits)


@rings("boundaries.rank-agreement")
def counts_the_storage(weights, limit):
    """Counts the bytes of the memory that an item lies in."""
    sizes = []

    def keep(tensor):
        sizes.append(tensor.untyped_storage().nbytes())
        return compact(tensor)

    def fits(bucket, tensor, limit):
        return sum(sizes[-len(bucket) - 1 :]) <= limit

    return buckets(weights, limit, keep=keep, fits=fits)


GROUPED = Promises(order=None, lookahead=None, atomic_groups=(("q_proj", "k_proj"),))


def layer_of(name):
    layer, _, suffix = name.rpartition(".")
    return layer if suffix in ("q_proj", "k_proj") else None


def grouped_buckets(weights, limit, *, complete=True):
    """A sound bucketer that keeps the two halves of a layer together."""
    refuse(limit)
    bucket, halves = [], defaultdict(list)
    for name, tensor in weights:
        layer = layer_of(name)
        halves[layer].append((name, compact(tensor)))
        if layer is None or len(halves[layer]) == 2:
            members = halves.pop(layer)
            if bucket and nbytes(bucket) + nbytes(members) > limit:
                yield emptied(bucket)
            bucket.extend(members)
            del members
        del tensor
    if halves and complete:
        raise ValueError(f"incomplete: {list(halves)}")
    for members in halves.values():
        bucket.extend(members)
    halves.clear()
    if bucket:
        yield emptied(bucket)


@rings("boundaries.atomic-groups", promises=GROUPED)
def splits_a_group(weights, limit):
    """Promises to keep groups together, and knows nothing of them."""
    return buckets(weights, limit)


@rings("boundaries.atomic-groups", promises=GROUPED)
def accepts_half_a_group(weights, limit):
    """Delivers what there is of a group."""
    return grouped_buckets(weights, limit, complete=False)


# Memory.


@rings("memory.peak")
def holds_copies_twice(weights, limit):
    """Holds a second copy of everything it has copied, until the bucket is full."""
    spare = []

    def keep(tensor):
        copy = compact(tensor)
        if is_copy(copy, tensor):
            spare.append(copy.clone())
        return copy

    def give(bucket):
        spare.clear()
        return emptied(bucket)

    return buckets(weights, limit, keep=keep, give=give)


@rings("memory.released-after-flush")
def names_the_flushed_bucket(weights, limit):
    """Has a variable that still names the last bucket while the next item is produced."""
    for flushed in buckets(weights, limit):  # noqa: UP028  (`yield from` would name nothing)
        yield flushed


@rings("memory.released-after-flush")
async def keeps_the_flushed_bucket(weights, limit):
    """Is asynchronous, and has such a variable too."""
    async for flushed in async_buckets(weights, limit):
        yield flushed


@rings("memory.lookahead")
def pulls_everything_first(weights, limit):
    """Copies the whole stream before it makes a bucket."""
    refuse(limit)
    everything = deque((name, compact(tensor)) for name, tensor in weights)
    return buckets((everything.popleft() for _ in range(len(everything))), limit)


@rings("memory.lookahead")
def looks_three_ahead(weights, limit):
    """Has three items in hand while it looks at one."""
    return buckets(ahead(weights), limit, keep=lambda tensor: tensor)


def ahead(weights):
    waiting = deque()
    for name, tensor in weights:
        waiting.append((name, compact(tensor)))
        del tensor
        if len(waiting) > 3:
            yield waiting.popleft()
    while waiting:
        yield waiting.popleft()


@rings("memory.steady")
def leaks_its_copies(weights, limit):
    """Keeps a list of all copies it has ever made."""

    def keep(tensor):
        copy = compact(tensor)
        if is_copy(copy, tensor):
            LEAKED.append(copy)
        return copy

    return buckets(weights, limit, keep=keep)


LEAKED: list[torch.Tensor] = []


@rings("memory.steady")
def leaks_a_little(weights, limit):
    """Keeps a note of each sync, in a tensor."""
    LEAKED.append(torch.zeros(1))
    return buckets(weights, limit)


@rings("memory.steady")
async def leaves_a_task(weights, limit):
    """Starts a task for each completed sync that never ends."""
    async for bucket in async_buckets(weights, limit):
        yield bucket
        del bucket
    STARTED.append(asyncio.ensure_future(asyncio.sleep(3600)))


STARTED: list[Any] = []


# Lifecycle.


@rings("lifecycle.iterables")
def needs_a_generator(weights, limit):
    """Asks for a method that generators alone have."""
    refuse(limit)
    assert weights.send
    return buckets(weights, limit)


@rings("lifecycle.iterables", also={"values": "of a stream without a length nothing arrives"})
def needs_a_length(weights, limit):
    """Asks for the number of weights."""
    refuse(limit)
    len(weights)
    return buckets(weights, limit)


@rings("lifecycle.iterables", also={"values": "what can be consumed once does not arrive at the second time"})
def consumes_twice(weights, limit):
    """Counts the weights before it makes buckets of them."""
    refuse(limit)
    sum(1 for _ in weights)
    return buckets(weights, limit)


@rings("lifecycle.drains-producer", also={"values": "what follows is lost"})
def stops_at_an_empty_tensor(weights, limit):
    """Takes a tensor of no element for the end."""
    refuse(limit)
    producer = iter(weights)
    bucket = []
    for name, tensor in producer:
        tensor = compact(tensor)
        if bucket and not fit(bucket, tensor, limit):
            yield emptied(bucket)
        bucket.append((name, tensor))
        if not tensor.numel():
            break
        del name, tensor
    if bucket:
        yield emptied(bucket)


@rings("lifecycle.drains-producer")
def takes_eight_items(weights, limit):
    """Does not ask whether there is another item after the eighth."""
    return buckets(itertools.islice(weights, 8), limit)


@rings("lifecycle.producer-error")
def swallows_errors(weights, limit):
    """Takes an exception for the end of the stream."""

    def calm():
        with suppress(Exception):
            yield from weights

    return buckets(calm(), limit)


@rings("lifecycle.producer-error")
def wraps_errors(weights, limit):
    """Raises its own exception in place of the producer's."""
    refuse(limit)
    try:
        yield from buckets(weights, limit)
    except Exception as error:
        raise RuntimeError("sync failed") from error


@rings("lifecycle.producer-error")
class GoesOnAfterAnError:
    """Yields what it has when the consumer asks again after an error."""

    def __init__(self, weights, limit):
        refuse(limit)
        self.weights, self.limit, self.bucket = iter(weights), limit, []

    def __iter__(self):
        return self

    def __next__(self):
        for name, tensor in self.weights:
            full = self.bucket and not fit(self.bucket, tensor, self.limit)
            flushed = emptied(self.bucket) if full else []
            self.bucket.append((name, compact(tensor)))
            del tensor
            if flushed:
                return flushed
        if self.bucket:
            return emptied(self.bucket)
        raise StopIteration


@rings("lifecycle.early-close")
def keeps_the_producer_open(weights, limit):
    """Holds on to the producer when it is closed."""
    refuse(limit)
    LEAKED_PRODUCERS.append(weights if hasattr(weights, "close") else None)
    bucket = []
    for name, tensor in weights:
        tensor = compact(tensor)
        if bucket and not fit(bucket, tensor, limit):
            yield emptied(bucket)
        bucket.append((name, tensor))
        del name, tensor
    if bucket:
        yield emptied(bucket)


LEAKED_PRODUCERS: list[Any] = []


@rings("lifecycle.early-close")
def keeps_the_open_bucket(weights, limit):
    """Keeps what was in the open bucket when it is closed."""

    def keep(tensor):
        UNSENT[:] = [compact(tensor)]
        return UNSENT[0]

    try:
        yield from buckets(weights, limit, keep=keep)
    except GeneratorExit:
        raise
    except BaseException:
        UNSENT.clear()
        raise
    UNSENT.clear()


UNSENT: list[torch.Tensor] = []


@rings("lifecycle.early-close")
def complains_of_closing(weights, limit):
    """Raises when it is closed."""
    try:
        yield from buckets(weights, limit)
    except GeneratorExit:
        raise RuntimeError("not done") from None


@rings("lifecycle.cancellation")
async def swallows_cancellation(weights, limit):
    """Takes a cancellation for the end of the stream."""
    with suppress(asyncio.CancelledError):
        async for bucket in async_buckets(weights, limit):
            yield bucket
            del bucket


@rings("lifecycle.cancellation")
async def leaves_a_prefetch(weights, limit):
    """Awaits each item in a task that it shields from cancellation, and forgets."""
    refuse(limit)
    producer = stepped(weights)
    bucket = []
    while True:
        try:
            name, tensor = await asyncio.shield(asyncio.ensure_future(patient(producer)))
        except StopAsyncIteration:
            break
        tensor = compact(tensor)
        if bucket and not fit(bucket, tensor, limit):
            yield emptied(bucket)
        bucket.append((name, tensor))
        del tensor
    if bucket:
        yield emptied(bucket)


async def patient(producer):
    for _ in range(4):
        await asyncio.sleep(0)
    return await producer.__anext__()


@rings("lifecycle.reusable", also={"values": "what is left of any sync reaches all that follow"})
def caches_by_name(weights, limit):
    """Copies what it has read in an earlier sync."""

    def remembered(name, tensor):
        copy = compact(tensor)
        if is_copy(copy, tensor):
            known = CACHE.setdefault((name, tensor.shape, tensor.dtype), bits(copy))
            raw(copy).copy_(torch.frombuffer(bytearray(known), dtype=torch.uint8))
        return name, copy

    return buckets(itertools.starmap(remembered, weights), limit, keep=lambda tensor: tensor)


CACHE: dict[Any, bytes] = {}


@rings("lifecycle.reusable")
def stays_busy(weights, limit):
    """Takes one sync at a time, and does not notice when one is broken off."""
    refuse(limit)
    if BUSY:
        BUSY.clear()
        raise RuntimeError("another sync is under way")
    BUSY.append(True)
    yield from buckets(weights, limit)
    BUSY.clear()


BUSY: list[bool] = []


@rings("lifecycle.concurrent-syncs")
def shares_its_bucket(weights, limit):
    """Has one bucket for all syncs."""
    refuse(limit)
    OPEN.clear()
    for name, tensor in weights:
        tensor = compact(tensor)
        full = emptied(OPEN) if OPEN and not fit(OPEN, tensor, limit) else []
        OPEN.append((name, tensor))
        del name, tensor
        if full:
            yield emptied(full)
    if OPEN:
        yield emptied(OPEN)


OPEN: list[Any] = []


@rings("lifecycle.bucket-is-the-consumers")
def clears_what_it_has_yielded(weights, limit):
    """Uses one list for all buckets."""
    refuse(limit)
    bucket = []
    for name, tensor in weights:
        tensor = compact(tensor)
        if bucket and not fit(bucket, tensor, limit):
            yield bucket
            bucket.clear()
        bucket.append((name, tensor))
        del name, tensor
    if bucket:
        yield bucket


@rings("lifecycle.bucket-is-the-consumers")
def looks_at_what_it_has_yielded(weights, limit):
    """Names the last item of a bucket after its consumer had it."""
    for bucket in buckets(weights, limit):
        yield bucket
        bucket[-1]
        del bucket


@rings("lifecycle.bucket-is-the-consumers", also={"memory": "a buffer that is used again is not let go of in between"})
def uses_a_buffer_again(weights, limit):
    """Copies a bucket's items into the memory that it copied into for another bucket."""
    slots = {}

    def keep(tensor):
        copy = compact(tensor)
        copy.is_copy = is_copy(copy, tensor)
        return copy

    def give(bucket):
        return [(name, copied_into(slots, place, tensor)) for place, (name, tensor) in enumerate(emptied(bucket))]

    return buckets(weights, limit, keep=keep, give=give)


def copied_into(slots, place, tensor):
    if not tensor.is_copy:
        return tensor
    slot = slots.setdefault((place, tensor.nbytes), tensor)
    raw(slot).copy_(raw(tensor))
    return raw(slot).view(tensor.dtype).view(tensor.shape)


@rings("lifecycle.leaves-no-trace")
def yields_without_grad(weights, limit):
    """Yields inside of `no_grad`."""
    with torch.no_grad():
        yield from buckets(weights, limit)


@rings("lifecycle.leaves-no-trace")
def leaves_grad_off(weights, limit):
    """Turns gradients off, and not on again."""
    torch.set_grad_enabled(False)
    return buckets(weights, limit)


@rings("lifecycle.leaves-no-trace")
def seeds_torch(weights, limit):
    """Seeds torch's random numbers."""
    torch.manual_seed(0)
    return buckets(weights, limit)


@rings("lifecycle.leaves-no-trace")
def draws_a_number(weights, limit):
    """Takes one of Python's random numbers."""
    random.random()
    return buckets(weights, limit)


@rings("lifecycle.leaves-no-trace")
def takes_one_thread(weights, limit):
    """Sets the number of threads."""
    torch.set_num_threads(torch.get_num_threads() + 1)
    return buckets(weights, limit)


@rings("lifecycle.leaves-no-trace")
def sets_the_default_dtype(weights, limit):
    """Sets the default dtype."""
    torch.set_default_dtype(torch.float64)
    return buckets(weights, limit)


@rings("lifecycle.leaves-no-trace")
def wipes_its_source(weights, limit):
    """Writes into what it has copied from."""

    def keep(tensor):
        copy = compact(tensor)
        if is_copy(copy, tensor) and plain(tensor):
            ctypes.memset(tensor.data_ptr(), 0, tensor.nbytes)
        return copy

    return buckets(weights, limit, keep=keep)


@rings("lifecycle.leaves-no-trace", where=("live-parameter",))
def freezes_parameters(weights, limit):
    """Turns off `requires_grad` of a parameter that is trained."""

    def keep(tensor):
        return compact(tensor.requires_grad_(False) if tensor.is_leaf and tensor.requires_grad else tensor)

    return buckets(weights, limit, keep=keep)


@rings("lifecycle.terminates")
def spins(weights, limit):
    """Waits for a fourth item as for one that is late."""
    return buckets(weights, limit, give=lambda bucket: emptied(bucket) if len(bucket) < 4 else spin())


def spin():
    while True:
        pass


@rings("lifecycle.terminates")
def sleeps(weights, limit):
    """Polls, and swallows whatever interrupts it once."""

    def give(bucket):
        while len(bucket) > 3:
            with suppress(Exception):
                time.sleep(0.01)
        return emptied(bucket)

    return buckets(weights, limit, give=give)


@rings("lifecycle.terminates")
async def waits_for_ever(weights, limit):
    """Awaits what never comes."""
    async for bucket in async_buckets(weights, limit):
        if len(bucket) > 3:
            await asyncio.get_running_loop().create_future()
        yield bucket
        del bucket


@rings("lifecycle.terminates")
def retries(weights, limit):
    """Asks a producer that has failed again and again."""

    def stubborn():
        producer = iter(weights)
        while True:
            try:
                yield next(producer)
            except StopIteration:
                if FAILED.get(id(producer)) is None:
                    return
            except Exception:
                FAILED[id(producer)] = True

    FAILED.clear()
    return buckets(stubborn(), limit)


FAILED: dict[int, bool] = {}


# Packing.


def packs_bfloat16_as_float16(named):
    """Mistakes one dtype for another of its size."""
    flat, metadata = pack_aligned(named)
    return flat, [(name, WRONG.get(dtype, dtype), shape) for name, dtype, shape in metadata]


WRONG = {torch.bfloat16: torch.float16, torch.float32: torch.int32}

rings("packing.round-trip", also={"values": "what does not come out does not arrive"})(
    packer(packs_bfloat16_as_float16, unpack_aligned)
)


def packs_tightly(named):
    """Leaves no byte between items, and says where each is."""
    flat = torch.empty(nbytes(named), dtype=torch.uint8)
    for part, (_, tensor) in zip(flat.split([tensor.nbytes for _, tensor in named]), named, strict=True):
        part.copy_(raw(copied(tensor)))
    ends = itertools.accumulate(tensor.nbytes for _, tensor in named)
    return flat, [(name, tensor, end - tensor.nbytes) for (name, tensor), end in zip(named, ends, strict=True)]


def unpacks_copies(payload):
    flat, metadata = payload
    return [
        (name, flat[start : start + like.nbytes].clone().view(like.dtype).view(like.shape))
        for name, like, start in metadata
    ]


def offsets(payload):
    return [(name, like.nbytes, start) for name, like, start in payload[1]]


rings("packing.alignment")(packer(packs_tightly, unpacks_copies, entries=offsets))


def elements(payload):
    return [(name, shape.numel()) for name, _, shape in payload[1]]


rings("packing.metadata")(packer(pack_aligned, unpack_aligned, entries=elements, name="gives_elements_for_bytes"))


# Judging.


@pytest.fixture(autouse=True, scope="module")
def _cheap_collections():
    """As in a search: the garbage collector, which many alarms call for, looks at what is new."""
    gc.freeze()
    yield
    gc.unfreeze()


def target_of(alarm: Alarm) -> Target:
    if isinstance(alarm.bucketer, Target):
        return alarm.bucketer
    return Target(alarm.bucketer.__name__, alarm.bucketer, alarm.promises)


def names(alarms: Iterable[Alarm]) -> list[str]:
    return [f"{alarm.property}-{target_of(alarm).name}" for alarm in alarms]


@cache
def drawn(campaign: str, promises: Promises, examples: int) -> tuple[Plan, ...]:
    """The plans that a campaign draws in a profile of so many examples."""
    found: list[Plan] = []

    @hypothesis.seed(0)
    @settings(
        settings.get_profile(SMOKE.registered),
        phases=[Phase.generate],
        max_examples=max(1, int(examples * share_of(campaign))),
    )
    @given(drawn_for(campaign, promises))
    def draw(plan: Plan) -> None:
        found.append(plan)

    with without_constants():
        draw()
    return tuple(found)


def broken(target: Target, judged: Iterable[Cell], *, mainly: Collection[str] = ()) -> dict[str, str]:
    """The properties that are broken in some of these cells, each with what happened.

    It is looked for in few plans, but for the properties and families that it is mainly about.
    """
    found: dict[str, str] = {}
    cells_of: dict[str, list[Cell]] = defaultdict(list)
    for cell in judged:
        if not cell.property.unpromised(target.promises):
            cells_of[cell.campaign].append(cell)
    for campaign, several in cells_of.items():
        main = any(cell.property.id in mainly or family(cell.property.id) in mainly for cell in several)
        for plan in drawn(campaign, target.promises, SMOKE.examples if main else ELSEWHERE):
            run = execute(target, plan)
            for cell in several:
                if problems := cell.problems(run):
                    found.setdefault(cell.property.id, f"{cell.id}: {problems[0].what}\n{plan}")
            if isinstance(run.error, Hang):
                break
    return found


def usual_cells(where: Iterable[str] = ()) -> Iterator[Cell]:
    return (cell for cell in cells() if cell.provenance is None or cell.provenance in {*USUAL, *where})


def family(property: str) -> str:
    return property.partition(".")[0]


def test_no_property_is_without_an_alarm():
    assert set(PROPERTIES) == {alarm.property for alarm in ALARMS}


@pytest.mark.parametrize("alarm", ALARMS, ids=names(ALARMS))
def test_an_alarm_rings_and_only_its_family(alarm, monkeypatch):
    if alarm.property == "lifecycle.terminates":
        monkeypatch.setattr(limits, "SECONDS", 0.1)
    found = broken(target_of(alarm), usual_cells(alarm.where), mainly={alarm.property, *alarm.also})
    assert alarm.property in found, found
    unexpected = {id: what for id, what in found.items() if family(id) not in {family(alarm.property), *alarm.also}}
    assert not unexpected, "\n".join(f"{id} {what}" for id, what in unexpected.items())
    assert set(alarm.also) <= set(map(family, found)), f"no sign of {alarm.also}"


@pytest.mark.parametrize(
    ("bucketer", "promises"),
    [(buckets, Promises()), (async_buckets, Promises()), (grouped_buckets, GROUPED)],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_what_the_alarms_are_made_of_rings_none(bucketer, promises):
    assert broken(Target("sound", bucketer, promises), usual_cells()) == {}


OF_EACH_FAMILY = {family(alarm.property): alarm for alarm in reversed(ALARMS) if "terminates" not in alarm.property}


@pytest.mark.parametrize("alarm", OF_EACH_FAMILY.values(), ids=names(OF_EACH_FAMILY.values()))
def test_a_verdict_says_what_an_alarm_does(alarm):
    judged = (cell for cell in usual_cells(alarm.where) if cell.property.id == alarm.property)
    outcomes = (judge(cell, target_of(alarm), SMOKE, 0) for cell in judged)
    outcome = next(outcome for outcome in outcomes if outcome.status == "fail")
    assert outcome.failure.sentence == PROPERTIES[alarm.property].sentence
    assert outcome.failure.plan.startswith("Plan(")
    assert outcome.failure.steps
