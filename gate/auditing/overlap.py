"""Whether two strided tensors share a byte, exactly: their spans may overlap where their elements do not."""

from __future__ import annotations

import numpy as np

from bucketproof.auditing.memory import Record

_EFFORT = 10_000
"""How long numpy may think about it. Then it counts as shared."""


def share_bytes(one: Record, other: Record) -> bool:
    """Whether there is a byte in both."""
    if one.layout.dense and other.layout.dense:
        return one.start < other.end and other.start < one.end
    try:
        return bool(np.shares_memory(_Shown(one), _Shown(other), max_work=_EFFORT))  # type: ignore[arg-type]
    except np.exceptions.TooHardError:
        return True


class _Shown:
    """A tensor's memory as numpy sees it. Nothing of it is read."""

    def __init__(self, record: Record) -> None:
        size = record.layout.dtype.itemsize
        self.__array_interface__ = {
            "shape": tuple(record.layout.shape),
            "strides": tuple(stride * size for stride in record.layout.stride),
            "typestr": f"|V{size}",
            "data": (record.start, True),
            "version": 3,
        }
