"""`execute(target, plan) -> Run`: drive a target through a planned stream, and see what it does."""

from __future__ import annotations

import asyncio
import gc
import inspect
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import partial
from typing import Any

import torch

from bucketproof.properties.buckets import Malformed, buckets_of
from bucketproof.properties.consumer import Consumer
from bucketproof.properties.ledger import same_modes
from bucketproof.properties.limits import Hang, seconds_for, time_limit
from bucketproof.properties.run import Event, Run
from bucketproof.properties.surroundings import undisturbed
from bucketproof.properties.target import Target, is_asynchronous
from bucketproof.strategies import DEVICES, PROVENANCES, Plan
from bucketproof.strategies.devices import CPU
from bucketproof.strategies.stream import ProducerError, ProducerExit

MODES: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "enabled": torch.enable_grad,
    "no_grad": torch.no_grad,
    "inference": torch.inference_mode,
}
_FAULTS = (Exception, Hang, ProducerExit, asyncio.CancelledError, GeneratorExit, SystemExit)
"""What can come out of a target. Whatever else does is for whoever runs us, such as a KeyboardInterrupt."""


def execute(target: Target, plan: Plan, *, device: str = CPU) -> Run:
    """Run a plan. Whatever the target does, raising and hanging included, is told by the run.

    Its weights are made on a device of `DEVICES`. Raises what keeps that device from making them.
    """
    (run,) = execute_together(target, plan, device=device)
    return run


@same_modes()
def execute_together(target: Target, *plans: Plan, device: str = CPU) -> list[Run]:
    """Run plans on one target, a bucket of each in turn, under the grad mode of the first."""
    again = execute_together if device == CPU else partial(execute_together, device=device)
    if device != CPU:
        _get_ready(device, plans)
    with undisturbed(device) as disturbed, _quiet():
        runs = [Run(plan, asynchronous=target.is_async, target=target, device=device, execute=again) for plan in plans]
        _carry_out(target, runs)
        if any(run.alive() for run in runs):
            gc.collect()  # what only a cycle held is not kept
    for run in runs:
        run.traces.extend(f"{each}: not as before after the run" for each in disturbed)
    return runs


def _get_ready(device: str, plans: tuple[Plan, ...]) -> None:
    """What takes seconds the first time is done before the time of a run begins."""
    DEVICES[device].get_ready()
    if any(PROVENANCES[item.provenance].home == "opened" for plan in plans for item in plan.items):
        # Only now, for few runs need it.
        from bucketproof.properties.cuda import lender

        lender.get_ready(device)


def _carry_out(target: Target, runs: list[Run]) -> None:
    with MODES[runs[0].plan.grad_mode]():
        consumers = [Consumer(run) for run in runs]
        drives = [Drive(target, consumer, counted=len(runs) == 1) for consumer in consumers]
        if target.is_async:
            limited(runs, lambda: asyncio.run(_together(drives)))
        else:
            limited(runs, lambda: _in_turn(drives))
        for drive in drives:
            drive.end()
        for consumer in consumers:
            consumer.look_around("after the run")
    for consumer in consumers:
        consumer.finish()
        unbuilt = consumer.stream.unbuilt
        consumer.release()
        if unbuilt:
            raise unbuilt


@contextmanager
def _quiet() -> Iterator[None]:
    """What a producer raises as planned, and the end of the time, may come out where nobody can catch it."""
    hook = sys.unraisablehook

    def tell(unraisable: sys.UnraisableHookArgs) -> None:
        if not isinstance(unraisable.exc_value, (ProducerError, ProducerExit, Hang)):
            hook(unraisable)

    sys.unraisablehook = tell
    try:
        yield
    finally:
        sys.unraisablehook = hook


def limited(runs: list[Run], drive: Callable[[], None]) -> None:
    """Drive some runs for as long as they may take. Whatever else comes out is told by them."""
    try:
        with time_limit(seconds_for(sum(len(run.plan.items) for run in runs))):
            drive()
    except _FAULTS as error:
        for run in runs:
            _fail(run, error)


def _fail(run: Run, error: BaseException) -> None:
    if run.error is None:
        run.error = _bare(error)
        run.events.append(Event("raised", text=_in_words(error)))


def _bare(error: BaseException) -> BaseException:
    """Without frames, which would hold what their locals name, nor the thing that lacks an attribute."""
    if isinstance(error, AttributeError):
        error.obj = None
    error.__cause__ = error.__context__ = None
    return error.with_traceback(None)


def _in_words(error: BaseException) -> str:
    first = str(error).strip().split("\n")[0]
    return first if isinstance(error, (Malformed, Hang)) else f"{type(error).__name__}: {first}"


def _in_turn(drives: list[Drive]) -> None:
    while drives:
        drives = [drive for drive in drives if drive.step()]


