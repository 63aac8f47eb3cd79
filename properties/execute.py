"""`execute(target, plan) -> Run`: drive a target through a planned stream, and see what it does.

Four kinds of evidence are taken, since each misses what another sees: bits are read, overwritten at the source and
read again; addresses are compared; lifetimes are watched through weak references; and a ledger counts what is
allocated. What is held here are the buckets, as a consumer holds them, and nothing of a hand-over.
"""

from __future__ import annotations

import asyncio
import gc
import inspect
import itertools
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from bucketproof.properties.evidence import Facts, Span, bits, facts, watch
from bucketproof.properties.ledger import Ledger
from bucketproof.properties.limits import Hang, time_limit
from bucketproof.properties.run import Delivered, Event, HandOver, Moment, Run
from bucketproof.properties.target import Target, is_asynchronous
from bucketproof.strategies import Plan, Stream

_MODES: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "enabled": torch.enable_grad,
    "no_grad": torch.no_grad,
    "inference": torch.inference_mode,
}


class Malformed(Exception):
    """The target yielded something that is no bucket of `(name, tensor)` pairs."""


class NotABucketer(ValueError):
    """What the target returns is no iterable of buckets at all."""


def execute(target: Target, plan: Plan) -> Run:
    """Run a plan. Whatever the target does, raising and hanging included, is told by the run."""
    run = Run(plan, asynchronous=target.is_async, again=lambda other: execute(target, other))
    consumer = _Consumer(run)
    try:
        with time_limit(), _MODES[plan.grad_mode]():
            consumer.drive(target)
    except (Exception, Hang) as error:
        run.error = _bare(error)
        run.events.append(Event("raised", text=_in_words(error)))
    consumer.finish()
    return run


def _bare(error: BaseException) -> BaseException:
    """Without frames, which would hold what their locals name."""
    error.__cause__ = error.__context__ = None
    return error.with_traceback(None)


def _in_words(error: BaseException) -> str:
    first = str(error).strip().split("\n")[0]
    return first if isinstance(error, (Malformed, Hang)) else f"{type(error).__name__}: {first}"


