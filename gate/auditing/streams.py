"""The watched stream: an iterator, sync or async, that yields what its producer yields and keeps none of it."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Iterator, Mapping
from itertools import chain
from typing import Any

from bucketproof.auditing.custody import RULES, known
from bucketproof.auditing.findings import AuditError
from bucketproof.auditing.ledger import OnFinding
from bucketproof.auditing.stacks import standing
from bucketproof.auditing.summary import Summary
from bucketproof.auditing.watch import Auditor, OnSummary, how
from bucketproof.reference.sound import _aclose, _close

WINDOW = 1 << 16
SAMPLE = 1 << 28


def audit(
    weights: Any,
    *,
    on_finding: OnFinding | None = "warn",
    on_summary: OnSummary | None = None,
    window: int = WINDOW,
    sample: int | None = SAMPLE,
    rules: Iterable[str] = RULES,
) -> Any:
    """Watch a producer of `(name, tensor)` pairs, sync or async, and yield what it yields: the same objects.

        weights = audit(weights, on_summary=print)

    What spoils values or memory is warned of, or raised as an `AuditError` (`on_finding="raise"`) before the hand-over
    at which it was seen. A callable is called with every `Finding`, the first of each kind and place; an `AuditError`
    that it raises ends the stream, and anything else it raises is noted. With None, there is no audit, and what is
    returned is `weights` itself.

    `on_summary` is called with the `Summary` when the stream ends, in whatever way; it is `.summary` too.

    `window` is how many of the hand-overs that were looked at closely are remembered. `sample` is how many bytes go
    by between two close looks, behind the first hand-overs and beside what is remarkable at a glance: 0 looks closely
    at every hand-over, and None also reads all of its bytes. `rules` are the
    compaction rules whose decisions are compared with what is seen.

    Raises `TypeError` or `ValueError` for arguments that make no sense.
    """
    if on_finding is None:
        return weights
    is_asynchronous = _is_asynchronous(weights)
    iterator = aiter(weights) if is_asynchronous else iter(weights)
    auditor = Auditor(
        on_finding=on_finding,
        on_summary=on_summary,
        window=_whole("window", window, 1),
        sample=sample if sample is None else _whole("sample", sample, 0),
        rules=known(rules),
        source=_named(iterator),
        where=standing(iterator),
    )
    return WatchedAsync(iterator, auditor) if is_asynchronous else Watched(iterator, auditor)


def _is_asynchronous(weights: Any) -> bool:
    if isinstance(weights, Mapping):
        raise TypeError("audit() takes (name, tensor) pairs, but got a mapping: give its .items()")
    if not isinstance(weights, (Iterable, AsyncIterable)):
        raise TypeError(f"audit() takes an iterable of (name, tensor) pairs, but got {type(weights).__name__}")
    return isinstance(weights, AsyncIterable)


def _whole(name: str, value: object, least: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ValueError(f"{name}={value!r} is no whole number from {least} on")
    return value


def _named(iterator: object) -> str:
    return str(getattr(iterator, "__qualname__", type(iterator).__qualname__))


class _Watched:
    """What the two kinds of stream share."""

    _auditor: Auditor

    @property
    def summary(self) -> Summary:
        """What is known by now; once the stream has ended, all that there is to know."""
        return self._auditor.summary()

    def __del__(self, is_ending: Callable[[], bool] = sys.is_finalizing) -> None:
        if hasattr(self, "_auditor") and not is_ending():
            self._auditor.end("abandoned")


class Watched(_Watched, chain[Any]):
    """A watched iterator. It is a chain of a single link, which costs next to nothing to be advanced."""

    def __new__(cls, iterator: Iterator[Any], auditor: Auditor) -> Watched:
        """Watch an iterator."""
        return super().__new__(cls, auditor.passed_on(iterator))

    def __init__(self, iterator: Iterator[Any], auditor: Auditor) -> None:
        self._iterator, self._auditor = iterator, auditor

    def close(self) -> None:
        """End the stream, and close the producer if it can be closed."""
        self._auditor.end("closed")
        _close(self._iterator)


class WatchedAsync(_Watched):
    """A watched async iterator."""

    def __init__(self, iterator: AsyncIterator[Any], auditor: Auditor) -> None:
        self._iterator, self._auditor = iterator, auditor
        self._given: list[Any] = []
        self._passed_on = auditor.passed_on(_taken(self._given))

    def __aiter__(self) -> WatchedAsync:
        return self

    async def __anext__(self) -> Any:
        if self._auditor.sides is not None:
            self._auditor.sides.pulled()
        try:
            self._given.append(await self._iterator.__anext__())
        except StopAsyncIteration:
            self._auditor.end("completed")
            if refusal := self._auditor.ledger.refused():
                raise refusal from None
            raise
        except BaseException as error:
            self._auditor.end(how(error))
            raise
        try:
            return next(self._passed_on)
        except AuditError:
            await _aclose(self._iterator)
            raise
        except StopIteration:  # it was refused before
            raise StopAsyncIteration from None

    async def aclose(self) -> None:
        """End the stream, and close the producer if it can be closed."""
        self._auditor.end("closed")
        await _aclose(self._iterator)


def _taken(given: list[Any]) -> Iterator[Any]:
    """Whatever is in the list by the time that it is asked for."""
    while True:
        yield given.pop()
