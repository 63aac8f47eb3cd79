"""LMDeploy: the flattened bucket in which trainers hand it weights, of one dtype each."""

from dataclasses import dataclass

import torch

from bucketproof.reference.released.loading import excerpt
from bucketproof.reference.released.registry import Packer, Said, adapter
from bucketproof.reference.released.sglang import flattened_by_dtype
from bucketproof.reference.released.wheels import Wheel

_UTILS = "lmdeploy/utils.py"


@adapter(
    "lmdeploy",
    source=_UTILS,
    releases={"0.18.0": "e6790a25dcdb0345c160567fdf2ac604fec319389523a8b806834c9d92c8ffe1"},
    history="since 0.11.0, the first to have it, nothing has changed in what is judged here; 0.12.3 has added that a "
    "bucket can be given the memory it is put into",
    why="trainers hand LMDeploy their weights in this class, flattened, and the engine reconstructs them from it",
    promises={
        "order": Said(None, "a bucket has one dtype, so its callers make one for each"),
    },
)
def flattened_tensor_bucket(wheel: Wheel) -> Packer:
    names = ["FlattenedTensorMetadata", "FlattenedTensorBucket"]
    return flattened_by_dtype(excerpt(wheel, _UTILS, names, torch=torch, dataclass=dataclass).FlattenedTensorBucket)
