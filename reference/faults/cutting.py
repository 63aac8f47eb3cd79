"""Faults of cutting: where a bucket ends."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import torch

from bucketproof.reference.faults.loop import (
    Buckets,
    Stream,
    bits,
    buckets,
    closes_its_stream,
    emptied,
    fit,
    is_copy,
    raw,
    refuse,
    total,
)
from bucketproof.reference.faults.registry import fault
from bucketproof.reference.ownership import compact
from bucketproof.reference.sound import Bucket, NamedTensor

# A bucket that is too full.


@fault("boundaries.limit", exposed_by="a bucket with room for a part of an item", origin="vllm #37476")
def closes_when_full(weights: Stream, limit: float) -> Buckets:
    """Asks whether a bucket is full, not whether the next item fits."""
    return buckets(weights, limit, fits=lambda bucket, tensor, limit: total(bucket) < limit)


@fault("boundaries.limit", exposed_by="items that sum exactly to the limit", promises={"bound": "strict"})
def fills_to_the_limit(weights: Stream, limit: float) -> Buckets:
    """Promises less than the limit, and fills up to it."""
    return buckets(weights, limit)


@fault("boundaries.limit", exposed_by="two items beyond the limit", promises={"bound": "soft"})
def admits_two_items_more(weights: Stream, limit: float) -> Buckets:
    """Promises one item beyond the limit, and asks nothing of the first three."""
    return buckets(weights, limit, fits=lambda bucket, tensor, limit: len(bucket) < 3 or fit(bucket, tensor, limit))


# A bucket that ends early.


@fault("boundaries.exact-fit", exposed_by="items that sum exactly to the limit")
def leaves_a_byte_free(weights: Stream, limit: float) -> Buckets:
    """Has `<` where `<=` is due."""
    return buckets(weights, limit, fits=lambda bucket, tensor, limit: total(bucket) + tensor.nbytes < limit)


@fault("boundaries.greedy", exposed_by="a bucket of more than sixteen items")
def closes_after_sixteen_items(weights: Stream, limit: float) -> Buckets:
    """Closes a bucket that has room, when there are sixteen items in it."""
    return buckets(weights, limit, fits=lambda bucket, tensor, limit: len(bucket) < 16 and fit(bucket, tensor, limit))


@fault("boundaries.exact-fit", exposed_by="a small item behind those that fill nine tenths")
def closes_when_nearly_full(weights: Stream, limit: float) -> Buckets:
    """Does not try to fill the last tenth of a bucket."""

    def fits(bucket: Bucket, tensor: torch.Tensor, limit: float) -> bool:
        return total(bucket) < 0.9 * limit and fit(bucket, tensor, limit)

    return buckets(weights, limit, fits=fits)


@fault("boundaries.greedy", exposed_by="two dtypes in one bucket")
def closes_at_another_dtype(weights: Stream, limit: float) -> Buckets:
    """Closes a bucket before an item of another dtype."""

    def fits(bucket: Bucket, tensor: torch.Tensor, limit: float) -> bool:
        return fit(bucket, tensor, limit) and all(each.dtype is tensor.dtype for _, each in bucket[-1:])

    return buckets(weights, limit, fits=fits)


@fault("boundaries.greedy", exposed_by="an item of no byte between two others")
def closes_before_an_item_of_no_byte(weights: Stream, limit: float) -> Buckets:
    """Takes an item of no byte for the mark at which a bucket ends."""
    return buckets(weights, limit, fits=lambda bucket, tensor, limit: tensor.nbytes > 0 and fit(bucket, tensor, limit))


@fault("boundaries.greedy", exposed_by="a bucket with parts of two layers")
@closes_its_stream
def closes_at_another_layer(weights: Stream, limit: float) -> Buckets:
    """Closes a bucket before the first item of a layer, by its name."""
    refuse(limit)
    bucket: Bucket = []
    for name, tensor in weights:
        tensor = compact(tensor)
        is_other = any(each.split(".")[:2] != name.split(".")[:2] for each, _ in bucket[-1:])
        if bucket and (is_other or not fit(bucket, tensor, limit)):
            yield emptied(bucket)
        bucket.append((name, tensor))
        del name, tensor
    if bucket:
        yield emptied(bucket)


@fault(
    "values.order",
    exposed_by="dtypes in turn",
    promises={"lookahead": None},
    also={"boundaries": "a bucket of one dtype has room for others"},
)
@closes_its_stream
def collects_each_dtype_apart(weights: Stream, limit: float) -> Buckets:
    """Has an open bucket for each dtype."""
    refuse(limit)
    several: dict[torch.dtype, Bucket] = defaultdict(list)
    for name, tensor in weights:
        tensor = compact(tensor)
        if several[tensor.dtype] and not fit(several[tensor.dtype], tensor, limit):
            yield emptied(several[tensor.dtype])
        several[tensor.dtype].append((name, tensor))
        del name, tensor
    for bucket in several.values():
        yield emptied(bucket)


@fault(
    "values.order",
    exposed_by="a small item behind one that did not fit",
    promises={"lookahead": None},
)
@closes_its_stream
def looks_back(weights: Stream, limit: float) -> Buckets:
    """Puts an item into the bucket before, if there is still room."""
    refuse(limit)
    before: Bucket = []
    bucket: Bucket = []
    for name, tensor in weights:
        tensor = compact(tensor)
        if before and fit(before, tensor, limit):
            before.append((name, tensor))
        elif not bucket or fit(bucket, tensor, limit):
            bucket.append((name, tensor))
        else:
            if before:
                yield emptied(before)
            before.extend(emptied(bucket))
            bucket.append((name, tensor))
        del name, tensor
    if before:
        yield emptied(before)
    if bucket:
        yield emptied(bucket)


# Buckets of nothing.


@fault("boundaries.no-empty-bucket", exposed_by="any stream")
def ends_with_an_empty_bucket(weights: Stream, limit: float) -> Buckets:
    """Yields what is left, also if nothing is."""
    yield from buckets(weights, limit)
    yield []


@fault("boundaries.no-empty-bucket", exposed_by="an empty stream", origin="slime #2134, miles #1492")
def yields_an_empty_bucket_for_an_empty_stream(weights: Stream, limit: float) -> Buckets:
    """Yields one bucket at the least."""
    several = False
    for bucket in buckets(weights, limit):
        several = True
        yield bucket
        del bucket
    if not several:
        yield []


@fault("boundaries.no-empty-bucket", exposed_by="a stream that begins with an item above the limit")
def closes_an_empty_bucket(weights: Stream, limit: float) -> Buckets:
    """Closes the open bucket before an oversize item, also if nothing is in it."""
    return buckets(weights, limit, first_fits=False)


@fault(
    "values.conserved",
    exposed_by="items of no byte at the end, alone or behind one above the limit",
    also={"boundaries": "they are lost behind an item above the limit"},
)
@closes_its_stream
def forgets_a_bucket_of_no_byte(weights: Stream, limit: float) -> Buckets:
    """Asks at the end for bytes that are left, not for items."""
    refuse(limit)
    bucket: Bucket = []
    for name, tensor in weights:
        tensor = compact(tensor)
        if bucket and not fit(bucket, tensor, limit):
            yield emptied(bucket)
        bucket.append((name, tensor))
        del name, tensor
    if total(bucket):
        yield emptied(bucket)


# The limit itself.


@fault("boundaries.bad-limit", exposed_by="a limit of zero or less")
def accepts_any_limit(weights: Stream, limit: float) -> Buckets:
    """Makes buckets of one item each of a limit of zero."""
    return buckets(weights, limit, check=lambda limit: None)


@fault("boundaries.bad-limit", exposed_by="a limit of zero")
def takes_zero_for_no_limit(weights: Stream, limit: float) -> Buckets:
    """Puts everything into one bucket if the limit is zero."""
    return buckets(weights, math.inf if limit == 0 else limit)


@fault("boundaries.bad-limit", exposed_by="a limit of zero or less")
def checks_late(weights: Stream, limit: float) -> Buckets:
    """Checks the limit when the first item has come."""

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        refuse(limit)
        return compact(tensor)

    return buckets(weights, limit, check=lambda limit: None, keep=keep)


@fault("boundaries.bad-limit", exposed_by="a limit of zero or less")
def raises_a_type_error(weights: Stream, limit: float) -> Buckets:
    """Raises another error than a `ValueError`."""
    if not limit > 0:
        raise TypeError("limit")
    return buckets(weights, limit)


@fault("boundaries.nan-limit", exposed_by="a limit that is no number")
def lets_nan_pass(weights: Stream, limit: float) -> Buckets:
    """Refuses what is zero or less, which a NaN is not."""

    def check(limit: float) -> None:
        if limit <= 0:
            raise ValueError("limit")

    return buckets(weights, limit, check=check)


@fault("values.conserved", exposed_by="a limit that is a float")
def refuses_a_fraction_of_a_byte(weights: Stream, limit: float) -> Buckets:
    """Refuses a limit that is no whole number."""

    def check(limit: float) -> None:
        refuse(limit)
        if limit != int(limit):
            raise ValueError("limit")

    return buckets(weights, limit, check=check)


# Items above the limit.


@fault("boundaries.oversize", exposed_by="an item above the limit", also={"values": "what is dropped does not arrive"})
@closes_its_stream
def drops_oversize(weights: Stream, limit: float) -> Buckets:
    """Leaves out what is larger than a bucket."""
    return buckets(((name, tensor) for name, tensor in weights if tensor.nbytes <= limit), limit)


@fault(
    "boundaries.oversize",
    exposed_by="an item above the limit",
    origin="verl #5836, miles #1313",
    also={"values": "of a stream that is refused nothing arrives"},
)
def refuses_oversize(weights: Stream, limit: float) -> Buckets:
    """Refuses what is larger than a bucket, without a promise that it does."""

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.nbytes > limit > 0:
            raise ValueError("too large")
        return compact(tensor)

    return buckets(weights, limit, keep=keep)


@fault("boundaries.oversize", exposed_by="an item above the limit, while a bucket is open")
def shares_an_oversize_bucket(weights: Stream, limit: float) -> Buckets:
    """Puts an oversize item into the bucket that is open."""

    def fits(bucket: Bucket, tensor: torch.Tensor, limit: float) -> bool:
        return tensor.nbytes > limit or fit(bucket, tensor, limit)

    return buckets(weights, limit, fits=fits)


@fault("boundaries.oversize", exposed_by="a small item behind one above the limit")
def joins_what_follows_oversize(weights: Stream, limit: float) -> Buckets:
    """Opens a bucket for an oversize item, and does not count it there."""

    def fits(bucket: Bucket, tensor: torch.Tensor, limit: float) -> bool:
        return total(each for each in bucket if each[1].nbytes <= limit) + tensor.nbytes <= limit

    return buckets(weights, limit, fits=fits)


@fault("boundaries.oversize", exposed_by="an item above the limit", promises={"oversize": "error"})
def accepts_oversize(weights: Stream, limit: float) -> Buckets:
    """Promises to refuse what is larger than a bucket, and does not."""
    return buckets(weights, limit)


@closes_its_stream
def _split(weights: Stream, limit: float, *, at_least: int = 1, with_rest: bool = True) -> Iterator[NamedTensor]:
    """Items above the limit in parts of as many rows as fit, and one of the rows that remain."""
    for name, tensor in weights:
        if tensor.nbytes <= limit or not tensor.ndim:
            yield name, tensor
        else:
            rows = max(at_least, int(limit // (tensor.nbytes // tensor.shape[0])))
            remaining = 0 if with_rest else tensor.shape[0] % rows
            for start in range(0, tensor.shape[0] - remaining, rows):
                yield name, tensor[start : start + rows]
        del tensor


@fault(
    "values.conserved",
    exposed_by="an item of several rows above the limit",
    also={"ownership": "a part of what is owned has to be copied", "memory": "the whole is there beside its parts"},
)
def splits_without_a_promise(weights: Stream, limit: float) -> Buckets:
    """Delivers an oversize item in parts, and has not said so."""
    refuse(limit)
    return buckets(_split(weights, limit), limit)


@fault(
    "boundaries.oversize",
    exposed_by="a row above the limit",
    origin="verl #5378",
    promises={"oversize": "split"},
)
def divides_by_rows_that_do_not_fit(weights: Stream, limit: float) -> Buckets:
    """Splits an oversize item into parts of as many rows as fit, also if none does."""
    refuse(limit)
    return buckets(_split(weights, limit, at_least=0), limit)


@fault("boundaries.oversize", exposed_by="rows that do not go evenly into parts", promises={"oversize": "split"})
def splits_and_loses_the_rest(weights: Stream, limit: float) -> Buckets:
    """Splits an oversize item into whole parts, and loses the rows behind the last of them."""
    refuse(limit)
    return buckets(_split(weights, limit, with_rest=False), limit)


@fault("values.conserved", exposed_by="a copy above the limit")
def cuts_off_what_exceeds_a_buffer(weights: Stream, limit: float) -> Buckets:
    """Copies through a buffer of the limit's size: what has no room there is left at zero."""

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        kept = compact(tensor)
        if is_copy(kept, tensor) and kept.nbytes > limit:
            raw(kept)[int(limit) :] = 0
        return kept

    return buckets(weights, limit, keep=keep)


