"""Faults of life: how a sync begins and ends, what it does with errors, and what it leaves behind."""

from __future__ import annotations

import ctypes
import gc
import itertools
import os
import random
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import numpy as np
import torch

from bucketproof.reference.faults.loop import (
    Buckets,
    Stream,
    buckets,
    closes_its_stream,
    emptied,
    filled,
    fit,
    is_copy,
    is_marked,
    marked,
    plain,
    raw,
    refuse,
    rule,
    total,
)
from bucketproof.reference.faults.registry import fault
from bucketproof.reference.ownership import compact
from bucketproof.reference.sound import Bucket, NamedTensor

# Kinds of streams.


@fault("lifecycle.iterables", exposed_by="a list or an iterator that is no generator")
def needs_a_generator(weights: Any, limit: float) -> Buckets:
    """Asks for a method that generators alone have."""
    refuse(limit)
    assert weights.send
    return buckets(weights, limit)


@fault(
    "lifecycle.iterables",
    exposed_by="anything but a list",
    also={"values": "of a stream without a length nothing arrives"},
)
def needs_a_length(weights: Any, limit: float) -> Buckets:
    """Asks for the number of weights."""
    refuse(limit)
    len(weights)
    return buckets(weights, limit)


@fault(
    "lifecycle.iterables",
    exposed_by="anything but a list",
    also={"values": "what can be consumed once does not arrive at the second time"},
)
def consumes_twice(weights: Stream, limit: float) -> Buckets:
    """Counts the weights before it makes buckets of them."""
    refuse(limit)
    sum(1 for _ in weights)
    return buckets(weights, limit)


@fault("lifecycle.iterables", exposed_by="the end of a list or of an iterator that is no generator")
def closes_what_cannot_be_closed(weights: Any, limit: float) -> Buckets:
    """Closes the stream in the end, whether it can be closed or not."""
    yield from buckets(weights, limit)
    weights.close()


@fault(
    "lifecycle.iterables",
    exposed_by="a list of two items",
    also={"values": "a list arrives in another order than it has"},
)
def takes_a_list_from_its_end(weights: Stream, limit: float) -> Buckets:
    """Takes the items out of a list as it sends them, the last first."""
    return buckets(_taken_out(weights, -1), limit)


def _taken_out(weights: Stream, place: int) -> Stream:
    """The items of a list as they are taken out of it at this place, or those of another stream."""
    return (weights.pop(place) for _ in range(len(weights))) if isinstance(weights, list) else weights


# Where a stream ends.


@fault("lifecycle.drains-producer", exposed_by="an item of no element", also={"values": "what follows is lost"})
@closes_its_stream
def stops_at_an_empty_tensor(weights: Stream, limit: float) -> Buckets:
    """Takes a tensor of no element for the end."""
    refuse(limit)
    bucket: Bucket = []
    for name, tensor in weights:
        tensor = compact(tensor)
        if bucket and not fit(bucket, tensor, limit):
            yield emptied(bucket)
        bucket.append((name, tensor))
        if not tensor.numel():
            break
        del name, tensor
    if bucket:
        yield emptied(bucket)


@fault("lifecycle.drains-producer", exposed_by="an item of no name", also={"values": "what follows is lost"})
@closes_its_stream
def stops_at_an_empty_name(weights: Stream, limit: float) -> Buckets:
    """Takes an item without a name for the end."""

    def named() -> Iterator[NamedTensor]:
        producer = iter(weights)
        while (pair := next(producer, None)) and pair[0]:
            yield pair
            del pair

    return buckets(named(), limit)


@fault("lifecycle.drains-producer", exposed_by="a stream of eight items or more")
@closes_its_stream
def takes_eight_items(weights: Stream, limit: float) -> Buckets:
    """Does not ask whether there is another item after the eighth."""
    return buckets(itertools.islice(weights, 8), limit)


# Errors of the producer.

_Weak = weakref.ref[torch.Tensor]


def _wipe(copies: list[_Weak]) -> None:
    for ref in copies:
        if (copy := ref()) is not None:
            raw(copy).zero_()


