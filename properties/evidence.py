"""What can be read off a tensor without holding it: its bits, its addresses, and whether its memory is alive."""

from __future__ import annotations

import ctypes
from functools import cache, lru_cache
from typing import NamedTuple

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from bucketproof.strategies.dtypes import DTYPES, name_of


class Span(NamedTuple):
    """Addresses from `start` to before `end`."""

    start: int
    end: int

    @property
    def nbytes(self) -> int:
        """How many bytes it has."""
        return self.end - self.start

    def overlaps(self, other: Span) -> bool:
        """Whether there is a byte in both. An empty span overlaps nothing."""
        return max(self.start, other.start) < min(self.end, other.end)


class Facts(NamedTuple):
    """A tensor, as data. It holds nothing of the tensor."""

    dtype: str
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    device: str
    nbytes: int
    contiguous: bool
    lazy: bool
    """Whether it has a conj or neg bit, so that its elements are not the bytes in memory."""
    graph: str
    """The autograd function it is the result of, if it is of one."""
    span: Span
    """From its first byte to its last, as its strides reach."""
    storage: Span
    storage_id: int
    """Tells one living storage from another."""
    bits: bytes
    """The elements' bits in order, whatever the strides."""
    grad: int = 0
    """Bytes of the gradient that it carries."""

    @property
    def plain(self) -> bool:
        """Whether its bytes lie in memory as they should be sent."""
        return self.contiguous and not self.lazy


def facts(tensor: torch.Tensor) -> Facts:
    """Read all of it. Nothing of the tensor is alive afterwards that was not before."""
    function = tensor.grad_fn
    grad = tensor.grad.nbytes if tensor.is_leaf and tensor.grad is not None else 0
    tensor = _bare(tensor)
    storage = tensor.untyped_storage()
    start, nbytes = storage.data_ptr(), tensor.numel() * tensor.itemsize
    contiguous, lazy = tensor.is_contiguous(), tensor.is_conj() or tensor.is_neg()
    span = _span(tensor, start, nbytes if contiguous else None)
    whole = Span(start, start + storage.nbytes())
    # By position, and what is alike is one object: a stream has a hundred thousand of them.
    return Facts(
        name_of(tensor.dtype),
        _alike(tensor.shape),
        _alike(tensor.stride()),
        _in_words(tensor.device),
        nbytes,
        contiguous,
        lazy,
        "" if function is None else type(function).__name__,
        span,
        span if span == whole else whole,
        storage._cdata,
        _bits(tensor, contiguous and not lazy),
        grad,
    )


_in_words = cache(str)
_alike = lru_cache(maxsize=1 << 12)(tuple)


def _bare(tensor: torch.Tensor) -> torch.Tensor:
    if type(tensor) is torch.Tensor and not tensor.requires_grad:
        return tensor
    tensor = tensor.detach()
    return tensor if type(tensor) is torch.Tensor else tensor.as_subclass(torch.Tensor)


def _span(tensor: torch.Tensor, start: int, nbytes: int | None) -> Span:
    """The addresses of a tensor in a storage that starts there; of one that is contiguous, its bytes are known."""
    first = start + int(tensor.storage_offset()) * tensor.itemsize
    if nbytes is None:
        reach = sum(stride * (size - 1) for stride, size in zip(tensor.stride(), tensor.shape, strict=True))
        nbytes = int(reach + 1) * tensor.itemsize if tensor.numel() else 0
    return Span(first, first + nbytes)


_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def bits(tensor: torch.Tensor) -> bytes:
    """The bits of a tensor's elements, in order. A tensor on the meta device has none.

    They are compared rather than values, since payloads of NaNs count.
    """
    tensor = _bare(tensor)
    return _bits(tensor, tensor.is_contiguous() and not tensor.is_conj() and not tensor.is_neg())


def _bits(tensor: torch.Tensor, is_plain: bool) -> bytes:
    if tensor.is_meta or not tensor.numel():
        return b""
    if is_plain and tensor.is_cpu:
        # Not through numpy: memory that was exported is no longer to be resized, which a bucketer could see.
        return ctypes.string_at(tensor.data_ptr(), tensor.numel() * tensor.itemsize)
    return _copied(tensor)


def _copied(tensor: torch.Tensor) -> bytes:
    # The copy makes any strides readable, those of singleton dimensions too, which torch calls contiguous and yet
    # refuses to view as bytes.
    flat = tensor.resolve_conj().resolve_neg()
    if flat.itemsize in _INTEGERS:
        flat = flat.view(_INTEGERS[flat.itemsize])  # a copy of a bool would make a 1 of whatever byte was written
    flat = flat.clone(memory_format=torch.contiguous_format).view(-1)
    return flat.view(torch.uint8).cpu().numpy().tobytes()


def is_as_due(seen: Facts, due: Facts, *, is_cast: bool) -> bool:
    """Whether it has the bits that it should have. Two casts of one tensor may differ in the payloads of NaNs."""
    return seen.bits == due.bits or (is_cast and seen.nbytes == due.nbytes and _numbers(seen) == _numbers(due))


def _numbers(facts: Facts) -> list[str]:
    # As text, in which a NaN equals a NaN, and 0.0 is not -0.0.
    return [str(each) for each in torch.frombuffer(bytearray(facts.bits), dtype=DTYPES[facts.dtype]).tolist()]


def alive(ref: StorageWeakRef) -> bool:
    """Whether a storage that is watched is still there."""
    return not bool(ref.expired())


def watch(tensor: torch.Tensor) -> StorageWeakRef:
    """A weak reference to a tensor's storage."""
    return StorageWeakRef(tensor.untyped_storage())