# Buckets that differ from rank to rank, or from one kind of stream to another.


@fault("boundaries.rank-agreement", exposed_by="other values")
def cuts_by_values(weights: Stream, limit: float) -> Buckets:
    """Closes a bucket before what does not compress."""

    def fits(bucket: Bucket, tensor: torch.Tensor, limit: float) -> bool:
        return fit(bucket, tensor, limit) and not (tensor.nbytes and bits(tensor)[0] % 2)

    return buckets(weights, limit, fits=fits)


@fault("boundaries.greedy", exposed_by="an item that is not contiguous")
def cuts_by_strides(weights: Stream, limit: float) -> Buckets:
    """Closes a bucket before what has to be gathered."""
    is_gathered = False

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        nonlocal is_gathered
        is_gathered = not tensor.is_contiguous()
        return compact(tensor)

    return buckets(
        weights, limit, keep=keep, fits=lambda bucket, tensor, limit: not is_gathered and fit(bucket, tensor, limit)
    )


@fault(
    "lifecycle.iterables",
    exposed_by="a list that takes several buckets",
    also={"boundaries": "buckets of even size have room for more"},
)
def balances_a_list(weights: Stream, limit: float) -> Buckets:
    """Makes buckets of even size of a list, whose bytes it can count beforehand."""
    refuse(limit)
    whole = total(weights) if isinstance(weights, list) else 0
    return buckets(weights, whole / math.ceil(whole / limit) if whole else limit)


