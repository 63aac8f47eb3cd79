"""Faults of order and names: what arrives, under which name, and when."""

from __future__ import annotations

import unicodedata
import weakref
from collections.abc import Callable, Iterator

import torch

from bucketproof.reference.faults.loop import (
    Buckets,
    Stream,
    bits,
    buckets,
    closes_its_stream,
    emptied,
    fit,
    refuse,
    rule,
    total,
)
from bucketproof.reference.faults.registry import fault
from bucketproof.reference.ownership import compact
from bucketproof.reference.sound import Bucket, NamedTensor


@closes_its_stream
def _renamed(weights: Stream, limit: float, rename: Callable[[str], str]) -> Buckets:
    return buckets(((rename(name), tensor) for name, tensor in weights), limit)


# What is lost, and what is invented.


@fault("values.conserved", exposed_by="a bucket of two items")
def drops_the_second_of_a_bucket(weights: Stream, limit: float) -> Buckets:
    """Loses an item."""
    return buckets(weights, limit, give=lambda bucket: [each for i, each in enumerate(emptied(bucket)) if i != 1])


@fault("values.conserved", exposed_by="a last bucket that is exactly full")
@closes_its_stream
def loses_a_last_bucket_that_is_full(weights: Stream, limit: float) -> Buckets:
    """Asks at the end for a bucket that is begun and not full."""
    refuse(limit)
    bucket: Bucket = []
    for name, tensor in weights:
        tensor = compact(tensor)
        if bucket and not fit(bucket, tensor, limit):
            yield emptied(bucket)
        bucket.append((name, tensor))
        del name, tensor
    if bucket and total(bucket) != limit:
        yield emptied(bucket)


@fault("values.conserved", exposed_by="an item that fills a bucket exactly, behind another")
@closes_its_stream
def loses_what_fills_a_bucket(weights: Stream, limit: float) -> Buckets:
    """Closes a bucket when an item fills it exactly, and forgets the item."""
    refuse(limit)
    bucket: Bucket = []
    for name, tensor in weights:
        tensor = compact(tensor)
        if bucket and tensor.nbytes and total(bucket) + tensor.nbytes == limit:
            yield emptied(bucket)
            continue
        if bucket and not fit(bucket, tensor, limit):
            yield emptied(bucket)
        bucket.append((name, tensor))
        del name, tensor
    if bucket:
        yield emptied(bucket)


@fault("values.conserved", exposed_by="any item")
def invents_an_item(weights: Stream, limit: float) -> Buckets:
    """Adds an item to each bucket."""
    return buckets(weights, limit, give=lambda bucket: [*emptied(bucket), ("extra", torch.zeros(0))])


@fault(
    "values.conserved",
    exposed_by="any item",
    also={"boundaries": "there is no room in a full bucket for an item that comes again"},
)
def delivers_twice(weights: Stream, limit: float) -> Buckets:
    """Delivers the first item of each bucket again."""
    return buckets(weights, limit, give=lambda bucket: [*bucket[:1], *emptied(bucket)])


@fault("values.conserved", exposed_by="any item")
def yields_iterators(weights: Stream, limit: float) -> Buckets:
    """Yields buckets that can be read but once."""
    return map(iter, buckets(weights, limit))


# Names.


@fault("values.conserved", exposed_by="a name with white space at an end")
def strips_names(weights: Stream, limit: float) -> Buckets:
    """Takes white space off the ends of a name."""
    return _renamed(weights, limit, str.strip)


@fault("values.conserved", exposed_by="a name with a capital letter")
def lowers_names(weights: Stream, limit: float) -> Buckets:
    """Writes names in small letters."""
    return _renamed(weights, limit, str.lower)


@fault("values.conserved", exposed_by="a name with letters that are not ASCII")
def writes_names_in_ascii(weights: Stream, limit: float) -> Buckets:
    """Leaves out letters of a name that are not ASCII."""
    return _renamed(weights, limit, lambda name: name.encode("ascii", "ignore").decode())


@fault("values.conserved", exposed_by="a name of more than 255 letters")
def cuts_long_names_off(weights: Stream, limit: float) -> Buckets:
    """Has 255 letters for a name."""
    return _renamed(weights, limit, lambda name: name[:255])


@fault("values.conserved", exposed_by="a name in decomposed form")
def normalises_names(weights: Stream, limit: float) -> Buckets:
    """Brings names into the composed form of Unicode."""
    return _renamed(weights, limit, lambda name: unicodedata.normalize("NFC", name))


