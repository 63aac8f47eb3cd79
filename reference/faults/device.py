"""Faults that take a CUDA device: streams, handles, and what its allocator is asked for."""

from __future__ import annotations

import torch

from bucketproof.reference.faults.loop import Buckets, Stream, buckets, closes_its_stream, raw, refuse, rule
from bucketproof.reference.faults.registry import fault
from bucketproof.reference.ownership import compact
from bucketproof.reference.sound import Bucket

_ON_CUDA = {"device": "cuda"}


@rule(
    "device.stays",
    exposed_by="any item",
    also={"values": "the device is one of the things that are conserved", "ownership": "what is moved is a copy"},
    **_ON_CUDA,
)
def moves_to_the_host(tensor: torch.Tensor) -> torch.Tensor:
    """Copies what it may not keep to the host, and what it may keep, too."""
    return compact(tensor).cpu()


@rule(
    "device.stream-order",
    exposed_by="a lent item that was written a moment ago",
    origin="vllm-ascend #12713",
    **_ON_CUDA,
)
def copies_before_it_is_written(tensor: torch.Tensor) -> torch.Tensor:
    """Copies on a stream of its own, which does not wait for the one that writes the source."""
    mine, theirs = torch.cuda.Stream(), torch.cuda.current_stream()
    with torch.cuda.stream(mine):
        copy = compact(tensor)
    theirs.wait_stream(mine)
    return copy


@rule("device.stream-order", exposed_by="a lent item whose lender writes again at once", **_ON_CUDA)
def lets_the_lender_go_on(tensor: torch.Tensor) -> torch.Tensor:
    """Copies on a stream of its own, which nobody waits for before the source is written again."""
    mine = torch.cuda.Stream()
    mine.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(mine):
        return compact(tensor)


@rule("device.no-host-sync", exposed_by="any item", origin="NeMo-RL #3055", **_ON_CUDA)
def waits_for_each_copy(tensor: torch.Tensor) -> torch.Tensor:
    """Waits for the device after each item."""
    copy = compact(tensor)
    torch.cuda.synchronize()
    return copy


@rule("device.peak", exposed_by="any item", **_ON_CUDA)
def takes_room_that_no_operator_sees(tensor: torch.Tensor) -> torch.Tensor:
    """Asks the allocator itself for a workspace of four times the item."""
    room = torch.cuda.caching_allocator_alloc(4 * max(1, tensor.nbytes))
    try:
        return compact(tensor)
    finally:
        torch.cuda.caching_allocator_delete(room)


@fault(
    "device.ipc-survives",
    exposed_by="a second bucket, while another process has yet to read the first",
    origin="slime #929",
    also={"lifecycle": "a bucket is written to after it was yielded", "values": "and so is whoever holds it"},
    **_ON_CUDA,
)
@closes_its_stream
def packs_into_what_it_has_sent(weights: Stream, limit: float) -> Buckets:
    """Packs each bucket into one flat tensor, which it fills again for the next."""
    refuse(limit)
    flat: list[torch.Tensor] = []
    for bucket in buckets(weights, limit):
        yield _packed(bucket, flat)


def _packed(bucket: Bucket, flat: list[torch.Tensor]) -> Bucket:
    """The bucket, in the first bytes of a tensor that all buckets share. Each member begins at a multiple of 16."""
    starts, size = [], 0
    for _, tensor in bucket:
        starts.append(size)
        size += -(-tensor.nbytes // 16) * 16
    if not flat or flat[0].nbytes < size:
        flat[:] = [torch.empty(2 * size, dtype=torch.uint8, device=bucket[0][1].device)]
    packed: Bucket = []
    for (name, tensor), start in zip(bucket, starts, strict=True):
        place = flat[0][start : start + tensor.nbytes]
        place.copy_(raw(tensor.contiguous()))
        packed.append((name, place.view(tensor.dtype).view(tensor.shape)))
    return packed