# Groups.

GROUPED: dict[str, Any] = {"order": None, "lookahead": None, "atomic_groups": (("q_proj", "k_proj"),)}
"""The promises of a bucketer that keeps the two halves of a layer together."""


def _layer_of(name: str) -> str | None:
    layer, _, suffix = name.rpartition(".")
    return layer if suffix in ("q_proj", "k_proj") else None


@closes_its_stream
def grouped_buckets(
    weights: Stream,
    limit: float,
    *,
    layer_of: Callable[[str], str | None] = _layer_of,
    size: Callable[[Bucket], int] = total,
    parts: Callable[[Bucket], list[Bucket]] = lambda members: [members],
    accepts: Callable[[str], bool] = lambda name: False,
) -> Buckets:
    """A sound bucketer that does so. Each part can be replaced by a wrong one.

    `layer_of` tells whose half a name is, `size` what members count, `parts` what of them may be apart, and `accepts`
    which half may be alone.
    """
    refuse(limit)
    bucket: Bucket = []
    halves: dict[str | None, Bucket] = defaultdict(list)
    for name, tensor in weights:
        layer = layer_of(name)
        halves[layer].append((name, compact(tensor)))
        if layer is None or len(halves[layer]) == 2:
            for members in parts(halves.pop(layer)):
                if bucket and total(bucket) + size(members) > limit:
                    yield emptied(bucket)
                bucket.extend(members)
                del members
        del tensor
    alone = list(itertools.chain(*halves.values()))
    halves.clear()
    if not all(accepts(name) for name, _ in alone):
        raise ValueError(f"incomplete: {[name for name, _ in alone]}")
    bucket.extend(emptied(alone))
    if bucket:
        yield emptied(bucket)


