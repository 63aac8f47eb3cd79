"""Aliases that torch does not show: the memory is shared, and yet `_base` is None."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from bucketproof.strategies.custody import Custody
from bucketproof.strategies.dtypes import REINTERPRETED, name_of, twin
from bucketproof.strategies.memory import Memory
from bucketproof.strategies.plans import Shape
from bucketproof.strategies.provenances import layouts
from bucketproof.strategies.provenances.registry import provenance, view


class Weight(torch.Tensor):
    """A subclass as frameworks have them, which behaves as a tensor does."""


@view("detach", covers=True)
def detach(shape: Shape, dtype: torch.dtype, memory: Memory) -> torch.Tensor:
    """A view through `.detach()`, as Megatron exporters yield parameters."""
    return memory.take(shape, dtype).detach()


@view("data", covers=True)
def data(shape: Shape, dtype: torch.dtype, memory: Memory) -> torch.Tensor:
    """A view through `.data`."""
    return memory.take(shape, dtype).data


@view("parameter", covers=True)
def parameter(shape: Shape, dtype: torch.dtype, memory: Memory) -> torch.Tensor:
    """A parameter made of a view."""
    differentiable = dtype.is_floating_point or dtype.is_complex
    return torch.nn.Parameter(memory.take(shape, dtype), requires_grad=differentiable)


@view("module-buffer", covers=True)
def module_buffer(shape: Shape, dtype: torch.dtype, memory: Memory) -> torch.Tensor:
    """A module's buffer made of a view."""
    return torch.nn.Buffer(memory.take(shape, dtype))


@view("as_subclass", covers=True)
def as_subclass(shape: Shape, dtype: torch.dtype, memory: Memory) -> torch.Tensor:
    """A view as an instance of a subclass of Tensor."""
    return memory.take(shape, dtype).as_subclass(Weight)


@view("set_", covers=True, layouts="plain")
def set_(shape: Shape, dtype: torch.dtype, memory: Memory) -> torch.Tensor:
    """A tensor that was set onto the storage of another one."""
    taken = memory.take(shape, dtype)
    return torch.empty(0, dtype=dtype, device=taken.device).set_(
        taken.untyped_storage(), taken.storage_offset(), taken.shape, taken.stride()
    )


@provenance("inference", Custody.LENT, layouts="any", home="inference")
def inference(shape: Shape, dtype: torch.dtype, memory: Memory) -> torch.Tensor:
    """A view of a receive buffer, both made under inference mode: there, torch keeps track of no view."""
    with torch.inference_mode():
        return memory.take(shape, dtype).view(shape)


@provenance("partial-inference", Custody.PARTIAL, min_dims=1, empty=False)
def partial_inference(shape: Shape, dtype: torch.dtype, memory: Memory) -> torch.Tensor:
    """A slice, made under inference mode, of a larger tensor that was dropped."""
    with torch.inference_mode():
        return memory.fresh((shape[0] + 1, *shape[1:]), dtype)[:-1]


@view("inference-mode-view", covers=True)
def inference_mode_view(shape: Shape, dtype: torch.dtype, memory: Memory) -> torch.Tensor:
    """A view, made under inference mode, of a tensor that was not."""
    taken = memory.take(shape, dtype)
    with torch.inference_mode():
        return taken.view_as(taken)


view("dtype-view", covers=True, dtypes=REINTERPRETED, layouts="plain")(layouts.reinterpreted)


# They copy what is still to be conjugated or negated.
@view("unsafe_split", min_dims=1, empty=False, layouts="plain")
def unsafe_split(shape: Shape, dtype: torch.dtype, memory: Memory) -> torch.Tensor:
    """The second part of a split that hides its views from autograd."""
    return memory.take((2 * shape[0], *shape[1:]), dtype).unsafe_split(shape[0])[1]


@view("unsafe_chunk", min_dims=1, empty=False, layouts="plain")
def unsafe_chunk(shape: Shape, dtype: torch.dtype, memory: Memory) -> torch.Tensor:
    """The first part of a chunk that hides its views from autograd."""
    return memory.take((2 * shape[0], *shape[1:]), dtype).unsafe_chunk(2)[0]


# Memory that came to torch from outside belongs to whoever exports it, also where that is torch itself: what is
# exported and dropped is no longer to be told from what is exported and held. So these have no owned form.


@view("dlpack", partial=False, layouts="plain")
def dlpack(shape: Shape, dtype: torch.dtype, memory: Memory) -> torch.Tensor:
    """Memory that another library exports through DLPack."""
    return torch.utils.dlpack.from_dlpack(memory.take(shape, dtype).detach())


@view("numpy", partial=False, layouts="plain")
def from_numpy(shape: Shape, dtype: torch.dtype, memory: Memory) -> torch.Tensor:
    """A numpy array's memory."""
    array = torch.from_numpy(numpy_of(memory.take(shape, dtype).detach()))
    return array if array.dtype is dtype else array.view(dtype)


@view("frombuffer", partial=False, layouts="dense", chains="never", empty=False)
def frombuffer(shape: Shape, dtype: torch.dtype, memory: Memory) -> torch.Tensor:
    """The memory of an object with Python's buffer protocol."""
    raw = memory.take(shape, dtype).view(-1).view(torch.uint8).numpy()
    return torch.frombuffer(memoryview(raw.data), dtype=dtype).view(shape)


_NUMPY = {
    *("float16", "float32", "float64", "complex64", "complex128", "bool"),
    *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)),
}


def numpy_of(tensor: torch.Tensor) -> np.ndarray[Any, Any]:
    """An array over the tensor's memory. A dtype that numpy lacks travels as an integer of the same size."""
    array: np.ndarray[Any, Any] = (
        tensor if name_of(tensor.dtype) in _NUMPY else tensor.view(twin(tensor.dtype))
    ).numpy()
    return array
