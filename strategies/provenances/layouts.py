"""Layouts: views of the memory that a provenance starts from, simplest first."""

from __future__ import annotations

import torch

from bucketproof.strategies.dtypes import COMPLEX, REAL, REINTERPRETED, complex_of, twin
from bucketproof.strategies.memory import Memory
from bucketproof.strategies.plans import Shape
from bucketproof.strategies.provenances.registry import layout


@layout("contiguous", covers=True)
def contiguous(shape: Shape, dtype: torch.dtype, memory: Memory) -> torch.Tensor:
    """The memory as it lies."""
    return memory.take(shape, dtype)


@layout("offset")
def offset(shape: Shape, dtype: torch.dtype, memory: Memory) -> torch.Tensor:
    """Contiguous, but not from the beginning of the memory."""
    return memory.take((2, *shape), dtype)[1]


@layout("permuted", covers=True, min_dims=2)
def permuted(shape: Shape, dtype: torch.dtype, memory: Memory) -> torch.Tensor:
    """Dense, with the dimensions in another order."""
    return memory.take(shape[::-1], dtype).permute(tuple(reversed(range(len(shape)))))


@layout("channels-last", covers=True, min_dims=3)
def channels_last(shape: Shape, dtype: torch.dtype, memory: Memory) -> torch.Tensor:
    """Dense, with the second dimension moving fastest."""
    return memory.take((shape[0], *shape[2:], shape[1]), dtype).movedim(-1, 1)


@layout("reinterpreted", covers=True, dtypes=REINTERPRETED)
def reinterpreted(shape: Shape, dtype: torch.dtype, memory: Memory) -> torch.Tensor:
    """The bytes of another dtype."""
    return memory.take(shape, twin(dtype)).view(dtype)


@layout("stepped", min_dims=1)
def stepped(shape: Shape, dtype: torch.dtype, memory: Memory) -> torch.Tensor:
    """Every other element."""
    return memory.take((*shape[:-1], 2 * shape[-1]), dtype)[..., ::2]


@layout("odd-strides", covers=True, min_dims=1)
def odd_strides(shape: Shape, dtype: torch.dtype, memory: Memory) -> torch.Tensor:
    """Singleton dimensions whose strides fit nothing: contiguous to torch, and yet not to be viewed as bytes."""
    taken = memory.take(shape, dtype)
    strides = (7 * (dim % 2) if size == 1 else taken.stride(dim) for dim, size in enumerate(shape))
    return taken.as_strided(shape, tuple(strides))


@layout("expanded", min_dims=1, empty=False)
def expanded(shape: Shape, dtype: torch.dtype, memory: Memory) -> torch.Tensor:
    """One row, shown many times with stride 0."""
    return memory.take((1, *shape[1:]), dtype).expand(shape)


@layout("overlapping", min_dims=2, empty=False)
def overlapping(shape: Shape, dtype: torch.dtype, memory: Memory) -> torch.Tensor:
    """Windows that overlap."""
    return memory.take((*shape[:-2], shape[-2] + shape[-1] - 1), dtype).unfold(-1, shape[-1], 1)


@layout("diagonal", min_dims=1)
def diagonal(shape: Shape, dtype: torch.dtype, memory: Memory) -> torch.Tensor:
    """The diagonal of a square."""
    return memory.take((*shape, shape[-1]), dtype).diagonal(dim1=-2, dim2=-1)


@layout("conjugated", plain=False, dtypes=COMPLEX)
def conjugated(shape: Shape, dtype: torch.dtype, memory: Memory) -> torch.Tensor:
    """Still to be conjugated: torch sets a bit and computes when it is read."""
    return memory.take(shape, dtype).conj()


@layout("negated", plain=False, dtypes=REAL)
def negated(shape: Shape, dtype: torch.dtype, memory: Memory) -> torch.Tensor:
    """Still to be negated: the imaginary part of a conjugated tensor."""
    return memory.take(shape, complex_of(dtype)).conj().imag