@fault("lifecycle.producer-error", exposed_by="an error that is an `Exception`")
def swallows_errors(weights: Stream, limit: float) -> Buckets:
    """Takes an exception for the end of the stream."""

    def calm() -> Iterator[NamedTensor]:
        with suppress(Exception):
            yield from weights

    return buckets(calm(), limit)


@fault("lifecycle.producer-error", exposed_by="an error before the first item")
@closes_its_stream
def swallows_an_error_at_the_start(weights: Stream, limit: float) -> Buckets:
    """Takes an exception for an empty stream, where no item has come yet."""

    def calm() -> Iterator[NamedTensor]:
        number = 0
        try:
            for number, pair in enumerate(weights, 1):  # noqa: B007  (it is looked at after an error)
                yield pair
                del pair
        except Exception:
            if number:
                raise

    return buckets(calm(), limit)


@fault("lifecycle.producer-error", exposed_by="an error when the open bucket is full to the byte")
def swallows_an_error_at_a_full_bucket(weights: Stream, limit: float) -> Buckets:
    """Drops the open bucket with the error, but sends it as if nothing had happened if there is no room in it."""
    used = 0

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        nonlocal used
        used = used + tensor.nbytes if used + tensor.nbytes <= limit else tensor.nbytes
        return compact(tensor)

    def calm() -> Iterator[NamedTensor]:
        try:
            yield from weights
        except Exception:
            if used < limit:
                raise

    return buckets(calm(), limit, keep=keep)


@fault("lifecycle.producer-error", exposed_by="an error that is an `Exception`")
def wraps_errors(weights: Stream, limit: float) -> Buckets:
    """Raises its own exception in place of the producer's."""
    refuse(limit)
    try:
        yield from buckets(weights, limit)
    except Exception as error:
        raise RuntimeError("sync failed") from error


@fault("lifecycle.producer-error", exposed_by="an error that is an `Exception`")
def raises_another_of_its_kind(weights: Stream, limit: float) -> Buckets:
    """Raises an exception that looks like the producer's, as one does that comes from another process."""
    try:
        yield from buckets(weights, limit)
    except Exception as error:
        raise type(error)(*error.args) from None


@fault("lifecycle.producer-error", exposed_by="an error that is no `Exception`")
def turns_an_exit_into_an_error(weights: Stream, limit: float) -> Buckets:
    """Passes on what is an `Exception`, and makes one of what is none."""
    try:
        yield from buckets(weights, limit)
    except (Exception, GeneratorExit):
        raise
    except BaseException as error:
        raise RuntimeError("sync was ended") from error


@fault("lifecycle.producer-error", exposed_by="an error behind a bucket that is held")
def takes_back_what_it_has_sent(weights: Stream, limit: float) -> Buckets:
    """Wipes the copies in the buckets that were delivered when the producer fails."""
    sent: list[_Weak] = []

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        copy = compact(tensor)
        if is_copy(copy, tensor):
            sent.append(weakref.ref(copy))
        return copy

    try:
        yield from buckets(weights, limit, keep=keep)
    except Exception:
        _wipe(sent)
        raise


@fault("lifecycle.producer-error", exposed_by="a consumer that asks again after an error")
def goes_on_after_an_error(weights: Stream, limit: float) -> Buckets:
    """Yields what it has when the consumer asks again after an error."""
    return _Unfailing(weights, limit)


class _Unfailing:
    def __init__(self, weights: Stream, limit: float) -> None:
        refuse(limit)
        self._weights, self._limit, self._bucket = iter(weights), limit, list[NamedTensor]()

    def __iter__(self) -> Iterator[Bucket]:
        return self

    def __next__(self) -> Bucket:
        for name, tensor in self._weights:
            full = self._bucket and not fit(self._bucket, tensor, self._limit)
            flushed = emptied(self._bucket) if full else []
            self._bucket.append((name, compact(tensor)))
            del tensor
            if flushed:
                return flushed
        if self._bucket:
            return emptied(self._bucket)
        raise StopIteration


