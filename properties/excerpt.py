"""What of a long run is told. A smallest plan has a few items; where it takes thousands to break a promise, nobody
reads them all.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from bucketproof.properties.run import Delivered, Event, Run

MOST = 100
"""Items, events or members of a bucket up to which all of them are told."""
_AROUND = 20
"""How many are told where it begins, where it ends, and around what it is about."""
_FIRST = 16
"""Members of a bucket that are told in any case."""


def stretches(run: Run, item: int | None) -> list[Sequence[Event]]:
    """The events that are told, with something left out between one stretch and the next."""
    events = run.events
    if len(events) <= MOST:
        return [events]
    middles = [place for place, event in enumerate(events) if _is_about(run, event, item)]
    told = {place for middle in (0, *middles[:4], len(events) - 1) for place in _around(middle, len(events))}
    return list(_runs_of(events, sorted(told)))


def members(run: Run, bucket: int, item: int | None) -> list[Delivered]:
    """The members of a bucket that are told: the first of them, and the one that it is about."""
    everybody = run.members(bucket)
    return [each for place, each in enumerate(everybody) if place < _FIRST or (item is not None and each.index == item)]


def _is_about(run: Run, event: Event, item: int | None) -> bool:
    if item is None:
        return False
    if event.kind == "delivered":
        return any(each.bucket == event.number for each in run.of(item))
    return event.kind == "produced" and event.number == item


def _around(middle: int, count: int) -> range:
    return range(max(0, middle - _AROUND), min(count, middle + _AROUND + 1))


def _runs_of(events: Sequence[Event], places: Sequence[int]) -> Iterator[Sequence[Event]]:
    start = 0
    for place in range(1, len(places) + 1):
        if place == len(places) or places[place] != places[place - 1] + 1:
            yield events[places[start] : places[place - 1] + 1]
            start = place