@fault(
    "boundaries.atomic-groups",
    exposed_by="a group across a boundary",
    origin="verl #7369, prime-rl #3175",
    promises=GROUPED,
)
def splits_a_group(weights: Stream, limit: float) -> Buckets:
    """Promises to keep groups together, and knows nothing of them."""
    return buckets(weights, limit)


@fault(
    "boundaries.atomic-groups", exposed_by="a group of which one half is missing", origin="verl #7369", promises=GROUPED
)
def accepts_half_a_group(weights: Stream, limit: float) -> Buckets:
    """Delivers what there is of a group."""
    return grouped_buckets(weights, limit, accepts=lambda name: True)


@fault("boundaries.atomic-groups", exposed_by="a group of which one half is missing", promises=GROUPED)
@closes_its_stream
def forgets_half_a_group(weights: Stream, limit: float) -> Buckets:
    """Waits for the other half of a group until the stream is over, and never looks whether it came."""
    waiting: dict[str, NamedTensor] = {}

    def paired() -> Iterator[NamedTensor]:
        for name, tensor in weights:
            layer = _layer_of(name)
            if layer is None:
                yield name, tensor
            elif layer in waiting:
                yield waiting.pop(layer)
                yield name, tensor
            else:
                waiting[layer] = name, compact(tensor)
            del tensor

    return grouped_buckets(paired(), limit)