class _Consumer:
    """Whoever receives the buckets, and takes notes."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._ledger = Ledger()
        self._watched: list[StorageWeakRef] = []
        self._waiting: dict[str, deque[int]] = defaultdict(deque)
        self._held: list[list[tuple[Delivered, torch.Tensor]]] = []
        self._stream = Stream(
            run.plan,
            produced=self._produced,
            overwritten=lambda: run.events.append(Event("overwritten")),
            working=self._ledger.suspended,
        )

    def drive(self, target: Target) -> None:
        """Consume every bucket of the target."""
        weights = self._stream.iterable(asynchronous=target.is_async)
        with self._ledger:
            result = target.call(weights, self._run.plan.bucket_bytes)
        del weights
        if is_asynchronous(result):
            asyncio.run(self._consume_async(result))
        else:
            self._consume(_iterator(result))
        self._run.events.append(Event("ended"))

    def _consume(self, buckets: Iterator[Any]) -> None:
        while True:
            with self._ledger:
                try:
                    bucket = next(buckets)
                except StopIteration:
                    return
            self._receive(bucket)
            del bucket

    async def _consume_async(self, result: Any) -> None:
        with self._ledger:
            if inspect.isawaitable(result):
                result = await result
        if not hasattr(result, "__aiter__"):
            return self._consume(_iterator(result))
        buckets = result.__aiter__()
        while True:
            with self._ledger:
                try:
                    bucket = await buckets.__anext__()
                except StopAsyncIteration:
                    return None
            self._receive(bucket)
            del bucket

    def finish(self) -> None:
        """Let every lender write, read the buckets once more, and see what outlives the producer."""
        self._read_again("end", self._held)
        self._stream.finish()
        self._read_again("overwritten", self._held)
        self._stream.let_go()
        self._run.copies = self._ledger.copies
        if self._run.completed:
            self._look_for_pinned()

    def _produced(self, index: int, tensor: torch.Tensor) -> None:
        item = self._run.plan.items[index]
        handed_over = HandOver(index, item, facts(tensor))
        self._run.handed_over.append(handed_over)
        self._run.events.append(Event("produced", index))
        self._ledger.handed_over(index, handed_over.facts.storage_id, handed_over.facts.nbytes)
        self._watched.append(watch(tensor))
        self._waiting[item.name].append(index)

    def _receive(self, bucket: Any) -> None:
        number = self._run.buckets
        pairs = _pairs(bucket, number)
        del bucket
        self._run.buckets += 1
        self._run.events.append(Event("delivered", number))
        lent = [Span(buffer.start, buffer.end) for buffer in self._stream.buffers]
        noted = [(self._note(number, name, tensor, lent), tensor) for name, tensor in pairs]
        self._run.delivered.extend(delivered for delivered, _ in noted)
        self._read_again("held", self._held[-1:])
        self._stream.delivered(max((d.index for d, _ in noted if d.index is not None), default=0))
        if self._run.plan.consumer == "hold":
            self._held.append(noted)

    def _note(self, bucket: int, name: str, tensor: torch.Tensor, lent: list[Span]) -> Delivered:
        seen = facts(tensor)
        waiting = self._waiting[name]
        index = waiting.popleft() if waiting else None
        return Delivered(
            bucket=bucket,
            name=name,
            facts=seen,
            lent=any(seen.storage.overlaps(span) for span in lent),
            index=index,
            kept=index is not None and self._is_kept(seen, index),
        )

    def _is_kept(self, seen: Facts, index: int) -> bool:
        given = self._run.handed_over[index].facts
        same = (seen.storage_id, seen.span) == (given.storage_id, given.span)
        return same and not self._watched[index].expired()  # else the address came round again

    def _read_again(self, moment: Moment, held: list[list[tuple[Delivered, torch.Tensor]]]) -> None:
        for delivered, tensor in itertools.chain.from_iterable(held):
            delivered.later.append((moment, bits(tensor)))

    def _look_for_pinned(self) -> None:
        """Find storages of hand-overs that are alive, though the producer has let go and no bucket is made of them."""
        needed = {tensor.untyped_storage()._cdata for noted in self._held for _, tensor in noted}
        alive = {i: ref for i, ref in enumerate(self._watched) if ref.cdata not in needed and not ref.expired()}
        if alive:
            gc.collect()  # what only a cycle held is not pinned
        self._run.pinned = {
            i: self._run.handed_over[i].facts.storage.nbytes for i, ref in alive.items() if not ref.expired()
        }


def _iterator(result: Any) -> Iterator[Any]:
    if result is None:
        raise Malformed("the target returned None: return or yield the buckets")
    if not isinstance(result, Iterable) or isinstance(result, (str, bytes, Mapping, torch.Tensor)):
        raise NotABucketer(f"it returned {_kind(result)}, which is no iterable of buckets")
    return iter(result)


def _pairs(bucket: Any, number: int) -> list[tuple[str, torch.Tensor]]:
    """The members of a bucket: a sequence of pairs, or a mapping."""
    if not isinstance(bucket, Iterable) or isinstance(bucket, (str, bytes, torch.Tensor)):
        raise Malformed(f"bucket {number} is {_kind(bucket)}: yield a sequence of (name, tensor) pairs, or a mapping")
    pairs = list(bucket.items() if isinstance(bucket, Mapping) else bucket)
    for pair in pairs:
        if not isinstance(pair, (tuple, list)) or len(pair) != 2:
            raise Malformed(f"bucket {number} holds {_kind(pair)} where a (name, tensor) pair should be")
        name, tensor = pair
        if not isinstance(name, str) or not isinstance(tensor, torch.Tensor):
            raise Malformed(
                f"bucket {number} holds ({_kind(name)}, {_kind(tensor)}) where a (name, tensor) pair should be"
            )
    return pairs


def _kind(thing: Any) -> str:
    return "None" if thing is None else f"a {type(thing).__name__}"