# Closing early.

_UNSENT: list[torch.Tensor] = []


@fault("lifecycle.early-close", exposed_by="closing before the end, while the producer is held elsewhere")
def leaves_the_producer_open(weights: Stream, limit: float) -> Buckets:
    """Does not close the producer when it is closed, which whoever holds it keeps open."""
    refuse(limit)
    bucket: Bucket = []
    for name, tensor in weights:
        tensor = compact(tensor)
        if bucket and not fit(bucket, tensor, limit):
            yield emptied(bucket)
        bucket.append((name, tensor))
        del name, tensor
    if bucket:
        yield emptied(bucket)


@fault("lifecycle.early-close", exposed_by="closing when there is an item in the open bucket")
def keeps_the_open_bucket(weights: Stream, limit: float) -> Buckets:
    """Keeps what was in the open bucket when it is closed."""

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        _UNSENT[:] = [compact(tensor)]
        return _UNSENT[0]

    try:
        yield from buckets(weights, limit, keep=keep)
    except GeneratorExit:
        raise
    except BaseException:
        _UNSENT.clear()
        raise
    _UNSENT.clear()


@fault("lifecycle.early-close", exposed_by="closing before the end")
def complains_of_closing(weights: Stream, limit: float) -> Buckets:
    """Raises when it is closed."""
    try:
        yield from buckets(weights, limit)
    except GeneratorExit:
        raise RuntimeError("not done") from None


@fault("lifecycle.early-close", exposed_by="closing when there is an item in the open bucket")
def yields_the_rest_in_any_case(weights: Stream, limit: float) -> Buckets:
    """Drops the open bucket when the producer fails, and yields it in the end otherwise, also if it is closed."""
    bucket: Bucket = []
    try:
        yield from filled(weights, limit, bucket)
    except Exception:
        bucket.clear()
        raise
    finally:
        if bucket:
            yield emptied(bucket)


# What belongs to the consumer.


@fault("lifecycle.bucket-is-the-consumers", exposed_by="a bucket before the last that is held")
@closes_its_stream
def clears_what_it_has_yielded(weights: Stream, limit: float) -> Buckets:
    """Uses one list for all buckets."""
    refuse(limit)
    bucket: Bucket = []
    for name, tensor in weights:
        tensor = compact(tensor)
        if bucket and not fit(bucket, tensor, limit):
            yield bucket
            bucket.clear()
        bucket.append((name, tensor))
        del name, tensor
    if bucket:
        yield bucket


@fault("lifecycle.bucket-is-the-consumers", exposed_by="the last bucket, if it is held")
@closes_its_stream
def clears_the_last_bucket(weights: Stream, limit: float) -> Buckets:
    """Yields the open bucket itself in the end, and clears it when it cleans up."""
    refuse(limit)
    bucket: Bucket = []
    try:
        for name, tensor in weights:
            tensor = compact(tensor)
            if bucket and not fit(bucket, tensor, limit):
                yield emptied(bucket)
            bucket.append((name, tensor))
            del name, tensor
        if bucket:
            yield bucket
    finally:
        bucket.clear()


@fault("lifecycle.bucket-is-the-consumers", exposed_by="a bucket before the last that is held")
@closes_its_stream
def puts_the_next_item_into_the_last_bucket(weights: Stream, limit: float) -> Buckets:
    """Begins a new bucket only after the item that had no room was put into the one it has yielded."""
    refuse(limit)
    bucket: Bucket = []
    for name, tensor in weights:
        tensor = compact(tensor)
        full = bool(bucket) and not fit(bucket, tensor, limit)
        if full:
            yield bucket
        bucket.append((name, tensor))
        if full:
            bucket = bucket[-1:]
        del name, tensor
    if bucket:
        yield emptied(bucket)


@fault("lifecycle.bucket-is-the-consumers", exposed_by="a consumer that clears a bucket before the last")
def looks_at_what_it_has_yielded(weights: Stream, limit: float) -> Buckets:
    """Names the last item of a bucket after its consumer had it."""
    return _touched(weights, limit, lambda bucket: bucket[-1])


