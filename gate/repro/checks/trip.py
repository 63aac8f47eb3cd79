"""packing.round-trip"""

from __future__ import annotations

from typing import Any

from bucketproof.repro.parts.loop import greedy
from bucketproof.repro.parts.seeing import pairs
from bucketproof.repro.parts.slots import LIMIT, Broken, promised, seen, weights


def check(packer: Any) -> None:
    """What was packed comes out again, all of it and as it was."""
    pack, unpack, *_ = packer
    for named in greedy(weights(), LIMIT):
        given = [(name, seen(promised(tensor))) for name, tensor in named]
        try:
            found = [(name, seen(tensor)) for name, tensor in pairs(unpack(pack(named)))]
        except Exception as error:
            raise Broken(f"{[name for name, _ in given]} were not packed and unpacked: {error!r}") from error
        for each in given:
            if each not in found:
                raise Broken(f"{each} was packed; what came out is {found}")
            found.remove(each)
        if found:
            raise Broken(f"{found} came out, and had not been packed")
