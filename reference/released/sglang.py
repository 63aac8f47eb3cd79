"""SGLang: the flattened bucket in which trainers hand it weights.

Others have copied it: what holds of it here holds of every copy of that version.
"""

from typing import Any

from bucketproof.reference.released.loading import member_of, whole
from bucketproof.reference.released.registry import Packer, adapter
from bucketproof.reference.released.wheels import Wheel

_BUCKET = "sglang/srt/weight_sync/tensor_bucket.py"


@adapter(
    "sglang",
    source=_BUCKET,
    releases={"0.5.23": "00b3cd5b265ac76c64185fbb6b95424f324ddd9f428d0306b77bc9db9d859937"},
    why="trainers hand SGLang their weights in this class, flattened, and the engine reconstructs them from it",
)
def flattened_tensor_bucket(wheel: Wheel) -> Packer:
    return flattened(member_of(whole(wheel, _BUCKET), "FlattenedTensorBucket"))


def flattened(bucket: Any) -> Packer:
    """A packer of a class such as this one, whose metadata counts bytes."""

    def pack(named: Any) -> Any:
        packed = bucket(named_tensors=named)
        return packed.get_flattened_tensor(), packed.get_metadata()

    def unpack(payload: Any) -> Any:
        return bucket(flattened_tensor=payload[0], metadata=payload[1]).reconstruct_tensors()

    return Packer(pack, unpack, _entries)


def _entries(payload: Any) -> Any:
    return [(each.name, each.end_idx - each.start_idx, each.start_idx) for each in payload[1]]
