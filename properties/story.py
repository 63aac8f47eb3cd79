"""A failing run in words: what was to be handed over, and what happened, step by step."""

from __future__ import annotations

from collections.abc import Iterator

from bucketproof.properties.excerpt import MOST, members, stretches
from bucketproof.properties.outcome import Step
from bucketproof.properties.run import Delivered, Event, Run
from bucketproof.strategies import PROVENANCES, Custody, Item, Plan
from bucketproof.strategies.content import POISON

_SHOWN = 8
"""Bytes of a tensor that are shown, from the first that differs."""


def items(plan: Plan) -> tuple[str, ...]:
    """Each item of a plan in a line, and of each provenance once what it is."""
    seen: set[str] = set()
    told = []
    for item in plan.items[:MOST]:
        told.append(
            _item(item) if item.provenance in seen else f"{_item(item)}. {PROVENANCES[item.provenance].sentence}"
        )
        seen.add(item.provenance)
    return (*told, *_left_out(len(plan.items) - MOST, "items"))


def _left_out(count: int, what: str) -> Iterator[str]:
    if count > 0:
        yield f"… {count} more {what}"


def steps(run: Run, item: int | None, what: str) -> tuple[Step, ...]:
    """What was produced, overwritten and delivered, in its order, and what reading again has shown.

    What is wrong is marked where it is about this item, or is not about any. What shows in none of the steps, such as
    what another run has shown, is the last of them: `what` has happened.
    """
    told: list[Step] = []
    for stretch in stretches(run, item):
        told += [Step("…")] if told else []
        told += [step for event in stretch for step in _tell(run, event, item)]
    again = [*_read_again(run, item)]
    told = [_called(run), *told, *again[:MOST], *map(Step, _left_out(len(again) - MOST, "have changed"))]
    return (*told, *(() if any(step.wrong for step in told) else (Step(what, wrong=True),)))


def _called(run: Run) -> Step:
    """What a reader has to know of the plan beside its items."""
    kind = run.plan.iterable if run.asynchronous else run.plan.iterable.removeprefix("async-")
    mode = "" if run.plan.grad_mode == "enabled" else f", under {run.plan.grad_mode}"
    called = f"the bucketer was called: bucket_bytes={run.plan.bucket_bytes}, and weights from {_FROM[kind]}{mode}"
    return Step(f"{called}{_CONSUMER[run.plan.consumer]}")


_FROM = {
    "generator": "a generator",
    "iterator": "an iterator",
    "list": "a list",
    "async-generator": "an async generator",
    "async-iterator": "an async iterator",
}
_CONSUMER = {
    "hold": "",
    "drop": "; its consumer drops each bucket",
    "clear": "; its consumer empties each bucket and writes over its tensors",
    "gather": "; all ranks meet over each bucket",
    "ship": "; each bucket is sent to another process, which reads it late",
}


def _tell(run: Run, event: Event, item: int | None) -> Iterator[Step]:
    if event.kind == "produced":
        yield Step(f"produced {_item(run.plan.items[event.number])}")
    elif event.kind == "overwritten":
        yield Step(f"overwritten: {_written(run, event)}")
    elif event.kind == "delivered":
        yield from _delivered(run, event.number, item)
    elif event.kind == "failed":
        yield Step(f"the producer raised {event.text}")
    elif event.kind == "stale":
        text = f"{event.text}: bucket {event.number}, which its consumer had dropped, is still alive"
        yield Step(text, wrong=item is None)
    elif event.kind == "closed":
        yield Step("its consumer closed the bucketer")
    elif event.kind == "cancelled":
        yield Step(f"the consuming task was cancelled while item {event.number} was awaited")
    elif event.kind == "raised":
        yield Step(run.outcry, wrong=item is None and run.raised is None)
    else:
        yield Step("the bucketer ended")


def _item(item: Item) -> str:
    custody = PROVENANCES[item.provenance].custody
    return f"{item.name!r}: {_chain(item)}, {item.dtype} {item.shape}, {item.nbytes} bytes, {_WHOSE[custody]}"


def _chain(item: Item) -> str:
    operations = " -> ".join(item.ops) or item.provenance
    return operations if item.layout == "contiguous" else f"{item.layout} -> {operations}"


