"""Keep a tensor, or copy it: compaction for a bucketer that knows which memory is its own.

A bucketer has to answer one question for each tensor it is given: *can anybody else still reach this
memory?* If so, the tensor must be copied, for it may be overwritten as soon as the producer moves on. If
not, a copy only wastes memory.

torch has no call that answers it, and the usual stand-ins are wrong. ``tensor._base is None`` also holds for
``buffer.detach()``, which shares its memory, and fails for a view whose base was dropped, which shares
nothing. Comparing the size of the storage with the size of the tensor cannot tell an owner from a view that
covers a receive buffer exactly.

What torch does have is reference counts. A storage counts the tensors that lie in it. A tensor counts the
views, autograd nodes and DLPack capsules that hold it. The Python objects that stand for the storage, and for
the base of a view, count the variables that name them. Together they form a *fingerprint* of everyone who can
reach the memory. The numbers are a detail of torch and of Python, so none is written down here. Instead, this
module makes tensors at import that are known to be owned, because it has just made them, and takes their
fingerprints: a tensor is held exclusively if, and only if, it has one of those.

Python's references to *the tensor object itself* are left out on purpose: whoever hands a tensor over may
keep it in a variable, a list or a dict. A producer that later overwrites the very object it handed over
cannot be told from an owner by anyone.

Memory that torch did not allocate has no count of its other users. Such memory, and memory that was ever
exported to numpy, cannot be resized, and memory shared between processes says so: both are someone else's.

Where the answer cannot be known it is "not owned", which costs a copy and loses nothing:

- Every tensor is copied on a build of torch that lacks one of the counters, or on which samples known to be
  owned have the fingerprints of samples known to be shared.
- ``torch.load`` of a file in torch's zip format gives memory that cannot be resized, just as numpy's.
- A view that reinterprets another view (``view_as_complex`` of a reshape, ``conj`` of ``conj``) keeps the one
  between alive for autograd's sake, which looks the same as somebody who holds it. So does a graph that ends
  in a leaf over the same memory, behind an operation that shares memory without a view (``unsafe_split``).

No count shows an address that was written down (``data_ptr``), as a captured CUDA graph does. Nor does one
show that a second graph holds a leaf to accumulate its gradient, when a tracked view of it is handed over, or
that another process has opened a CUDA IPC handle of the memory: who has sent one must not hand the tensor over
as its own.

On CUDA the counts are those of the same storages and objects. Whatever torch has not allocated there (a handle
of another process, ``__cuda_array_interface__``, DLPack) cannot be resized and is copied, on the current stream.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import product

import torch

__all__ = ["compact", "owns_its_memory"]

Fingerprint = tuple[int, ...]

# An integer dtype for each size of element. Bits that travel as integers need no kernel for the dtypes that
# have none (4-bit integers) or warn (complex32), and the payload of a NaN stays as it is.
_CARRIERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def compact(tensor: torch.Tensor) -> torch.Tensor:
    """Return ``tensor``'s values in memory that nobody else can reach, with a copy only if it takes one.

    An owned contiguous tensor stays where it is. It comes back as the same object or, if it is a view or
    requires grad, as a new tensor over the same memory. Any other tensor is copied bit for bit into a
    contiguous tensor with a storage of exactly ``numel * element_size`` bytes; a conjugate or negative bit is
    applied to the copy. Either way the result has the shape, dtype and device of ``tensor``, and no graph.

    Call it before the producer of ``tensor`` is advanced, while the values are still there.
    """
    if not (owns_its_memory(tensor) and _is_in_plain_order(tensor)):
        return _copied(tensor)
    # The base of a view and the gradient of a leaf would otherwise live as long as the bucket.
    is_bare = tensor._base is None and not tensor.requires_grad
    return tensor if is_bare else tensor.detach()


def owns_its_memory(tensor: torch.Tensor) -> bool:
    """Tell whether ``tensor`` fills its storage exactly, and nothing else can reach that storage.

    The order of the elements is of no matter: a transposed matrix may own its memory too. The answer is False
    also where it cannot be known (see the module). It does not depend on the grad mode, nor on how many
    variables name ``tensor``. Asking allocates no tensor memory and keeps no reference.
    """
    return is_held_by_nobody_else(tensor) and _fills_its_storage(tensor)


def is_held_by_nobody_else(tensor: torch.Tensor) -> bool:
    """Tell whether nothing else can reach the storage of ``tensor``, whatever part of it ``tensor`` shows."""
    try:
        with torch._C.DisableTorchFunctionSubclass():  # a subclass would wrap its base in one more alias
            return (
                bool(_OWNED)
                and _is_plain(tensor)
                and _is_in_storage_of_torch(tensor)
                and _fingerprint(tensor) in _OWNED
            )
    except RuntimeError:  # no storage to look at: a sparse tensor, a tensor inside vmap
        return False


def _is_in_plain_order(tensor: torch.Tensor) -> bool:
    return tensor.is_contiguous() and not tensor.is_conj() and not tensor.is_neg()


def _is_plain(tensor: torch.Tensor) -> bool:
    # A class that handles dispatch (DTensor, FakeTensor) keeps its data in tensors that are out of sight.
    handles_dispatch = type(tensor).__torch_dispatch__ is not torch.Tensor.__torch_dispatch__
    return tensor.layout is torch.strided and not tensor.is_quantized and not handles_dispatch


def _is_in_storage_of_torch(tensor: torch.Tensor) -> bool:
    storage = tensor.untyped_storage()
    is_between_processes = storage.is_shared() and storage.device.type == "cpu"  # always "shared" on CUDA
    # Copy-on-write puts two storages over one memory, until either is written.
    is_copy_on_write = torch._C._is_cow_tensor(tensor)  # type: ignore[attr-defined]
    return storage.resizable() and not is_between_processes and not is_copy_on_write


def _fills_its_storage(tensor: torch.Tensor) -> bool:
    with torch._C.DisableTorchFunctionSubclass():
        return tensor.untyped_storage().nbytes() == tensor.numel() * tensor.element_size()


def _fingerprint(tensor: torch.Tensor) -> Fingerprint:
    """Count everyone who holds the tensor, its storage or its base, but not Python's names of the tensor."""
    storage, base = tensor.untyped_storage(), tensor._base
    tensors_in_it = torch._C._storage_Use_Count(storage._cdata)
    counts = (_holders_in_torch(tensor), tensors_in_it, sys.getrefcount(storage))
    if base is None:
        return counts
    # Both explain one more holder of the base: the graph of a view holds the leaf whose gradient it
    # accumulates, and a view of another dtype holds its base twice.
    accumulates = tensor.grad_fn is not None and base.is_leaf and base.requires_grad
    is_recast = tensor.dtype != base.dtype
    return (*counts, _holders_in_torch(base), sys.getrefcount(base), accumulates, is_recast)


