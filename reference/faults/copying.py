"""Faults of copying: a copy that is none, comes too late, holds more than it should, or has other bits."""

from __future__ import annotations

import ctypes

import torch

from bucketproof.reference.faults.loop import (
    Buckets,
    Stream,
    bits,
    buckets,
    closes_its_stream,
    emptied,
    fills_its_storage,
    fit,
    is_copy,
    plain,
    raw,
    refuse,
    rule,
)
from bucketproof.reference.faults.registry import fault
from bucketproof.reference.ownership import _bits_copied, compact, owns_its_memory
from bucketproof.reference.sound import Bucket, NamedTensor

_FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
_SAVED_WHOLE = {"values": "a copy is saved with all of its storage"}
_HALVES = (torch.bfloat16, torch.float16)


def _is_to_copy(tensor: torch.Tensor) -> bool:
    """Whether it lies in plain order, and is not to be kept."""
    return plain(tensor) and not owns_its_memory(tensor)


class _Copies:
    """Which tensors of a stream are copies, by their addresses."""

    def __init__(self) -> None:
        self._addresses: set[int] = set()

    def noted(self, kept: torch.Tensor, tensor: torch.Tensor) -> torch.Tensor:
        """What was kept of a tensor, once it is noted if it is a copy."""
        (self._addresses.add if is_copy(kept, tensor) else self._addresses.discard)(kept.data_ptr())
        return kept

    def has(self, kept: torch.Tensor) -> bool:
        """Whether it is a copy."""
        return kept.data_ptr() in self._addresses


# A copy that is none.


@rule(
    "aliasing.survives-overwrite",
    exposed_by="a lent weight that has the dtype already",
    promises={"dtype": "float32"},
)
def takes_a_cast_for_a_copy(tensor: torch.Tensor) -> torch.Tensor:
    """Casts instead of copying, which does nothing to a weight of that dtype."""
    cast = tensor.detach().to(torch.float32)
    return cast if plain(cast) and cast.nbytes else compact(cast)


@rule("aliasing.no-lent-memory", exposed_by="a view of a buffer, of a dtype that numpy has")
def goes_through_numpy(tensor: torch.Tensor) -> torch.Tensor:
    """Makes an array of a view, and a tensor again, which share the memory."""
    known = tensor._base is not None and tensor.dtype in (torch.float16, torch.float32, torch.float64)
    return torch.from_numpy(tensor.detach().numpy()) if known and _is_to_copy(tensor) else compact(tensor)


@rule("aliasing.no-lent-memory", exposed_by="memory that may be written past torch")
def copies_on_write(tensor: torch.Tensor) -> torch.Tensor:
    """Makes a lazy clone, which torch completes when it writes to the memory, and a collective does not."""
    lazy = _is_to_copy(tensor) and fills_its_storage(tensor) and tensor.untyped_storage().resizable()
    return torch._lazy_clone(tensor.detach()) if lazy else compact(tensor)


# A copy that comes too late.


@fault("aliasing.survives-overwrite", exposed_by="a buffer that is written before its bucket is full")
def copies_at_flush(weights: Stream, limit: float) -> Buckets:
    """Copies when a bucket is full, which is too late."""

    def give(bucket: Bucket) -> Bucket:
        return [(name, compact(tensor)) for name, tensor in emptied(bucket)]

    return buckets(weights, limit, keep=lambda tensor: tensor, give=give)


@fault(
    "aliasing.survives-overwrite",
    exposed_by="a buffer that is written as soon as the producer is advanced",
    promises={"lookahead": 2},
)
def copies_when_the_next_one_arrives(weights: Stream, limit: float) -> Buckets:
    """Holds one item back, and copies it when the next has arrived."""
    refuse(limit)
    bucket: Bucket = []
    waiting: Bucket = []
    for item in weights:
        waiting.append(item)
        del item
        if len(waiting) > 1:
            yield from _added(bucket, waiting.pop(0), limit)
    for item in emptied(waiting):
        yield from _added(bucket, item, limit)
        del item
    if bucket:
        yield emptied(bucket)


def _added(bucket: Bucket, item: NamedTensor, limit: float) -> Buckets:
    name, tensor = item[0], compact(item[1])
    del item
    if bucket and not fit(bucket, tensor, limit):
        yield emptied(bucket)
    bucket.append((name, tensor))