def _touched(weights: Stream, limit: float, touch: Callable[[Bucket], object], **parts: Any) -> Buckets:
    """Sound, but for what it does with a bucket that its consumer had."""
    for bucket in buckets(weights, limit, **parts):
        yield bucket
        touch(bucket)
        del bucket


@fault("lifecycle.bucket-is-the-consumers", exposed_by="a bucket before the last that is held")
def takes_the_tensors_out_of_its_bucket(weights: Stream, limit: float) -> Buckets:
    """Puts None for each tensor of a bucket that its consumer had, to free them."""

    def take_out(bucket: list[Any]) -> None:
        bucket[:] = [(name, None) for name, _ in bucket]

    return _touched(weights, limit, take_out)


@fault("lifecycle.bucket-is-the-consumers", exposed_by="a bucket of two items before the last that is held")
def reverses_its_bucket_afterwards(weights: Stream, limit: float) -> Buckets:
    """Reverses a bucket that its consumer had."""
    return _touched(weights, limit, list.reverse)


@fault(
    "lifecycle.bucket-is-the-consumers",
    exposed_by="a consumer that clears a bucket before the last",
    also={"boundaries": "what was cleared takes room in all buckets that follow"},
)
def subtracts_what_it_has_yielded(weights: Stream, limit: float) -> Buckets:
    """Counts down by what is in a bucket when its consumer had it."""
    used = 0

    def fits(bucket: Bucket, tensor: torch.Tensor, limit: float) -> bool:
        nonlocal used
        has_room = not bucket or used + tensor.nbytes <= limit
        used += tensor.nbytes
        return has_room

    def subtract(bucket: Bucket) -> None:
        nonlocal used
        used -= total(bucket)

    return _touched(weights, limit, subtract, fits=fits)


@fault("lifecycle.bucket-is-the-consumers", exposed_by="a copied item in a bucket before the last that is held")
def wipes_what_it_has_yielded(weights: Stream, limit: float) -> Buckets:
    """Wipes its copies when the consumer comes back, as if it were done with them."""
    copies: list[_Weak] = []

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        copy = compact(tensor)
        if is_copy(copy, tensor):
            copies.append(weakref.ref(copy))
        return copy

    for bucket in buckets(weights, limit, keep=keep):
        sent = [ref for ref in copies if any(ref() is tensor for _, tensor in bucket)]
        yield bucket
        del bucket
        _wipe(sent)


Slots = dict[tuple[int, ...], torch.Tensor]


def _copied_into(slots: Slots, key: tuple[int, ...], tensor: torch.Tensor) -> torch.Tensor:
    if not is_marked(tensor):
        return tensor
    slot = slots.setdefault((*key, tensor.nbytes), tensor)
    raw(slot).copy_(raw(tensor))
    return raw(slot).view(tensor.dtype).view(tensor.shape)


@fault(
    "lifecycle.bucket-is-the-consumers",
    exposed_by="copied items of one size, at the same place of two buckets that are held",
    origin="slime #929, verl #7987",
    also={"memory": "a buffer that is used again is not let go of in between"},
)
def uses_a_buffer_again(weights: Stream, limit: float) -> Buckets:
    """Copies a bucket's items into the memory that it copied into for another bucket."""
    slots: Slots = {}

    def give(bucket: Bucket) -> Bucket:
        return [(name, _copied_into(slots, (at,), tensor)) for at, (name, tensor) in enumerate(emptied(bucket))]

    return buckets(weights, limit, keep=marked, give=give)


@fault(
    "lifecycle.bucket-is-the-consumers",
    exposed_by="copied items of one size, at the same place of two buckets that are held with one between them",
    also={"memory": "a buffer that is used again is not let go of in between"},
)
def takes_turns_with_two_buffers(weights: Stream, limit: float) -> Buckets:
    """Copies a bucket's items into the memory that it copied into for the last but one."""
    slots: Slots = {}
    numbers = itertools.count()

    def give(bucket: Bucket) -> Bucket:
        turn = next(numbers) % 2
        return [(name, _copied_into(slots, (turn, at), tensor)) for at, (name, tensor) in enumerate(emptied(bucket))]

    return buckets(weights, limit, keep=marked, give=give)


