"""Findings in words."""

from __future__ import annotations

from collections.abc import Iterator

from bucketproof.auditing.findings import Finding, Kind
from bucketproof.auditing.memory import Record


def written(old: Record, new: Record | None, now: int) -> Finding:
    """Memory that was handed over and then written: by the time that `now` hand-overs had been seen."""
    first, second = old.handed_over(), None if new is None else new.handed_over()
    nbytes = first.nbytes if new is None else min(old.end, new.end) - max(old.start, new.start)
    if second is not None:
        how = f"and {nbytes} bytes of its memory came again with other content as {second}"
    else:
        how = f"and its memory was written before item {now} came: who else holds it did not wait"
    what = f"{first} was handed over, {how}. {_kept(first.kept_by)}"
    items = (first,) if second is None else (first, second)
    return Finding(
        "written", what, items, old.region.place.number, nbytes, 0 if second is None else second.index - first.index
    )


def _kept(rules: tuple[str, ...]) -> str:
    if "reference" in rules:
        return "No rule could have known: it looks as if nobody else held it"
    return (
        f"It would have been kept, and spoiled, by {' and '.join(rules)}"
        if rules
        else "No rule that was asked keeps it"
    )


def shared(kind: Kind, old: Record, new: Record, nbytes: int) -> Finding:
    """Two hand-overs in the same memory, which was not written in between."""
    first, second = old.handed_over(), new.handed_over()
    what = "lie in the same memory" if kind == "tied" else "share a part of their memory"
    return Finding(
        kind, f"{first} and {second} {what}: {nbytes} bytes", (first, second), old.region.place.number, nbytes
    )


def traits(record: Record) -> Iterator[tuple[Kind, int]]:
    """What a hand-over shows by itself, each with the bytes it is about."""
    has_base, inference, requires_grad, graph, _, _ = record.facts
    foreign = record.region.foreign
    spare = record.region.nbytes - record.layout.nbytes
    if graph or requires_grad:
        yield "graph" if graph else "requires-grad", record.layout.nbytes
    if foreign:
        yield "foreign", record.layout.nbytes
    if spare > 0:
        yield "pinned", spare
    if inference and not (has_base or record.exclusive or foreign):
        yield "hidden-base", record.layout.nbytes


def trait(kind: Kind, record: Record, nbytes: int) -> Finding:
    """One of these, as a finding."""
    item = record.handed_over()
    told = {
        "graph": f"it carries an autograd graph, {item.graph}, and all that was saved for it",
        "requires-grad": "it requires grad",
        "foreign": "torch does not know who else holds its memory: it came from outside, was exported, or is shared",
        "pinned": f"whoever keeps it keeps a storage of {item.storage_bytes} bytes, {nbytes} more than its own",
        "hidden-base": "it is an inference tensor whose memory others reach, and torch shows no base",
    }
    return Finding(kind, f"{item}: {told[kind]}", (item,), None, nbytes)
