"""What a run says of a target, whatever that does, and what is left of it when it is over."""

from __future__ import annotations

import asyncio
import gc
import signal
import sys
import threading
import time
from collections import deque
from contextlib import suppress
from dataclasses import replace
from unittest.mock import patch

import pytest
import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import (
    TorchDispatchMode,
    _get_current_dispatch_mode,
    _get_current_dispatch_mode_stack,
    _pop_mode,
)

from bucketproof.properties import NotABucketer, Run, Target, execute, limits
from bucketproof.properties.buckets import Malformed
from bucketproof.properties.consumer import Consumer
from bucketproof.properties.limits import Hang
from bucketproof.properties.running import execute_together
from bucketproof.reference import get_named_tensor_buckets, get_named_tensor_buckets_sync
from bucketproof.strategies import Item, Lender, Plan
from bucketproof.strategies.stream import ProducerError

ITEMS = tuple(
    Item(f"w{i}", provenance, shape=(4,), seed=i) for i, provenance in enumerate(["fresh", "slice", "detach"])
)
PLAN = Plan(ITEMS, bucket_bytes=16)
"""Three buckets of one item each."""

SOUND = [get_named_tensor_buckets, get_named_tensor_buckets_sync]
for_both_kinds = pytest.mark.parametrize("bucketer", SOUND, ids=["async", "sync"])


def run_of(call, plan: Plan = PLAN) -> Run:
    return execute(Target("mine", call), plan)


def kinds(run: Run) -> list[str]:
    """What happened, but for what lenders did."""
    return [event.kind for event in run.events if event.kind != "overwritten"]


# What it says.


@for_both_kinds
def test_a_sound_target_delivers_each_bucket_as_it_is_full(bucketer):
    run = run_of(bucketer)
    assert kinds(run) == ["produced", "produced", "delivered", "produced", "delivered", "delivered", "ended"]
    assert [delivered.index for delivered in run.delivered] == [0, 1, 2]
    assert run.completed
    assert run.intact
    assert run.exhausted


def raises_at_once(weights, limit):
    raise RuntimeError("no\nand this is why")


def raises_midway(weights, limit):
    for bucket in get_named_tensor_buckets_sync(weights, limit):
        yield bucket
        raise RuntimeError("no")


async def raises_midway_too(weights, limit):
    async for bucket in get_named_tensor_buckets(weights, limit):
        yield bucket
        raise RuntimeError("no")


async def raises_when_awaited(weights, limit):
    raise RuntimeError("no")


