"""The story of a failing run: every step that a reader needs, and a mark where the broken promise shows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from bucketproof.properties import PROFILES, Target, cells, execute, judge
from bucketproof.properties.outcome import Failure, Step
from bucketproof.properties.picture import storages
from bucketproof.properties.story import steps
from bucketproof.reference import get_named_tensor_buckets, get_named_tensor_buckets_sync
from bucketproof.reference.faults import FAULTS
from bucketproof.strategies import Item, Plan
from bucketproof.targets import target_of

ITEMS = tuple(Item(f"w{number}", "fresh", seed=number) for number in range(3))


def told(call: Callable[..., Any], **changes: Any) -> list[str]:
    """The steps of a run, those at the top alone."""
    run = execute(Target("mine", call), Plan(**{"items": ITEMS, "bucket_bytes": 4, **changes}))
    return [step.text for step in steps(run, None, "it is wrong") if not step.depth]


def produced(number: int) -> str:
    return f"produced 'w{number}': fresh, float32 (1,), 4 bytes, nobody else holds its memory"


def test_it_begins_with_what_the_bucketer_was_called_with_and_ends_with_what_no_step_shows() -> None:
    plan = {"items": ITEMS[:1], "iterable": "async-iterator", "grad_mode": "no_grad", "consumer": "drop"}

    assert told(get_named_tensor_buckets, **plan) == [
        "the bucketer was called: bucket_bytes=4, and weights from an async iterator, under no_grad; "
        "its consumer drops each bucket",
        produced(0),
        "bucket 0 delivered: 1 item, 4 bytes",
        "the bucketer ended",
        "it is wrong",
    ]


@pytest.mark.parametrize(
    ("call", "iterable"), [(get_named_tensor_buckets, "async-generator"), (get_named_tensor_buckets_sync, "generator")]
)
def test_it_tells_when_the_bucketer_is_closed(call: Callable[..., Any], iterable: Any) -> None:
    lines = told(call, ends="close", iterable=iterable)

    assert lines[3:] == [
        "bucket 0 delivered: 1 item, 4 bytes",
        "its consumer closed the bucketer",
        "it is wrong",
    ]


def test_it_tells_when_its_task_is_cancelled() -> None:
    lines = told(get_named_tensor_buckets, ends="cancel", ends_at=1, iterable="async-generator")

    assert lines[1:] == [
        produced(0),
        "the consuming task was cancelled while item 1 was awaited",
        "it is wrong",
    ]


def test_it_tells_when_the_producer_raises_and_what_came_of_it() -> None:
    lines = told(get_named_tensor_buckets_sync, ends="error", ends_at=1)

    assert lines[1:] == [
        produced(0),
        "the producer raised ProducerError",
        "the bucketer raised ProducerError: planned, at item 1",
        "it is wrong",
    ]


def keeps_the_last_bucket(weights: Any, limit: float) -> Any:
    for name, tensor in weights:
        bucket = [(name, tensor)]
        del tensor
        yield bucket


def test_it_tells_when_a_bucket_that_was_dropped_is_found_alive() -> None:
    lines = told(keeps_the_last_bucket, items=ITEMS[:2], consumer="drop")

    assert lines[1:] == [
        produced(0),
        "bucket 0 delivered: 1 item, 4 bytes",
        "the producer was advanced: bucket 0, which its consumer had dropped, is still alive",
        produced(1),
        "bucket 1 delivered: 1 item, 4 bytes",
        "the producer was advanced: bucket 1, which its consumer had dropped, is still alive",
        "the bucketer ended",
    ]


def failing(name: str) -> Failure:
    """What is told of a fault in the first cell of its property."""
    fault = FAULTS[name]
    cell = next(cell for cell in cells() if cell.property.id == fault.property)
    failure = judge(cell, target_of(fault), PROFILES["smoke"], 0).failure
    assert failure is not None
    return failure


def test_a_bucket_that_is_found_alive_is_marked() -> None:
    wrong = [step for step in failing("names-the-flushed-bucket").steps if step.wrong]

    assert wrong
    assert all(step.text.endswith("which its consumer had dropped, is still alive") for step in wrong)


def refuses(weights: Any, limit: float) -> Any:
    raise RuntimeError("no")


def yields_a_number(weights: Any, limit: float) -> Any:
    yield 1


@pytest.mark.parametrize(
    ("call", "line"),
    [
        (refuses, "the bucketer raised RuntimeError: no"),
        (yields_a_number, "bucket 0 is an int: yield a sequence of (name, tensor) pairs, or a mapping"),
    ],
)
def test_what_the_bucketer_raises_is_told_and_marked(call: Callable[..., Any], line: str) -> None:
    run = execute(Target("mine", call), Plan(ITEMS, bucket_bytes=4))

    assert steps(run, None, "it is wrong")[-1] == Step(line, wrong=True)


@pytest.mark.parametrize(
    "name",
    [
        "seeds-torch",
        "looks-for-the-last",
        "caches-by-name",
        # That a packer copies, and into one payload, is not wrong of it.
        "packs-tightly",
        "gives-elements-for-bytes",
    ],
)
def test_what_shows_in_no_step_is_the_last_one(name: str) -> None:
    failure = failing(name)

    assert [step for step in failure.steps if step.wrong] == [Step(failure.what, wrong=True)]


def reuses_its_buffer(weights: Any, limit: float) -> Any:
    buffer = None
    for name, tensor in weights:
        buffer = tensor.clone() if buffer is None else buffer.copy_(tensor)
        yield [(name, buffer)]


def test_memory_that_two_held_buckets_point_to_is_drawn_once() -> None:
    run = execute(Target("mine", reuses_its_buffer), Plan(ITEMS[:2], bucket_bytes=4))

    drawn = {storage.text: [mark.text for mark in storage.marks] for storage in storages(run, None)}
    assert drawn["the bucketer's memory for 'w0', 4 bytes"] == ["bucket 0 holds 'w0'", "bucket 1 holds 'w1'"]
