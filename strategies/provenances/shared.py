"""Memory that someone else holds too, and will not write while weights are synchronised."""

from __future__ import annotations

import torch

from bucketproof.strategies.custody import Custody
from bucketproof.strategies.dtypes import ALL, DIFFERENTIABLE
from bucketproof.strategies.memory import Memory
from bucketproof.strategies.plans import Shape
from bucketproof.strategies.provenances.hidden import numpy_of
from bucketproof.strategies.provenances.registry import provenance


class _Module(torch.nn.Module):
    weight: torch.nn.Parameter


@provenance("state_dict", Custody.SHARED, dtypes=DIFFERENTIABLE)
def state_dict(shape: Shape, dtype: torch.dtype, memory: Memory) -> torch.Tensor:
    """An entry of a live module's `state_dict`."""
    module = _module(shape, dtype, memory)
    entry: torch.Tensor = module.state_dict()["weight"]
    return entry


@provenance("live-parameter", Custody.SHARED, dtypes=DIFFERENTIABLE)
def live_parameter(shape: Shape, dtype: torch.dtype, memory: Memory) -> torch.Tensor:
    """A live module's parameter itself."""
    return _module(shape, dtype, memory).weight


@provenance("tied", Custody.SHARED)
def tied(shape: Shape, dtype: torch.dtype, memory: Memory) -> torch.Tensor:
    """One tensor under several names, as tied embeddings are."""
    return memory.keep(("tied", shape, dtype), lambda: memory.fresh(shape, dtype)).detach()


@provenance("tied-object", Custody.SHARED)
def tied_object(shape: Shape, dtype: torch.dtype, memory: Memory) -> torch.Tensor:
    """One tensor object under several names."""
    return memory.keep(("tied-object", shape, dtype), lambda: memory.fresh(shape, dtype))


@provenance("saved-by-autograd", Custody.SHARED, dtypes=("float32", "float64", "bfloat16"))
def saved_by_autograd(shape: Shape, dtype: torch.dtype, memory: Memory) -> torch.Tensor:
    """A tensor that a graph has saved for its backward pass."""
    with torch.enable_grad():
        weight = memory.fresh(shape, dtype).requires_grad_()
        memory.hold(weight * weight)
    return weight.detach()


@provenance("exported-to-numpy", Custody.SHARED, dtypes=ALL)
def exported_to_numpy(shape: Shape, dtype: torch.dtype, memory: Memory) -> torch.Tensor:
    """A tensor whose memory a numpy array shows too."""
    tensor = memory.fresh(shape, dtype)
    memory.hold(numpy_of(tensor))
    return tensor


def _module(shape: Shape, dtype: torch.dtype, memory: Memory) -> _Module:
    module = _Module()
    module.weight = torch.nn.Parameter(memory.fresh(shape, dtype))
    memory.hold(module)
    return module