async def _together(drives: list[Drive]) -> None:
    await asyncio.gather(*(drive.supervise() for drive in drives))


class Drive:
    """One sync: a target at work for one consumer."""

    def __init__(self, target: Target, consumer: Consumer, *, counted: bool) -> None:
        self._target, self._consumer, self._run = target, consumer, consumer.run
        # Two syncs that take turns would leave each other's mode.
        self._counting: Callable[[], AbstractContextManager[Any]] = (
            (lambda: consumer.ledger) if counted else nullcontext
        )
        self._buckets: Any = None
        self._list: list[Any] | None = None
        """The weights, if they come as a list."""
        self._producer: Any = None
        """The producer, as a trainer has it, whose bucketer is closed: whoever relies on it to be let go of is seen."""

    def _call(self) -> Any:
        weights = self._consumer.stream.iterable(asynchronous=self._target.is_async)
        if isinstance(weights, list):
            self._list = weights
        elif self._run.plan.ends == "close":
            self._producer = weights
        with self._counting():
            return self._target.call(weights, self._run.plan.bucket_bytes)

    def end(self) -> None:
        """See that the caller's list is as it was, and let go of it."""
        if self._list is not None and len(self._list) != len(self._run.plan.items):
            self._run.traces.append("the list of weights was changed")
        self._list = self._producer = None

    # A synchronous target.

    def step(self) -> bool:
        """Consume one bucket, and say whether there may be more."""
        try:
            if self._buckets is None:
                self._buckets = buckets_of(self._call())
            if self._is_time_to_close():
                return self._close()
            with self._counting():
                bucket = next(self._buckets)
            self._consumer.receive(bucket)
            return True
        except StopIteration:
            self._run.events.append(Event("ended"))
        except _FAULTS as error:
            _fail(self._run, error)
            with suppress(*_FAULTS, StopIteration):
                next(self._buckets)
                self._run.followed = True
        self._buckets = None
        return False

    def _close(self) -> bool:
        self._note_closing()
        if hasattr(self._buckets, "close"):
            with self._counting():
                self._buckets.close()
        self._buckets = None
        self._see_if_closed()
        return False

    def _note_closing(self) -> None:
        self._run.abandoned = True
        self._run.events.append(Event("closed"))

    def _see_if_closed(self) -> None:
        self._run.left_open = self._producer is not None and not self._consumer.stream.closed
        self._producer = None

    def _is_time_to_close(self) -> bool:
        return self._run.plan.ends == "close" and len(self._run.buckets) > self._run.plan.ends_at

    # An asynchronous one.

    async def supervise(self) -> None:
        """Consume every bucket in a task of its own, and see which tasks are left."""
        before = asyncio.all_tasks()
        await self._in_a_task(self._consume())
        await asyncio.sleep(0)  # what was cancelled may need a turn to end
        self._run.tasks_left = len(asyncio.all_tasks() - before)

    async def step_async(self) -> bool:
        """Consume one bucket in a task of its own, and say whether there may be more."""
        return await self._in_a_task(self._consume_one())

    async def _in_a_task(self, work: Coroutine[Any, Any, bool]) -> bool:
        task = asyncio.ensure_future(work)
        self._consumer.cancel = task.cancel
        await asyncio.wait({task})
        self._run.cancelled = task.cancelled()
        self._consumer.cancel = lambda: None
        return not task.cancelled() and task.result()

    async def _consume(self) -> bool:
        while await self._consume_one():
            await asyncio.sleep(0)
        return False

    async def _consume_one(self) -> bool:
        is_going = False
        try:
            if self._buckets is None:
                self._buckets = await self._open()
            is_going = await self._receive_from(self._buckets)
        except asyncio.CancelledError:
            raise
        except _FAULTS as error:
            _fail(self._run, error)
            with suppress(*_FAULTS, StopAsyncIteration):
                await self._buckets.__anext__()
                self._run.followed = True
        finally:
            if not is_going:
                self._buckets = None
        return is_going

    async def _open(self) -> AsyncIterator[Any]:
        result = self._call()
        if inspect.isawaitable(result):
            with self._counting():
                result = await result
        if is_asynchronous(result):
            buckets: AsyncIterator[Any] = result.__aiter__()
            return buckets
        return _asynchronously(buckets_of(result))

    async def _receive_from(self, buckets: AsyncIterator[Any]) -> bool:
        if self._is_time_to_close():
            self._note_closing()
            if hasattr(buckets, "aclose"):
                with self._counting():
                    await buckets.aclose()
            self._see_if_closed()
            return False
        with self._counting():
            try:
                bucket = await buckets.__anext__()
            except StopAsyncIteration:
                self._run.events.append(Event("ended"))
                return False
        self._consumer.receive(bucket)
        return True


async def _asynchronously(buckets: Iterator[Any]) -> AsyncIterator[Any]:
    for bucket in buckets:
        yield bucket
        del bucket
