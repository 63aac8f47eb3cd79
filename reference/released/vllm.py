"""vLLM: the packed weight transfer, which other projects use as it is.

A chunk is concatenated when it is closed, and what is unpacked are views of it.
"""

from collections.abc import Iterator
from functools import partial
from itertools import accumulate
from typing import Any

from bucketproof.reference.released.loading import member_of, whole
from bucketproof.reference.released.registry import Bucketer, Packer, Said, adapter
from bucketproof.reference.released.wheels import Wheel

_PACKED = "vllm/distributed/weight_transfer/packed_tensor.py"
_RELEASES = {
    "0.31.0": "39132b433967f0962d03d8a5f633b9bee6b32708f566c7d5637b79f8d0ef3433",
    "0.33.0": "4b6bdec4ab269990bf70d45a3c1e94c3760a27064513760193b26d6f0da883aa",
}
_HISTORY = (
    "up to 0.31.0, since 0.22.0, a weight is viewed as bytes before it is flattened, as one without dimensions cannot "
    "be; since 0.32.0 it is flattened first; before 0.22.0, packing was part of a broadcast between GPUs"
)
_EVERYTHING = 1 << 62


@adapter(
    "vllm",
    source=_PACKED,
    releases=_RELEASES,
    history=_HISTORY,
    why="vLLM's engines for weight transfer pack weights into one tensor with pack_tensors, and unpack it again",
)
def pack_and_unpack(wheel: Wheel) -> Packer:
    module = whole(wheel, _PACKED)
    pack_tensors, unpack_tensor = member_of(module, "pack_tensors"), member_of(module, "unpack_tensor")

    def pack(named: Any) -> Any:
        chunk = pack_tensors(iter(named), _tensor, _EVERYTHING)
        return chunk.packed_tensor, chunk

    def unpack(payload: Any) -> Any:
        return _unpacked(unpack_tensor, payload[1])

    return Packer(pack, unpack, _entries)


@adapter(
    "vllm",
    which="stream",
    source=_PACKED,
    releases=_RELEASES,
    history=_HISTORY,
    why="the loop of vLLM's producer, which asks pack_tensors for chunks until there are no more",
    promises={
        "bound": Said("soft", "its docstring: until the accumulated size exceeds buffer_size_bytes"),
        "retention": Said("at-flush", "a chunk is concatenated when it is closed, as its docstring says"),
        "copies": Said("always", "a chunk is one new tensor"),
        "layout": Said(None, "what is unpacked are views of the chunk, says the docstring of unpack_tensor"),
        "bad_limit": Said(None, "nothing is said of sizes that are none"),
        "scope": Said(("values", "boundaries", "memory", "lifecycle"), "what a chunk holds is judged of the packer"),
    },
)
def pack_stream(wheel: Wheel) -> Bucketer:
    module = whole(wheel, _PACKED)
    pack_tensors, unpack_tensor = member_of(module, "pack_tensors"), member_of(module, "unpack_tensor")

    def bucketer(weights: Any, bucket_bytes: Any) -> Iterator[Any]:
        producer = iter(weights)
        # Unlike a loop, a map names no chunk while the next one is collected.
        chunks = iter(lambda: pack_tensors(producer, _tensor, bucket_bytes), None)
        return map(partial(_unpacked, unpack_tensor), chunks)

    return bucketer


def _tensor(item: Any) -> Any:
    """What vLLM does to an item by default."""
    return item[1]


def _unpacked(unpack_tensor: Any, chunk: Any) -> Any:
    return unpack_tensor(chunk.packed_tensor, chunk.names, chunk.shapes, chunk.dtypes, chunk.tensor_sizes)


def _entries(payload: Any) -> Any:
    _, chunk = payload
    offsets = accumulate(chunk.tensor_sizes, initial=0)
    return list(zip(chunk.names, chunk.tensor_sizes, offsets, strict=False))
