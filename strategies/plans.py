"""Plans: a whole run as frozen, pure data.

A tensor's repr shows neither its strides nor its offset nor whose memory it is. A plan says all of it, and its
`repr` is code that builds it again: paste it into a test, or send it to another rank or another machine.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import MISSING, dataclass, fields
from typing import Any, Literal, get_args

from bucketproof.strategies.dtypes import DTYPES

Shape = tuple[int, ...]
GradMode = Literal["enabled", "no_grad", "inference"]
Iterables = Literal["generator", "iterator", "list", "async-generator", "async-iterator"]
LenderKind = Literal["buffer", "ping-pong", "ring", "per-dtype", "module"]
LenderSize = Literal["exact", "larger", "bucket"]
Overwrite = Literal["next", "boundary", "end"]
Consumer = Literal["hold", "drop", "clear", "gather", "ship"]
Retention = Literal["on-arrival", "at-flush"]
Device = Literal["cpu", "meta"]
Ends = Literal["completed", "error", "exit", "late-error", "close", "cancel"]

GRAD_MODES: tuple[GradMode, ...] = get_args(GradMode)
ITERABLES: tuple[Iterables, ...] = get_args(Iterables)
LENDER_KINDS: tuple[LenderKind, ...] = get_args(LenderKind)
LENDER_SIZES: tuple[LenderSize, ...] = get_args(LenderSize)
OVERWRITES: tuple[Overwrite, ...] = get_args(Overwrite)
CONSUMERS: tuple[Consumer, ...] = ("hold", "drop", "clear")
"""Those that need no other process."""


class _Code:
    """A repr that is code and leaves out what is at its default."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={_code(value)}' for name, value in told(self))})"


def _code(value: Any) -> str:
    return f"float({str(value)!r})" if value in (math.inf, -math.inf) or value != value else repr(value)


def told(plan: Any) -> Iterator[tuple[str, Any]]:
    """The fields of a plan, an item or a lender that are not at their default."""
    for field in fields(plan):
        value = getattr(plan, field.name)
        if field.default is MISSING or value != field.default:
            yield field.name, value


@dataclass(frozen=True, repr=False)
class Lender(_Code):
    """A piece of memory that the producer reuses."""

    kind: LenderKind = "buffer"
    """How many buffers take turns: one, two, a ring of four, one for each dtype, or one parameter an item."""
    size: LenderSize = "exact"
    """A buffer's size: what it lends to the byte, more than that, or the bucket's limit."""
    overwrite: Overwrite = "next"
    """When it is written again: as soon as the producer is advanced, when a bucket ends, or after the stream."""


@dataclass(frozen=True, repr=False)
class Item(_Code):
    """One weight of the stream, before it is built."""

    name: str
    provenance: str
    dtype: str = "float32"
    shape: Shape = (1,)
    layout: str = "contiguous"
    """The view of the memory that the provenance starts from."""
    ops: tuple[str, ...] = ()
    """For a chain: its operations, the one next to the memory first."""
    lender: int = 0
    """Which of the plan's lenders the memory is taken from, for provenances that lend."""
    seed: int = 0
    """Which content is written."""

    @property
    def nbytes(self) -> int:
        """Bytes of the tensor that is handed over."""
        return math.prod(self.shape) * DTYPES[self.dtype].itemsize


@dataclass(frozen=True, repr=False)
class Plan(_Code):
    """A whole run: what is produced, from whose memory, in how large buckets, and how it is consumed."""

    items: tuple[Item, ...]
    bucket_bytes: int | float
    lenders: tuple[Lender, ...] = (Lender(),)
    grad_mode: GradMode = "enabled"
    iterable: Iterables = "generator"
    consumer: Consumer = "hold"
    """What becomes of a bucket: held to the end, dropped, dropped after it was emptied and written over; held after a
    collective of all ranks, if there are any; or sent to another process."""
    retention: Retention = "on-arrival"
    """How long lenders leave a hand-over alone: until the producer is advanced, or until its bucket is delivered."""
    device: Device = "cpu"
    """Whether the weights have memory: on the meta device they have none, and so neither bits nor an owner. In which
    memory they are made is not the plan's to say, but that of whoever runs it."""
    ends: Ends = "completed"
    """How the run ends: the producer raises (at last, as it is closed), or the consumer closes or is cancelled."""
    ends_at: int = 0
    """Before which item the producer raises or the consumer is cancelled, or after which bucket it closes."""

    def __str__(self) -> str:
        """The same code as `repr`, one line an item."""
        return "\n".join(["Plan(", *(f"    {name}={_lines(value)}," for name, value in told(self)), ")"])


def _lines(value: Any) -> str:
    code = _code(value)
    if not isinstance(value, tuple) or not value or not code.startswith("("):
        return code
    return "\n".join(["(", *(f"        {part!r}," for part in value), "    )"])
