"""A bucketer, watched from both sides: what it is given, and what it makes of it."""

from __future__ import annotations

import functools
import inspect
import weakref
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import torch

from bucketproof.auditing.custody import RULES
from bucketproof.auditing.findings import Finding, Kind
from bucketproof.auditing.kept import names_any
from bucketproof.auditing.ledger import OnFinding
from bucketproof.auditing.memory import Record
from bucketproof.auditing.reading import changed, layout_of, read
from bucketproof.auditing.streams import SAMPLE, WINDOW, Watched, WatchedAsync, audit
from bucketproof.auditing.summary import Summary
from bucketproof.auditing.watch import Auditor, OnSummary, how
from bucketproof.properties.buckets import buckets_of, pairs_of
from bucketproof.reference.sound import _aclose, _async_iterator, _close


def audit_bucketer(
    function: Callable[..., Any],
    *,
    on_finding: OnFinding | None = "warn",
    on_summary: OnSummary | None = None,
    window: int = WINDOW,
    sample: int | None = SAMPLE,
    rules: Iterable[str] = RULES,
) -> Callable[..., Any]:
    """Watch a bucketer and its producer. What is returned is called as `function` is, and yields the same buckets.

        get_buckets = audit_bucketer(get_buckets, on_summary=print)

    `function(weights, bucket_bytes, ...)` returns an iterable or an async iterable of buckets, or a coroutine that
    does. Beside what `audit` says of the producer, it is told if a hand-over is lost, altered or out of order, if a
    bucket exceeds the limit or holds more memory than it shows, if owned memory was copied, and if the bucketer still
    names a flushed bucket when it pulls on. Bits and copies are compared for what was looked at closely.

    The options are those of `audit`; with `on_finding=None`, what is returned is `function` itself. Each call is one
    audit: `on_summary` is called when its buckets end.
    """
    if on_finding is None:
        return function
    names = tuple(rules)

    @functools.wraps(function)
    def watched(weights: Any, bucket_bytes: float, *args: Any, **options: Any) -> Any:
        given = audit(weights, on_finding=on_finding, window=window, sample=sample, rules=names)
        sides = Sides(given._auditor, bucket_bytes, on_summary, f"{_named(function)} of {given._auditor.source}")
        result = function(given, bucket_bytes, *args, **options)
        if hasattr(result, "__aiter__") or inspect.isawaitable(result):
            return WatchedAsyncBuckets(result, sides)
        return WatchedBuckets(buckets_of(result), sides)

    return watched


def _named(function: object) -> str:
    return str(getattr(function, "__qualname__", type(function).__qualname__))


class _Given(NamedTuple):
    """A hand-over that has not arrived yet."""

    number: int
    dtype: torch.dtype
    shape: tuple[int, ...]
    record: Record | None


