"""Views that torch keeps track of: each shows a part of some memory, or all of it in another shape."""

from __future__ import annotations

import torch

from bucketproof.strategies.custody import Custody
from bucketproof.strategies.dtypes import COMPLEX, REAL, complex_of, real_of
from bucketproof.strategies.memory import Memory
from bucketproof.strategies.plans import Shape
from bucketproof.strategies.provenances import layouts
from bucketproof.strategies.provenances.registry import provenance, view


@provenance("exact-cover", Custody.LENT, layouts="covering", exact=True)
def exact_cover(shape: Shape, dtype: torch.dtype, memory: Memory) -> torch.Tensor:
    """A view that covers a receive buffer to the byte."""
    return memory.take(shape, dtype).view(shape)


@view("slice", min_dims=1)
def slice_(shape: Shape, dtype: torch.dtype, memory: Memory) -> torch.Tensor:
    """A slice of a longer tensor."""
    return memory.take((shape[0] + 2, *shape[1:]), dtype)[1:-1]


@view("narrow", min_dims=1)
def narrow(shape: Shape, dtype: torch.dtype, memory: Memory) -> torch.Tensor:
    """A `narrow` of a padded tensor."""
    return memory.take((shape[0] + 1, *shape[1:]), dtype).narrow(0, 0, shape[0])


@view("select")
def select(shape: Shape, dtype: torch.dtype, memory: Memory) -> torch.Tensor:
    """One entry of a stack, by `select`."""
    return memory.take((2, *shape), dtype).select(0, 0)


@view("split", min_dims=1, empty=False)
def split(shape: Shape, dtype: torch.dtype, memory: Memory) -> torch.Tensor:
    """The second part of a `split`."""
    return torch.split(memory.take((2 * shape[0], *shape[1:]), dtype), shape[0])[1]


@view("chunk", min_dims=1, empty=False)
def chunk(shape: Shape, dtype: torch.dtype, memory: Memory) -> torch.Tensor:
    """The first part of a `chunk`."""
    return memory.take((2 * shape[0], *shape[1:]), dtype).chunk(2)[0]


@view("unbind")
def unbind(shape: Shape, dtype: torch.dtype, memory: Memory) -> torch.Tensor:
    """One entry of a stack, by `unbind`."""
    return memory.take((3, *shape), dtype).unbind()[1]


@view("transpose", covers=True, min_dims=2)
def transpose(shape: Shape, dtype: torch.dtype, memory: Memory) -> torch.Tensor:
    """The last two dimensions, exchanged."""
    return memory.take((*shape[:-2], shape[-1], shape[-2]), dtype).transpose(-1, -2)


view("permute", covers=True, min_dims=2)(layouts.permuted)
view("diagonal", min_dims=1)(layouts.diagonal)
view("expand", min_dims=1, empty=False)(layouts.expanded)
# It asks for a tensor of fewer dimensions than it makes, which need not fit what stands nearer to the memory.
view("unfold", min_dims=2, empty=False, layouts="dense", chains="never")(layouts.overlapping)


@view("as_strided", min_dims=1, empty=False, layouts="dense", chains="first")
def as_strided(shape: Shape, dtype: torch.dtype, memory: Memory) -> torch.Tensor:
    """Strides of one's own making, whose rows overlap."""
    strides = tuple(range(len(shape), 0, -1))
    last = sum(stride * (size - 1) for stride, size in zip(strides, shape, strict=True))
    return memory.take((last + 2,), dtype).as_strided(shape, strides)


@view("view_as_real", covers=True, dtypes=REAL, min_dims=1, last=2, layouts="dense", chains="never")
def view_as_real(shape: Shape, dtype: torch.dtype, memory: Memory) -> torch.Tensor:
    """A complex tensor, shown as pairs of numbers."""
    return torch.view_as_real(memory.take(shape[:-1], complex_of(dtype)))


@view("view_as_complex", covers=True, dtypes=COMPLEX, layouts="dense", chains="never")
def view_as_complex(shape: Shape, dtype: torch.dtype, memory: Memory) -> torch.Tensor:
    """Pairs of numbers, shown as a complex tensor."""
    return torch.view_as_complex(memory.take((*shape, 2), real_of(dtype)))


view("conj", dtypes=COMPLEX, layouts="dense", chains="never", plain=False)(layouts.conjugated)
view("neg", dtypes=REAL, layouts="dense", chains="never", plain=False)(layouts.negated)


@view("view", covers=True)
def view_(shape: Shape, dtype: torch.dtype, memory: Memory) -> torch.Tensor:
    """A `view` in another shape."""
    return memory.take(shape, dtype).view(shape)


@view(
    "requires-grad",
    dtypes=("float32", "bfloat16", "float16", "float64", "complex64"),
    layouts="plain",
    chains="never",
)
def requires_grad(shape: Shape, dtype: torch.dtype, memory: Memory) -> torch.Tensor:
    """A view of a tensor that requires grad."""
    leaf = memory.take(shape, dtype).requires_grad_()
    with torch.enable_grad():
        return leaf.view_as(leaf)