@pytest.mark.parametrize(
    ("bucketer", "buckets"),
    [(raises_at_once, 0), (raises_when_awaited, 0), (raises_midway, 1), (raises_midway_too, 1)],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_what_a_target_raises_is_told_in_one_line(bucketer, buckets):
    run = run_of(bucketer)
    assert len(run.buckets) == buckets
    assert (type(run.error), run.said, kinds(run)[-1]) == (RuntimeError, "RuntimeError: no", "raised")
    assert not run.completed
    assert not run.intact


def test_what_was_raised_holds_no_frame():
    def holds(weights, limit):
        weight = torch.zeros(4)
        refs.append(StorageWeakRef(weight.untyped_storage()))
        try:
            raise KeyError("first")
        except KeyError:
            raise ValueError("second")  # noqa: B904

    refs: list[StorageWeakRef] = []
    run = run_of(holds)
    assert (run.error.__traceback__, run.error.__context__, run.error.__cause__) == (None, None, None)
    assert all(ref.expired() for ref in refs)


def test_a_missing_attribute_does_not_hold_what_lacks_it():
    run = run_of(lambda weights, limit: weights.missing, replace(PLAN, iterable="list"))
    assert run.said.startswith("AttributeError: 'list' object")
    assert not run.pinned


@pytest.mark.parametrize("result", [7, "buckets", torch.zeros(2), {"w0": torch.zeros(2)}])
def test_what_is_no_iterable_of_buckets_is_no_bucketer(result):
    run = run_of(lambda weights, limit: result)
    assert isinstance(run.error, NotABucketer)
    assert f" {type(result).__name__}, which is no iterable" in run.said


def test_a_target_that_returns_none_is_told_to_return_buckets():
    run = run_of(lambda weights, limit: None)
    assert isinstance(run.error, Malformed)
    assert run.said == "the target returned None: return or yield the buckets"


@pytest.mark.parametrize(
    ("bucket", "found"),
    [
        (7, "bucket 0 is an int"),
        (None, "bucket 0 is None"),
        (torch.zeros(2), "bucket 0 is a Tensor"),
        ("w0", "bucket 0 is a str"),
        ([torch.zeros(2)], "bucket 0 holds a Tensor where a (name, tensor) pair should be"),
        ([("w0", torch.zeros(2), 1)], "bucket 0 holds a tuple where"),
        ([("w0", 1)], "bucket 0 holds (a str, an int) where"),
        ([(torch.zeros(2), "w0")], "bucket 0 holds (a Tensor, a str) where"),
    ],
)
@pytest.mark.parametrize("lazily", [True, False], ids=["generator", "list"])
def test_what_is_no_bucket_is_told_with_its_number(bucket, found, lazily):
    run = run_of(lambda weights, limit: iter([bucket]) if lazily else [bucket])
    assert isinstance(run.error, Malformed)
    assert run.said.startswith(found)
    assert run.delivered == []


def test_mappings_and_other_sequences_are_buckets():
    def mixed(weights, limit):
        for number, bucket in enumerate(get_named_tensor_buckets_sync(weights, limit)):
            yield (dict, tuple, deque)[number](bucket)

    assert run_of(mixed).intact


# Hangs.


def spins(weights, limit):
    while True:
        pass


def sleeps(weights, limit):
    yield from get_named_tensor_buckets_sync(weights, limit)
    time.sleep(3600)


def swallows(weights, limit):
    with suppress(BaseException):
        time.sleep(3600)
    time.sleep(3600)


async def awaits(weights, limit):
    async for bucket in get_named_tensor_buckets(weights, limit):
        yield bucket
    await asyncio.sleep(3600)


@pytest.fixture
def _impatient(monkeypatch):
    monkeypatch.setattr(limits, "SECONDS", 0.05)


@pytest.mark.usefixtures("_impatient")
@pytest.mark.parametrize("bucketer", [spins, sleeps, swallows, awaits], ids=lambda each: each.__name__)
def test_a_hang_ends_as_an_error(bucketer):
    target = Target("mine", bucketer)
    target.__dict__["is_async"] = bucketer is awaits  # else it would hang once more, to find out
    run = execute(target, PLAN)
    assert isinstance(run.error, Hang)
    assert run.hung
    assert run.said == "did not end in time"


@pytest.mark.usefixtures("_impatient")
def test_whether_a_target_is_asynchronous_is_found_out_in_finite_time():
    assert not Target("mine", spins).is_async


def test_a_time_limit_leaves_the_alarm_as_it_was():
    def mine(signum, frame):
        raise AssertionError("an alarm was left behind")

    before = signal.signal(signal.SIGALRM, mine)
    try:
        run_of(get_named_tensor_buckets_sync)
        run_of(raises_midway)
        assert signal.getsignal(signal.SIGALRM) is mine
        assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
    finally:
        signal.signal(signal.SIGALRM, before)


def test_outside_of_the_main_thread_there_is_no_limit_but_a_run():
    runs = []
    thread = threading.Thread(target=lambda: runs.append(run_of(get_named_tensor_buckets_sync)))
    thread.start()
    thread.join()
    assert runs[0].intact


# How the end comes.


@for_both_kinds
@pytest.mark.parametrize("ends_at", range(len(ITEMS) + 1))
@pytest.mark.parametrize("ends", ["error", "exit", "late-error"])
def test_a_producer_fails_anywhere_and_its_consumer_sees_that_very_exception(bucketer, ends, ends_at):
    run = run_of(bucketer, replace(PLAN, ends=ends, ends_at=ends_at))
    assert run.raised is not None
    assert run.error is run.raised
    assert not run.followed
    assert run.closed


@for_both_kinds
@pytest.mark.parametrize("ends_at", range(len(ITEMS)))
def test_a_consumer_closes_after_any_bucket(bucketer, ends_at):
    run = run_of(bucketer, replace(PLAN, ends="close", ends_at=ends_at))
    assert run.abandoned
    assert run.closed
    assert run.error is None
    assert len(run.buckets) == ends_at + 1
    assert run.alive() == 0


@pytest.mark.parametrize("ends_at", range(len(ITEMS) + 1))
def test_a_consumer_is_cancelled_while_any_item_is_awaited(ends_at):
    plan = replace(PLAN, iterable="async-generator", ends="cancel", ends_at=ends_at)
    run = run_of(get_named_tensor_buckets, plan)
    assert run.interrupted
    assert run.cancelled
    assert run.closed
    assert run.tasks_left == 0


def test_an_interrupt_is_for_whoever_runs_us():
    def interrupts(weights, limit):
        yield from get_named_tensor_buckets_sync(weights, limit)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_of(interrupts)


def test_a_planned_error_that_comes_out_of_a_dropped_producer_is_not_told_to_the_host(monkeypatch):
    told = []
    monkeypatch.setattr(sys, "unraisablehook", told.append)

    def drops_its_producer(weights, limit):
        next(weights)
        return []

    run = run_of(drops_its_producer, replace(PLAN, ends="late-error"))
    assert isinstance(run.raised, ProducerError)
    assert told == []


# What is left.


@for_both_kinds
@pytest.mark.parametrize("consumer", ["hold", "drop", "clear"])
def test_nothing_that_was_delivered_outlives_the_run(bucketer, consumer):
    run = run_of(bucketer, replace(PLAN, consumer=consumer))
    assert run.watched
    assert run.alive() == 0


def test_what_the_target_keeps_is_alive_after_the_run():
    kept = []

    def keeps(weights, limit):
        for bucket in get_named_tensor_buckets_sync(weights, limit):
            kept.extend(bucket)
            yield bucket

    run = run_of(keeps)
    assert run.alive() == 3 * 16
    kept.clear()
    assert run.alive() == 0


def test_what_only_a_cycle_holds_is_collected_with_the_run():
    def makes_a_cycle(weights, limit):
        for bucket in get_named_tensor_buckets_sync(weights, limit):
            held = [tensor for _, tensor in bucket]
            held.append(held)
            yield bucket
            del bucket, held

    gc.disable()
    try:
        assert run_of(makes_a_cycle).alive() == 0
    finally:
        gc.enable()


@pytest.mark.parametrize("grad_mode", ["enabled", "no_grad", "inference"])
@pytest.mark.parametrize("bucketer", [*SOUND, raises_midway, raises_midway_too], ids=lambda each: each.__name__)
def test_a_run_leaves_modes_tasks_and_threads_as_they_were(bucketer, grad_mode):
    threads = threading.active_count()
    run_of(bucketer, replace(PLAN, grad_mode=grad_mode))
    assert torch.is_grad_enabled()
    assert not torch.is_inference_mode_enabled()
    assert _get_current_dispatch_mode() is None
    assert threading.active_count() == threads
    assert gc.get_freeze_count() == 0
    with pytest.raises(RuntimeError, match="no running event loop"):
        asyncio.get_running_loop()


def test_what_a_target_does_to_the_process_is_told_and_undone():
    def disturbs(weights, limit):
        torch.set_default_dtype(torch.float64)
        torch.set_num_threads(torch.get_num_threads() + 1)
        torch.set_grad_enabled(False)
        torch.manual_seed(0)
        return get_named_tensor_buckets_sync(weights, limit)

    before = torch.get_default_dtype(), torch.get_num_threads(), torch.is_grad_enabled(), torch.get_rng_state().tolist()
    for _ in range(2):
        told = " ".join(run_of(disturbs).traces)
        for what in ("default dtype", "number of threads", "grad mode", "torch's random state"):
            assert f"{what} was not as before" in told
    after = torch.get_default_dtype(), torch.get_num_threads(), torch.is_grad_enabled(), torch.get_rng_state().tolist()
    assert after == before


# Two runs.


@for_both_kinds
def test_runs_together_take_turns_and_do_not_mix(bucketer):
    other = replace(PLAN, items=tuple(replace(item, name=f"other-{item.name}") for item in ITEMS))
    runs = execute_together(Target("mine", bucketer), PLAN, other)
    assert all(run.intact for run in runs)
    assert [[delivered.name for delivered in run.delivered] for run in runs] == [
        [item.name for item in plan.items] for plan in (PLAN, other)
    ]


def test_runs_together_are_a_bucket_of_each_in_turn():
    turns = []

    def told(weights, limit):
        me = len(started)
        started.append(weights)
        for bucket in get_named_tensor_buckets_sync(weights, limit):
            turns.append(me)
            yield bucket

    started: list[object] = []
    target = Target("mine", told)
    target.__dict__["is_async"] = False
    execute_together(target, PLAN, PLAN)
    assert turns == [0, 1, 0, 1, 0, 1]


@for_both_kinds
@pytest.mark.parametrize("iterable", ["generator", "iterator", "list", "async-generator", "async-iterator"])
def test_the_same_plan_gives_the_same_run(bucketer, iterable):
    plan = replace(PLAN, iterable=iterable, lenders=(Lender("ping-pong", "larger", "boundary"),))
    one, two = run_of(bucketer, plan), run_of(bucketer, plan)
    assert one.events == two.events
    assert one.buckets == two.buckets
    assert [(d.bucket, d.name, d.index, d.kept, d.facts.bits, d.later) for d in one.delivered] == [
        (d.bucket, d.name, d.index, d.kept, d.facts.bits, d.later) for d in two.delivered
    ]
    assert [(copy.index, copy.nbytes, copy.op) for copy in one.copies] == [
        (copy.index, copy.nbytes, copy.op) for copy in two.copies
    ]
    assert one.peaks == two.peaks


def test_a_mode_that_a_target_leaves_on_is_told_and_ended():
    guards = []

    def leaves_inference_mode_on(weights, limit):
        guards.append(torch._C._InferenceMode(True))
        return get_named_tensor_buckets_sync(weights, limit)

    run = run_of(leaves_inference_mode_on)
    assert any("inference mode" in trace for trace in run.traces)
    assert not torch.is_inference_mode_enabled()
    assert torch.is_grad_enabled()


def test_a_mode_that_a_run_has_left_on_is_gone_in_the_next_one():
    class Watching(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            seen.append(func)
            return func(*args, **(kwargs or {}))

    def leaves_it_on(weights, limit):
        Watching().__enter__()
        return [list(weights)]

    def hangs_in_it(weights, limit):
        with Watching():
            while True:
                pass

    seen: list[object] = []
    plan = Plan((Item("w", "fresh"),), 64)
    for target in (leaves_it_on, hangs_in_it):
        with patch.object(limits, "SECONDS", 0.1):
            execute(Target("mine", target), plan)
        assert _get_current_dispatch_mode_stack() == []
    seen.clear()
    execute(Target("mine", get_named_tensor_buckets_sync), plan)
    assert seen == []


def test_a_mode_of_whoever_runs_us_is_on_afterwards():
    class Idle(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            return func(*args, **(kwargs or {}))

    def takes_it_off(weights, limit):
        weights = list(weights)
        while _get_current_dispatch_mode_stack():
            _pop_mode()
        return [weights]

    with Idle() as mode:
        assert execute(Target("mine", takes_it_off), Plan((Item("w", "fresh"),), 64)).error is not None
        assert _get_current_dispatch_mode_stack() == [mode]


def test_a_hang_that_is_ended_as_a_weight_is_noted_is_a_hang(monkeypatch):
    def half_noted(consumer: Consumer, index: int, tensor: torch.Tensor) -> None:
        consumer._watched.append(StorageWeakRef(tensor.untyped_storage()))
        raise Hang("did not end in time")

    monkeypatch.setattr(Consumer, "_produced", half_noted)
    run = run_of(get_named_tensor_buckets_sync)
    assert isinstance(run.error, Hang)
    assert run.handed_over == []
