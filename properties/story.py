"""A failing run, told step by step."""

from __future__ import annotations

from collections.abc import Iterator

from bucketproof.properties.run import Delivered, Event, Run
from bucketproof.strategies import PROVENANCES, Custody, Item

_SHOWN = 8
"""Bytes of a tensor that are shown, from the first that differs."""


def steps(run: Run) -> tuple[str, ...]:
    """What was produced, overwritten and delivered, in its order, and what reading again has shown."""
    told = [line for event in run.events for line in _tell(run, event)]
    return (*told, *_read_again(run))


def _tell(run: Run, event: Event) -> Iterator[str]:
    if event.kind == "produced":
        yield f"produced {_item(run, event.number)}"
    elif event.kind == "overwritten":
        yield "overwritten: the lender wrote to memory it had lent"
    elif event.kind == "delivered":
        count = len(run.members(event.number))
        yield f"bucket {event.number} delivered, {count} {'item' if count == 1 else 'items'}"
        yield from (f"    {each.name!r}: {_where(run, each)}" for each in run.members(event.number))
    elif event.kind == "raised":
        yield f"raised {event.text}"
    else:
        yield "the stream ended"


def _item(run: Run, index: int) -> str:
    item = run.plan.items[index]
    custody = PROVENANCES[item.provenance].custody
    return f"{item.name!r}: {_chain(item)}, {item.dtype} {item.shape}, {item.nbytes} bytes, {_WHOSE[custody]}"


def _chain(item: Item) -> str:
    operations = " -> ".join(item.ops) or item.provenance
    return operations if item.layout == "contiguous" else f"{item.layout} -> {operations}"


_WHOSE = {
    Custody.OWNED: "owned by nobody else",
    Custody.LENT: "lent",
    Custody.PARTIAL: "part of a larger memory that was dropped",
    Custody.SHARED: "shared with somebody who does not write",
}


def _where(run: Run, delivered: Delivered) -> str:
    if delivered.index is None:
        return "never handed over"
    given = run.handed_over[delivered.index].expected
    place = (
        "in the lender's memory" if delivered.lent else "kept in place" if delivered.kept else "in memory of its own"
    )
    if delivered.same_kind(run.handed_over[delivered.index]) and delivered.facts.bits != given.bits:
        return f"{place}, with other bits: {_difference(given.bits, delivered.facts.bits)}"
    return place


def _read_again(run: Run) -> Iterator[str]:
    for delivered in run.delivered:
        for moment, bits in delivered.later:
            if bits != delivered.facts.bits:
                change = _difference(delivered.facts.bits, bits)
                yield f"read again {_WHEN[moment]}, {delivered.name!r} has changed: {change}"
                break
    for index, nbytes in run.pinned.items():
        yield f"the producer let go, and the {nbytes} bytes behind {run.plan.items[index].name!r} are still alive"


_WHEN = {
    "held": "when the next bucket came",
    "end": "when the stream had ended",
    "overwritten": "after every lender had written",
}


def _difference(before: bytes, after: bytes) -> str:
    first = next(
        (i for i, (a, b) in enumerate(zip(before, after, strict=False)) if a != b),
        min(len(before), len(after)),
    )
    was, is_ = (part[first : first + _SHOWN].hex(" ") for part in (before, after))
    return f"from byte {first} it was {was} and is {is_}"