def _holders_in_torch(tensor: torch.Tensor) -> int:
    return int(tensor._use_count())  # type: ignore[attr-defined]


def _copied(tensor: torch.Tensor) -> torch.Tensor:
    source = tensor.detach()
    if source.layout is not torch.strided:
        return source.clone()
    if not _is_plain(source):
        return source.clone(memory_format=torch.contiguous_format)
    _tell_that_it_is_read(source)
    is_conj, is_neg = source.is_conj(), source.is_neg()
    # Applied once more, each mark cancels itself and leaves the bits as they lie in memory.
    source = source.conj() if is_conj else source
    source = torch._neg_view(source) if is_neg else source
    copy = _bits_copied(source)
    if is_conj:
        _negate(torch.view_as_real(copy)[..., 1])
    if is_neg:
        _negate(torch.view_as_real(copy) if copy.is_complex() else copy)
    return copy


def _tell_that_it_is_read(tensor: torch.Tensor) -> None:
    # On CUDA the copy is made later, and the source may be gone by then. Its memory must not be given to the stream
    # that it was allocated for before this one has read it, of which the allocator has to be told.
    if tensor.is_cuda:
        tensor.record_stream(torch.cuda.current_stream(tensor.device))


def _bits_copied(tensor: torch.Tensor) -> torch.Tensor:
    carrier = _CARRIERS.get(tensor.element_size(), tensor.dtype)
    return tensor.view(carrier).clone(memory_format=torch.contiguous_format).view(tensor.dtype)


def _negate(numbers: torch.Tensor) -> None:
    if numbers.is_floating_point():
        carrier = _CARRIERS[numbers.element_size()]
        numbers.view(carrier).bitwise_xor_(torch.iinfo(carrier).min)  # the sign bit alone, also of a NaN
    else:
        numbers.neg_()


def _leaf(requires_grad: bool) -> torch.Tensor:
    return torch.zeros(2, 2, device="cpu", requires_grad=requires_grad)


def _result(requires_grad: bool) -> torch.Tensor:
    return _leaf(requires_grad).clone()


def _itself(tensor: torch.Tensor) -> torch.Tensor:
    return tensor


def _view(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.view(4)


_MODES = (torch.enable_grad, torch.no_grad, torch.inference_mode)
_SOURCES = (_leaf, _result)
# What a sample is to its source: these differ in their counts, other views look like one of them.
_DERIVATIONS: tuple[Callable[[torch.Tensor], torch.Tensor], ...] = (_itself, _view, torch.view_as_complex)
# Ways to hold the memory of a source: by name, as an alias without and with a base, as a storage, from C++.
_HOLDS: tuple[Callable[[torch.Tensor], object], ...] = (
    _itself,
    torch.Tensor.detach,
    _view,
    torch.Tensor.untyped_storage,
    torch._C._to_dlpack,
)


def _calibrated() -> frozenset[Fingerprint]:
    """Return the fingerprints of owned tensors; none if this build does not tell them from shared ones."""
    try:
        with _plainly():
            owned = frozenset(_owned_fingerprints())
            is_told_apart = owned.isdisjoint(_shared_fingerprints()) and not _foreign_memory_is_resizable()
            return owned if is_told_apart else frozenset()
    except (AttributeError, ImportError):  # some of these names are private to torch, and may go
        return frozenset()


@contextmanager
def _plainly() -> Iterator[None]:
    """Whatever mode the import happens in, it must neither hold nor replace the samples."""
    from torch.utils._python_dispatch import _disable_current_modes

    with torch.inference_mode(False), _disable_current_modes(), torch._C.DisableTorchFunction():
        yield


def _owned_fingerprints() -> Iterator[Fingerprint]:
    for mode, requires_grad, make, derive in product(_MODES, (False, True), _SOURCES, _DERIVATIONS):
        with mode():
            sample = derive(make(requires_grad))
        yield _fingerprint(sample)


def _shared_fingerprints() -> Iterator[Fingerprint]:
    for mode, requires_grad, make, derive in product(_MODES, (False, True), _SOURCES, _DERIVATIONS):
        for hold in _HOLDS:
            if derive is _itself and hold is _itself:
                continue  # the sample's own name, which is no holder
            with mode():
                source = make(requires_grad)
                sample, holder = derive(source), hold(source)
            del source
            yield _fingerprint(sample)
            del holder


def _foreign_memory_is_resizable() -> bool:
    return torch.frombuffer(bytearray(4), dtype=torch.uint8).untyped_storage().resizable()


_OWNED = _calibrated()
