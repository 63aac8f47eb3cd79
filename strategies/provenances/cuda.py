"""Weights as only a CUDA device has them. Each is built in host memory too, if that has what it asks torch for."""

from __future__ import annotations

from typing import Any

import torch

from bucketproof.strategies.cuda import aside, expandable_segments, exported, on
from bucketproof.strategies.custody import Custody
from bucketproof.strategies.memory import Memory
from bucketproof.strategies.plans import Shape
from bucketproof.strategies.provenances.registry import provenance

_ON_CUDA: dict[str, Any] = {"group": "cuda", "empty": False}


@provenance("uploaded", Custody.OWNED, **_ON_CUDA)
def uploaded(shape: Shape, dtype: torch.dtype, memory: Memory) -> torch.Tensor:
    """A copy of pinned memory of the host, which nobody has waited for."""
    made = memory.fresh(shape, dtype)
    return made.cpu().pin_memory().to(made.device, non_blocking=True)


@provenance("same-block", Custody.OWNED, **_ON_CUDA)
def same_block(shape: Shape, dtype: torch.dtype, memory: Memory) -> torch.Tensor:
    """One of three tensors that the allocator cuts out of one block, between two that are held."""
    before, made, after = memory.fresh(shape, dtype), memory.fresh(shape, dtype), memory.fresh(shape, dtype)
    memory.hold((before, after))
    return made


@provenance("side-stream", Custody.OWNED, **_ON_CUDA)
def side_stream(shape: Shape, dtype: torch.dtype, memory: Memory) -> torch.Tensor:
    """A tensor that another stream has made, which the current one waits for."""
    with on(aside()):
        made = memory.fresh(shape, dtype)
    made.record_stream(torch.cuda.current_stream())
    return made


@provenance("expandable-segment", Custody.OWNED, **_ON_CUDA)
def expandable_segment(shape: Shape, dtype: torch.dtype, memory: Memory) -> torch.Tensor:
    """A tensor in a segment that the allocator maps bit by bit."""
    with expandable_segments():
        made = memory.fresh(shape, dtype)
    made.record_stream(torch.cuda.current_stream())
    return made


@provenance("pinned", Custody.LENT, home="pinned", **_ON_CUDA)
def pinned(shape: Shape, dtype: torch.dtype, memory: Memory) -> torch.Tensor:
    """A view of pinned memory of the host, which the device copies into without being waited for."""
    return memory.take(shape, dtype).view(shape)


@provenance("received-aside", Custody.LENT, home="aside", exact=True, **_ON_CUDA)
def received_aside(shape: Shape, dtype: torch.dtype, memory: Memory) -> torch.Tensor:
    """A view of a receive buffer that NCCL, or for one device another stream, writes while others are at work."""
    return memory.take(shape, dtype).detach()


@provenance("graph-buffer", Custody.LENT, home="captured", **_ON_CUDA)
def graph_buffer(shape: Shape, dtype: torch.dtype, memory: Memory) -> torch.Tensor:
    """A view of what a captured graph writes whenever it is replayed."""
    return memory.take(shape, dtype).view(shape)


@provenance("cuda-array", Custody.LENT, **_ON_CUDA)
def cuda_array(shape: Shape, dtype: torch.dtype, memory: Memory) -> torch.Tensor:
    """The memory of an array with `__cuda_array_interface__`: of cupy's, if that is installed."""
    raw = memory.take(shape, dtype).view(-1).view(torch.uint8)
    return torch.as_tensor(exported(raw), device=raw.device).view(dtype).view(shape)


@provenance("foreign-dlpack", Custody.LENT, **_ON_CUDA)
def foreign_dlpack(shape: Shape, dtype: torch.dtype, memory: Memory) -> torch.Tensor:
    """Memory that another library exports through DLPack: cupy, if that is installed."""
    raw = memory.take(shape, dtype).view(-1).view(torch.uint8)
    return torch.utils.dlpack.from_dlpack(exported(raw)).view(dtype).view(shape)


@provenance("ipc-handle", Custody.LENT, home="opened", **_ON_CUDA)
def ipc_handle(shape: Shape, dtype: torch.dtype, memory: Memory) -> torch.Tensor:
    """A tensor of another process, opened by its CUDA IPC handle."""
    return memory.take(shape, dtype).view(shape)
