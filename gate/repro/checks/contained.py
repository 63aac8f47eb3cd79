"""values.self-contained"""

from __future__ import annotations

from typing import Any

import torch

from bucketproof.repro.parts.seeing import addresses, overlap, pairs
from bucketproof.repro.parts.slots import JUDGED, Broken, buckets, consumed, is_contiguous, is_whole, weights

GIVEN: dict[str, range] = {}  # the addresses of each weight's memory as it was handed over


def note(name: str, tensor: torch.Tensor) -> None:
    GIVEN[name] = addresses(tensor)


def check(bucketer: Any) -> None:
    """What arrives can be sent as it is."""
    for bucket in buckets(bucketer, weights()):
        for_each(pairs(bucket))
        consumed(bucket)


def for_each(members: list[tuple[str, torch.Tensor]]) -> None:
    for name, tensor in members:
        look(name, tensor)


def look(name: str, tensor: torch.Tensor) -> None:
    if name not in JUDGED:
        return
    if tensor.grad_fn is not None:
        raise Broken(f"{name!r} arrived with an autograd graph, {type(tensor.grad_fn).__name__}")
    if tensor.is_conj() or tensor.is_neg():
        raise Broken(f"{name!r} is still to be conjugated or negated: its memory does not hold its values")
    if not overlap(addresses(tensor), GIVEN[name]) and not is_whole(tensor):
        raise Broken(f"{name!r} serialises to {tensor.untyped_storage().nbytes()} bytes, to show {tensor.nbytes}")
    reach = sum(stride * (size - 1) for stride, size in zip(tensor.stride(), tensor.shape, strict=True))
    if tensor.numel() and reach + 1 != tensor.numel():
        raise Broken(f"{name!r} is not dense: its {tensor.numel()} elements lie in a span of {reach + 1}")
    if not is_contiguous(tensor):
        raise Broken(f"{name!r} is not contiguous: shape {tuple(tensor.shape)}, strides {tensor.stride()}")