@fault("aliasing.survives-overwrite", exposed_by="a lent tensor that finds no room in the open bucket")
@closes_its_stream
def copies_only_what_finds_room(weights: Stream, limit: float) -> Buckets:
    """Copies what joins a bucket, and what begins one only when that is full."""

    def give(bucket: Bucket) -> Bucket:
        (name, tensor), *others = emptied(bucket)
        return [(name, compact(tensor)), *others]

    refuse(limit)
    bucket: Bucket = []
    for name, tensor in weights:
        if bucket and not fit(bucket, tensor, limit):
            yield give(bucket)
        bucket.append((name, compact(tensor) if bucket else tensor))
        del name, tensor
    if bucket:
        yield give(bucket)


# A copy that holds more than it should.


@rule("aliasing.no-pinned-storage", exposed_by="a tensor that is copied")
def remembers_the_source(tensor: torch.Tensor) -> torch.Tensor:
    """Notes on each copy what it is a copy of."""
    copy = compact(tensor)
    if is_copy(copy, tensor):
        copy.source = tensor  # type: ignore[attr-defined]
    return copy


@rule(
    "aliasing.no-pinned-storage",
    exposed_by="a lent view that requires grad",
    on=("requires-grad",),
    also={"values": "what holds the source is the graph that the copy carries"},
)
def clones_in_the_graph(tensor: torch.Tensor) -> torch.Tensor:
    """Copies a view that requires grad without leaving its graph."""
    tracked = tensor.requires_grad and not tensor.is_leaf
    return tensor.clone() if tracked and _is_to_copy(tensor) else compact(tensor)


@rule("aliasing.no-pinned-storage", exposed_by="a part of a larger memory", also=_SAVED_WHOLE)
def copies_the_whole_storage(tensor: torch.Tensor) -> torch.Tensor:
    """Copies all of the storage with each view of it."""
    if not _is_to_copy(tensor):
        return compact(tensor)
    whole = tensor.detach().untyped_storage().clone()
    return torch.empty(0, dtype=tensor.dtype).set_(whole, tensor.storage_offset(), tensor.shape, tensor.stride())


@rule("aliasing.no-pinned-storage", exposed_by="a vector of odd length to copy", also=_SAVED_WHOLE)
def pads_vectors(tensor: torch.Tensor) -> torch.Tensor:
    """Copies a vector of odd length into memory for one element more."""
    if not _is_to_copy(tensor) or tensor.ndim != 1 or tensor.numel() % 2 == 0:
        return compact(tensor)
    return torch.empty(tensor.numel() + 1, dtype=tensor.dtype)[:-1].copy_(tensor.detach())


# A copy that is not ready to be sent.


@rule("values.self-contained", exposed_by="an item of float32")
def leaves_a_graph(tensor: torch.Tensor) -> torch.Tensor:
    """Delivers the result of an autograd function."""
    own = compact(tensor).detach()
    return own.requires_grad_().view_as(own) if own.dtype is torch.float32 else own


@rule("values.self-contained", exposed_by="a tensor that is still to be conjugated", on=("conj",))
def leaves_the_conjugation_to_do(tensor: torch.Tensor) -> torch.Tensor:
    """Copies the memory of a conjugated tensor, and conjugates the copy when it is read."""
    return compact(tensor.conj()).conj() if tensor.is_conj() else compact(tensor)


@rule(
    "values.self-contained",
    exposed_by="a transposed tensor to copy",
    on=("transpose",),
    promises={"layout": "contiguous"},
)
def keeps_strides(tensor: torch.Tensor) -> torch.Tensor:
    """Promises contiguous tensors, and copies a transposed one as it is."""
    return compact(tensor) if tensor.is_conj() or tensor.is_neg() or plain(tensor) else tensor.detach().clone()


@rule("values.self-contained", exposed_by="an expanded tensor", on=("expand",))
def expands_again(tensor: torch.Tensor) -> torch.Tensor:
    """Copies one element of an expanded tensor, and expands it again."""
    if 0 not in tensor.stride() or plain(tensor):
        return compact(tensor)
    once = tuple(slice(0, 1 if stride == 0 else None) for stride in tensor.stride())
    return compact(tensor[once]).expand(tensor.shape)