@fault("boundaries.atomic-groups", exposed_by="a group above the limit", promises=GROUPED)
def splits_a_group_above_the_limit(weights: Stream, limit: float) -> Buckets:
    """Keeps the halves of a layer together if both fit into one bucket, and treats them as two items if not."""

    def parts(members: Bucket) -> list[Bucket]:
        return [members] if total(members) <= limit else [[member] for member in members]

    return grouped_buckets(weights, limit, parts=parts)


@fault("boundaries.atomic-groups", exposed_by="a group of which the first is missing", promises=GROUPED)
def accepts_a_second_half_alone(weights: Stream, limit: float) -> Buckets:
    """Asks whether each first half has found its second, and delivers a second half without a first as it is."""
    return grouped_buckets(weights, limit, accepts=lambda name: name.endswith("k_proj"))


@fault("boundaries.atomic-groups", exposed_by="two groups whose members alternate", promises=GROUPED)
def pairs_halves_as_they_come(weights: Stream, limit: float) -> Buckets:
    """Takes the next half for the other half of the one that waits, of whatever layer it is."""
    return grouped_buckets(weights, limit, layer_of=lambda name: None if _layer_of(name) is None else "any")


@fault("boundaries.limit", exposed_by="a layer of which one half fits, and both do not", promises=GROUPED)
def asks_for_half_a_group(weights: Stream, limit: float) -> Buckets:
    """Asks whether the first half of a layer fits, and adds both."""
    return grouped_buckets(weights, limit, size=lambda members: total(members[:1]))