class Sides:
    """Compares what a bucketer yields with what it was given. It holds neither."""

    def __init__(self, auditor: Auditor, limit: float, on_summary: OnSummary | None, source: str) -> None:
        self._auditor, self._limit, self._on_summary, self._source = auditor, limit, on_summary, source
        auditor.sides = self
        self.ledger = auditor.ledger
        self._waiting: dict[str, deque[_Given]] = defaultdict(deque)
        self._buckets = 0
        self._last = -1
        self._flushed: list[weakref.ref[torch.Tensor]] = []
        self._is_flushed = False
        self._ended = ""

    # What the producer's side tells.

    def given(self, index: int, name: str, tensor: torch.Tensor, record: Record | None) -> None:
        """A hand-over was produced."""
        self._waiting[name].append(_Given(index, tensor.dtype, tensor.shape, record))

    def pulled(self) -> None:
        """The bucketer is about to advance the producer: it should name no bucket that it has flushed."""
        if self._is_flushed:
            self._is_flushed = False
            self._look_for_flushed()

    def _look_for_flushed(self) -> None:
        living = {id(tensor) for ref in self._flushed if (tensor := ref()) is not None}
        if living and names_any(lambda thing: id(thing) in living, _OUTER, (Watched, WatchedAsync)):
            number = self._buckets - 1
            self._found("bucket-kept", f"bucket {number} was still named by the bucketer when it pulled the next item")
        self._flushed.clear()

    # What the consumer's side tells.

    def asked(self) -> None:
        """The consumer asks for the next bucket."""
        self._is_flushed = bool(self._flushed)

    def received(self, bucket: Any) -> None:
        """A bucket was yielded."""
        try:
            self._receive(pairs_of(bucket, self._buckets))
        except Exception as error:
            self.ledger.trouble(f"bucket {self._buckets}", error)
        self._buckets += 1

    def _receive(self, pairs: list[tuple[str, torch.Tensor]]) -> None:
        for name, tensor in pairs:
            waiting = self._waiting[name]
            if waiting:
                self._arrived(waiting.popleft(), name, tensor)
            else:
                self._found("lost", f"{name!r} arrived, though it was not handed over or had arrived before")
        nbytes = sum(tensor.nbytes for _, tensor in pairs)
        if nbytes > self._limit and len(pairs) > 1:
            what = f"bucket {self._buckets} has {nbytes} bytes in {len(pairs)} items, and the limit is {self._limit}"
            self._found("over-limit", what, nbytes=nbytes)
        self._look_for_spare(pairs)
        self._flushed = [weakref.ref(tensor) for _, tensor in pairs]

    def _arrived(self, given: _Given, name: str, tensor: torch.Tensor) -> None:
        if given.number < self._last:
            self._found("reordered", f"{name!r} (item {given.number}) arrived after item {self._last}", given.record)
        self._last = max(self._last, given.number)
        if (tensor.dtype, tuple(tensor.shape)) != (given.dtype, tuple(given.shape)):
            due, here = f"{given.dtype} {tuple(given.shape)}", f"{tensor.dtype} {tuple(tensor.shape)}"
            self._found("altered", f"{name!r} (item {given.number}) was handed over as {due} and arrived as {here}")
        elif given.record is not None:
            self._compare(given.record, tensor)

    def _compare(self, record: Record, tensor: torch.Tensor) -> None:
        storage = tensor.untyped_storage()
        layout = layout_of(tensor)
        is_lazy = tensor.is_conj() or tensor.is_neg() or record.is_lazy
        on_host = storage.device.type == "cpu" or (layout.dense and record.layout.dense)
        if record.digest is not None and not is_lazy and on_host:
            name = record.name
            what = f"{name!r} (item {record.index}) arrived with other bits than it was handed over with"
            answer = changed(record.digest, read(storage, layout, whole=self._auditor.whole))
            self._auditor.pending.ask(answer, lambda is_so: self._found("altered", what, record) if is_so else None)
        is_kept = storage._cdata == record.region.key
        owed = record.exclusive and record.layout.dense and record.layout.nbytes == record.region.nbytes
        if owed and not record.is_lazy and not is_kept:
            what = f"{record.name!r} (item {record.index}): its bytes were copied, though nobody else could reach them"
            self._found("copied", what, record, record.layout.nbytes)

    def _look_for_spare(self, pairs: list[tuple[str, torch.Tensor]]) -> None:
        shown: dict[int, int] = defaultdict(int)
        held: dict[int, tuple[int, str]] = {}
        for name, tensor in pairs:
            storage = tensor.untyped_storage()
            shown[storage._cdata] += tensor.nbytes
            held[storage._cdata] = storage.nbytes(), name
        for key, (nbytes, name) in held.items():
            if nbytes > shown[key]:
                what = f"{name!r}: its bucket holds {nbytes} bytes of storage to show {shown[key]}"
                self._found("bucket-pins", what, nbytes=nbytes - shown[key])

    def _found(self, kind: Kind, what: str, record: Record | None = None, nbytes: int = 0) -> None:
        def make() -> Finding:
            items = () if record is None else (record.handed_over(),)
            return Finding(kind, what, items, None, nbytes)

        self.ledger.found(kind, make)

    def end(self, ended: str) -> None:
        """There are no more buckets. Only the first time counts."""
        if self._ended:
            return
        self._ended = ended
        if ended == "completed":
            for name, waiting in self._waiting.items():
                for given in waiting:
                    self._found("lost", f"{name!r} (item {given.number}) never arrived", given.record)
        self._auditor.end(ended)
        self._auditor.tell(self._on_summary, self.summary())

    def summary(self) -> Summary:
        """What is known by now."""
        ended = self._ended
        return replace(self._auditor.summary(), source=self._source, ended=ended, bucketer=True)


class _WatchedBuckets:
    """What the two kinds of bucket streams share."""

    def __init__(self, buckets: Any, sides: Sides) -> None:
        self._buckets, self._sides = buckets, sides

    @property
    def summary(self) -> Summary:
        """What is known by now; once the buckets have ended, all that there is to know."""
        return self._sides.summary()

    def _end(self, ended: str) -> None:
        """Raise what was found at the very end, if that was asked for."""
        self._sides.end(ended)
        if refusal := self._sides.ledger.refused():
            raise refusal

    def __del__(self) -> None:
        if hasattr(self, "_sides"):
            self._sides.end("abandoned")


class WatchedBuckets(_WatchedBuckets):
    """The buckets of a watched bucketer."""

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        self._sides.asked()
        try:
            bucket = next(self._buckets)
        except StopIteration:
            self._end("completed")
            raise
        except BaseException as error:
            self._sides.end(how(error))
            raise
        self._sides.received(bucket)
        if refusal := self._sides.ledger.refused():
            del bucket
            self._sides.end(how(refusal))
            _close(self._buckets)
            raise refusal
        return bucket

    def close(self) -> None:
        """End here, and close the bucketer if it can be closed."""
        self._sides.end("closed")
        _close(self._buckets)


class WatchedAsyncBuckets(_WatchedBuckets):
    """The buckets of a watched async bucketer."""

    def __aiter__(self) -> AsyncIterator[Any]:
        return self

    async def __anext__(self) -> Any:
        self._sides.asked()
        try:
            if inspect.isawaitable(self._buckets):
                self._buckets = _buckets_of(await self._buckets)
            bucket = await self._buckets.__anext__()
        except StopAsyncIteration:
            self._end("completed")
            raise
        except BaseException as error:
            self._sides.end(how(error))
            raise
        self._sides.received(bucket)
        if refusal := self._sides.ledger.refused():
            del bucket
            self._sides.end(how(refusal))
            await _aclose(self._buckets)
            raise refusal
        return bucket

    async def aclose(self) -> None:
        """End here, and close the bucketer if it can be closed."""
        self._sides.end("closed")
        await _aclose(self._buckets)


def _buckets_of(result: Any) -> AsyncIterator[Any]:
    """What a coroutine returned, as an async iterator."""
    return _async_iterator(result if hasattr(result, "__aiter__") else buckets_of(result))


_OUTER = frozenset({WatchedBuckets.__next__.__code__, WatchedAsyncBuckets.__anext__.__code__})
