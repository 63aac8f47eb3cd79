"""SkyRL: the chunks of whole modules in which it hands over weights. Releases since 0.4 leave this to vLLM."""

from collections.abc import Iterator
from typing import Any

import torch

from bucketproof.reference.released.loading import member_of, whole
from bucketproof.reference.released.registry import Bucketer, Said, adapter
from bucketproof.reference.released.wheels import Wheel

_FOLDER = "skyrl/backends/skyrl_train/weight_sync"
_CHUNKS = f"{_FOLDER}/weight_extractor_utils.py"
_GIB = 1 << 30


@adapter(
    "skyrl",
    source=_CHUNKS,
    releases={"0.3.0": "0110e9434a58d6eb2aa533dd06e6346c8303757800af3c2b5a0d3f341cbad414"},
    history="since 0.1.0, the first to have it, the file has not changed; 0.4.0 has it no more",
    why="SkyRL's FSDP workers hand over their weights in the chunks that this function yields, module by module",
    promises={
        "dtype": Said("bfloat16", "everything is cast to the dtype that is given; bfloat16 is what inference uses"),
        "order": Said(None, "its docstring: groups parameters by module"),
        "bound": Said(None, "its docstring: complete modules are put together until a threshold is reached"),
        "oversize": Said(None, "a module may be larger than the threshold"),
        "bad_limit": Said(None, "a threshold of 0 means that each module is a chunk"),
        "duplicates": Said(None, "it is given a dict of parameters by name"),
        "lookahead": Said(None, "it is given a dict of parameters by name"),
        "retention": Said("producer-owns", "it is given a dict of parameters by name"),
        "scope": Said(
            ("values", "boundaries", "memory", "lifecycle"), "it is given live parameters, which it may share"
        ),
        "copies": Said(None, "what has the dtype already is passed on, all else is copied"),
        "layout": Said("contiguous", "each tensor is made contiguous"),
    },
)
def yield_module_grouped_chunks(wheel: Wheel) -> Bucketer:
    chunk = member_of(whole(wheel, f"{_FOLDER}/base.py"), "WeightChunk")
    module = whole(wheel, _CHUNKS, {"skyrl.backends.skyrl_train.weight_sync": {"WeightChunk": chunk}})
    chunks = member_of(module, "yield_module_grouped_chunks")

    def bucketer(weights: Any, bucket_bytes: Any) -> Iterator[Any]:
        for each in chunks(dict(weights), torch.bfloat16, _whole, _shape, bucket_bytes / _GIB):
            yield list(zip(each.names, each.tensors, strict=True))

    return bucketer


def _whole(parameter: Any) -> Any:
    """What gathering makes of a parameter that is not sharded."""
    return parameter


def _shape(name: str, parameter: Any, tensor: torch.Tensor) -> list[int]:
    return list(tensor.shape)
