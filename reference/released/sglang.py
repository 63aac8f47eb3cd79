"""SGLang: the flattened bucket in which trainers hand it weights.

Others have copied it: what holds of it here holds of every copy of that version.
"""

from collections import defaultdict
from typing import Any

import torch

from bucketproof.reference.released.loading import member_of, whole
from bucketproof.reference.released.registry import Packer, Said, adapter
from bucketproof.reference.released.wheels import Wheel

_BUCKET = "sglang/srt/weight_sync/tensor_bucket.py"


@adapter(
    "sglang",
    source=_BUCKET,
    releases={
        "0.5.5.post3": "0283d290a480e56201cab6e42bc5cf5f505f600a9508d004c06283b052f60203",
        "0.5.23": "00b3cd5b265ac76c64185fbb6b95424f324ddd9f428d0306b77bc9db9d859937",
    },
    history="up to 0.5.5.post3, since 0.5.1, a bucket is counted in elements and is of one dtype; since 0.5.6 it is "
    "counted in bytes, and takes weights of several; 0.5.23 has added how an empty one is made",
    why="trainers hand SGLang their weights in this class, flattened, and the engine reconstructs them from it",
    before={"0.5.6": {"order": Said(None, "it says nothing of taking several dtypes, so callers make one for each")}},
)
def flattened_tensor_bucket(wheel: Wheel) -> Packer:
    bucket = member_of(whole(wheel, _BUCKET), "FlattenedTensorBucket")
    # what its callers ask it, too
    return flattened(bucket) if getattr(bucket, "supports_multi_dtypes", False) else flattened_by_dtype(bucket)


def flattened_by_dtype(bucket: Any) -> Packer:
    """A packer of a class whose buckets have one dtype, and whose metadata counts elements: a bucket for each dtype."""

    def pack(named: Any) -> Any:
        packed = [bucket(named_tensors=each) for each in _by_dtype(named)]
        return [(each.get_flattened_tensor(), each.get_metadata()) for each in packed]

    def unpack(payload: Any) -> Any:
        return [
            pair
            for flat, metadata in payload
            for pair in bucket(flattened_tensor=flat, metadata=metadata).reconstruct_tensors()
        ]

    return Packer(pack, unpack, _sizes)


def _by_dtype(named: Any) -> Any:
    found: dict[torch.dtype, Any] = defaultdict(list)
    for name, tensor in named:
        found[tensor.dtype].append((name, tensor))
    return found.values()


def _sizes(payload: Any) -> Any:
    return [(each.name, each.numel * each.dtype.itemsize) for _, metadata in payload for each in metadata]


def flattened(bucket: Any) -> Packer:
    """A packer of a class that puts everything into one bucket."""

    def pack(named: Any) -> Any:
        packed = bucket(named_tensors=named)
        return packed.get_flattened_tensor(), packed.get_metadata()

    def unpack(payload: Any) -> Any:
        return bucket(flattened_tensor=payload[0], metadata=payload[1]).reconstruct_tensors()

    return Packer(pack, unpack, _entries)


def _entries(payload: Any) -> Any:
    flat, metadata = payload
    size = flat.itemsize  # of a byte, but in what counts elements
    return [(each.name, (each.end_idx - each.start_idx) * size, each.start_idx * size) for each in metadata]