# Traces.


@fault("lifecycle.leaves-no-trace", exposed_by="a sync under `enable_grad`")
def yields_without_grad(weights: Stream, limit: float) -> Buckets:
    """Yields inside of `no_grad`."""
    with torch.no_grad():
        yield from buckets(weights, limit)


@fault("lifecycle.leaves-no-trace", exposed_by="a sync outside of `inference_mode`")
def yields_in_inference_mode(weights: Stream, limit: float) -> Buckets:
    """Yields inside of `inference_mode`."""
    with torch.inference_mode():
        yield from buckets(weights, limit)


@fault("lifecycle.leaves-no-trace", exposed_by="a sync under `enable_grad`")
def leaves_grad_off(weights: Stream, limit: float) -> Buckets:
    """Turns gradients off, and not on again."""
    torch.set_grad_enabled(False)
    return buckets(weights, limit)


@rule("lifecycle.leaves-no-trace", exposed_by="a sync under `no_grad`")
def turns_gradients_on_again(tensor: torch.Tensor) -> torch.Tensor:
    """Turns gradients off while it copies, and on again, though they may not have been on."""
    torch.set_grad_enabled(False)
    copy = compact(tensor)
    torch.set_grad_enabled(True)
    return copy


@fault("lifecycle.leaves-no-trace", exposed_by="any sync")
def seeds_torch(weights: Stream, limit: float) -> Buckets:
    """Seeds torch's random numbers."""
    torch.manual_seed(0)
    return buckets(weights, limit)


@fault("lifecycle.leaves-no-trace", exposed_by="any sync")
def seeds_numpy(weights: Stream, limit: float) -> Buckets:
    """Seeds numpy's random numbers."""
    np.random.seed(0)
    return buckets(weights, limit)


@fault("lifecycle.leaves-no-trace", exposed_by="a bucket of four items")
def checks_a_random_item(weights: Stream, limit: float) -> Buckets:
    """Looks closer at some item of a large bucket, for which it seeds torch's random numbers anew."""

    def give(bucket: Bucket) -> Bucket:
        flushed = emptied(bucket)
        if len(flushed) > 3:
            name, tensor = flushed[torch.seed() % len(flushed)]
            assert tensor.storage_offset() == 0, name
        return flushed

    return buckets(weights, limit, give=give)


@fault("lifecycle.leaves-no-trace", exposed_by="any sync")
def draws_a_number(weights: Stream, limit: float) -> Buckets:
    """Takes one of Python's random numbers."""
    random.random()
    return buckets(weights, limit)


@fault("lifecycle.leaves-no-trace", exposed_by="any sync")
def takes_one_thread(weights: Stream, limit: float) -> Buckets:
    """Sets the number of threads."""
    torch.set_num_threads(torch.get_num_threads() + 1)
    return buckets(weights, limit)


@fault("lifecycle.leaves-no-trace", exposed_by="any sync")
def sets_the_default_dtype(weights: Stream, limit: float) -> Buckets:
    """Sets the default dtype."""
    torch.set_default_dtype(torch.float64)
    return buckets(weights, limit)


@fault("lifecycle.leaves-no-trace", exposed_by="any sync that yields a bucket")
def sets_the_default_dtype_meanwhile(weights: Stream, limit: float) -> Buckets:
    """Sets the default dtype, and sets it back when the sync is over."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        yield from buckets(weights, limit)
    finally:
        torch.set_default_dtype(before)


@fault("lifecycle.leaves-no-trace", exposed_by="any sync")
def lowers_the_precision_of_products(weights: Stream, limit: float) -> Buckets:
    """Sets the precision of float32 products."""
    torch.set_float32_matmul_precision("medium")
    return buckets(weights, limit)


@fault("lifecycle.leaves-no-trace", exposed_by="any sync")
def detects_anomalies(weights: Stream, limit: float) -> Buckets:
    """Turns on autograd's detection of anomalies."""
    torch.autograd.set_detect_anomaly(True)
    return buckets(weights, limit)