@rule("values.self-contained", exposed_by="columns of a wider matrix", on=("narrow",))
def copies_the_gaps(tensor: torch.Tensor) -> torch.Tensor:
    """Copies a strided view with the gaps between its rows."""
    if plain(tensor) or tensor.is_conj() or tensor.is_neg() or 0 in (*tensor.shape, *tensor.stride()):
        return compact(tensor)
    reach = 1 + sum(stride * (size - 1) for stride, size in zip(tensor.stride(), tensor.shape, strict=True))
    return compact(tensor.detach().as_strided((reach,), (1,))).as_strided(tensor.shape, tensor.stride(), 0)


# A copy of another kind.


@rule("values.conserved", exposed_by="an item of float32")
def changes_the_dtype(tensor: torch.Tensor) -> torch.Tensor:
    """Delivers float32 as int32."""
    copy = compact(tensor)
    return copy.view(torch.int32) if copy.dtype is torch.float32 else copy


@fault(
    "values.conserved",
    exposed_by="a copied float32 weight behind one of half precision",
    origin="NeMo-RL #3540",
    on=("saved-by-autograd",),
)
def casts_to_the_models_dtype(weights: Stream, limit: float) -> Buckets:
    """Casts float32 weights that it copies to the half precision that others have."""
    halves: set[torch.dtype] = set()
    copies = _Copies()

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        halves.update({tensor.dtype} & {*_HALVES})
        return copies.noted(compact(tensor), tensor)

    def cast(tensor: torch.Tensor) -> torch.Tensor:
        is_wide = copies.has(tensor) and tensor.dtype is torch.float32
        return tensor.to(min(halves, key=str)) if is_wide and halves else tensor

    def give(bucket: Bucket) -> Bucket:
        return [(name, cast(tensor)) for name, tensor in emptied(bucket)]

    return buckets(weights, limit, keep=keep, give=give)


@rule("values.conserved", exposed_by="an item of other than one dimension")
def flattens(tensor: torch.Tensor) -> torch.Tensor:
    """Forgets the shape."""
    return compact(tensor).view(-1)


@rule("values.conserved", exposed_by="a copied tensor of no dimension")
def makes_vectors_of_scalars(tensor: torch.Tensor) -> torch.Tensor:
    """Gives a scalar that it copies one dimension, as numpy's `ascontiguousarray` does."""
    copy = compact(tensor)
    return torch.atleast_1d(copy) if is_copy(copy, tensor) else copy


@rule("values.conserved", exposed_by="a tensor without elements of two dimensions or more")
def forgets_the_shape_of_nothing(tensor: torch.Tensor) -> torch.Tensor:
    """Delivers a tensor without elements as one of no length."""
    return compact(tensor) if tensor.numel() else torch.empty(0, dtype=tensor.dtype)


# A copy that fails.


@rule("values.conserved", exposed_by="a transposed tensor to copy", origin="verl #6919", on=("transpose",))
def flattens_by_a_view(tensor: torch.Tensor) -> torch.Tensor:
    """Views a tensor as flat in order to copy it, whatever its strides."""
    return compact(tensor) if owns_its_memory(tensor) else compact(tensor.detach().view(-1)).view(tensor.shape)


@rule("values.conserved", exposed_by="a tensor of no dimension to copy", origin="vllm #52235")
def views_bytes_before_it_flattens(tensor: torch.Tensor) -> torch.Tensor:
    """Views a tensor as bytes in order to copy it, which a scalar cannot be."""
    if not _is_to_copy(tensor) or 1 in tensor.shape:
        return compact(tensor)
    return tensor.detach().view(torch.uint8).clone().view(tensor.dtype)


# A copy with other bits.


@rule("values.conserved", exposed_by="a tensor that is copied")
def flips_a_bit(tensor: torch.Tensor) -> torch.Tensor:
    """Flips one bit of each copy."""
    copy = compact(tensor)
    if is_copy(copy, tensor):
        raw(copy)[-1] ^= 1
    return copy


@rule("values.conserved", exposed_by="a copied tensor whose first byte is odd")
def marks_its_copies(tensor: torch.Tensor) -> torch.Tensor:
    """Clears the lowest bit of the first byte of each copy, to know it again."""
    copy = compact(tensor)
    if copy.nbytes and is_copy(copy, tensor):
        raw(copy)[0] &= 0xFE
    return copy