_WHOSE = {
    Custody.OWNED: "nobody else holds its memory",
    Custody.LENT: "lent, to be overwritten",
    Custody.PARTIAL: "part of a larger memory that nobody else holds",
    Custody.SHARED: "shared with somebody who does not write",
}


def _written(run: Run, event: Event) -> str:
    place = event.place
    before = run.events[: next(i for i, each in enumerate(run.events) if each is event)]
    for each in reversed(before):
        if each.kind == "produced" and place and run.handed_over[each.number].facts.span.overlaps(place):
            return f"the lender wrote over the memory that it had lent as {run.plan.items[each.number].name!r}"
    return "the lender wrote over memory that it had lent"


def _delivered(run: Run, bucket: int, item: int | None) -> Iterator[Step]:
    count, nbytes = len(run.members(bucket)), sum(each.facts.nbytes for each in run.members(bucket))
    yield Step(f"bucket {bucket} delivered: {count} {'item' if count == 1 else 'items'}, {nbytes} bytes")
    told = members(run, bucket, item)
    for each in told:
        wrong = _is_spoiled(run, each) and item in (None, each.index)
        yield Step(f"{each.name!r}: {_where(run, each)}", depth=1, wrong=wrong)
    yield from (Step(text, depth=1) for text in _left_out(count - len(told), "items"))


def _is_spoiled(run: Run, delivered: Delivered) -> bool:
    """Whether it shows that it is not what was handed over, or lies where it may not."""
    if delivered.index is None:
        return True
    given = run.handed_over[delivered.index]
    # What is packed is sent together, and is copied in any case.
    holds_more = delivered.facts.storage.nbytes > delivered.facts.nbytes and run.promises.padding is None
    is_needless = given.keep_owed and not delivered.kept and run.promises.copies == "when-needed"
    is_wrong = delivered.lent or holds_more or bool(delivered.facts.graph) or (is_needless and not given.is_cast)
    return is_wrong or not delivered.as_given(given)


def _where(run: Run, delivered: Delivered) -> str:
    if delivered.index is None:
        return f"arrived {run.surplus(delivered)}"
    given = run.handed_over[delivered.index]
    place = _place(delivered)
    if not delivered.same_kind(given):
        return f"{place}, as {delivered.facts.dtype} {delivered.facts.shape}"
    if delivered.facts.bits != given.expected.bits:
        return f"{place}, with other bits: {_difference(run, given.expected.bits, delivered.facts.bits)}"
    return place


def _place(delivered: Delivered) -> str:
    facts = delivered.facts
    place = "kept in place" if delivered.kept else "copied, in memory of its own"
    place = "still in the lender's memory" if delivered.lent else place
    storage = f", which has {facts.storage.nbytes} bytes" if facts.storage.nbytes > facts.nbytes else ""
    return f"{place}{storage}{f', with the graph of {facts.graph}' if facts.graph else ''}"


def _read_again(run: Run, item: int | None) -> Iterator[Step]:
    for delivered in run.delivered:
        for moment, bits in delivered.later:
            if bits != delivered.facts.bits:
                change = _difference(run, delivered.facts.bits, bits)
                text = f"read again {_WHEN[moment]}, {delivered.name!r} has changed: {change}"
                yield Step(text, wrong=item in (None, delivered.index))
                break
    for index, nbytes in run.pinned.items():
        text = f"the producer let go, and the {nbytes} bytes behind {run.plan.items[index].name!r} are still alive"
        yield Step(text, wrong=item in (None, index))


_WHEN = {
    "held": "when the next bucket came",
    "end": "when the stream had ended",
    "overwritten": "after every lender had written",
}


def _difference(run: Run, before: bytes, after: bytes) -> str:
    first = next(
        (i for i, (a, b) in enumerate(zip(before, after, strict=False)) if a != b),
        min(len(before), len(after)),
    )
    was, is_ = (part[first : first + _SHOWN].hex(" ") for part in (before, after))
    return f"from byte {first} it was {was} and is {is_}{_whose(run, before, after)}"


def _whose(run: Run, before: bytes, after: bytes) -> str:
    """Where bits come from that are not those of the tensor, if it is known."""
    for given in run.handed_over:
        if given.expected.bits == after:
            return f", the bits of {run.plan.items[given.index].name!r}"
    strange = bytes(new for old, new in zip(before, after, strict=False) if old != new)
    return ", which the lender wrote" if strange.strip(bytes([POISON])) == b"" else ""
