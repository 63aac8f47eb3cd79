"""RLinf: the buckets of its weight syncer."""

from collections.abc import Iterator
from typing import Any

import torch
from torch.distributed.tensor import DTensor

from bucketproof.reference.released.loading import excerpt
from bucketproof.reference.released.registry import Bucketer, Said, adapter
from bucketproof.reference.released.wheels import Wheel

_SYNCER = "rlinf/hybrid_engines/weight_syncer/bucket_syncer.py"
_HELPERS = "rlinf/utils/utils.py"
_HELPING = (
    *("_TORCH_DTYPE_SIZE_MAPPING", "_TORCH_STR_DTYPE_MAPPING"),
    *("dtype_size", "materialize_tensor", "normalize_device", "normalize_dtype"),
)


@adapter(
    "rlinf",
    source=_SYNCER,
    releases={"0.3.0": "bce718baceb029bb7c2baa24688dc97efaf83ca1fa766cdb3cbc83789446303c"},
    history="0.3.0 is the first to have it",
    why="RLinf's syncers send a state dict in the buckets that this function yields",
    promises={
        "bound": Said("soft", "its class calls the size a target; a bucket is closed once it is reached"),
        "oversize": Said(None, "a bucket may be larger than the target by any tensor"),
        "scope": Said(("values", "boundaries", "memory", "lifecycle"), "it groups, and says nothing of memory"),
        "retention": Said("producer-owns", "it is given the items of a state dict, and plans all buckets first"),
        "copies": Said(None, "it groups, and says nothing of memory"),
        "layout": Said(None, "tensors are passed on as they are"),
        "lookahead": Said(None, "it plans all buckets first, for the first one says how many there are"),
        "duplicates": Said(None, "a bucket is a dict by name, and its caller sorts the set of names"),
        "bad_limit": Said(None, "nothing is said of sizes that are none"),
    },
)
def iter_named_tensor_buckets(wheel: Wheel) -> Bucketer:
    helpers = vars(excerpt(wheel, _HELPERS, _HELPING, torch=torch, DTensor=DTensor))
    scope = {"torch": torch, **{name: helpers[name] for name in _HELPING}}
    # all that is taken from the class are the names of two keys
    names = ["iter_named_tensor_buckets", "BucketWeightSyncer"]
    module = excerpt(wheel, _SYNCER, names, WeightSyncer=object, **scope)
    buckets, keys = module.iter_named_tensor_buckets, module.BucketWeightSyncer
    added = {keys._TOTAL_BUCKETS_KEY, keys._SYNCER_VERSION_KEY}

    def bucketer(weights: Any, bucket_bytes: Any) -> Iterator[Any]:
        for bucket in buckets(weights, 0, bucket_size=bucket_bytes, bucket_device="cpu"):
            # as the receiver does, which takes these two out of the first bucket
            yield {name: tensor for name, tensor in bucket.items() if name not in added}

    return bucketer
