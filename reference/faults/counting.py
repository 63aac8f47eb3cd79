"""Faults of counting: how many bytes a bucketer thinks that it has."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable

import torch

from bucketproof.reference.faults.loop import Buckets, Stream, buckets, fills_its_storage, refuse, total
from bucketproof.reference.faults.registry import fault
from bucketproof.reference.ownership import compact
from bucketproof.reference.sound import Bucket


def _counted(weights: Stream, limit: float, size: Callable[[torch.Tensor], float]) -> Buckets:
    """Sound, but for what it takes for the size of a hand-over."""
    sizes: list[float] = []

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        sizes.append(size(tensor))
        return compact(tensor)

    def fits(bucket: Bucket, tensor: torch.Tensor, limit: float) -> bool:
        return sum(sizes[-len(bucket) - 1 :]) <= limit

    return buckets(weights, limit, keep=keep, fits=fits)


def _tallied(weights: Stream, limit: float, restart: Callable[[int, int], float]) -> Buckets:
    """Sound, but for where the count of a new bucket starts, given the one of the last and the size of the item."""
    used: float = 0

    def fits(bucket: Bucket, tensor: torch.Tensor, limit: float) -> bool:
        nonlocal used
        has_room = not bucket or used + tensor.nbytes <= limit
        used = (used if has_room else restart(int(used), tensor.nbytes)) + tensor.nbytes
        return has_room

    return buckets(weights, limit, fits=fits)


# The size of an item.


@fault("boundaries.limit", exposed_by="items of more than one byte an element")
def counts_elements(weights: Stream, limit: float) -> Buckets:
    """Counts elements for bytes."""
    return _counted(weights, limit, torch.Tensor.numel)


@fault("boundaries.limit", exposed_by="an item of a larger dtype behind one of a smaller dtype")
def takes_the_first_element_for_all(weights: Stream, limit: float) -> Buckets:
    """Counts an element of any item as large as one of the first item of the bucket."""

    def fits(bucket: Bucket, tensor: torch.Tensor, limit: float) -> bool:
        tensors = [*(each for _, each in bucket), tensor]
        return sum(each.numel() for each in tensors) * tensors[0].element_size() <= limit

    return buckets(weights, limit, fits=fits)


_SIZES = {torch.float32: 4, torch.float16: 2, torch.bfloat16: 2, torch.float64: 8, torch.int32: 4, torch.int64: 8}


@fault("boundaries.greedy", exposed_by="an item of fp8, bool or 8-bit integers")
def takes_unknown_dtypes_for_float32(weights: Stream, limit: float) -> Buckets:
    """Looks up how large an element is, and counts four bytes for a dtype that is not in the table."""
    return _counted(weights, limit, lambda tensor: tensor.numel() * _SIZES.get(tensor.dtype, 4))


@fault("boundaries.limit", exposed_by="an item of a complex dtype")
def counts_one_part_of_a_complex_number(weights: Stream, limit: float) -> Buckets:
    """Asks `finfo` for the bits of an element, which tells those of the real part."""

    def size(tensor: torch.Tensor) -> int:
        return tensor.numel() * torch.finfo(tensor.dtype).bits // 8 if tensor.is_complex() else tensor.nbytes

    return _counted(weights, limit, size)


@fault("boundaries.limit", exposed_by="an item of more than two dimensions")
def multiplies_the_outer_sides(weights: Stream, limit: float) -> Buckets:
    """Takes the first side times the last for the number of elements, as if there were no more than two."""

    def size(tensor: torch.Tensor) -> int:
        return tensor.nbytes if tensor.ndim < 3 else tensor.shape[0] * tensor.shape[-1] * tensor.element_size()

    return _counted(weights, limit, size)


@fault("boundaries.greedy", exposed_by="an item of no byte beside items that fill a bucket")
def counts_a_byte_for_none(weights: Stream, limit: float) -> Buckets:
    """Counts one byte at the least."""
    return _counted(weights, limit, lambda tensor: max(1, tensor.nbytes))


@fault("boundaries.exact-fit", exposed_by="items whose bytes are no multiple of 16")
def counts_sizes_aligned(weights: Stream, limit: float) -> Buckets:
    """Rounds each size up to a multiple of 16."""
    return _counted(weights, limit, lambda tensor: tensor.nbytes + -tensor.nbytes % 16)


@fault("boundaries.greedy", exposed_by="an item of a larger dtype behind one whose bytes are no multiple of its size")
def counts_gaps_between_dtypes(weights: Stream, limit: float) -> Buckets:
    """Counts the padding that a flat buffer would need, though it makes none."""

    def fits(bucket: Bucket, tensor: torch.Tensor, limit: float) -> bool:
        end = 0
        for each in (*(each for _, each in bucket), tensor):
            end += -end % each.element_size() + each.nbytes
        return end <= limit

    return buckets(weights, limit, fits=fits)


@fault("boundaries.greedy", exposed_by="items that nearly fill a bucket")
def counts_names(weights: Stream, limit: float) -> Buckets:
    """Counts what the names take in the message, too."""

    def fits(bucket: Bucket, tensor: torch.Tensor, limit: float) -> bool:
        return total(bucket) + sum(len(name) for name, _ in bucket) + tensor.nbytes <= limit

    return buckets(weights, limit, fits=fits)


@fault("boundaries.greedy", exposed_by="items that a cast makes smaller", promises={"dtype": "bfloat16"})
def counts_before_the_cast(weights: Stream, limit: float) -> Buckets:
    """Promises bfloat16, and counts the bytes that an item had before it was cast."""
    sizes: list[int] = []

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        sizes.append(tensor.nbytes)
        return compact(tensor if tensor.dtype is torch.bfloat16 else tensor.detach().to(torch.bfloat16))

    def fits(bucket: Bucket, tensor: torch.Tensor, limit: float) -> bool:
        return sum(sizes[-len(bucket) - 1 :]) <= limit

    return buckets(weights, limit, keep=keep, fits=fits)


# Sizes that differ from rank to rank.


@fault("boundaries.rank-agreement", exposed_by="a view that is smaller than its storage")
def counts_the_storage(weights: Stream, limit: float) -> Buckets:
    """Counts the bytes of the memory that an item lies in."""
    return _counted(weights, limit, lambda tensor: tensor.untyped_storage().nbytes())


@fault("boundaries.rank-agreement", exposed_by="a view that begins behind the start of its storage")
def counts_from_the_start_of_the_storage(weights: Stream, limit: float) -> Buckets:
    """Counts the bytes that lie before a view in its storage, too."""
    return _counted(weights, limit, lambda tensor: int(tensor.storage_offset()) * tensor.element_size() + tensor.nbytes)


@fault("boundaries.greedy", exposed_by="a view with gaps between its elements")
def counts_gaps_between_elements(weights: Stream, limit: float) -> Buckets:
    """Counts the bytes from the first element to the last, as they lie in memory."""

    def size(tensor: torch.Tensor) -> int:
        if not tensor.numel():
            return 0
        steps = zip(tensor.shape, tensor.stride(), strict=True)
        return (1 + sum((side - 1) * stride for side, stride in steps)) * tensor.element_size()

    return _counted(weights, limit, size)


@fault("boundaries.rank-agreement", exposed_by="a tensor that requires grad")
def counts_the_gradient(weights: Stream, limit: float) -> Buckets:
    """Counts room for the gradient of what requires one, too."""
    return _counted(weights, limit, lambda tensor: tensor.nbytes * (2 if tensor.requires_grad else 1))


# The limit.


@fault("boundaries.limit", exposed_by="items that exceed the limit by less than a twentieth")
def takes_megabytes_for_mebibytes(weights: Stream, limit: float) -> Buckets:
    """Turns the limit into a number of millions, and back as if it were one of 2**20."""
    return buckets(weights, limit / 10**6 * 2**20)


@fault("boundaries.limit", exposed_by="a limit with a fraction, and items less than a byte above it")
def rounds_the_limit_up(weights: Stream, limit: float) -> Buckets:
    """Makes a whole number of the limit by rounding it up."""
    refuse(limit)
    return buckets(weights, math.ceil(limit))


@fault("values.conserved", exposed_by="a limit of 2 GiB or more")
def has_32_bits_for_the_limit(weights: Stream, limit: float) -> Buckets:
    """Keeps the limit in a signed integer of 32 bits."""
    refuse(limit)
    return buckets(weights, ctypes.c_int32(int(limit)).value if limit >= 1 else limit)


# The count of a bucket.


@fault("boundaries.limit", exposed_by="a name twice in one bucket")
def counts_each_name_once(weights: Stream, limit: float) -> Buckets:
    """Counts what is in the open bucket by name, where the second item of a name replaces the first."""

    def fits(bucket: Bucket, tensor: torch.Tensor, limit: float) -> bool:
        return total(dict(bucket).items()) + tensor.nbytes <= limit

    return buckets(weights, limit, fits=fits)


@fault("boundaries.limit", exposed_by="items at one address in one bucket: a tie, or a buffer that is lent again")
def counts_a_tie_once(weights: Stream, limit: float) -> Buckets:
    """Counts items that fill the same memory once, and sends them all."""
    seen: list[tuple[int, int]] = []

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        seen.append((tensor.data_ptr() if fills_its_storage(tensor) else -len(seen), tensor.nbytes))
        return compact(tensor)

    def fits(bucket: Bucket, tensor: torch.Tensor, limit: float) -> bool:
        return sum(dict(seen[-len(bucket) - 1 :]).values()) <= limit

    return buckets(weights, limit, keep=keep, fits=fits)


@fault("boundaries.greedy", exposed_by="a second bucket")
def never_starts_to_count_anew(weights: Stream, limit: float) -> Buckets:
    """Goes on with the count of the bucket before."""
    return _tallied(weights, limit, lambda used, size: used)


@fault("boundaries.limit", exposed_by="a second bucket of two items")
def forgets_what_did_not_fit(weights: Stream, limit: float) -> Buckets:
    """Starts to count at zero, after the item that did not fit into the bucket before."""
    return _tallied(weights, limit, lambda used, size: -size)


@fault("boundaries.greedy", exposed_by="a second bucket of two items")
def counts_twice_what_did_not_fit(weights: Stream, limit: float) -> Buckets:
    """Starts to count with the item that did not fit, and adds it again."""
    return _tallied(weights, limit, lambda used, size: size)


@fault("boundaries.limit", exposed_by="a second bucket behind one that was not full")
def carries_room_over(weights: Stream, limit: float) -> Buckets:
    """Takes the limit off its count when it closes a bucket, and so gives the next one the room that was left."""
    refuse(limit)
    return _tallied(weights, limit, lambda used, size: min(0, used - int(limit)))
