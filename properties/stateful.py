"""The contract as a state machine: syncs begin, go on, fail and end in any order, several at a time.

    from bucketproof.properties.stateful import stateful
    from mine import get_named_tensor_buckets

    TestSyncs = stateful(get_named_tensor_buckets)

The cells of the contract judge one sync at a time, or two that are alike. Here Hypothesis chooses what happens next: a
sync is started or gives one more bucket, a bucket is dropped or written over, a lender writes, a producer fails, a
sync is closed or its task is cancelled. After each step everything that is held is read again. What fails is told as
the shortest series of steps that was found.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import replace
from typing import Any
from unittest import TestCase

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from bucketproof.properties.campaigns import drawn_for
from bucketproof.properties.consumer import Consumer
from bucketproof.properties.contract import PROPERTIES, Problem
from bucketproof.properties.judging import cheap_collections
from bucketproof.properties.promises import Promises
from bucketproof.properties.run import Run
from bucketproof.properties.running import MODES, Drive, execute_together, limited
from bucketproof.properties.surroundings import undisturbed
from bucketproof.properties.target import Target
from bucketproof.strategies import Custody, Plan
from bucketproof.strategies.plans import Ends

__all__ = ["state_machine_for", "stateful"]

SETTINGS = settings(
    settings.get_profile("default"),
    max_examples=50,
    stateful_step_count=25,
    deadline=None,  # the first call on a cold machine may take seconds
    suppress_health_check=(HealthCheck.too_slow, HealthCheck.data_too_large),
)
"""A few seconds. A series of steps is worth many plans, and one that fails is mostly short."""

AT_ONCE = 2
"""Syncs that may be under way. With more of them, few would live to see their second bucket."""

ALWAYS = (
    "aliasing.no-lent-memory",
    "values.order",
    "values.self-contained",
    "boundaries.limit",
    "boundaries.no-empty-bucket",
    "memory.released-after-flush",
    "memory.lookahead",
    "lifecycle.leaves-no-trace",
    "lifecycle.terminates",
)
"""Properties that hold of a sync at any time. Bits are compared here, after each step, whoever changed them."""

AT_THE_END: dict[Ends, tuple[str, ...]] = {
    "completed": (
        "aliasing.no-pinned-storage",
        "values.conserved",
        "boundaries.greedy",
        "lifecycle.drains-producer",
        "packing.round-trip",
        "packing.alignment",
        "packing.metadata",
    ),
    "error": ("lifecycle.producer-error",),
    "exit": ("lifecycle.producer-error",),
    "cancel": ("lifecycle.cancellation",),
    "close": (),
}
"""Properties that hold of a sync that is over, by how it ended."""


def stateful(target: Target | Callable[[Any, Any], Any], *, settings: settings = SETTINGS) -> type[TestCase]:
    """The test of a target by a state machine of its own, for pytest or unittest to collect.

    `target` is a `Target`, or a callable `(weights, bucket_bytes)`.
    """
    case: Any = state_machine_for(target).TestCase
    case.settings = settings
    return case  # type: ignore[no-any-return]


def state_machine_for(target: Target | Callable[[Any, Any], Any]) -> type[RuleBasedStateMachine]:
    """The machine itself, to be run or extended."""
    judged = target if isinstance(target, Target) else Target(getattr(target, "__qualname__", repr(target)), target)

    class Syncs(RuleBasedStateMachine):
        """Syncs of one target, each with its own producer and consumer."""

        def __init__(self) -> None:
            super().__init__()
            self.syncs: list[_Sync] = []
            self._has_failed = False
            # A rule cannot be asynchronous, and a sync outlives the rule that began it.
            self._loop = asyncio.new_event_loop()
            self._around = ExitStack()
            for each in (undisturbed(), cheap_collections()):
                self._around.enter_context(each)

        @precondition(lambda self: len(_under_way(self)) < AT_ONCE)
        @rule(plan=_plans(judged.promises))
        def start(self, plan: Plan) -> None:
            """A sync begins; its target is not called before it is advanced."""
            self.syncs.append(_Sync(judged, _of_its_own(plan, len(self.syncs)), self._loop))

        @precondition(lambda self: bool(_under_way(self)))
        @rule(sync=_one_of(_under_way))
        def advance(self, sync: int) -> None:
            """One more bucket is consumed, and held."""
            self.syncs[sync].advance()

        @precondition(lambda self: bool(_holding(self)))
        @rule(sync=_one_of(_holding), place=st.integers(0, 3), written=st.booleans())
        def drop(self, sync: int, place: int, written: bool) -> None:
            """A bucket is let go, the last one for 0; `written`, after it was emptied and written over."""
            consumer = self.syncs[sync].consumer
            consumer.drop(-1 - place % consumer.held, written=written)

        @precondition(lambda self: bool(_holding(self)))
        @rule(sync=_one_of(_holding))
        def overwrite(self, sync: int) -> None:
            """The lenders of a sync write what they may write."""
            self.syncs[sync].consumer.overwrite()

        # One rule for all ends: were each of them a rule, few syncs would live to see their second bucket.
        @precondition(lambda self: bool(_under_way(self)))
        @rule(sync=_one_of(_under_way), how=_ways_to_end(judged))
        def end(self, sync: int, how: Ends) -> None:
            """The producer raises as it is advanced, or the sync is closed, or cancelled while the producer waits."""
            self.syncs[sync].advance(how)

        @invariant()
        def keeps_the_contract(self) -> None:
            """What is delivered is as it was handed over, and stays so; no promise is broken so far."""
            self._check(_Sync.problems)

        def _check(self, look: Callable[[_Sync], Iterator[str]]) -> None:
            found = [f"sync {number}: {each}" for number, sync in enumerate(self.syncs) for each in look(sync)]
            self._has_failed |= bool(found)
            assert not found, "\n".join(found)

        def teardown(self) -> None:
            """All syncs are closed, and judged once more when every lender has written."""
            with self._around, closing(self._loop):
                for sync in self.syncs:
                    sync.finish()
                left = _end(self._loop)
                if not self._has_failed:
                    self._check(_Sync.final_problems)
                    assert not left, f"{left} tasks were left when every sync had ended"

    # Hypothesis keeps failing series by this name, so each target needs one of its own.
    Syncs.__name__ = Syncs.__qualname__ = re.sub(r"\W+", "_", f"SyncsOf_{judged.name}")
    return Syncs


def _under_way(machine: Any) -> list[int]:
    return [number for number, sync in enumerate(machine.syncs) if not sync.is_over]


def _holding(machine: Any) -> list[int]:
    return [number for number, sync in enumerate(machine.syncs) if sync.consumer.held]


def _one_of(numbers: Callable[[Any], list[int]]) -> st.SearchStrategy[int]:
    """The number of one of these syncs of the machine that draws."""
    return st.runner().flatmap(lambda machine: st.sampled_from(numbers(machine)))


@st.composite
def _plans(draw: st.DrawFn, promises: Promises) -> Plan:
    # Rules are told with the repr of what they draw from, and that of all plans is long: a composite hides it.
    return replace(draw(drawn_for("stateful", promises)), consumer="hold")


@st.composite
def _ways_to_end(draw: st.DrawFn, target: Target) -> Ends:
    ways: list[Ends] = ["close", "error", "exit"]
    return draw(st.sampled_from([*ways, "cancel"] if target.is_async else ways))


def _of_its_own(plan: Plan, number: int) -> Plan:
    """Weights with other content than those of any other sync, so that it shows if they are mixed."""
    return replace(plan, items=tuple(replace(item, seed=item.seed + 1000 * number) for item in plan.items))


class _Sync:
    """One sync under way."""

    def __init__(self, target: Target, plan: Plan, loop: asyncio.AbstractEventLoop) -> None:
        self.run = Run(plan, asynchronous=target.is_async, target=target, execute=execute_together)
        self.is_over = False
        self._loop = loop
        with MODES[plan.grad_mode]():
            self.consumer = Consumer(self.run)
            self._drive = Drive(target, self.consumer, counted=False)

    def advance(self, ends: Ends = "completed") -> None:
        """Consume one bucket, or see the sync end in this way if it comes to that."""
        if self.is_over:
            return
        self._plan(ends)
        with MODES[self.run.plan.grad_mode]():
            limited([self.run], self._step)
        self.is_over |= self.run.error is not None
        if not self._has_come(ends):
            self._plan("completed")
        self._take_stock()

    def _plan(self, ends: Ends) -> None:
        at = len(self.run.buckets) - 1 if ends == "close" else self.consumer.stream.pulled
        self.run.plan = self.consumer.stream.plan = replace(self.run.plan, ends=ends, ends_at=at)

    def _step(self) -> None:
        going = self._loop.run_until_complete(self._drive.step_async()) if self.run.asynchronous else self._drive.step()
        self.is_over = not going

    def _has_come(self, ends: Ends) -> bool:
        return {
            "error": self.run.raised or self.consumer.stream.raised,
            "exit": self.run.raised or self.consumer.stream.raised,
            "cancel": self.run.interrupted,
            "close": True,
        }.get(ends) not in (None, False)

    def _take_stock(self) -> None:
        stream = self.consumer.stream
        self.run.raised, self.run.exhausted, self.run.closed = stream.raised, stream.exhausted, stream.closed

    def finish(self) -> None:
        """End it, and let every lender write."""
        self.advance("close")
        self.consumer.finish()

    def problems(self) -> Iterator[str]:
        """What was not as it should be, at any time."""
        self.consumer.look_again()
        for number in self.run.changed:
            yield f"bucket {number} no longer has the members that it was yielded with"
        yield from _spoiled(self.run)
        yield from _broken(self.run, ALWAYS)

    def final_problems(self) -> Iterator[str]:
        """What was not as it should be, now that it is over."""
        yield from _spoiled(self.run)
        yield from _broken(self.run, (*ALWAYS, *AT_THE_END[self.run.plan.ends]))


def _spoiled(run: Run) -> Iterator[str]:
    """Weights that were not delivered as they were handed over, or did not stay so."""
    for delivered in run.delivered:
        if delivered.index is None:
            yield f"{delivered.name!r} arrived {run.surplus(delivered)}"
            continue
        given = run.handed_over[delivered.index]
        if given.custody is Custody.LENT and run.promises.retention not in ("on-arrival", "at-flush"):
            continue
        if not delivered.same_kind(given):
            yield f"{delivered.name!r} arrived with another shape or dtype"
        elif not delivered.as_given(given):
            yield f"{delivered.name!r} arrived with other bits"
        elif delivered.spoiled(("held", "end", "overwritten")):
            yield f"{delivered.name!r} has changed since it was delivered"


def _broken(run: Run, names: tuple[str, ...]) -> Iterator[str]:
    run = replace(run)  # one that has not yet been asked, for a run remembers its answers
    for name in names:
        prop = PROPERTIES[name]
        if not prop.unpromised(run.promises):
            yield from (f"{name}: {_subject(run, problem)}{problem.what}" for problem in prop.judge(run))


def _subject(run: Run, problem: Problem) -> str:
    return "" if problem.item is None else f"{run.plan.items[problem.item].name!r}: "


def _end(loop: asyncio.AbstractEventLoop) -> int:
    """End whatever a loop has left to do, and say how many tasks that were."""
    loop.run_until_complete(loop.shutdown_asyncgens())
    left = asyncio.all_tasks(loop)
    for task in left:
        task.cancel()
    loop.run_until_complete(asyncio.gather(*left, return_exceptions=True)) if left else None
    return len(left)
