"""cosmos-rl: the packing of tensors for its peer-to-peer weight sync.

Its functions know tensors by their place in a list, and no names.
"""

from collections import deque
from collections.abc import Iterator
from typing import Any

import torch

from bucketproof.reference.released.loading import member_of, whole
from bucketproof.reference.released.registry import Bucketer, Packer, Said, adapter
from bucketproof.reference.released.wheels import Wheel

_PACKING = "cosmos_rl/utils/tensor_packing.py"
_NEWEST = {"0.4.7": "bbdefd4df74153cfacf57def859e03eff94e706523cbb62ca796adee9858d4cc"}


@adapter(
    "cosmos-rl",
    source=_PACKING,
    releases=_NEWEST,
    history="0.4.6, the first to have it, has the same function",
    why="cosmos-rl groups the tensors of a weight sync into the buckets that this function yields",
    promises={
        "scope": Said(("values", "boundaries", "memory", "lifecycle"), "it groups, and says nothing of memory"),
        "retention": Said("producer-owns", "its caller lists every bucket before it uses one"),
        "copies": Said(None, "it groups, and says nothing of memory"),
        "layout": Said(None, "tensors are passed on as they are"),
        "lookahead": Said(None, "its caller lists every bucket before it uses one"),
    },
)
def iter_tensor_byte_buckets(wheel: Wheel) -> Bucketer:
    buckets = member_of(whole(wheel, _PACKING), "iter_tensor_byte_buckets")

    def bucketer(weights: Any, bucket_bytes: Any) -> Iterator[Any]:
        names: deque[str] = deque()
        for bucket in buckets(_tensors(weights, names), bucket_bytes):
            yield [(names.popleft(), tensor) for tensor in bucket]
            del bucket

    return bucketer


def _tensors(weights: Any, names: deque[str]) -> Iterator[torch.Tensor]:
    """The tensors alone, in whose order the names are kept."""
    for name, tensor in weights:
        names.append(name)
        yield tensor
        del tensor


@adapter(
    "cosmos-rl",
    which="packer",
    source=_PACKING,
    releases={"0.4.6": "17231a54062d799c3734707f1a828982784ff4ded596991adf4dc1e5443a09fa", **_NEWEST},
    history="0.4.6, the first to have it, views tensors as bytes just as they are; 0.4.7 first computes what is still "
    "to be conjugated or negated, and copies what has odd strides",
    why="cosmos-rl copies a bucket into a buffer of bytes, and from there into the tensors of the other side",
    promises={
        "scope": Said(
            ("aliasing", "ownership", "values", "lifecycle", "packing"),
            "the buffer and the tensors of the other side are given to it",
        ),
    },
)
def pack_tensors_into_buffer(wheel: Wheel) -> Packer:
    module = whole(wheel, _PACKING)
    pack_into, unpack_from = (
        member_of(module, f"{name}_buffer") for name in ("pack_tensors_into", "unpack_tensors_from")
    )

    def pack(named: Any) -> Any:
        # its docstring: contiguous tensors; as all of the weights of its models are
        tensors = [tensor if tensor.is_contiguous() else tensor.contiguous() for _, tensor in named]
        buffer = torch.empty(member_of(module, "packed_nbytes")(tensors), dtype=torch.uint8)
        payload = pack_into([tensor.detach() for tensor in tensors], buffer)
        return payload, [(name, tensor.dtype, tensor.shape) for name, tensor in named]

    def unpack(payload: Any) -> Any:
        flat, entries = payload
        named = [(name, torch.empty(shape, dtype=dtype)) for name, dtype, shape in entries]
        unpack_from(flat, [tensor for _, tensor in named])
        return named

    return Packer(pack, unpack, _entries)


def _entries(payload: Any) -> Any:
    return [(name, shape.numel() * dtype.itemsize) for name, dtype, shape in payload[1]]
