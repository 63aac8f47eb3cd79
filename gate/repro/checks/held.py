"""lifecycle.bucket-is-the-consumers: a consumer that holds buckets."""

from __future__ import annotations

from typing import Any

import torch

from bucketproof.repro.parts.seeing import difference, pairs
from bucketproof.repro.parts.slots import Broken, bits, buckets, weights

Members = list[tuple[str, torch.Tensor, bytes]]


def check(bucketer: Any) -> None:
    """A bucket that was yielded keeps its members, and they keep their bytes."""
    held: list[tuple[Any, Members]] = []
    for bucket in buckets(bucketer, weights()):
        for _, members in held[-1:]:
            compare(members)
        held.append((bucket, [(name, tensor, bits(tensor)) for name, tensor in pairs(bucket)]))
    for bucket, members in held:
        compare(members)
        before = [(name, place(tensor)) for name, tensor, _ in members]
        now = [(name, place(tensor)) for name, tensor in pairs(bucket)]
        if now != before:
            raise Broken(f"a bucket was yielded with names and addresses {before}, and now it has {now}")


def compare(members: Members) -> None:
    for name, tensor, before in members:
        if bits(tensor) != before:
            raise Broken(f"{name!r} was changed after its bucket had come: {difference(before, bits(tensor))}")


def place(tensor: Any) -> int | None:
    return tensor.data_ptr() if isinstance(tensor, torch.Tensor) else None