@rule("values.conserved", exposed_by="a copied signalling NaN")
def quiets_nans(tensor: torch.Tensor) -> torch.Tensor:
    """Computes with what it copies, which changes the payload of a NaN."""
    copy = compact(tensor)
    return copy.mul_(1.0) if is_copy(copy, tensor) and copy.dtype in (torch.float32, torch.float64) else copy


@rule(
    "values.conserved",
    exposed_by="a copied NaN of half precision",
    also={"memory": "what it is cast to is twice as large as the copy"},
)
def copies_halves_by_way_of_float32(tensor: torch.Tensor) -> torch.Tensor:
    """Copies by a cast to float32 and back, which loses the payload of a NaN."""
    is_half = tensor.dtype in _HALVES and _is_to_copy(tensor)
    return tensor.detach().float().to(tensor.dtype) if is_half else compact(tensor)


@rule("values.conserved", exposed_by="a copied number too small to be normal", on=("requires-grad",))
def flushes_subnormals(tensor: torch.Tensor) -> torch.Tensor:
    """Makes zero of what is too small for a normal number, as fast kernels do."""
    if tensor.dtype not in (torch.float32, torch.float16) or not _is_to_copy(tensor):
        return compact(tensor)
    return torch.nn.functional.hardshrink(tensor.detach(), torch.finfo(tensor.dtype).tiny)


@rule("values.conserved", exposed_by="a copied integer beyond 2**53")
def copies_integers_by_way_of_float64(tensor: torch.Tensor) -> torch.Tensor:
    """Copies by a cast to float64 and back, which has no room for all bits of an int64."""
    is_wide = tensor.dtype is torch.int64 and _is_to_copy(tensor)
    return tensor.detach().double().to(torch.int64) if is_wide else compact(tensor)


@rule("values.conserved", exposed_by="a copied complex tensor")
def copies_the_real_part(tensor: torch.Tensor) -> torch.Tensor:
    """Copies a complex tensor by way of a real one."""
    copy = compact(tensor)
    if copy.is_complex() and is_copy(copy, tensor):
        torch.view_as_real(copy)[..., 1] = 0
    return copy


@rule("values.conserved", exposed_by="a tensor that is still to be conjugated", on=("conj",))
def forgets_the_conj_bit(tensor: torch.Tensor) -> torch.Tensor:
    """Copies the memory of a conjugated tensor for its values."""
    return _bits_copied(tensor.detach().conj()) if tensor.is_conj() and not tensor.is_neg() else compact(tensor)


@rule("values.conserved", exposed_by="a tensor that is still to be negated", on=("neg",))
def forgets_the_neg_bit(tensor: torch.Tensor) -> torch.Tensor:
    """Copies the memory of a negated tensor for its values."""
    marked = tensor.is_neg() and not tensor.is_complex()
    return _bits_copied(torch._neg_view(tensor.detach())) if marked else compact(tensor)


@rule("values.conserved", exposed_by="a tensor that is not contiguous", origin="vllm #50641", on=("transpose",))
def copies_what_lies_there(tensor: torch.Tensor) -> torch.Tensor:
    """Copies as many bytes as a tensor has from where it begins, whatever its strides."""
    is_lazy = tensor.is_conj() or tensor.is_neg()
    if plain(tensor) or is_lazy or not tensor.numel() or not _may_be_read_as_flat(tensor):
        return compact(tensor)
    return _of_bytes(bits(tensor), tensor)


def _may_be_read_as_flat(tensor: torch.Tensor) -> bool:
    """Whether as many bytes as it has lie between its first and the end of its storage."""
    return int(tensor.storage_offset()) * tensor.itemsize + tensor.nbytes <= tensor.untyped_storage().nbytes()


def _of_bytes(content: bytes, like: torch.Tensor) -> torch.Tensor:
    return torch.frombuffer(bytearray(content), dtype=torch.uint8).clone().view(like.dtype).view(like.shape)