@fault("values.conserved", exposed_by="a name that begins with `module.`")
def unwraps_names(weights: Stream, limit: float) -> Buckets:
    """Cuts off the prefix that a wrapper gives to names."""
    return _renamed(weights, limit, lambda name: name.removeprefix("module."))


@fault("values.conserved", exposed_by="a name with braces")
def formats_names(weights: Stream, limit: float) -> Buckets:
    """Takes a name for a template, and fills in nothing."""
    return _renamed(weights, limit, str.format)


@fault("values.conserved", exposed_by="an item without a name")
@closes_its_stream
def leaves_out_what_has_no_name(weights: Stream, limit: float) -> Buckets:
    """Takes an empty name for none, and leaves the item out."""
    return buckets(((name, tensor) for name, tensor in weights if name), limit)


# Shapes and dtypes.


@rule("values.conserved", exposed_by="an item with a side of one")
def squeezes(tensor: torch.Tensor) -> torch.Tensor:
    """Leaves out sides of one."""
    return compact(tensor).squeeze()


@rule("values.conserved", exposed_by="an item of booleans")
def sends_booleans_as_bytes(tensor: torch.Tensor) -> torch.Tensor:
    """Delivers bool as uint8."""
    kept = compact(tensor)
    return kept.view(torch.uint8) if kept.dtype is torch.bool else kept


# Order.


@fault("values.order", exposed_by="a bucket of two items")
def reverses_each_bucket(weights: Stream, limit: float) -> Buckets:
    """Puts the last item of a bucket first."""
    return buckets(weights, limit, give=lambda bucket: emptied(bucket)[::-1])


@fault("values.order", exposed_by="a name that sorts before the one in front of it")
def sorts_each_bucket_by_name(weights: Stream, limit: float) -> Buckets:
    """Sorts a bucket's items by name."""
    return buckets(weights, limit, give=lambda bucket: sorted(emptied(bucket), key=lambda pair: pair[0]))


@fault("values.order", exposed_by="an item behind a smaller one in one bucket")
def sorts_each_bucket_by_size(weights: Stream, limit: float) -> Buckets:
    """Puts the largest item of a bucket first."""
    return buckets(weights, limit, give=lambda bucket: sorted(emptied(bucket), key=lambda pair: -pair[1].nbytes))


@fault("values.order", exposed_by="an item of no byte in front of another in one bucket")
def moves_items_of_no_byte_back(weights: Stream, limit: float) -> Buckets:
    """Puts items of no byte at the end of their bucket."""
    return buckets(weights, limit, give=lambda bucket: sorted(emptied(bucket), key=lambda pair: not pair[1].nbytes))


@fault("values.order", exposed_by="an item above the limit, while a bucket is open")
@closes_its_stream
def sends_large_items_ahead(weights: Stream, limit: float) -> Buckets:
    """Yields an oversize item before the bucket that was open when it came."""
    refuse(limit)
    bucket: Bucket = []
    for name, tensor in weights:
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


@fault("values.order", exposed_by="a second bucket of two items")
def puts_what_did_not_fit_behind_the_next(weights: Stream, limit: float) -> Buckets:
    """Keeps an item that did not fit aside, and takes it up when the next item is in the new bucket."""
    is_first = True

    def give(bucket: Bucket) -> Bucket:
        nonlocal is_first
        members = emptied(bucket)
        if not is_first:
            members[:2] = members[1::-1]
        is_first = False
        return members

    return buckets(weights, limit, give=give)


# Duplicates.


@fault("values.duplicates", exposed_by="a name twice in one bucket")
def collects_in_a_dict(weights: Stream, limit: float) -> Buckets:
    """Loses the first of two items of one name."""
    return buckets(weights, limit, give=lambda bucket: dict(emptied(bucket)))


@fault("values.duplicates", exposed_by="a name twice", origin="NeMo-RL #2471")
def refuses_duplicates(weights: Stream, limit: float) -> Buckets:
    """Refuses a name that came before, without a promise that it does."""
    return buckets(_unique(weights), limit)


@closes_its_stream
def _unique(weights: Stream) -> Iterator[NamedTensor]:
    seen = set()
    for name, tensor in weights:
        if name in seen:
            raise KeyError(name)
        seen.add(name)
        yield name, tensor
        del tensor


@fault("values.duplicates", exposed_by="a name twice", origin="mbridge #137")
@closes_its_stream
def counts_names_at_the_end(weights: Stream, limit: float) -> Buckets:
    """Compares at the end how many names and how many items there were."""
    names: list[str] = []

    def noted() -> Iterator[NamedTensor]:
        for name, tensor in weights:
            names.append(name)
            yield name, tensor
            del tensor
        if len(set(names)) < len(names):
            raise AssertionError(f"{len(set(names))} names of {len(names)} items")

    return buckets(noted(), limit)


