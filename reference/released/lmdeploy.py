"""LMDeploy: the flattened bucket in which trainers hand it weights, of one dtype each."""

from collections import defaultdict
from dataclasses import dataclass
from typing import Any

import torch

from bucketproof.reference.released.loading import excerpt
from bucketproof.reference.released.registry import Packer, Said, adapter
from bucketproof.reference.released.wheels import Wheel

_UTILS = "lmdeploy/utils.py"


@adapter(
    "lmdeploy",
    source=_UTILS,
    releases={"0.18.0": "e6790a25dcdb0345c160567fdf2ac604fec319389523a8b806834c9d92c8ffe1"},
    why="trainers hand LMDeploy their weights in this class, flattened, and the engine reconstructs them from it",
    promises={
        "order": Said(None, "a bucket has one dtype, so its callers make one for each"),
    },
)
def flattened_tensor_bucket(wheel: Wheel) -> Packer:
    names = ["FlattenedTensorMetadata", "FlattenedTensorBucket"]
    bucket = excerpt(wheel, _UTILS, names, torch=torch, dataclass=dataclass).FlattenedTensorBucket

    def pack(named: Any) -> Any:
        # a list of buckets, one for each dtype
        packed = [bucket(named_tensors=each) for each in _by_dtype(named).values()]
        return [(each.get_flattened_tensor(), each.get_metadata()) for each in packed]

    def unpack(payload: Any) -> Any:
        return [
            pair
            for flat, metadata in payload
            for pair in bucket(flattened_tensor=flat, metadata=metadata).reconstruct_tensors()
        ]

    return Packer(pack, unpack, _entries)


def _by_dtype(named: Any) -> dict[torch.dtype, Any]:
    found: dict[torch.dtype, Any] = defaultdict(list)
    for name, tensor in named:
        found[tensor.dtype].append((name, tensor))
    return found


def _entries(payload: Any) -> Any:
    return [(each.name, each.numel * each.dtype.itemsize) for _, metadata in payload for each in metadata]
