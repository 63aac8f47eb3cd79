"""The state machine: it passes what is sound, and catches what takes several syncs or steps to show."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any
from unittest import TestCase

import pytest
from hypothesis import Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from bucketproof.properties import Promises, Target
from bucketproof.properties.stateful import ALWAYS, AT_THE_END, SETTINGS, state_machine_for, stateful
from bucketproof.reference import compact, get_named_tensor_buckets, get_named_tensor_buckets_sync
from bucketproof.targets import resolve

REPEATABLE = settings(SETTINGS, derandomize=True, database=None, phases=[Phase.generate])
SOUND = settings(REPEATABLE, max_examples=20)
FAULTY = settings(REPEATABLE, max_examples=200)

TestReference = stateful(get_named_tensor_buckets, settings=SOUND)


@pytest.mark.parametrize(
    "name",
    ["sync-generator", "class-iterator", "mapping-buckets", "flush-when-full", "copy-at-flush", "aligned-packer"],
)
def test_passes_a_sound_variant(name: str) -> None:
    run_state_machine_as_test(state_machine_for(resolve(name)), settings=settings(SOUND, max_examples=8))


def keeps_what_is_lent(weights: Any, bucket_bytes: float) -> Any:
    """Passes on the lender's own memory."""
    return get_named_tensor_buckets_sync(weights, bucket_bytes, compaction=lambda tensor: tensor)


class Shared:
    """A bucketer with one open bucket for all syncs."""

    def __init__(self, *, forgets: bool) -> None:
        self._open: list[Any] = []
        self._full: list[Any] = []
        self._forgets = forgets

    def __call__(self, weights: Any, bucket_bytes: float) -> Iterator[list[Any]]:
        if self._forgets:
            self._open = []
        for name, tensor in weights:
            self._add(name, compact(tensor), bucket_bytes)
            del name, tensor
            if self._full:
                yield self._full.pop()
        if self._open:
            self._flush()
            yield self._full.pop()

    def _add(self, name: str, tensor: Any, bucket_bytes: float) -> None:
        if self._open and sum(each.nbytes for _, each in self._open) + tensor.nbytes > bucket_bytes:
            self._flush()
        self._open.append((name, tensor))

    def _flush(self) -> None:
        self._full.append(self._open)
        self._open = []


def mixes_syncs_under_way(forgets: bool = True) -> Any:
    """Starts afresh with each sync, but has one bucket for all that are under way."""
    return Shared(forgets=forgets)


def keeps_the_bucket_after_an_error() -> Any:
    """Gives the next sync what a failed one had collected."""
    return Shared(forgets=False)


def yields_one_list_again_and_again() -> Any:
    """Fills the list that it has yielded with the next bucket."""

    def buckets(weights: Any, bucket_bytes: float) -> Iterator[list[Any]]:
        yielded: list[Any] = []
        for bucket in get_named_tensor_buckets_sync(weights, bucket_bytes):
            yielded[:] = bucket
            del bucket
            yield yielded
            yielded.clear()

    return buckets


def keeps_dropped_buckets() -> Any:
    """Names the last bucket while the next one is collected."""

    def buckets(weights: Any, bucket_bytes: float) -> Iterator[list[Any]]:
        for bucket in get_named_tensor_buckets_sync(weights, bucket_bytes):  # noqa: UP028
            yield bucket

    return buckets


def swallows_errors() -> Any:
    """Ends a sync whose producer has failed as if it were complete."""

    def buckets(weights: Any, bucket_bytes: float) -> Iterator[list[Any]]:
        try:
            yield from get_named_tensor_buckets_sync(weights, bucket_bytes)
        except Exception:
            return

    return buckets


def leaves_a_task() -> Any:
    """Starts a task for each sync, and never ends it."""

    async def buckets(weights: Any, bucket_bytes: float) -> AsyncIterator[list[Any]]:
        tasks.append(asyncio.ensure_future(asyncio.sleep(3600)))
        async for bucket in get_named_tensor_buckets(weights, bucket_bytes):
            yield bucket
            del bucket

    tasks: list[Any] = []
    return buckets


def ignores_cancelling() -> Any:
    """Goes on when its task is cancelled, with what it has."""

    async def buckets(weights: Any, bucket_bytes: float) -> AsyncIterator[list[Any]]:
        try:
            async for bucket in get_named_tensor_buckets(weights, bucket_bytes):
                yield bucket
                del bucket
        except asyncio.CancelledError:
            return

    return buckets


@pytest.mark.parametrize(
    ("bucketer", "told"),
    [
        (lambda: keeps_what_is_lent, "no-lent-memory|has changed since"),
        (mixes_syncs_under_way, "arrived|conserved"),
        (keeps_the_bucket_after_an_error, "arrived|conserved"),
        (yields_one_list_again_and_again, "no longer has the members|has changed"),
        (keeps_dropped_buckets, "released-after-flush"),
        (swallows_errors, "producer-error"),
        (leaves_a_task, "tasks were left"),
        (ignores_cancelling, "cancellation"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_catches_a_wrong_bucketer(bucketer: Callable[[], Any], told: str) -> None:
    with pytest.raises(AssertionError) as caught:
        run_state_machine_as_test(machine_of_new_ones(bucketer), settings=FAULTY)

    assert re.search(told, _words(caught.value))


def machine_of_new_ones(make: Callable[[], Any]) -> Any:
    """A machine with a bucketer of its own for each example: what is left by another would make a search flaky."""
    bucketers = [make()]
    machine: Any = state_machine_for(Target("wrong", lambda weights, limit: bucketers[-1](weights, limit)))

    class Machine(machine):
        def __init__(self) -> None:
            bucketers.append(make())
            super().__init__()

    return Machine


def _words(error: BaseException) -> str:
    inner = getattr(error, "exceptions", ())
    return "\n".join([str(error), *map(_words, inner), str(error.__cause__), str(error.__context__)])


def test_does_not_judge_what_is_not_promised() -> None:
    target = Target("late", keeps_what_is_lent, Promises(retention="producer-owns", layout=None, scope=("boundaries",)))

    run_state_machine_as_test(state_machine_for(target), settings=settings(SOUND, max_examples=5))


def test_each_target_has_a_test_of_its_own() -> None:
    first, second = stateful(get_named_tensor_buckets_sync), stateful(Target("another", get_named_tensor_buckets_sync))

    assert issubclass(first, TestCase)
    assert first is not second


def test_judges_by_properties_that_there_are() -> None:
    from bucketproof.properties import PROPERTIES

    assert {*ALWAYS, *(name for names in AT_THE_END.values() for name in names)} <= set(PROPERTIES)
