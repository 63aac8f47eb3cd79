"""Tiny wheels in the form of other projects' releases, so that what adapts them is tried without a network.

What is in them is written anew, and does only what the adapters need; nothing is said of the projects by it.
"""

from __future__ import annotations

import zipfile
from pathlib import Path

VERSION = "99.0"

_FLATTENED = """
    def __init__(self, named_tensors=None, flattened_tensor=None, metadata=None):
        self.flat, self.metadata = flattened_tensor, metadata
        if named_tensors is not None:
            self.metadata, parts, start = [], [], 0
            for name, tensor in named_tensors:
                part = tensor.detach().contiguous().view(-1){view}
                dtype = {dtype}
                kept = (name, tuple(tensor.shape), dtype, start, start + part.numel(), part.numel())
                self.metadata.append(FlattenedTensorMetadata({fields}))
                parts.append(part)
                start += part.numel()
            self.flat = torch.cat(parts)

    def get_flattened_tensor(self):
        return self.flat

    def get_metadata(self):
        return self.metadata
"""
_FIELDS = "name: str\n    shape: tuple\n    dtype: object\n    start_idx: int\n    end_idx: int\n    numel: int\n"
_NAMED = "**dict(zip(('name', 'shape', 'dtype', 'start_idx', 'end_idx', 'numel'), kept))"
_LOOP = """
    held, size = [], 0
    for name, tensor in {items}:
        if held and size + tensor.nbytes > {limit}:
            yield held
            held, size = [], 0
        held.append((name, tensor))
        size += tensor.nbytes
    if held:
        yield held
"""
_ITERATE = """
import a_web_server_that_nobody_has

async def ensure_async_iterator(items):
    if hasattr(items, "__aiter__"):
        async for item in items:
            yield item
    else:
        for item in items:
            yield item
"""
_SENDER = """
import zmq, torch
from multiprocessing import shared_memory
from verl.utils.device import get_torch_device

class BucketedWeightSender:
    def __init__(self, zmq_handle, use_shm):
        self.handle = zmq_handle

    async def async_send_weights(self, weights):
        from verl.workers.rollout.utils import ensure_async_iterator
        socket = self.zmq_context.socket(zmq.REQ)
        try:
            socket.bind(self.handle)
            async for name, tensor in ensure_async_iterator(weights):
                if tensor.nbytes > self.bucket_size:
                    raise AssertionError("too large")
                values = bytearray(tensor.contiguous().view(-1).view(torch.uint8).numpy())
                socket.send_pyobj(([(name, tensor.shape, tensor.dtype, values)], False))
                socket.recv()
            socket.send_pyobj(([], True))
            socket.recv()
        finally:
            get_torch_device().synchronize()
            socket.close()

class BucketedWeightReceiver:
    def __init__(self, zmq_handle, device, use_shm):
        self.handle = zmq_handle

    def receive_weights(self, loaded):
        socket, is_last = self.zmq_context.socket(zmq.REP), False
        try:
            socket.connect(self.handle)
            while not is_last:
                items, is_last = socket.recv_pyobj()
                read = torch.frombuffer
                loaded([(name, read(bits, dtype=dtype).reshape(shape)) for name, shape, dtype, bits in items], is_last)
                socket.send(b"")
        finally:
            socket.close()
"""
_SWIFT_SENDER = """
import torch
from swift.utils import synchronize
from swift.utils.logger import get_logger
logger = get_logger()

class BucketedWeightSender:
    def __init__(self, zmq_handle, use_shm):
        self.handle = zmq_handle

    async def __aenter__(self):
        import zmq
        from multiprocessing.shared_memory import SharedMemory
        self.socket = zmq.Context.instance().socket(zmq.REQ)
        self.socket.bind(self.handle)
        self.memory = SharedMemory(create=True, size=self.bucket_size)

    async def __aexit__(self, *_):
        from swift.utils import gc_collect
        self.socket.close()
        self.memory.close()
        self.memory.unlink()
        gc_collect()

    async def handshake(self):
        self._send({"name": self.memory.name, "size": self.bucket_size})

    def _send(self, message):
        self.socket.send_pyobj(message)
        self.socket.recv()

    async def send_weights_async(self, weights):
        async for name, tensor in weights:
            self._one(name, tensor)
        self._send({"bucket_meta": {}, "is_last": True})

    async def send_weights(self, weights):
        for name, tensor in weights:
            self._one(name, tensor)
        self._send({"bucket_meta": {}, "is_last": True})

    def _one(self, name, tensor):
        logger.debug("one more")
        self.memory.buf[: tensor.nbytes] = tensor.contiguous().view(-1).view(torch.uint8).numpy().tobytes()
        meta = {"name": name, "shape": tensor.shape, "dtype": tensor.dtype, "offset": 0}
        self._send({"bucket_meta": {name: meta}, "is_last": False})
"""

