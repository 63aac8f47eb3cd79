"""Faults of compaction: what a bucketer takes for its own memory, and so keeps, or for another's, and so copies."""

from __future__ import annotations

import sys

import torch

from bucketproof.reference.faults.loop import (
    AsyncBuckets,
    Buckets,
    Stream,
    async_buckets,
    buckets,
    closes_its_stream,
    copied,
    emptied,
    fills_its_storage,
    is_copy,
    plain,
    rule,
)
from bucketproof.reference.faults.registry import fault
from bucketproof.reference.ownership import _OWNED, _fingerprint, _holders_in_torch, compact, owns_its_memory
from bucketproof.reference.sound import Bucket, Weights


def _kept_if(it_seems_owned: bool, tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach() if it_seems_owned and plain(tensor) and tensor.nbytes else compact(tensor)


def _copied_if(it_seems_lent: bool, tensor: torch.Tensor) -> torch.Tensor:
    return copied(tensor) if it_seems_lent else compact(tensor)


def _is_held_by_nobody(tensor: torch.Tensor) -> bool:
    """Whether nobody else can reach its memory, however large that is."""
    return _belongs_to_torch(tensor.untyped_storage()) and _fingerprint(tensor) in _OWNED


def _belongs_to_torch(storage: torch.UntypedStorage) -> bool:
    return storage.resizable() and not storage.is_shared()


def _tensors_with(tensor: torch.Tensor) -> int:
    """How many tensors lie in its storage, with a constant added."""
    return torch._C._storage_Use_Count(tensor.untyped_storage()._cdata)


def _has_a_lonely_base(tensor: torch.Tensor) -> bool:
    """Whether it is all that is left of a tensor that nobody names."""
    return tensor._base is not None and _holders_in_torch(tensor._base) == 2


_ONE = _tensors_with(torch.empty(1))


# What is lent is kept.


@rule("aliasing.survives-overwrite", exposed_by="a contiguous view of a buffer", origin="verl #7987")
def keeps_lent_views(tensor: torch.Tensor) -> torch.Tensor:
    """Keeps whatever is contiguous."""
    return _kept_if(True, tensor)


@fault("aliasing.survives-overwrite", exposed_by="memory that is lent without a base, by `detach` or from numpy")
def keeps_what_has_no_base(weights: Weights, limit: float) -> AsyncBuckets:
    """Takes a tensor without a base for an owner."""
    return async_buckets(weights, limit, keep=lambda tensor: _kept_if(tensor._base is None, tensor))


@rule("aliasing.no-lent-memory", exposed_by="a view that covers its buffer to the byte", origin="verl #7139")
def keeps_what_fills_its_storage(tensor: torch.Tensor) -> torch.Tensor:
    """Takes a tensor of its storage's size for an owner."""
    return _kept_if(fills_its_storage(tensor), tensor)


@rule("aliasing.survives-overwrite", exposed_by="a view at the beginning of a buffer")
def keeps_what_begins_its_storage(tensor: torch.Tensor) -> torch.Tensor:
    """Takes a tensor at offset zero for an owner, since views are cut from anywhere."""
    return _kept_if(tensor.storage_offset() == 0, tensor)


@rule("aliasing.survives-overwrite", exposed_by="a view at an aligned address of a buffer")
def keeps_what_is_aligned(tensor: torch.Tensor) -> torch.Tensor:
    """Takes memory for new if it begins where an allocator would have put it."""
    return _kept_if(tensor.data_ptr() % 64 == 0, tensor)


@rule("aliasing.survives-overwrite", exposed_by="a parameter made of a view of a buffer", on=("parameter",))
def keeps_parameters(tensor: torch.Tensor) -> torch.Tensor:
    """Takes a parameter for an owner, since optimizers write to it and producers do not."""
    return _kept_if(isinstance(tensor, torch.nn.Parameter), tensor)


@rule("aliasing.survives-overwrite", exposed_by="a view of a buffer that requires grad", on=("requires-grad",))
def keeps_results_of_operations(tensor: torch.Tensor) -> torch.Tensor:
    """Takes what a graph has made for new, though a graph makes views too."""
    return _kept_if(tensor.grad_fn is not None, tensor)


@rule("aliasing.survives-overwrite", exposed_by="a view of a buffer made under inference mode", on=("inference",))
def keeps_inference_tensors(tensor: torch.Tensor) -> torch.Tensor:
    """Takes inference tensors for constants, since autograd forbids to write to them."""
    return _kept_if(tensor.is_inference(), tensor)


@rule("aliasing.survives-overwrite", exposed_by="any view of a buffer, where gradients are off")
def copies_only_where_gradients_are_recorded(tensor: torch.Tensor) -> torch.Tensor:
    """Takes everything for a constant where no gradients are recorded."""
    return _kept_if(not torch.is_grad_enabled(), tensor)


@rule(
    "aliasing.survives-overwrite",
    exposed_by="memory that is lent without a base, under inference mode",
    on=("data", "set_", "dlpack", "inference"),
)
def trusts_bases_under_inference_mode(tensor: torch.Tensor) -> torch.Tensor:
    """Takes a tensor without a base for an owner under inference mode, where bases are not kept."""
    return _kept_if(torch.is_inference_mode_enabled() and tensor._base is None, tensor)


@rule("aliasing.survives-overwrite", exposed_by="a lent tensor of no dimension")
def keeps_scalars(tensor: torch.Tensor) -> torch.Tensor:
    """Takes a scalar for a constant that is not worth a copy."""
    return _kept_if(tensor.ndim == 0, tensor)


@rule("aliasing.survives-overwrite", exposed_by="a lent tensor of eight-bit floating point")
def keeps_float8(tensor: torch.Tensor) -> torch.Tensor:
    """Takes quantized weights for new, since a producer has just quantized them."""
    return _kept_if(tensor.is_floating_point() and tensor.itemsize == 1, tensor)


@rule("aliasing.survives-overwrite", exposed_by="a lent tensor of three dimensions or more")
def keeps_stacks(tensor: torch.Tensor) -> torch.Tensor:
    """Takes three dimensions for experts that were stacked, which would make a new tensor."""
    return _kept_if(tensor.ndim >= 3, tensor)


@fault("aliasing.survives-overwrite", exposed_by="a lent tensor under a name that says it is fused")
@closes_its_stream
def knows_fused_weights_by_their_name(weights: Stream, limit: float) -> Buckets:
    """Takes a weight that is called fused for the result of a concatenation."""
    named = ((name, _kept_if("gate_up_proj" in name, tensor)) for name, tensor in weights)
    return buckets(named, limit, keep=lambda tensor: tensor)


@fault("aliasing.survives-overwrite", exposed_by="a lent tensor above the limit")
def keeps_what_exceeds_the_limit(weights: Stream, limit: float) -> Buckets:
    """Passes on what has a bucket of its own as it came."""
    return buckets(weights, limit, keep=lambda tensor: _kept_if(tensor.nbytes > limit, tensor))


@rule("aliasing.survives-overwrite", exposed_by="any view of memory that torch has allocated")
def keeps_memory_of_torch(tensor: torch.Tensor) -> torch.Tensor:
    """Takes memory for another's only if torch could not resize it."""
    return _kept_if(tensor.untyped_storage().resizable(), tensor)


@rule("aliasing.survives-overwrite", exposed_by="the memory of a numpy array", on=("dlpack",))
def forgets_other_libraries(tensor: torch.Tensor) -> torch.Tensor:
    """Counts who holds the memory in torch, and forgets that other libraries hold memory too."""
    return _kept_if(fills_its_storage(tensor) and _fingerprint(tensor) in _OWNED, tensor)


@rule("aliasing.survives-overwrite", exposed_by="memory shared between processes", on=("shared-memory",))
def keeps_shared_memory(tensor: torch.Tensor) -> torch.Tensor:
    """Takes shared memory for what was sent here, and is nobody else's any more."""
    return _kept_if(tensor.untyped_storage().is_shared(), tensor)


@rule("aliasing.survives-overwrite", exposed_by="a mapped file", on=("memory-mapped",))
def keeps_mapped_files(tensor: torch.Tensor) -> torch.Tensor:
    """Takes the memory of a file for constant, since checkpoints do not change."""
    return _kept_if(tensor.untyped_storage().filename is not None, tensor)


@rule("aliasing.survives-overwrite", exposed_by="an instance of a subclass over a buffer", on=("as_subclass",))
def keeps_subclasses(tensor: torch.Tensor) -> torch.Tensor:
    """Leaves tensors of a framework's own class to that framework."""
    return _kept_if(type(tensor) not in (torch.Tensor, torch.nn.Parameter), tensor)


@rule("aliasing.survives-overwrite", exposed_by="any view of a buffer that only collectives write")
def trusts_the_version_counter(tensor: torch.Tensor) -> torch.Tensor:
    """Takes memory that autograd never saw written to for constant."""
    return _kept_if(not tensor.is_inference() and tensor._version == 0, tensor)


@rule("aliasing.survives-overwrite", exposed_by="a detached tensor over all of a buffer")
def allows_for_a_base(tensor: torch.Tensor) -> torch.Tensor:
    """Allows one more tensor in the storage, and does not ask whether it is the base."""
    few = _tensors_with(tensor) <= _ONE + 1
    return _kept_if(few and _belongs_to_torch(tensor.untyped_storage()) and fills_its_storage(tensor), tensor)


@rule("aliasing.survives-overwrite", exposed_by="a view of a view that hides the buffer, as one of another dtype does")
def asks_for_holders_of_the_base_alone(tensor: torch.Tensor) -> torch.Tensor:
    """Takes a view for an owner if nobody holds its base, whoever else lies in the storage."""
    return _kept_if(_has_a_lonely_base(tensor) and fills_its_storage(tensor), tensor)


@fault("aliasing.survives-overwrite", exposed_by="the first view of a buffer")
def keeps_what_it_sees_first(weights: Stream, limit: float) -> Buckets:
    """Takes memory for a buffer only when it comes a second time."""
    seen: set[int] = set()

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        address = tensor.untyped_storage().data_ptr()
        is_new = address not in seen
        seen.add(address)
        return _kept_if(is_new, tensor)

    return buckets(weights, limit, keep=keep)


@fault("aliasing.survives-overwrite", exposed_by="a view of a buffer behind a tensor that lies elsewhere")
def compares_with_the_tensor_before(weights: Stream, limit: float) -> Buckets:
    """Takes memory for a buffer only if the tensor before lay there too."""
    before: list[int] = []

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        address = tensor.untyped_storage().data_ptr()
        elsewhere = bool(before) and before[0] != address
        before[:] = [address]
        return _kept_if(elsewhere, tensor)

    return buckets(weights, limit, keep=keep)


@fault("aliasing.survives-overwrite", exposed_by="a lent tensor behind an owned one")
def takes_a_producer_for_an_owner(weights: Stream, limit: float) -> Buckets:
    """Keeps everything once it was right to keep something."""
    kept: set[bool] = set()

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        if _is_held_by_nobody(tensor) and fills_its_storage(tensor):
            kept.add(True)
        return _kept_if(bool(kept), tensor)

    return buckets(weights, limit, keep=keep)


# More is kept than is shown.


@rule("aliasing.no-pinned-storage", exposed_by="a contiguous part of a larger memory that was dropped")
def keeps_parts_of_a_larger_storage(tensor: torch.Tensor) -> torch.Tensor:
    """Copies what is lent and keeps what is not, whatever the size of its storage."""
    return _kept_if(_is_held_by_nobody(tensor), tensor)


@rule("aliasing.no-pinned-storage", exposed_by="more than half of a memory that was dropped", on=("partial-narrow",))
def allows_for_padding(tensor: torch.Tensor) -> torch.Tensor:
    """Keeps what is not lent if it fills at least half of its storage."""
    mostly = tensor.untyped_storage().nbytes() <= 2 * tensor.nbytes
    return _kept_if(mostly and _is_held_by_nobody(tensor), tensor)


@rule("aliasing.no-pinned-storage", exposed_by="a tensor that was shrunk in place", on=("partial-resize_",))
def takes_a_tensor_without_base_for_whole(tensor: torch.Tensor) -> torch.Tensor:
    """Compares the size of a tensor with that of its base, and not with that of its storage."""
    whole = tensor._base is None or tensor._base.nbytes == tensor.nbytes
    return _kept_if(whole and _is_held_by_nobody(tensor), tensor)


# What is owned is copied.


@rule(
    "ownership.no-copy",
    exposed_by="an owned tensor",
    origin="verl #6733",
)
def copies_everything(tensor: torch.Tensor) -> torch.Tensor:
    """Copies what is owned, too."""
    return copied(tensor)


@fault("ownership.no-copy", exposed_by="an owned tensor that begins a bucket")
def copies_the_first_of_a_bucket(weights: Stream, limit: float) -> Buckets:
    """Copies whatever begins a bucket."""

    def give(bucket: Bucket) -> Bucket:
        (name, tensor), *others = emptied(bucket)
        return [(name, copied(tensor)), *others]

    return buckets(weights, limit, give=give)


@rule("ownership.no-copy", exposed_by="an owned view of a base that was dropped, as `full_tensor` returns")
def copies_what_has_a_base(tensor: torch.Tensor) -> torch.Tensor:
    """Takes a view whose base was dropped for lent."""
    return _copied_if(tensor._base is not None, tensor)


@rule("ownership.no-copy", exposed_by="an owned parameter", on=("owned-parameter",))
def copies_parameters(tensor: torch.Tensor) -> torch.Tensor:
    """Takes a parameter for part of a model that is trained."""
    return _copied_if(isinstance(tensor, torch.nn.Parameter), tensor)


@rule("ownership.no-copy", exposed_by="an owned inference tensor", on=("inference-tensor",))
def copies_inference_tensors(tensor: torch.Tensor) -> torch.Tensor:
    """Makes ordinary tensors of inference tensors."""
    return _copied_if(tensor.is_inference(), tensor)


@rule("ownership.no-copy", exposed_by="a result that still carries its graph", on=("autograd-result",))
def copies_what_has_a_graph(tensor: torch.Tensor) -> torch.Tensor:
    """Copies a result in order to be rid of its graph."""
    return _copied_if(tensor.grad_fn is not None, tensor)


@rule("ownership.no-copy", exposed_by="an owned tensor of a subclass", on=("owned-as_subclass",))
def copies_subclasses(tensor: torch.Tensor) -> torch.Tensor:
    """Makes plain tensors of those of a framework's own class."""
    return _copied_if(type(tensor) not in (torch.Tensor, torch.nn.Parameter), tensor)


@rule("ownership.no-copy", exposed_by="an owned tensor of no dimension")
def copies_scalars(tensor: torch.Tensor) -> torch.Tensor:
    """Takes a scalar for one entry of somebody's table."""
    return _copied_if(tensor.ndim == 0, tensor)


@rule("ownership.no-copy", exposed_by="an owned tensor of four dimensions")
def copies_images(tensor: torch.Tensor) -> torch.Tensor:
    """Copies whatever might lie with its channels last."""
    return _copied_if(tensor.ndim == 4, tensor)


@rule("ownership.no-copy", exposed_by="an owned tensor of eight-bit floating point")
def copies_float8(tensor: torch.Tensor) -> torch.Tensor:
    """Takes quantized weights for views of bytes that somebody else packed."""
    return _copied_if(tensor.is_floating_point() and tensor.itemsize == 1, tensor)


@rule(
    "ownership.no-copy",
    exposed_by="an owned view that shows its dropped base as another dtype",
    on=("owned-view_as_complex",),
)
def copies_what_was_gathered_as_bytes(tensor: torch.Tensor) -> torch.Tensor:
    """Takes a base of another dtype for a receive buffer."""
    return _copied_if(tensor._base is not None and tensor._base.dtype is not tensor.dtype, tensor)


@rule(
    "ownership.no-copy",
    exposed_by="an owned tensor with an odd stride where it has one row",
    on=("owned-view", "owned-detach", "owned-set_"),
)
def compares_strides(tensor: torch.Tensor) -> torch.Tensor:
    """Compares strides with those of a new tensor, also of dimensions of size one."""
    return _copied_if(tensor.stride() != torch.empty(tensor.shape, device="meta").stride(), tensor)


@rule("ownership.no-copy", exposed_by="an owned view of a base that was dropped")
def names_the_base_it_asks_about(tensor: torch.Tensor) -> torch.Tensor:
    """Holds the base of a view while it counts who holds the base."""
    base = tensor._base
    return copied(tensor) if base is not None and base.requires_grad else compact(tensor)


@fault("ownership.no-copy", exposed_by="an owned tensor above the limit")
def copies_what_exceeds_the_limit(weights: Stream, limit: float) -> Buckets:
    """Copies what has a bucket of its own."""
    return buckets(weights, limit, keep=lambda tensor: _copied_if(tensor.nbytes > limit, tensor))


@fault(
    "ownership.no-copy",
    exposed_by="an owned tensor behind one that had to be copied",
    on=("owned-chain",),
)
def takes_a_producer_for_a_lender(weights: Stream, limit: float) -> Buckets:
    """Copies everything once it had to copy something."""
    copies: set[bool] = set()

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        kept = copied(tensor) if copies else compact(tensor)
        if is_copy(kept, tensor):
            copies.add(True)
        return kept

    return buckets(weights, limit, keep=keep)


@fault("ownership.no-copy", exposed_by="an owned tensor that comes in a list")
def copies_what_is_named_elsewhere(weights: Stream, limit: float) -> Buckets:
    """Takes a tensor that a variable or a list still names for shared."""

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        return _copied_if(sys.getrefcount(tensor) > _NAMES[0], tensor)

    return buckets(weights, limit, keep=keep)


_NAMES: list[int] = []
"""How often Python names a tensor that nobody but the loop does."""


def _count_names(tensor: torch.Tensor) -> torch.Tensor:
    _NAMES.append(sys.getrefcount(tensor))
    return tensor


list(buckets((("", torch.empty(1)) for _ in range(1)), 4, keep=_count_names))


_LARGE = 1 << 20


@rule("aliasing.survives-overwrite", exposed_by="a lent tensor of a MiB")
def keeps_large_tensors(tensor: torch.Tensor) -> torch.Tensor:
    """Takes what is large for new, since nobody has a buffer of that size."""
    return _kept_if(tensor.nbytes >= _LARGE, tensor)


@rule("ownership.no-copy", exposed_by="an owned tensor of a MiB")
def copies_large_tensors(tensor: torch.Tensor) -> torch.Tensor:
    """Copies what is large into memory of its own."""
    return _copied_if(tensor.nbytes >= _LARGE, tensor)


@rule("aliasing.no-pinned-storage", exposed_by="an owned parameter that has a gradient", on=("trained-parameter",))
def keeps_the_gradient(tensor: torch.Tensor) -> torch.Tensor:
    """Passes an owned parameter on as it came, with its gradient."""
    return tensor if owns_its_memory(tensor) and plain(tensor) and tensor.is_leaf else compact(tensor)


@fault("ownership.no-copy", exposed_by="an owned tensor where one lay that was dropped")
def remembers_addresses(weights: Stream, limit: float) -> Buckets:
    """Takes an address that comes again for a buffer, though memory is freed and used again."""
    seen: set[int] = set()

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        address = tensor.data_ptr()
        comes_again = address in seen
        seen.add(address)
        return _copied_if(comes_again, tensor)

    return buckets(weights, limit, keep=keep)


@fault("aliasing.survives-overwrite", exposed_by="a stream of more than eight lent items")
def copies_the_first_eight(weights: Stream, limit: float) -> Buckets:
    """Copies what fills its first eight slots, and keeps what comes when there are none left."""
    slots = iter(range(8))
    return buckets(weights, limit, keep=lambda tensor: _kept_if(next(slots, None) is None, tensor))


@rule(
    "aliasing.survives-overwrite",
    exposed_by="shared memory that another process has, and no tensor of this one",
    on=("shared-memory",),
)
def forgets_other_processes(tensor: torch.Tensor) -> torch.Tensor:
    """Counts who holds the memory in this process alone."""
    owned = tensor.untyped_storage().resizable() and fills_its_storage(tensor) and _fingerprint(tensor) in _OWNED
    return _kept_if(owned, tensor)
