"""The audit of one stream: what is done for each hand-over, and when it is over.

A hand-over is noted before it is passed on. Its memory is looked at again when the next one has been produced, when
the same memory is handed over again, when it is the oldest that is remembered, and when the stream ends. Memory that
nobody but the consumer could reach is the consumer's to write, so there only the second of these counts.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Protocol

import torch

from bucketproof.auditing.custody import kept_by
from bucketproof.auditing.findings import Kind
from bucketproof.auditing.ledger import Ledger, OnFinding
from bucketproof.auditing.memory import Foreign, Place, Record, Region, Where
from bucketproof.auditing.overlap import share_bytes
from bucketproof.auditing.reading import Changed, Pending, changed, layout_of, read
from bucketproof.auditing.rules import Rules
from bucketproof.auditing.summary import Summary, lent_of, round_trips
from bucketproof.auditing.words import shared, trait, traits, written
from bucketproof.reference.ownership import is_held_by_nobody_else
from bucketproof.reference.sound import _close

_FIRST = 32
"""Hand-overs that are looked at closely at any rate, so that a short stream is seen."""
_STRIDE = 61
"""Of the others, there is a glance at one in so many: no multiple of what producers have in rings."""
_SPAN = 1 << 24
"""And at one in so many bytes: to clone them takes a hundred times as long."""

OnSummary = Callable[[Summary], object]


class Side(Protocol):
    """Who else is told of each hand-over: the other side of a bucketer."""

    def given(self, index: int, name: str, tensor: torch.Tensor, record: Record | None) -> None:
        """A hand-over was produced. The tensor is not to be kept."""

    def pulled(self) -> None:
        """The producer is about to be advanced."""


class Auditor:
    """Sees each hand-over of one stream. It holds no tensor, no storage, and no view of one."""

    __slots__ = (
        "_by_start",
        "_came_round",
        "_close_at",
        "_due",
        "_foreign",
        "_left",
        "_looked",
        "_numbered",
        "_on_summary",
        "_previous",
        "_regions",
        "_remembered",
        "_room",
        "_rules",
        "_sample",
        "_seconds",
        "_spare",
        "_started",
        "_stride",
        "_told_bytes",
        "_unreadable",
        "_where",
        "_window",
        "_written_in",
        "ended",
        "ledger",
        "pending",
        "sides",
        "source",
        "whole",
    )

    def __init__(
        self,
        *,
        on_finding: OnFinding,
        on_summary: OnSummary | None,
        window: int,
        sample: int | None,
        rules: tuple[str, ...],
        source: str,
        where: Callable[[], Where],
    ) -> None:
        self.ledger = Ledger(on_finding)
        self.pending = Pending()
        self.ended = ""
        self._on_summary = on_summary
        self._window, self.whole, self._sample = window, sample is None, sample or 0
        self.sides: Side | None = None
        self._rules = Rules(rules)
        self.source, self._where = source, where
        self._started = time.perf_counter()
        self._seconds = 0.0
        self._looked = 0
        self._unreadable = 0
        self._stride = self._left = self._due = 1
        """There is a glance at one hand-over in so many, after so many more, at the one of this number (from 1)."""
        self._room = self._told_bytes = 0
        """Bytes that may go by until the next glance, and the bytes that there will have been by then."""
        self._close_at = 0
        """The next close look is at the hand-over that ends behind so many bytes."""
        self._regions: dict[int, Region] = {}
        self._numbered = 0
        self._remembered: deque[Record] = deque()
        self._previous: Record | None = None
        self._by_start: dict[int, Region] = {}
        self._foreign = Foreign()
        self._came_round: dict[tuple[int, int], list[int]] = {}
        self._written_in: dict[int, Place] = {}
        self._spare = 0

    @property
    def items(self) -> int:
        """How many hand-overs there were."""
        return self._due - self._left

    @property
    def nbytes(self) -> int:
        """Their bytes."""
        return self._told_bytes - self._room

    # What happens for each hand-over.

    def passed_on(self, weights: Iterator[Any]) -> Iterator[Any]:
        """The hand-overs of a producer, each noted before it is yielded. Raises what is found, if that was asked for.

        Most of them are but counted, and that is done right here: a call for each would cost as much again.
        """
        try:
            for pair in weights:
                try:
                    room = self._room - pair[1].nbytes
                except Exception:
                    room = -math.inf  # whatever it is, it is looked at
                left = self._left = self._left - 1
                if left and room > 0:
                    self._room = room
                elif self._saw(pair, room):
                    del pair  # the traceback would hold it
                    refusal = self.ledger.refused()
                    assert refusal is not None
                    self.end(how(refusal))
                    _close(weights)
                    raise refusal
                # Nothing here may name the tensor while the producer works.
                yield (pair, (pair := None))[0]
                if self.sides is not None:
                    self.sides.pulled()
        except GeneratorExit:  # whoever closes it, or lets go of it, has said so
            raise
        except BaseException as error:
            self.end(how(error))
            raise
        self.end("completed")
        if refusal := self.ledger.refused():
            raise refusal

    def _saw(self, pair: Any, room: float) -> bool:
        """Note a hand-over that is due for a glance. Whether there is something to be raised now.

        Whatever goes wrong here is not the producer's trouble.
        """
        index = self.items - 1
        try:
            tensor = pair[1]
            is_due = self._stride == 1 or self._told_bytes - room >= self._close_at
            if not is_due and self._is_plain(tensor, self._room - room):
                self._room = int(room)
            else:
                self._see(index, pair)
        except Exception as error:
            self.ledger.trouble(f"item {index}", error)
        self._left, self._due = self._stride, index + 1 + self._stride
        nbytes = self.nbytes
        self._room = max(min(_SPAN, self._close_at - nbytes), 0)
        self._told_bytes = nbytes + self._room
        return self.ledger.refusal is not None

    def _is_plain(self, tensor: torch.Tensor, nbytes: float) -> bool:
        """Whether there is nothing remarkable at a glance."""
        if type(tensor) is not torch.Tensor or tensor.requires_grad:
            return False
        storage = tensor.untyped_storage()
        return storage.nbytes() == nbytes and storage._cdata not in self._regions and storage.resizable()

    def _see(self, index: int, pair: Any) -> None:
        name, tensor = pair
        record = None
        if _is_readable(tensor):
            self._room -= tensor.nbytes
            if self._is_close(index, tensor):
                self._close_at = self.nbytes + self._sample
                record = self._look(index, name, tensor)
        else:
            self._unreadable += 1
        if self._previous is not None:
            self._look_again(self._previous)
        self._previous = record if record is not None and not record.exclusive else None
        self._stride = _STRIDE if self._is_calm(index) else 1
        if self.sides is not None:
            self.sides.given(index, name, tensor, record)

    def _is_calm(self, index: int) -> bool:
        """Whether the next hand-overs can be passed by: none is awaited, and nothing that is written was seen yet."""
        is_awaited = self._previous is not None or index < _FIRST - 1 or self.sides is not None
        return not (is_awaited or self._written_in or self._sample == 0)

    def _is_close(self, index: int, tensor: torch.Tensor) -> bool:
        """Whether to look closely: at one hand-over in so many bytes, and at what is remarkable already."""
        if index < _FIRST or self.nbytes >= self._close_at:
            return True
        if tensor.requires_grad:
            kind: Kind = "requires-grad" if tensor.grad_fn is None else "graph"
            if self.ledger.wants(kind):
                return True
        storage = tensor.untyped_storage()
        return storage._cdata in self._regions or storage.nbytes() != tensor.nbytes or not storage.resizable()

    def _look(self, index: int, name: str, tensor: torch.Tensor) -> Record | None:
        # Before anything here holds the storage, since holders are counted.
        exclusive = is_held_by_nobody_else(tensor)
        layout = layout_of(tensor)
        if not layout.nbytes or torch._C._is_cow_tensor(tensor):  # type: ignore[attr-defined]
            return None  # there is nothing to read, or reading would copy it
        self._looked += 1
        storage = tensor.untyped_storage()
        region = self._region_of(storage)
        record = Record(index, name, tensor, layout, region, self._where())
        record.exclusive = exclusive
        owned = exclusive and layout.nbytes == region.nbytes
        record.kept_by = kept_by(record, self._rules.names, owned=owned)
        self._rules.decided(record, owned=owned)
        self._compare(record)
        record.digest = read(storage, layout, whole=self.whole)
        del storage
        self._remember(record)
        self._note(record)
        return record

    def _region_of(self, storage: torch.UntypedStorage) -> Region:
        key = storage._cdata
        region = self._regions.get(key)
        if region is None or region.nbytes != storage.nbytes():  # one that was resized is as good as another
            region = self._regions[key] = Region(storage, self._numbered)
            self._numbered += 1
            self._by_start.setdefault(region.start, region)
            if region.foreign:
                self._foreign.add(region)
        return region

    def _compare(self, new: Record) -> None:
        """With whatever was handed over from the same memory and was not released since."""
        for region in self._places_of(new):
            if not region.records:
                continue
            storage = region.locked()
            if storage is None:
                continue
            for old in list(region.overlapping(new.start, new.end)):
                if not old.settled:
                    new.region.place = old.region.place  # another storage may show the same memory
                    self.pending.ask(self._has_changed(old, storage), self._met(old, new))
            del storage

    def _places_of(self, new: Record) -> list[Region]:
        own = new.region
        same = self._by_start.get(own.start)
        if same is not None and same is not own and same.locked() is None:
            self._by_start[own.start] = own
            same = None
        others = [] if same is None or same is own else [same]
        if own.foreign:
            others += [each for each in self._foreign.near(own) if each is not same]
        return [own, *others]

    def _met(self, old: Record, new: Record) -> Callable[[bool], None]:
        def judge(is_changed: bool) -> None:
            if is_changed:
                self._written(old, new)
            elif (old.start, old.end) == (new.start, new.end):
                self._shared("tied", old, new)
            elif share_bytes(old, new):
                self._shared("overlap", old, new)
            else:
                return
            if is_changed or old.start == new.start:
                old.settled = True

        return judge

    def _look_again(self, old: Record) -> None:
        """The producer was advanced, or the stream is over. What only the consumer can reach is not looked at."""
        if old.settled or old.exclusive:
            return
        storage = old.region.locked()
        if storage is None:
            return  # released
        is_changed = self._has_changed(old, storage)
        del storage
        self.pending.ask(is_changed, lambda is_so: self._written(old) if is_so else None)

    def _has_changed(self, old: Record, storage: torch.UntypedStorage) -> Changed:
        now = read(storage, old.layout, whole=self.whole)
        if now is not None and old.is_whole and old.version_now() != old.version:
            return True
        return changed(old.digest, now)

    def _remember(self, record: Record) -> None:
        record.region.add(record)
        self._remembered.append(record)
        if len(self._remembered) > self._window:
            self._forget(self._remembered.popleft())

    def _forget(self, record: Record) -> None:
        self._look_again(record)
        region = record.region
        region.forget(record)
        if region.records:
            return
        self._spare += max(region.nbytes - region.shown, 0)
        if region.foreign:
            self._foreign.forget(region)
        if self._by_start.get(region.start) is region:
            del self._by_start[region.start]
        if self._regions.get(region.key) is region:
            del self._regions[region.key]

    # What is found.

    def _written(self, old: Record, new: Record | None = None) -> None:
        if old.settled:
            return
        old.settled = True
        place = self._written_in.setdefault(old.region.place.number, old.region.place)
        place.written += 1
        if new is not None:
            place.again.append(new.index - old.index)
        self._rules.disproved(old)
        now = self.items
        self.ledger.found("written", lambda: written(old, new, now), place=place.number)

    def _shared(self, kind: Kind, old: Record, new: Record) -> None:
        nbytes = min(old.end, new.end) - max(old.start, new.start)
        self.ledger.found(kind, lambda: shared(kind, old, new, nbytes), place=old.region.place.number)

    def _note(self, record: Record) -> None:
        """What a hand-over shows by itself."""
        if record.region.foreign:
            self._came_round.setdefault((record.start, record.end), []).append(record.index)
        for kind, nbytes in traits(record):
            self.ledger.found(kind, partial(trait, kind, record, nbytes))

    # When it is over.

    def end(self, how: str) -> None:
        """The stream was completed, failed, was cancelled, closed or abandoned. Only the first time counts."""
        if self.ended:
            return
        self.ended = how
        self._seconds = time.perf_counter() - self._started
        try:
            for record in self._remembered:
                self._look_again(record)
            self.pending.settle()
        except Exception as error:
            self.ledger.trouble("at the end", error)
        summary = self.summary()
        self._release()
        self.tell(self._on_summary, summary)

    def tell(self, told: OnSummary | None, summary: Summary) -> None:
        """Give the summary to whoever asked for it. What they make of it is not the stream's trouble."""
        if told is not None:
            try:
                told(summary)
            except Exception as error:
                self.ledger.warn(f"on_summary raised {type(error).__name__}: {error}")

    def _release(self) -> None:
        """The stream is over: nothing is compared any more."""
        self._spare += self._spare_now()
        self._remembered.clear()
        self._regions.clear()
        self._by_start.clear()
        self._foreign = Foreign()
        self._previous = None

    def _spare_now(self) -> int:
        """Bytes of the remembered storages beyond what was handed over from them."""
        regions = dict.fromkeys(record.region for record in self._remembered)
        return sum(max(region.nbytes - region.shown, 0) for region in regions)

    def summary(self) -> Summary:
        """What is known by now. On a device, what was asked and not answered yet is told at the end."""
        lent = tuple(map(lent_of, self._written_in.values()))
        return Summary(
            source=self.source,
            ended=self.ended,
            items=self.items,
            nbytes=self.nbytes,
            looked=self._looked,
            unreadable=self._unreadable,
            seconds=round(self._seconds or time.perf_counter() - self._started, 3),
            pinned=self._spare + self._spare_now(),
            **self.ledger.told(lent={each.place for each in lent}),
            lent=lent,
            came_round=round_trips(self._came_round),
            rules=self._rules.records(),
            troubles=tuple(self.ledger.troubles),
        )


def _is_readable(tensor: object) -> bool:
    """Whether it has memory of its own to look at: a class that handles dispatch keeps it out of sight."""
    if not isinstance(tensor, torch.Tensor) or tensor.layout is not torch.strided or tensor.is_meta:
        return False
    kind = type(tensor)
    return kind is torch.Tensor or kind.__torch_dispatch__ is torch.Tensor.__torch_dispatch__


def how(error: BaseException) -> str:
    """How a stream ended that raised."""
    if isinstance(error, asyncio.CancelledError):
        return "cancelled"
    if isinstance(error, GeneratorExit):
        return "closed"
    text = str(error).strip().split("\n")[0]
    return f"failed: {type(error).__name__}{f': {text}' if text else ''}"
