"""The watched stream: an iterator, sync or async, that yields what its producer yields and keeps none of it."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterable, Callable, Iterable, Mapping
from typing import Any

from bucketproof.auditing.custody import RULES, known
from bucketproof.auditing.ledger import OnFinding
from bucketproof.auditing.stacks import standing
from bucketproof.auditing.summary import Summary
from bucketproof.auditing.watch import Auditor, OnSummary
from bucketproof.reference.sound import _aclose, _close

WINDOW = 1 << 16
SAMPLE = 1 << 26


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

    def __init__(self, iterator: Any, auditor: Auditor) -> None:
        self._iterator, self._auditor, self._ledger = iterator, auditor, auditor.ledger
        self.pulled: Callable[[], None] | None = None
        """Called when the producer is about to be advanced."""

    @property
    def summary(self) -> Summary:
        """What is known by now; once the stream has ended, all that there is to know."""
        return self._auditor.summary()

    def _end(self, ended: str) -> None:
        """Raise what was found at the very end, if that was asked for."""
        self._auditor.end(ended)
        if refusal := self._auditor.ledger.refused():
            raise refusal

    def __del__(self, is_ending: Callable[[], bool] = sys.is_finalizing) -> None:
        if hasattr(self, "_auditor") and not is_ending():
            self._auditor.end("abandoned")


class Watched(_Watched):
    """A watched iterator."""

    def __init__(self, iterator: Any, auditor: Auditor) -> None:
        super().__init__(iterator, auditor)
        self._next = iterator.__next__
        self._saw = auditor.saw

    def __iter__(self) -> Watched:
        return self

    def __next__(self) -> Any:
        if self.pulled is not None:
            self.pulled()
        try:
            pair = self._next()
        except StopIteration:
            self._end("completed")
            raise
        except BaseException as error:
            self._auditor.end(how(error))
            raise
        if self._saw(pair):
            del pair  # the traceback would hold it
            self._refuse()
        return pair

    def _refuse(self) -> None:
        """Raise what was found in place of the hand-over at which it was."""
        refusal = self._ledger.refused()
        assert refusal is not None
        self._auditor.end(how(refusal))
        _close(self._iterator)
        raise refusal

    def close(self) -> None:
        """End the stream, and close the producer if it can be closed."""
        self._auditor.end("closed")
        _close(self._iterator)


class WatchedAsync(_Watched):
    """A watched async iterator."""

    def __aiter__(self) -> WatchedAsync:
        return self

    async def __anext__(self) -> Any:
        if self.pulled is not None:
            self.pulled()
        try:
            pair = await self._iterator.__anext__()
        except StopAsyncIteration:
            self._end("completed")
            raise
        except BaseException as error:
            self._auditor.end(how(error))
            raise
        self._auditor.saw(pair)
        if refusal := self._ledger.refused():
            del pair
            self._auditor.end(how(refusal))
            await _aclose(self._iterator)
            raise refusal
        return pair

    async def aclose(self) -> None:
        """End the stream, and close the producer if it can be closed."""
        self._auditor.end("closed")
        await _aclose(self._iterator)


def how(error: BaseException) -> str:
    """How a stream ended that raised."""
    if isinstance(error, asyncio.CancelledError):
        return "cancelled"
    if isinstance(error, GeneratorExit):
        return "closed"
    text = str(error).strip().split("\n")[0]
    return f"failed: {type(error).__name__}{f': {text}' if text else ''}"