@fault("lifecycle.leaves-no-trace", exposed_by="any sync that yields a bucket")
def turns_off_garbage_collection(weights: Stream, limit: float) -> Buckets:
    """Turns the garbage collector off for the sake of speed, and on again when the sync is over."""
    gc.disable()
    try:
        yield from buckets(weights, limit)
    finally:
        gc.enable()


@fault("lifecycle.leaves-no-trace", exposed_by="any sync")
def sets_an_environment_variable(weights: Stream, limit: float) -> Buckets:
    """Sets an environment variable for its transport."""
    os.environ["NCCL_CUMEM_ENABLE"] = "0"
    return buckets(weights, limit)


@fault("lifecycle.leaves-no-trace", exposed_by="a list")
def empties_the_list_it_was_given(weights: Stream, limit: float) -> Buckets:
    """Takes the items out of a list as it sends them."""
    return buckets(_taken_out(weights, 0), limit)


@rule("lifecycle.leaves-no-trace", exposed_by="a copied item")
def wipes_its_source(tensor: torch.Tensor) -> torch.Tensor:
    """Writes into what it has copied from."""
    copy = compact(tensor)
    if is_copy(copy, tensor) and plain(tensor):
        ctypes.memset(tensor.data_ptr(), 0, tensor.nbytes)
    return copy


@rule("lifecycle.leaves-no-trace", exposed_by="a parameter that is trained", on=("live-parameter",))
def freezes_parameters(tensor: torch.Tensor) -> torch.Tensor:
    """Turns off `requires_grad` of a parameter that is trained."""
    return compact(tensor.requires_grad_(False) if tensor.is_leaf and tensor.requires_grad else tensor)


@rule(
    "lifecycle.leaves-no-trace",
    exposed_by="shared memory that is copied",
    on=("live-parameter", "saved-by-autograd"),
)
def bumps_the_version(tensor: torch.Tensor) -> torch.Tensor:
    """Has autograd take what it has copied from for changed."""
    copy = compact(tensor)
    if is_copy(copy, tensor) and not tensor.is_inference():
        torch.autograd.graph.increment_version(tensor)
    return copy


# Syncs that do not end.


@fault("lifecycle.terminates", exposed_by="a bucket of four items")
def spins(weights: Stream, limit: float) -> Buckets:
    """Waits for a fourth item as for one that is late."""
    return buckets(weights, limit, give=lambda bucket: emptied(bucket) if len(bucket) < 4 else _spin())


def _spin() -> Bucket:
    while True:
        pass


@rule("lifecycle.terminates", exposed_by="a copied item of no element")
def waits_for_the_first_byte_of_a_copy(tensor: torch.Tensor) -> torch.Tensor:
    """Takes a copy for one that is still under way as long as there is nothing in it."""
    copy = compact(tensor)
    while copy is not tensor and not copy.nbytes:
        pass
    return copy


@fault("lifecycle.terminates", exposed_by="a bucket of four items")
def sleeps(weights: Stream, limit: float) -> Buckets:
    """Polls, and swallows whatever interrupts it once."""

    def give(bucket: Bucket) -> Bucket:
        while len(bucket) > 3:
            with suppress(Exception):
                time.sleep(0.01)
        return emptied(bucket)

    return buckets(weights, limit, give=give)


@fault("lifecycle.terminates", exposed_by="an error of the producer")
@closes_its_stream
def retries(weights: Stream, limit: float) -> Buckets:
    """Asks a producer that has failed again and again."""

    def stubborn() -> Iterator[NamedTensor]:
        producer, failed = iter(weights), False
        while True:
            try:
                yield next(producer)
            except StopIteration:
                if not failed:
                    return
            except Exception:
                failed = True

    return buckets(stubborn(), limit)