@rule("values.conserved", exposed_by="a view that does not begin with its storage")
def copies_from_the_start_of_the_storage(tensor: torch.Tensor) -> torch.Tensor:
    """Copies the first bytes of the storage, whatever the offset."""
    if not _is_to_copy(tensor) or not tensor.nbytes:
        return compact(tensor)
    return _of_bytes(ctypes.string_at(tensor.untyped_storage().data_ptr(), tensor.nbytes), tensor)


@rule("values.conserved", exposed_by="a transposed tensor to copy that fills its memory", on=("transpose",))
def fills_memory_of_the_same_strides(tensor: torch.Tensor) -> torch.Tensor:
    """Writes bytes in plain order into memory that was made with the strides of the source."""
    copy = compact(tensor)
    if not (is_copy(copy, tensor) and tensor.is_non_overlapping_and_dense()):  # type: ignore[attr-defined]
        return copy
    like = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype)
    ctypes.memmove(like.data_ptr(), copy.data_ptr(), copy.nbytes)
    return like


@rule("values.conserved", exposed_by="a copied tensor of a whole block and a rest")
def loses_the_rest_of_a_block(tensor: torch.Tensor) -> torch.Tensor:
    """Copies what is larger than a block in whole blocks, and leaves out what remains."""
    copy = compact(tensor)
    if is_copy(copy, tensor) and copy.nbytes > _BLOCK:
        raw(copy)[copy.nbytes // _BLOCK * _BLOCK :] = 0
    return copy


_BLOCK = 32


@fault("values.conserved", exposed_by="two copied tensors of one shape and dtype in one bucket")
def has_one_scratch_for_each_shape(weights: Stream, limit: float) -> Buckets:
    """Copies tensors of a bucket that look alike into the same memory."""
    copies = _Copies()

    def give(bucket: Bucket) -> Bucket:
        scratch: dict[tuple[torch.Size, torch.dtype], torch.Tensor] = {}
        return [(name, into(scratch, tensor) if copies.has(tensor) else tensor) for name, tensor in emptied(bucket)]

    def into(scratch: dict[tuple[torch.Size, torch.dtype], torch.Tensor], copy: torch.Tensor) -> torch.Tensor:
        place = scratch.setdefault((copy.shape, copy.dtype), copy)
        raw(place).copy_(raw(copy))
        return place.detach()

    return buckets(weights, limit, keep=lambda tensor: copies.noted(compact(tensor), tensor), give=give)


@rule("values.conserved", exposed_by="a copied -0.0")
def writes_zeros_without_a_sign(tensor: torch.Tensor) -> torch.Tensor:
    """Makes every zero that it copies a positive one."""
    copy = compact(tensor)
    if is_copy(copy, tensor) and copy.dtype in _FLOATS:
        copy[copy == 0] = 0
    return copy


@rule("values.conserved", exposed_by="a copied infinity")
def clamps_to_finite_numbers(tensor: torch.Tensor) -> torch.Tensor:
    """Clamps what it copies to the finite numbers of its dtype."""
    copy = compact(tensor)
    if is_copy(copy, tensor) and copy.dtype in _FLOATS:
        copy[copy.isposinf()] = torch.finfo(copy.dtype).max
        copy[copy.isneginf()] = torch.finfo(copy.dtype).min
    return copy


@fault(
    "values.self-contained",
    exposed_by="two copied tensors of one dtype in one bucket",
    also={"memory": "the flat tensor is there beside the copies"},
)
def packs_copies_into_one_storage(weights: Stream, limit: float) -> Buckets:
    """Delivers the copies of a bucket as views of one flat tensor for each dtype, each of which is saved with all."""
    copies = _Copies()

    def give(bucket: Bucket) -> Bucket:
        members = emptied(bucket)
        parts = {
            dtype: iter(_in_one_storage([t for _, t in members if copies.has(t) and t.dtype is dtype]))
            for dtype in {t.dtype for _, t in members}
        }
        return [(name, next(parts[tensor.dtype]) if copies.has(tensor) else tensor) for name, tensor in members]

    return buckets(weights, limit, keep=lambda tensor: copies.noted(compact(tensor), tensor), give=give)


def _in_one_storage(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    if not tensors:
        return []
    flat = torch.cat([tensor.view(-1) for tensor in tensors])
    parts = flat.split([tensor.numel() for tensor in tensors])
    return [part.view(tensor.shape) for part, tensor in zip(parts, tensors, strict=True)]