MEMBERS: dict[str, dict[str, str]] = {
    "vllm": {
        "vllm/distributed/weight_transfer/packed_tensor.py": """
import torch
from types import SimpleNamespace

def unpack_tensor(packed, names, shapes, dtypes, sizes):
    parts = zip(names, shapes, dtypes, packed.split(sizes))
    return [(name, part.view(dtype).view(shape)) for name, shape, dtype, part in parts]

def pack_tensors(iterator, post_iter_func, limit):
    chunk, parts, size = SimpleNamespace(names=[], shapes=[], dtypes=[], tensor_sizes=[]), [], 0
    for item in iterator:
        parts.append(post_iter_func(item).contiguous().view(-1).view(torch.uint8))
        size += parts[-1].numel()
        chunk.names.append(item[0])
        chunk.shapes.append(list(item[1].shape))
        chunk.dtypes.append(item[1].dtype)
        chunk.tensor_sizes.append(parts[-1].numel())
        if size > limit:
            break
    if not parts:
        return None
    chunk.packed_tensor = torch.cat(parts)
    return chunk
"""
    },
    "sglang": {
        "sglang/srt/weight_sync/tensor_bucket.py": f"""
import torch
from dataclasses import dataclass

@dataclass
class FlattenedTensorMetadata:
    {_FIELDS}
class FlattenedTensorBucket:
    supports_multi_dtypes = True
{_FLATTENED.format(view=".view(torch.uint8)", fields="*kept", dtype="tensor.dtype")}
    def reconstruct_tensors(self):
        return [(m.name, self.flat[m.start_idx : m.end_idx].view(m.dtype).reshape(m.shape)) for m in self.metadata]
"""
    },
    "lmdeploy": {
        "lmdeploy/utils.py": f"""
import a_compiled_extension_that_nobody_has

@dataclass
class FlattenedTensorMetadata:
    {_FIELDS}
class FlattenedTensorBucket:{_FLATTENED.format(view="", fields="*kept", dtype="tensor.dtype")}
    def reconstruct_tensors(self):
        return [(m.name, self.flat[m.start_idx : m.end_idx].reshape(m.shape)) for m in self.metadata]
"""
    },
    "ms_swift": {
        "swift/rlhf_trainers/utils.py": f"""
import a_trainer_that_nobody_has

class FlattenedTensorMetadata(BaseModel):
    name: str
    shape: Tuple[int, ...]
    dtype: str
    start_idx: int
    end_idx: int
    numel: int

class FlattenedTensorBucket:{_FLATTENED.format(view=".view(torch.uint8)", fields=_NAMED, dtype="str(tensor.dtype)")}
    def reconstruct_tensors(self) -> Dict[str, torch.Tensor]:
        return {{
            m.name: self.flat[m.start_idx : m.end_idx].view(getattr(torch, m.dtype[6:])).reshape(m.shape)
            for m in self.metadata
        }}

def _buckets(named_params, limit):{_LOOP.format(items="named_params", limit="limit")}

def _create_parameter_buckets(named_params, bucket_size_mb=512):
    buckets, size = [[]], 0
    for name, tensor in named_params:
        if buckets[-1] and size + tensor.nbytes > bucket_size_mb * 1024 * 1024:
            buckets.append([])
            size = 0
        buckets[-1].append((name, tensor))
        size += tensor.nbytes
    return [bucket for bucket in buckets if bucket]
""",
        "swift/ray/megatron/rollout/weight_transfer.py": _SWIFT_SENDER,
    },
    "cosmos_rl": {
        "cosmos_rl/utils/tensor_packing.py": """
import torch

def iter_tensor_byte_buckets(tensors, limit):
    held, size = [], 0
    for tensor in tensors:
        if held and size + tensor.nbytes > limit:
            yield held
            held, size = [], 0
        held.append(tensor)
        size += tensor.nbytes
    if held:
        yield held

def packed_nbytes(tensors):
    return sum(tensor.nbytes for tensor in tensors)

def pack_tensors_into_buffer(tensors, buffer):
    return torch.cat([tensor.reshape(-1).view(torch.uint8) for tensor in tensors], out=buffer)

def unpack_tensors_from_buffer(buffer, tensors):
    start = 0
    for tensor in tensors:
        tensor.view(-1).view(torch.uint8).copy_(buffer[start : start + tensor.nbytes])
        start += tensor.nbytes
"""
    },
    "rlinf": {
        "rlinf/utils/utils.py": """
import a_scheduler_that_nobody_has

_TORCH_DTYPE_SIZE_MAPPING = {}
_TORCH_STR_DTYPE_MAPPING = {}

def normalize_dtype(dtype):
    return dtype

def normalize_device(device):
    return torch.device(device)

def dtype_size(dtype):
    return _TORCH_DTYPE_SIZE_MAPPING.get(dtype, normalize_dtype(dtype).itemsize)

def materialize_tensor(tensor: torch.Tensor | DTensor) -> torch.Tensor:
    return tensor
""",
        "rlinf/hybrid_engines/weight_syncer/bucket_syncer.py": """
from __future__ import annotations
from .base import WeightSyncer

class BucketWeightSyncer(WeightSyncer):
    _TOTAL_BUCKETS_KEY = "how many"
    _SYNCER_VERSION_KEY = "which version"

def iter_named_tensor_buckets(items: Iterable, version, *, bucket_size, bucket_device, dtype_resolver=None):
    keys = BucketWeightSyncer._TOTAL_BUCKETS_KEY, BucketWeightSyncer._SYNCER_VERSION_KEY
    found = dict.fromkeys(keys, torch.tensor(1))
    for name, tensor in items:
        found[name] = materialize_tensor(tensor).to(normalize_device(bucket_device))
    yield found
""",
    },
    "skyrl": {
        "skyrl/backends/skyrl_train/weight_sync/base.py": "from types import SimpleNamespace as WeightChunk\n",
        "skyrl/backends/skyrl_train/weight_sync/weight_extractor_utils.py": """
from skyrl.backends.skyrl_train.weight_sync import WeightChunk

def yield_module_grouped_chunks(params, dtype, gather_tensor_fn, get_shape_fn, batch_size_threshold_gb=0.0):
    for name, parameter in params.items():
        tensor = gather_tensor_fn(parameter).detach().to(dtype).contiguous()
        yield WeightChunk(names=[name], tensors=[tensor], shapes=[get_shape_fn(name, parameter, tensor)])
""",
    },
    "checkpoint_engine": {
        "checkpoint_engine/data_types.py": """
from types import SimpleNamespace
BucketRange = H2DBucket = MemoryBuffer = MemoryBufferMetaList = MemoryBufferMetas = ParameterMeta = SimpleNamespace
""",
        "checkpoint_engine/pin_memory.py": """
import torch
from loguru import logger
from safetensors.torch import _getdtype, safe_open
from checkpoint_engine.data_types import MemoryBuffer, ParameterMeta

def _align_size(dtype, shape):
    return -(-dtype.itemsize * shape.numel() // 256) * 256

def _normal_pin_memory(files, named_tensors, rank=None, shared_pin_memory=None):
    logger.info("begun")
    start, metas, buffer = 0, [], shared_pin_memory[0].buffer
    for name, tensor in sorted(named_tensors.items()):
        size = _align_size(tensor.dtype, tensor.shape)
        buffer[start : start + tensor.nbytes] = tensor.detach().contiguous().view(-1).view(torch.uint8)
        metas.append(ParameterMeta(name=name, dtype=tensor.dtype, shape=tensor.shape, aligned_size=size))
        start += size
    return [MemoryBuffer(buffer=buffer, size=start, metas=metas)]
""",
        "checkpoint_engine/ps.py": """
import a_server_that_nobody_has

def _to_named_tensor(metas, offset=0):
    found = []
    for meta in metas:
        found.append({"name": meta.name, "dtype": meta.dtype, "shape": meta.shape, "offset": offset})
        offset += meta.aligned_size
    return found

def _gen_h2d_buckets(global_metas, bucket_size, local_topo, remote_topo, ranks=None):
    (metas,) = global_metas[0].memory_buffer_metas_list
    whole = BucketRange(idx=0, offset=0, size=metas.size)
    return [(0, 0, H2DBucket(size=metas.size, ranges=[whole], items=metas.metas))]
""",
        "checkpoint_engine/worker.py": """
import a_device_that_nobody_has

def _extract_weights(payload: list[FlattenedTensorMetadata], buffer: torch.Tensor) -> _WEIGHTS_TYPE:
    parts = [(each, each["offset"], each["dtype"].itemsize * each["shape"].numel()) for each in payload]
    return [(e["name"], buffer[at : at + n].view(e["dtype"]).view(e["shape"])) for e, at, n in parts]
""",
    },
    "verl": {
        "verl/workers/rollout/utils.py": _ITERATE,
        "verl/workers/rollout/sglang_rollout/utils.py": f"""
from verl.utils.device import get_device_name

def get_named_tensor_buckets(iterable, bucket_bytes):
    if not bucket_bytes > 0:
        raise ValueError(bucket_bytes){_LOOP.format(items="iterable", limit="bucket_bytes")}
""",
        "verl/checkpoint_engine/kimi_checkpoint_engine.py": """
import ray_that_nobody_has

def ckpt_get_named_tensor_buckets(
    iterable: Generator[tuple[str, torch.Tensor], None, None], bucket_bytes, world_size, rank_id, dtype=torch.bfloat16
):
    for name, tensor in iterable:
        yield {name: tensor.to(dtype)}
""",
        "verl/checkpoint_engine/base.py": """
import ray_that_nobody_has

@dataclass
class TensorMeta:
    name: str

async def split_weight_chunks(weights: Generator[tuple, None, None], bucket_size) -> AsyncGenerator[tuple, None]:
    async for name, weight in ensure_async_iterator(weights):
        yield TensorMeta(name), weight

async def merge_weight_chunks(chunks, bucket_size):
    async for meta, chunk in chunks:
        yield meta.name, chunk
""",
        "verl/workers/rollout/vllm_rollout/bucketed_weight_transfer.py": _SENDER,
    },
}
"""The members of each wheel, by the name in its file's name."""


def fill(cache: Path) -> None:
    """Put all of them into a cache, each as the release `VERSION` of its project."""
    for name, members in MEMBERS.items():
        folder = cache / name.replace("_", "-") / VERSION
        folder.mkdir(parents=True)
        with zipfile.ZipFile(folder / f"{name}-{VERSION}-py3-none-any.whl", "w") as archive:
            for member, text in members.items():
                archive.writestr(zipfile.ZipInfo(member), text)
