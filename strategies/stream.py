"""The producer of a planned run: it builds each hand-over when it is asked for, and lets go of it at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Hashable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch

from bucketproof.strategies.custody import Custody
from bucketproof.strategies.devices import CPU, DEVICES
from bucketproof.strategies.dtypes import DTYPES
from bucketproof.strategies.memory import Buffer, Lending, Lent, Memory, Private, Through, version
from bucketproof.strategies.plans import Item, Plan
from bucketproof.strategies.provenances import LAYOUTS, OPS, PROVENANCES
from bucketproof.strategies.provenances.registry import FIRST_OPS

Pair = tuple[str, torch.Tensor]


def build(item: Item, memory: Memory) -> torch.Tensor:
    """The tensor that an item describes, out of `memory`."""
    if item.layout != "contiguous":
        memory = Through(LAYOUTS[item.layout].build, memory)
    for op in item.ops:
        memory = Through(OPS.get(op) or FIRST_OPS[op], memory)
    return PROVENANCES[item.provenance].build(item.shape, DTYPES[item.dtype], memory)


class ProducerError(Exception):
    """What a planned producer raises."""


class ProducerExit(BaseException):
    """The same, for those who expect nothing but an `Exception`."""


_RAISED: dict[str, type[BaseException]] = {
    "error": ProducerError,
    "exit": ProducerExit,
    "late-error": ProducerError,
}


class Stream:
    """A producer at work. It holds what lenders and sharers hold in life, and no hand-over.

    `produced(index, tensor)` is called for each hand-over before it is yielded, and must not keep the tensor;
    `overwritten(buffer)` is called when a lender has written over a buffer that it had lent; `working()` is entered
    while the producer works; `suspending(index)` is called where an asynchronous one is about to wait for an item.
    It is built on a device, by its id in `DEVICES`. What goes wrong there as a weight is made is nobody's but the
    suite's, and is kept in `unbuilt`.
    """

    def __init__(
        self,
        plan: Plan,
        *,
        device: str = CPU,
        produced: Callable[[int, torch.Tensor], None] = lambda index, tensor: None,
        overwritten: Callable[[Buffer], None] = lambda buffer: None,
        working: Callable[[], AbstractContextManager[None]] = nullcontext,
        suspending: Callable[[int], None] = lambda index: None,
        raising: Callable[[BaseException], object] = lambda error: None,
    ) -> None:
        self.plan = plan
        self.pulled = 0
        self.exhausted = False
        self.closed = False
        """Whether the producer has ended, in whatever way."""
        self.raised: BaseException | None = None
        """What the producer has raised, as planned."""
        self.unbuilt: Exception | None = None
        """What has kept a device from making a weight."""
        self._device = DEVICES[device]
        self._produced = produced
        self._working = working
        self._suspending = suspending
        self._raising = raising
        self._patient = plan.iterable == "list" or plan.retention == "at-flush"
        self._lendings = [
            Lending(lender, bucket_bytes=plan.bucket_bytes, patient=self._patient, on_overwrite=overwritten)
            for lender in plan.lenders
        ]
        self._kept: dict[Hashable, Any] = {}
        self._states: dict[Hashable, list[tuple[bool, int]]] = {}

    @property
    def buffers(self) -> Iterator[Buffer]:
        """All memory of all lenders."""
        return (buffer for lending in self._lendings for buffer in lending.buffers)

    def lends(self, start: int, end: int) -> bool:
        """Whether some of these addresses are memory that a lender may write."""
        return any(lending.reaches(start, end) for lending in self._lendings)

    def iterable(self, *, asynchronous: bool = False) -> Any:
        """The weights, as the kind of iterable that the plan names, or its synchronous form."""
        kind = self.plan.iterable if asynchronous else self.plan.iterable.removeprefix("async-")
        pairs = self._pairs()
        return self._async_generator(pairs) if kind == "async-generator" else _ITERABLES[kind](pairs)

    def delivered(self, before: int) -> None:
        """A bucket was delivered, and with it all items before that number: its boundary lets some lenders write."""
        for lending in self._lendings:
            lending.boundary(self._released(before))

    def overwrite(self, before: int) -> None:
        """Every lender writes now whatever it may write, when all items before that number were delivered."""
        for lending in self._lendings:
            lending.finish(self._released(before))

    def _released(self, before: int) -> int:
        # Whoever was pulled last may still be in the bucketer's hands, until the producer is advanced.
        return before if self._patient else self.pulled - 1

    def finish(self) -> None:
        """The stream is over: every lender writes what it had lent."""
        for lending in self._lendings:
            lending.finish()

    def disturbed(self) -> Iterator[str]:
        """What somebody else has done to the memory of lenders and sharers. Complete once it is finished."""
        if any(buffer.touched for buffer in self.buffers):
            yield "memory that was lent was written to"
        if any(_state(self._kept[key]) != before for key, before in self._states.items()):
            yield "requires_grad or the version counter of shared memory was changed"

    def let_go(self) -> None:
        """Drop all memory, as a producer does that is done."""
        self._lendings.clear()
        self._kept.clear()

    def _pairs(self) -> Iterator[Pair]:
        try:
            for index in range(len(self.plan.items)):
                self._raise_at(index)
                # Nothing here may name the tensor: a generator's locals live on while it is suspended.
                yield self._hand_over(index)
            self._raise_at(len(self.plan.items))
            with self._working():
                self._advance()
            self.exhausted = True
        finally:
            self.closed = True
            if self.plan.ends == "late-error":
                self._raise()

    async def _async_generator(self, pairs: Iterator[Pair]) -> AsyncIterator[Pair]:
        try:
            while True:
                self._suspending(self.pulled)
                await asyncio.sleep(0)
                try:
                    yield next(pairs)
                except StopIteration:
                    return
        finally:
            pairs.close()  # type: ignore[attr-defined]
            self.closed = True  # also where the first item was never reached

    def _raise_at(self, index: int) -> None:
        if self.plan.ends in ("error", "exit") and index == self.plan.ends_at:
            self._raise()

    def _raise(self) -> None:
        self.raised = _RAISED[self.plan.ends](f"planned, at item {self.pulled}")
        self._raising(self.raised)
        raise self.raised

    def _hand_over(self, index: int) -> Pair:
        item = self.plan.items[index]
        with self._working(), _mode(self.plan.grad_mode == "enabled"):
            if index:
                self._advance()
            tensor = self._built(item)
            self.pulled = index + 1
            self._seal()
            self._produced(index, tensor)
        return item.name, tensor

    def _built(self, item: Item) -> torch.Tensor:
        try:
            return build(item, self._memory(item))
        except Exception as error:
            if self._device.id != CPU:
                self.unbuilt = error
            raise

    def _seal(self) -> None:
        for lending in self._lendings:
            lending.seal()
        for key, kept in reversed(self._kept.items()):
            if key in self._states:
                break  # what came before it is known, too
            self._states[key] = _state(kept)

    def _advance(self) -> None:
        for lending in self._lendings:
            lending.advance()

    def _memory(self, item: Item) -> Memory:
        provenance = PROVENANCES[item.provenance]
        options: dict[str, Any] = {
            "finite": _is_computed(item),
            "boolean": item.dtype == "bool",
            "device": self._device.where if self.plan.device == CPU else self.plan.device,
            "kept": self._kept,
        }
        if provenance.custody is not Custody.LENT:
            return Private(item.seed, padded=provenance.custody is Custody.PARTIAL, **options)
        lending = self._lendings[item.lender]
        return Lent(lending, item.seed, home=provenance.home, exact=provenance.exact, **options)


def _mode(is_tracked: bool) -> AbstractContextManager[object]:
    """What weights are made under. Views must be real ones also where the consumer is in inference mode."""
    if torch.is_inference_mode_enabled() or torch.is_grad_enabled() != is_tracked:
        return _entered(is_tracked)
    return _AS_IT_IS


_AS_IT_IS = nullcontext()


@contextmanager
def _entered(is_tracked: bool) -> Iterator[None]:
    with torch.inference_mode(False), torch.set_grad_enabled(is_tracked):
        yield


def _is_computed(item: Item) -> bool:
    return not (LAYOUTS[item.layout].plain and PROVENANCES[item.provenance].plain)


class _Iterator:
    """An iterator that is no generator."""

    def __init__(self, pairs: Iterator[Pair]) -> None:
        self._pairs = pairs

    def __iter__(self) -> _Iterator:
        return self

    def __next__(self) -> Pair:
        return next(self._pairs)


class _AsyncIterator:
    """An asynchronous iterator that is no generator."""

    def __init__(self, pairs: Iterator[Pair]) -> None:
        self._pairs = pairs

    def __aiter__(self) -> _AsyncIterator:
        return self

    async def __anext__(self) -> Pair:
        for pair in self._pairs:
            return pair
        raise StopAsyncIteration


def _state(kept: Any) -> list[tuple[bool, int]]:
    tensors = kept.parameters() if isinstance(kept, torch.nn.Module) else [kept] if torch.is_tensor(kept) else []
    return [(tensor.requires_grad, version(tensor)) for tensor in tensors]


_ITERABLES: dict[str, Callable[[Iterator[Pair]], Any]] = {
    "generator": lambda pairs: pairs,
    "iterator": _Iterator,
    "list": list,
    "async-iterator": _AsyncIterator,
}
