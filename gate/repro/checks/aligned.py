"""packing.alignment"""

from __future__ import annotations

from typing import Any

from bucketproof.repro.parts.loop import greedy
from bucketproof.repro.parts.seeing import pairs
from bucketproof.repro.parts.slots import LIMIT, Broken, offsets, weights


def check(packer: Any) -> None:
    """Each weight lies in the payload where a tensor of its dtype may begin, and comes out so."""
    pack, unpack, *rest = packer
    for named in greedy(weights(), LIMIT):
        sizes = {name: tensor.itemsize for name, tensor in named if tensor.numel()}
        try:
            payload = pack(named)
            found = pairs(unpack(payload))
        except Exception as error:
            raise Broken(f"{list(sizes)} were not packed and unpacked: {error!r}") from error
        for name, offset in offsets(payload, *rest):
            if name in sizes and offset % sizes[name]:
                raise Broken(f"{name!r} lies at offset {offset}, and its elements have {sizes[name]} bytes")
        for name, tensor in found:
            if tensor.numel() and tensor.data_ptr() % tensor.itemsize:
                raise Broken(f"{name!r} was unpacked at an address that no {tensor.dtype} may have")
