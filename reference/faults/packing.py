"""Faults of packers: payloads that do not give back what went in, or say something else than is true."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence

import torch

from bucketproof.reference.faults.loop import copied, raw, total
from bucketproof.reference.faults.registry import fault
from bucketproof.reference.sound import Bucket
from bucketproof.reference.variants import Payload, pack_aligned, unpack_aligned

_WRONG = {torch.bfloat16: torch.float16, torch.float32: torch.int32}


@fault(
    "packing.round-trip",
    exposed_by="an item of float32 or bfloat16",
    also={"values": "what does not come out does not arrive"},
    unpack=unpack_aligned,
)
def packs_bfloat16_as_float16(named: Bucket) -> Payload:
    """Mistakes one dtype for another of its size."""
    flat, metadata = pack_aligned(named)
    return flat, [(name, _WRONG.get(dtype, dtype), shape) for name, dtype, shape in metadata]


Placed = tuple[torch.Tensor, list[tuple[str, torch.Tensor, int]]]
"""A flat tensor of bytes, and where in it each item is. The tensors say of what dtype and shape."""


def _placed(named: Bucket, starts: Sequence[int], length: int) -> Placed:
    """A payload of that length, with each item where it should start."""
    flat = torch.zeros(length, dtype=torch.uint8)
    for start, (_, tensor) in zip(starts, named, strict=True):
        flat[start : start + tensor.nbytes].copy_(raw(copied(tensor)))
    return flat, [(name, tensor, start) for start, (name, tensor) in zip(starts, named, strict=True)]


def _starts(named: Bucket, alignments: Iterable[int]) -> list[int]:
    """Where each item starts, at a multiple of its alignment, and where the last one ends."""
    starts, end = [], 0
    for (_, tensor), alignment in zip(named, alignments, strict=False):
        starts.append(end + -end % alignment)
        end = starts[-1] + tensor.nbytes
    return [*starts, end]


def _pack(named: Bucket) -> Placed:
    """A sound payload, in which each item starts where its dtype may."""
    *starts, end = _starts(named, [tensor.element_size() for _, tensor in named])
    return _placed(named, starts, end)


def _unpack_copies(payload: Placed) -> Bucket:
    flat, metadata = payload
    return [
        (name, flat[start : start + like.nbytes].clone().view(like.dtype).view(like.shape))
        for name, like, start in metadata
    ]


def _offsets(payload: Placed) -> list[tuple[str, int, int]]:
    return [(name, like.nbytes, start) for name, like, start in payload[1]]


@fault(
    "packing.alignment",
    exposed_by="an item of a larger dtype behind one whose bytes are no multiple of its size",
    origin="verl #7318, vllm #57665",
    unpack=_unpack_copies,
    entries=_offsets,
)
def packs_tightly(named: Bucket) -> Placed:
    """Leaves no byte between items, and says where each is."""
    ends = [*itertools.accumulate(tensor.nbytes for _, tensor in named)]
    return _placed(named, [0, *ends[:-1]], total(named))


@fault(
    "packing.alignment",
    exposed_by="an item of a larger dtype behind two, of which the first is of a smaller one",
    unpack=_unpack_copies,
    entries=_offsets,
)
def aligns_for_the_item_before(named: Bucket) -> Placed:
    """Pads behind an item to a multiple of that item's element, not of the next one's."""
    *starts, end = _starts(named, [1, *(tensor.element_size() for _, tensor in named)])
    return _placed(named, starts, end)


def _elements(payload: Payload) -> list[tuple[str, int]]:
    return [(name, shape.numel()) for name, _, shape in payload[1]]


@fault(
    "packing.metadata", exposed_by="an item of more than one byte an element", unpack=unpack_aligned, entries=_elements
)
def gives_elements_for_bytes(named: Bucket) -> Payload:
    """Says how many elements an item has where bytes are meant."""
    return pack_aligned(named)


# What the metadata says.


def _offsets_in_elements(payload: Placed) -> list[tuple[str, int, int]]:
    return [(name, like.nbytes, start // like.element_size()) for name, like, start in payload[1]]


@fault(
    "packing.metadata",
    exposed_by="a second item, of more than one byte an element",
    unpack=_unpack_copies,
    entries=_offsets_in_elements,
)
def gives_offsets_in_elements(named: Bucket) -> Placed:
    """Says at which element an item starts where a byte is meant."""
    return _pack(named)


def _offsets_without_padding(payload: Placed) -> list[tuple[str, int, int]]:
    sizes = [like.nbytes for _, like, _ in payload[1]]
    return [(name, like.nbytes, sum(sizes[:i])) for i, (name, like, _) in enumerate(payload[1])]


@fault(
    "packing.metadata",
    exposed_by="an item of a larger dtype behind one whose bytes are no multiple of its size",
    unpack=_unpack_copies,
    entries=_offsets_without_padding,
)
def forgets_padding_in_its_offsets(named: Bucket) -> Placed:
    """Adds up sizes for offsets, though there is padding in between."""
    return _pack(named)


def _sorted_offsets(payload: Placed) -> list[tuple[str, int, int]]:
    return sorted(_offsets(payload))


@fault(
    "packing.metadata",
    exposed_by="a name that sorts before the one in front of it",
    unpack=_unpack_copies,
    entries=_sorted_offsets,
)
def sorts_its_metadata(named: Bucket) -> Placed:
    """Sends metadata in the order of names, and bytes in that of the stream."""
    return _pack(named)


@fault(
    "packing.metadata",
    exposed_by="a bucket that does not fill the buffer",
    origin="verl #7107",
    also={"memory": "the rest of a buffer is memory, too"},
    unpack=_unpack_copies,
    entries=_offsets,
)
def sends_the_whole_buffer(named: Bucket) -> Placed:
    """Sends what is left of a buffer behind the last item, too."""
    *starts, end = _starts(named, [tensor.element_size() for _, tensor in named])
    return _placed(named, starts, 1 << end.bit_length())


# What comes out.

_LOST = {"values": "what does not come out does not arrive"}


@fault("packing.round-trip", exposed_by="an item of no byte", also=_LOST, unpack=unpack_aligned)
def leaves_out_items_of_no_byte(named: Bucket) -> Payload:
    """Has nothing to pack of an item of no byte."""
    flat, metadata = pack_aligned(named)
    return flat, [(name, dtype, shape) for name, dtype, shape in metadata if shape.numel()]


@fault(
    "packing.round-trip",
    exposed_by="a payload whose length is no multiple of four",
    also=_LOST,
    unpack=_unpack_copies,
    entries=_offsets,
)
def sends_whole_words(named: Bucket) -> Placed:
    """Sends the payload as int32, and leaves out the bytes behind the last whole one."""
    flat, metadata = _pack(named)
    return flat[: len(flat) // 4 * 4], metadata


@fault("packing.round-trip", exposed_by="any item", origin="verl #6813", also=_LOST, unpack=unpack_aligned)
def writes_a_mark_into_the_data(named: Bucket) -> Payload:
    """Says that it is done in the first four bytes of the buffer."""
    flat, metadata = pack_aligned(named)
    flat[:4] = 1
    return flat, metadata


@fault(
    "packing.round-trip",
    exposed_by="an item of no dimension, of more than one byte",
    origin="vllm #52235",
    also=_LOST,
    unpack=unpack_aligned,
)
def packs_bytes_before_it_flattens(named: Bucket) -> Payload:
    """Views an item as bytes as it is, which what has no dimension does not admit."""
    for _, tensor in named:
        copied(tensor).view(torch.uint8)
    return pack_aligned(named)


def _unpack_sides(payload: Payload) -> Bucket:
    _, metadata = payload
    return [
        (name, tensor.flatten().view(*shape))
        for (name, tensor), (_, _, shape) in zip(unpack_aligned(payload), metadata, strict=True)
    ]


@fault(
    "packing.round-trip",
    exposed_by="an item of no dimension",
    origin="vllm #52235",
    also=_LOST,
    unpack=_unpack_sides,
)
def spreads_a_shape_that_has_no_side(named: Bucket) -> Payload:
    """Gives `view` each side as an argument when it unpacks, and what has no dimension has none to give."""
    return pack_aligned(named)


def _unpack_all_but_the_first_side(payload: Payload) -> Bucket:
    _, metadata = payload
    return [
        (name, tensor.flatten().view(-1, *shape[1:]) if shape else tensor)
        for (name, tensor), (_, _, shape) in zip(unpack_aligned(payload), metadata, strict=True)
    ]


@fault(
    "packing.round-trip",
    exposed_by="an item of no element, with a side of none behind the first",
    also=_LOST,
    unpack=_unpack_all_but_the_first_side,
)
def leaves_the_first_side_to_be_guessed(named: Bucket) -> Payload:
    """Unpacks with -1 for the first side, which nobody can tell if another side is 0."""
    return pack_aligned(named)


@fault("packing.round-trip", exposed_by="a permuted item", origin="vllm #50641", also=_LOST, unpack=unpack_aligned)
def sends_memory_as_it_lies(named: Bucket) -> Payload:
    """Reads as many bytes as an item has from where it begins, whatever its strides."""
    return pack_aligned([(name, _as_it_lies(tensor.detach())) for name, tensor in named])


def _as_it_lies(tensor: torch.Tensor) -> torch.Tensor:
    behind = tensor.untyped_storage().nbytes() - tensor.storage_offset() * tensor.element_size()
    strides = torch.empty(tensor.shape, device="meta").stride()
    return tensor.as_strided(tensor.shape, strides) if tensor.nbytes <= behind else tensor


Lines = tuple[torch.Tensor, str, list[tuple[torch.dtype, torch.Size]]]


def _unpack_lines(payload: Lines) -> Bucket:
    flat, lines, kinds = payload
    names = lines.splitlines()
    return unpack_aligned((flat, [(name, *kind) for name, kind in zip(names, kinds, strict=False)]))


@fault("packing.round-trip", exposed_by="a name with a line break, or none", also=_LOST, unpack=_unpack_lines)
def writes_names_in_lines(named: Bucket) -> Lines:
    """Sends the names in one text, one on each line."""
    flat, metadata = pack_aligned(named)
    return flat, "".join(name + "\n" for name, _, _ in metadata), [(dtype, shape) for _, dtype, shape in metadata]


Keyed = tuple[torch.Tensor, dict[str, tuple[torch.Tensor, int]]]


def _unpack_keyed(payload: Keyed) -> Bucket:
    flat, metadata = payload
    return _unpack_copies((flat, [(name, like, start) for name, (like, start) in metadata.items()]))


def _keyed_offsets(payload: Keyed) -> list[tuple[str, int, int]]:
    return [(name, like.nbytes, start) for name, (like, start) in payload[1].items()]


@fault("values.duplicates", exposed_by="a name twice in one bucket", unpack=_unpack_keyed, entries=_keyed_offsets)
def keys_its_metadata_by_name(named: Bucket) -> Keyed:
    """Has room for one item of each name in its metadata."""
    flat, metadata = _pack(named)
    return flat, {name: (like, start) for name, like, start in metadata}


_FLOATS = {torch.int64: torch.float64, torch.int32: torch.float32, torch.int16: torch.float16}


def _unpack_numbers(payload: Placed) -> Bucket:
    is_converted = _has_floats([(name, like) for name, like, _ in payload[1]])
    return [
        (
            name,
            tensor.view(_FLOATS[tensor.dtype]).to(tensor.dtype) if is_converted and tensor.dtype in _FLOATS else tensor,
        )
        for name, tensor in _unpack_copies(payload)
    ]


def _has_floats(named: Bucket) -> bool:
    return any(tensor.dtype in (torch.float32, torch.bfloat16, torch.float16, torch.float64) for _, tensor in named)


@fault(
    "packing.round-trip",
    exposed_by="an integer beside a float",
    also=_LOST,
    unpack=_unpack_numbers,
    entries=lambda payload: None,
)
def converts_integers_beside_floats(named: Bucket) -> Placed:
    """Converts integers to floats if there is a float in the bucket, as `cat` does, and back."""
    flat, metadata = _pack(named)
    for _, tensor, start in metadata:
        if _has_floats(named) and tensor.dtype in _FLOATS:
            part = flat[start : start + tensor.nbytes].view(_FLOATS[tensor.dtype])
            part.copy_(copied(tensor).view(-1))
    return flat, metadata


_BUFFERS: dict[int, torch.Tensor] = {}


@fault(
    "lifecycle.bucket-is-the-consumers",
    exposed_by="a consumer that holds a bucket while one of the same length is packed",
    origin="slime #929, miles #254",
    also={"memory": "a buffer that is used again is not let go of in between"},
    unpack=unpack_aligned,
)
def packs_into_the_same_buffer(named: Bucket) -> Payload:
    """Packs buckets of one length into one buffer, of which the receiver has views."""
    flat, metadata = pack_aligned(named)
    buffer = _BUFFERS.setdefault(len(flat), flat)
    with torch.inference_mode(buffer.is_inference()):
        return buffer.copy_(flat), metadata
