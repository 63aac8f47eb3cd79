"""checkpoint-engine: from named tensors to pinned memory, from there in buckets to the other side, and out again."""

from types import SimpleNamespace
from typing import Any

import torch

from bucketproof.reference.released.loading import excerpt, member_of, whole
from bucketproof.reference.released.registry import Packer, Said, adapter
from bucketproof.reference.released.wheels import Wheel

_PIN = "checkpoint_engine/pin_memory.py"
_SERVER = "checkpoint_engine/ps.py"
_WORKER = "checkpoint_engine/worker.py"
_TYPES = "checkpoint_engine/data_types.py"
_DATA = ("BucketRange", "H2DBucket", "MemoryBuffer", "MemoryBufferMetaList", "MemoryBufferMetas", "ParameterMeta")


@adapter(
    "checkpoint-engine",
    source=_PIN,
    releases={"0.4.2": "226815a47b3f1a8647d0d633912cfa2e4911f534fc7f87261d0c2a6ddaec4305"},
    history="since 0.1.1, the first of all, the steps that are judged here have moved to other files, and been given "
    "other arguments, and do the same",
    why="checkpoint-engine packs weights into pinned memory, moves them in buckets, and extracts them there",
    promises={
        "scope": Said(
            ("aliasing", "ownership", "values", "lifecycle", "packing"),
            "the pinned memory and the buffer that it is moved into are given to it",
        ),
        "order": Said(None, "it sorts by name"),
        "duplicates": Said(None, "it is given a dict of tensors by name"),
    },
)
def pin_move_and_extract(wheel: Wheel) -> Packer:
    types = whole(wheel, _TYPES)
    data: dict[str, object] = {name: member_of(types, name) for name in _DATA}
    pinning = whole(wheel, _PIN, {"checkpoint_engine.data_types": data, "loguru": _LOGGER, "safetensors.torch": _FILES})
    moving = excerpt(wheel, _SERVER, ["_gen_h2d_buckets", "_to_named_tensor"], **data)
    scope: dict[str, object] = {"torch": torch, "_WEIGHTS_TYPE": object}
    reading = excerpt(wheel, _WORKER, ["_extract_weights"], FlattenedTensorMetadata=dict, **scope)
    pipeline = _Pipeline(SimpleNamespace(**data), pinning, moving, reading)
    return Packer(pipeline.pack, pipeline.unpack, _entries, padding=255)


class _Pipeline:
    """The steps of a sync on one machine, with nothing between them that a device would do."""

    def __init__(self, data: Any, pinning: Any, moving: Any, reading: Any) -> None:
        self._data, self._pinning, self._moving, self._reading = data, pinning, moving, reading

    def pack(self, named: Any) -> Any:
        """The bytes and the metadata of the one bucket that all of it is moved in."""
        tensors = dict(named)
        pinned = self._pinned(tensors)
        ((_, _, bucket),) = self._buckets(pinned)
        payload = torch.cat([pinned[each.idx].buffer[each.offset : each.offset + each.size] for each in bucket.ranges])
        return payload, self._moving._to_named_tensor(bucket.items)

    def _pinned(self, tensors: dict[str, torch.Tensor]) -> Any:
        size = sum(self._pinning._align_size(tensor.dtype, tensor.shape) for tensor in tensors.values())
        # Memory can be pinned where there is a driver alone. What is given to it, it takes as pinned.
        with torch.inference_mode(False):
            memory = self._data.MemoryBuffer(buffer=torch.empty(size, dtype=torch.uint8), size=size, metas=[])
        return self._pinning._normal_pin_memory(files=[], named_tensors=tensors, shared_pin_memory=[memory])

    def _buckets(self, pinned: Any) -> Any:
        metas = [
            self._data.MemoryBufferMetas(metas=each.metas, ptr=each.buffer.data_ptr(), size=each.size)
            for each in pinned
        ]
        rank = self._data.MemoryBufferMetaList(p2p_store_addr=None, memory_buffer_metas_list=metas, rdma_device="")
        return self._moving._gen_h2d_buckets({0: rank}, sum(each.size for each in pinned), {}, {})

    def unpack(self, payload: Any) -> Any:
        """What the worker extracts."""
        return self._reading._extract_weights(payload[1], payload[0])


def _entries(payload: Any) -> Any:
    return [(each["name"], each["shape"].numel() * each["dtype"].itemsize, each["offset"]) for each in payload[1]]


def _ignored(*_: Any) -> None: ...


_LOGGER: dict[str, object] = {"logger": SimpleNamespace(info=_ignored, warning=_ignored, error=_ignored)}
_FILES: dict[str, object] = {"_getdtype": None, "safe_open": None}
"""What reads files, of which there are none here."""
