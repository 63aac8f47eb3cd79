"""Three published generations of one bucketer, each with the rule by which it kept a tensor without a copy.

They are written anew, and share the loop of the sound bucketer: a verdict on one of them is a verdict on its
rule alone. A tensor that a rule does not keep is copied by a plain ``tensor.clone()``, as it was then: the
clone stays in the autograd graph if grad is enabled, and a transposed tensor stays transposed.
"""

from collections.abc import AsyncGenerator

import torch

from bucketproof.reference.sound import Bucket, Weights, get_named_tensor_buckets

__all__ = ["always_clone", "base_guard", "storage_size"]


def always_clone(weights: Weights, bucket_bytes: float) -> AsyncGenerator[Bucket, None]:
    """Never keep a tensor: right values, at twice the memory of every tensor that was owned already."""
    return get_named_tensor_buckets(weights, bucket_bytes, compaction=torch.Tensor.clone)


def storage_size(weights: Weights, bucket_bytes: float) -> AsyncGenerator[Bucket, None]:
    """Keep a contiguous tensor of its storage's size: also a view that covers a receive buffer exactly."""
    return get_named_tensor_buckets(weights, bucket_bytes, compaction=_keep_if_storage_has_its_size)


def base_guard(weights: Weights, bucket_bytes: float) -> AsyncGenerator[Bucket, None]:
    """Keep a tensor without a base: also a detached view of lent memory, but no view of a dropped base."""
    return get_named_tensor_buckets(weights, bucket_bytes, compaction=_keep_if_without_base)


def fills_its_storage(tensor: torch.Tensor) -> bool:
    """Tell what ``storage_size`` asks of a tensor that it keeps."""
    return tensor.is_contiguous() and tensor.untyped_storage().nbytes() == tensor.numel() * tensor.element_size()


def has_no_base(tensor: torch.Tensor) -> bool:
    """Tell what ``base_guard`` asks of a tensor that it keeps."""
    return tensor._base is None


def _keep_if_storage_has_its_size(tensor: torch.Tensor) -> torch.Tensor:
    return tensor if fills_its_storage(tensor) else tensor.clone()


def _keep_if_without_base(tensor: torch.Tensor) -> torch.Tensor:
    return tensor if has_no_base(tensor) else tensor.clone()
