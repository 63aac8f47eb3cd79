"""values.self-contained"""

from __future__ import annotations

from typing import Any

import torch

from bucketproof.repro.parts.seeing import pairs
from bucketproof.repro.parts.slots import JUDGED, Broken, buckets, consumed, is_contiguous, weights


def check(bucketer: Any) -> None:
    """What arrives can be sent as it is."""
    for bucket in buckets(bucketer, weights()):
        for name, tensor in pairs(bucket):
            look(name, tensor)
        consumed(bucket)


def look(name: str, tensor: torch.Tensor) -> None:
    if name not in JUDGED:
        return
    if tensor.grad_fn is not None:
        raise Broken(f"{name!r} arrived with an autograd graph, {type(tensor.grad_fn).__name__}")
    if tensor.is_conj() or tensor.is_neg():
        raise Broken(f"{name!r} is still to be conjugated or negated: its memory does not hold its values")
    reach = sum(stride * (size - 1) for stride, size in zip(tensor.stride(), tensor.shape, strict=True))
    if tensor.numel() and reach + 1 != tensor.numel():
        raise Broken(f"{name!r} is not dense: its {tensor.numel()} elements lie in a span of {reach + 1}")
    if not is_contiguous(tensor):
        raise Broken(f"{name!r} is not contiguous: shape {tuple(tensor.shape)}, strides {tensor.stride()}")