@fault("values.duplicates", exposed_by="a name in two buckets")
@closes_its_stream
def leaves_out_names_of_buckets_before(weights: Stream, limit: float) -> Buckets:
    """Leaves out what has a name that an earlier bucket had."""
    refuse(limit)
    sent: set[str] = set()
    bucket: Bucket = []
    for name, tensor in weights:
        tensor = compact(tensor)
        if bucket and not fit(bucket, tensor, limit):
            sent.update(name for name, _ in bucket)
            yield emptied(bucket)
        if name not in sent:
            bucket.append((name, tensor))
        del name, tensor
    if bucket:
        yield emptied(bucket)


@fault("values.duplicates", exposed_by="a name twice in a row")
def leaves_out_repetitions(weights: Stream, limit: float) -> Buckets:
    """Takes an item that has the name of the one before for the same one, sent again."""
    return buckets(_unrepeated(weights), limit)


@closes_its_stream
def _unrepeated(weights: Stream) -> Iterator[NamedTensor]:
    before = None
    for name, tensor in weights:
        if name != before:
            yield name, tensor
        before = name
        del tensor


@fault("values.duplicates", exposed_by="a name twice")
def numbers_duplicates(weights: Stream, limit: float) -> Buckets:
    """Gives what has a name that came before a name of its own."""
    seen: set[str] = set()

    def numbered(name: str) -> str:
        name = f"{name}.{len(seen)}" if name in seen else name
        seen.add(name)
        return name

    return _renamed(weights, limit, numbered)


# Ties.


@fault("values.tied", exposed_by="two names for one memory")
def delivers_each_memory_once(weights: Stream, limit: float) -> Buckets:
    """Leaves out names whose memory has been seen, by its address."""
    return buckets(_of_new_addresses(weights), limit)


@closes_its_stream
def _of_new_addresses(weights: Stream) -> Iterator[NamedTensor]:
    seen: dict[int, str] = {}
    for name, tensor in weights:
        if seen.setdefault(tensor.data_ptr(), name) == name:
            yield name, tensor
        del tensor


@fault("values.tied", exposed_by="two names for one tensor object", origin="vllm #56689")
def delivers_each_object_once(weights: Stream, limit: float) -> Buckets:
    """Leaves out a tensor that came before, as `named_parameters` does."""
    return buckets(_of_new_objects(weights), limit)


@closes_its_stream
def _of_new_objects(weights: Stream) -> Iterator[NamedTensor]:
    seen: weakref.WeakValueDictionary[int, torch.Tensor] = weakref.WeakValueDictionary()
    for name, tensor in weights:
        if id(tensor) not in seen:
            seen[id(tensor)] = tensor
            yield name, tensor
        del tensor


@fault("values.tied", exposed_by="two names for equal bits")
@closes_its_stream
def delivers_equal_bits_once(weights: Stream, limit: float) -> Buckets:
    """Takes two items of equal shape, dtype and bits for a tie, and leaves the second out."""
    seen = set()

    def new() -> Iterator[NamedTensor]:
        for name, tensor in weights:
            kept = compact(tensor)
            content = kept.shape, kept.dtype, bits(kept)
            del tensor
            if content not in seen:
                seen.add(content)
                yield name, kept
            del kept

    return buckets(new(), limit, keep=lambda tensor: tensor)


@fault("values.conserved", exposed_by="two slices of one buffer")
def takes_slices_of_one_storage_for_a_tie(weights: Stream, limit: float) -> Buckets:
    """Compares the storages of two items in a row, and leaves the second out if they are one."""
    return buckets(_of_other_storages(weights), limit)


@closes_its_stream
def _of_other_storages(weights: Stream) -> Iterator[NamedTensor]:
    before = None
    for name, tensor in weights:
        storage = tensor.untyped_storage()._cdata
        if storage != before:
            yield name, tensor
        before = storage
        del tensor


@fault("aliasing.survives-overwrite", exposed_by="two items of one shape in one buffer, one after the other")
def takes_an_address_for_a_tie(weights: Stream, limit: float) -> Buckets:
    """Delivers the copy that it has of an address in the open bucket, though a lender may have written there since."""
    copies: dict[object, torch.Tensor] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        key = tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype
        kept = copies[key] if tensor.nbytes and key in copies else compact(tensor)
        if kept.data_ptr() != tensor.data_ptr():
            copies[key] = kept
        return kept

    def give(bucket: Bucket) -> Bucket:
        copies.clear()
        return emptied(bucket)

    return buckets(weights, limit, keep=keep, give=give)
