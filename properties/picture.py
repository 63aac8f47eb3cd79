"""The memory of a failing run: which storages there were, who held which of their bytes, and what was overwritten."""

from __future__ import annotations

import itertools
from collections.abc import Hashable
from typing import Any

from bucketproof.properties.evidence import Span
from bucketproof.properties.excerpt import members, stretches
from bucketproof.properties.outcome import Mark, Storage
from bucketproof.properties.run import Delivered, HandOver, Run
from bucketproof.strategies import Custody

_MOST = 4
"""Storages that are shown. A smallest plan has few."""


def storages(run: Run, item: int | None) -> tuple[Storage, ...]:
    """The memory of the item that it is about and of those that lay there too or, if it is about none, of the first."""
    drawn: dict[Hashable, _Drawing] = {}
    buffers = [event.place for event in run.events if event.place]  # sooner or later, each of them is overwritten
    for event in itertools.chain(*stretches(run, item)):
        if event.kind == "produced":
            given = run.handed_over[event.number]
            _home(drawn, buffers, given).add(
                "handed-over", f"handed over as {given.item.name!r}", given.facts.span, given.index
            )
        elif event.place in drawn and event.place:
            drawn[event.place].add("overwritten", "overwritten by the lender", event.place)
        elif event.kind == "delivered":
            for delivered in members(run, event.number, item):
                text = f"bucket {delivered.bucket} holds {delivered.name!r}"
                _new_home(drawn, buffers, run, delivered).add("held", text, delivered.facts.span, delivered.index)
    shown = [each.storage() for each in drawn.values() if item is None or item in each.items]
    return tuple(shown[:_MOST])


class _Drawing:
    """A storage, as it is drawn."""

    def __init__(self, text: str, place: Span) -> None:
        self._text, self._place = text, place
        self._marks: list[Mark] = []
        self.items: set[int] = set()

    def add(self, kind: Any, text: str, span: Span, item: int | None = None) -> None:
        start = self._place.start
        mark = Mark(kind, text, max(span.start, start) - start, min(span.end, self._place.end) - start)
        if mark not in self._marks[-1:]:
            self._marks.append(mark)
        if item is not None:
            self.items.add(item)

    def storage(self) -> Storage:
        return Storage(f"{self._text}, {self._place.nbytes} bytes", self._place.nbytes, tuple(self._marks))


def _home(drawn: dict[Hashable, _Drawing], buffers: list[Span], given: HandOver) -> _Drawing:
    """The storage that a hand-over lies in: a buffer, what somebody shares, or one of its own."""
    if buffer := _buffer_of(given, buffers):
        return _drawing(drawn, buffer, "a buffer of the lender", buffer)
    # An address can come again, unless somebody holds it to the end.
    key = given.facts.storage if given.custody is Custody.SHARED else given.index
    return _drawing(drawn, key, f"the memory of {given.item.name!r}", given.facts.storage)


def _new_home(drawn: dict[Hashable, _Drawing], buffers: list[Span], run: Run, delivered: Delivered) -> _Drawing:
    """The storage that a delivered tensor lies in: that of its hand-over, that of another, or one of its own."""
    if delivered.index is not None:
        given = run.handed_over[delivered.index]
        buffer = _buffer_of(given, buffers)
        if delivered.kept or (buffer and buffer.overlaps(delivered.facts.span)):
            return _home(drawn, buffers, given)
    for place, drawing in drawn.items():
        if delivered.lent and isinstance(place, Span) and place.overlaps(delivered.facts.storage):
            return drawing
    text, place = f"the bucketer's memory for {delivered.name!r}", delivered.facts.storage
    # What is held to the end keeps its address to itself; else one may come again.
    is_held = run.plan.consumer == "hold" and place.nbytes > 0
    return _drawing(drawn, ("copy", place if is_held else len(drawn)), text, place)


def _drawing(drawn: dict[Hashable, _Drawing], key: Hashable, text: str, place: Span) -> _Drawing:
    """The drawing under this key, begun if there is none."""
    if key not in drawn:
        drawn[key] = _Drawing(text, place)
    return drawn[key]


def _buffer_of(given: HandOver, buffers: list[Span]) -> Span | None:
    is_lent = given.custody is Custody.LENT
    return next((each for each in buffers if is_lent and each.overlaps(given.facts.span)), None)
