"""packing.metadata"""

from __future__ import annotations

from typing import Any

from bucketproof.repro.parts.loop import greedy
from bucketproof.repro.parts.seeing import pairs
from bucketproof.repro.parts.slots import (
    LIMIT,
    PADDING,
    Broken,
    bits,
    described,
    in_order,
    payload_bytes,
    promised,
    weights,
)


def check(packer: Any) -> None:
    """The metadata says of each weight which bytes of the payload are its own."""
    pack, unpack, *rest = packer
    for named in greedy(weights(), LIMIT):
        given = [(name, bits(promised(tensor))) for name, tensor in named]
        payload = pack(named)
        raw = payload_bytes(payload)
        compare(given, described(payload, *rest), raw)
        due = sum(len(each) for _, each in given)
        if raw is not None and not due <= len(raw) <= due + PADDING * len(given):
            raise Broken(f"the payload has {len(raw)} bytes, for weights of {due}")
        names = [name for name, _ in pairs(unpack(payload))]
        if in_order([name for name, _ in given]) != in_order(names):
            raise Broken(f"{[name for name, _ in given]} were packed, and came out as {names}")


def compare(given: list[tuple[str, bytes]], entries: Any, raw: bytes | None) -> None:
    if entries is None:
        return
    names = [entry[0] for entry in entries]
    if in_order(names) != in_order([name for name, _ in given]):
        raise Broken(f"{[name for name, _ in given]} were packed, and the metadata has {names}")
    first = last = 0  # where the next weight may begin, at the earliest and the latest
    for name, nbytes, offset in entries:
        due = next(each for known, each in given if known == name)
        if nbytes != len(due):
            raise Broken(f"{name!r} has {len(due)} bytes, and {nbytes} in the metadata")
        if raw is not None:
            first, last = (first, last + PADDING) if offset is None else (offset, offset)
            found = raw.find(due, first, last + len(due)), raw.rfind(due, first, last + len(due))
            if -1 in found:
                raise Broken(
                    f"the payload does not have the bytes of {name!r} at {first}, where the metadata puts them"
                )
            first, last = found[0] + len(due), found[1] + len(due)
