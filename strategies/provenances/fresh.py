"""Tensors that own their memory because an operation has just made it, and some that own too much of it."""

from __future__ import annotations

import pickle
from typing import Any

import torch

from bucketproof.strategies.custody import Custody
from bucketproof.strategies.dtypes import ARITHMETIC, DIFFERENTIABLE, PICKLED
from bucketproof.strategies.memory import Memory
from bucketproof.strategies.plans import Shape
from bucketproof.strategies.provenances.registry import provenance


class _EndsInAView(torch.autograd.Function):
    """What `DTensor.full_tensor()` ends in: its result has a base, which nobody else holds."""

    @staticmethod
    def forward(ctx: Any, gathered: torch.Tensor) -> torch.Tensor:
        return gathered.view_as(gathered)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        return grad


@provenance("fresh", Custody.OWNED)
def fresh(shape: Shape, dtype: torch.dtype, memory: Memory) -> torch.Tensor:
    """A new tensor."""
    return memory.fresh(shape, dtype)


@provenance("full-tensor", Custody.OWNED)
def full_tensor(shape: Shape, dtype: torch.dtype, memory: Memory) -> torch.Tensor:
    """The result of an autograd function that ends in `view_as`, as `DTensor.full_tensor()` does."""
    result: torch.Tensor = _EndsInAView.apply(memory.fresh(shape, dtype))
    return result


@provenance("stack", Custody.OWNED, min_dims=1, empty=False)
def stack(shape: Shape, dtype: torch.dtype, memory: Memory) -> torch.Tensor:
    """The result of a `stack`."""
    return torch.stack(memory.fresh(shape, dtype).unbind())


@provenance("cat", Custody.OWNED, min_dims=1, empty=False)
def cat(shape: Shape, dtype: torch.dtype, memory: Memory) -> torch.Tensor:
    """The result of a `cat`."""
    return torch.cat(memory.fresh(shape, dtype).split(1))


@provenance("trained-parameter", Custody.OWNED, dtypes=DIFFERENTIABLE)
def trained_parameter(shape: Shape, dtype: torch.dtype, memory: Memory) -> torch.Tensor:
    """A parameter that has a gradient, of a module that was dropped."""
    parameter = torch.nn.Parameter(memory.fresh(shape, dtype))
    parameter.grad = memory.fresh(shape, dtype)
    return parameter


@provenance("arithmetic", Custody.OWNED, dtypes=ARITHMETIC)
def arithmetic(shape: Shape, dtype: torch.dtype, memory: Memory) -> torch.Tensor:
    """The result of an addition."""
    return memory.fresh(shape, dtype) + 1


@provenance("cast", Custody.OWNED, dtypes=ARITHMETIC)
def cast(shape: Shape, dtype: torch.dtype, memory: Memory) -> torch.Tensor:
    """The result of a cast."""
    return memory.fresh(shape, torch.int16 if dtype is not torch.int16 else torch.int32).to(dtype)


@provenance("autograd-result", Custody.OWNED, dtypes=("float32", "bfloat16", "float16", "float64"))
def autograd_result(shape: Shape, dtype: torch.dtype, memory: Memory) -> torch.Tensor:
    """A result that still carries the graph that made it, as a weight with a merged adapter does."""
    with torch.enable_grad():
        return memory.fresh(shape, dtype).requires_grad_() + 1


@provenance("inference-tensor", Custody.OWNED)
def inference_tensor(shape: Shape, dtype: torch.dtype, memory: Memory) -> torch.Tensor:
    """A new tensor, made under inference mode."""
    with torch.inference_mode():
        return memory.fresh(shape, dtype)


@provenance("inference-view", Custody.OWNED)
def inference_view(shape: Shape, dtype: torch.dtype, memory: Memory) -> torch.Tensor:
    """A view, made under inference mode, of a tensor that was dropped."""
    with torch.inference_mode():
        return memory.fresh((1, *shape), dtype).view(shape)


@provenance("unpickled", Custody.OWNED, dtypes=tuple(PICKLED))
def unpickled(shape: Shape, dtype: torch.dtype, memory: Memory) -> torch.Tensor:
    """A tensor that was sent here by `pickle`."""
    tensor: torch.Tensor = pickle.loads(pickle.dumps(memory.fresh(shape, dtype)))
    return tensor


@provenance("partial-resize_", Custody.PARTIAL, empty=False)
def resized(shape: Shape, dtype: torch.dtype, memory: Memory) -> torch.Tensor:
    """A tensor that was shrunk by `resize_`, which keeps its storage."""
    return memory.fresh((2, *shape), dtype).resize_(shape)


@provenance("padded-gather", Custody.PARTIAL, min_dims=1, empty=False)
def padded_gather(shape: Shape, dtype: torch.dtype, memory: Memory) -> torch.Tensor:
    """A gathered tensor without the padding that made its shards even."""
    shard = memory.fresh((shape[0] // 2 + 1, *shape[1:]), dtype)
    return torch.cat([shard, shard]).narrow(0, 0, shape[0])


@provenance("expert", Custody.PARTIAL, empty=False)
def expert(shape: Shape, dtype: torch.dtype, memory: Memory) -> torch.Tensor:
    """One expert of a fused weight that was dropped."""
    return memory.fresh((4, *shape), dtype)[2]
