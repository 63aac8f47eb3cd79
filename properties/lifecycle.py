"""Lifecycle: how a sync begins, goes on and ends."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace

from bucketproof.properties.contract import Problem, contract
from bucketproof.properties.models import MODELS, MODELS_ON_META
from bucketproof.properties.run import Run
from bucketproof.properties.values import arrival
from bucketproof.strategies import Item
from bucketproof.strategies.plans import ITERABLES


@contract("lifecycle.iterables", campaigns=["iterables"])
def iterables(run: Run) -> Iterator[Problem]:
    """Lists, iterators, generators and, where the target itself is async, async generators give the same buckets."""
    kinds = [kind for kind in ITERABLES if run.asynchronous or not kind.startswith("async-")]
    others = {kind: run.repeat(iterable=kind) for kind in kinds}
    taken = {kind: _names(other) for kind, other in others.items() if other.error is None}
    for first, expected in itertools.islice(taken.items(), 1):  # if none is, it is not for the kind
        if _names(run.repeat(iterable=first)) != expected:
            return  # whatever it goes by, it is not the kind
        for kind, other in others.items():
            if kind not in taken:
                yield Problem(f"of weights that come as {kind}: {other.said}")
            elif taken[kind] != expected:
                yield Problem(f"{first} and {kind} give other buckets: {expected} and {taken[kind]}")


def _names(run: Run) -> list[list[str]]:
    return [[delivered.name for delivered in run.members(number)] for number in range(len(run.buckets))]


@contract("lifecycle.drains-producer", campaigns=["mixed", "dropped", "long-stream", *MODELS, *MODELS_ON_META])
def drains_producer(run: Run) -> Iterator[Problem]:
    """A completed sync has pulled every item, and exhausted the producer."""
    if run.completed and not run.exhausted:
        yield Problem(
            f"it ended after {len(run.handed_over)} of {len(run.plan.items)} items, the producer not exhausted"
        )


@contract("lifecycle.producer-error", campaigns=["producer-error"])
def producer_error(run: Run) -> Iterator[Problem]:
    """A producer's exception reaches the consumer unchanged; delivered buckets stay intact; nothing follows it."""
    if run.raised is None:
        return
    if run.error is None:
        yield Problem(f"the producer raised {type(run.raised).__name__}, and the sync ended as if nothing had happened")
    elif run.error is not run.raised and run.repeat(ends="completed", ends_at=0).error is None:
        yield Problem(f"the producer raised {type(run.raised).__name__}, and its consumer saw {run.said}")
    if run.followed:
        yield Problem("another bucket was yielded after the error")
    yield from _spoiled(run)


@contract("lifecycle.early-close", level="SHOULD", campaigns=["early-close"])
def early_close(run: Run) -> Iterator[Problem]:
    """Closing early closes the producer and frees what was held."""
    if not run.abandoned:
        return
    if run.error is not None:
        yield Problem(f"closing raised {run.said}")
    elif run.handed_over and (run.left_open or not run.closed):
        yield Problem("the bucketer was closed, and the producer was not")
    elif run.tasks_left:
        yield Problem(f"{run.tasks_left} tasks were left after closing")
    elif (held := run.alive()) > run.repeat(ends="completed", ends_at=0).alive():
        yield Problem(f"{held} bytes are held after closing")


@contract("lifecycle.cancellation", campaigns=["cancellation"])
def cancellation(run: Run) -> Iterator[Problem]:
    """Cancelling the consuming task ends it with `CancelledError` and leaves no task behind."""
    if not run.asynchronous or not run.interrupted:
        return
    if not run.cancelled:
        how = "ended as if nothing had happened" if run.error is None else f"raised {run.said}"
        yield Problem(f"the consuming task was cancelled while item {run.plan.ends_at} was awaited, and {how}")
    if run.tasks_left:
        yield Problem(f"{run.tasks_left} tasks were left after the consuming task was cancelled")
    if not run.closed:
        yield Problem("the producer was not closed when the consuming task was cancelled")


@contract("lifecycle.reusable", campaigns=["reusable"])
def reusable(run: Run) -> Iterator[Problem]:
    """A sync after a failed, closed or completed one gives what a fresh process gives."""
    plain = {
        "ends": "completed",
        "ends_at": 0,
        "lenders": tuple(replace(each, overwrite="end") for each in run.plan.lenders),
    }
    items = _other_bits(run)
    after = run.repeat(**plain, items=items)
    yield from _cut_elsewhere(after, f"in a sync after one that {_HOW[run.plan.ends]}")
    again = list(arrival(after))
    if not again:
        return
    # What goes wrong with weights of which no earlier sync knows the names is another property's.
    of_itself = {problem.item for problem in arrival(run.repeat(**plain, items=_unheard_of(items)))}
    for problem in again:
        if problem.item not in of_itself:
            yield Problem(f"in a sync after one that {_HOW[run.plan.ends]}: {problem.what}", problem.item)


def _cut_elsewhere(run: Run, when: str) -> Iterator[Problem]:
    """Buckets that end elsewhere than they do in a sync that nothing has gone before but completed ones."""
    calm = run.repeat()
    if not (run.intact and calm.intact) or calm.partition() == run.partition():
        return
    if run.repeat().partition() == calm.partition():  # else it is cut here and there, whatever went before
        yield Problem(f"{when}, its buckets hold items {run.partition()}, and otherwise {calm.partition()}")


_HOW = {"completed": "was completed", "error": "failed", "close": "was closed"}


@contract("lifecycle.concurrent-syncs", campaigns=["concurrent"])
def concurrent_syncs(run: Run) -> Iterator[Problem]:
    """Two interleaved syncs do not mix."""
    other = replace(run.plan, items=_other_bits(run), bucket_bytes=2 * run.plan.bucket_bytes)
    if any(any(arrival(*run.together(each))) for each in (run.plan, other)):
        return  # what goes wrong alone is another property's
    for each in run.together(run.plan, other):
        yield from _cut_elsewhere(each, "while another sync was under way")
        for problem in arrival(each):
            yield Problem(f"while another sync was under way: {problem.what}", problem.item)


@contract("lifecycle.bucket-is-the-consumers", campaigns=["held", "cleared"])
def bucket_is_the_consumers(run: Run) -> Iterator[Problem]:
    """A yielded bucket is not touched again, and the consumer may clear or change it."""
    for number in run.changed:
        yield Problem(f"bucket {number} no longer has the members that it was yielded with")
    yield from _spoiled(run)
    if run.plan.consumer == "clear":
        left_alone = run.repeat(consumer="hold")
        if left_alone.error is not None:
            return  # what raises anyway, be it with other words, is another property's
        before = {problem.what for problem in arrival(left_alone)}
        yield from (problem for problem in arrival(run) if problem.what not in before)
        if run.intact and left_alone.intact and run.partition() != left_alone.partition():
            yield Problem(
                f"its buckets hold items {run.partition()} and, if nobody clears them, {left_alone.partition()}"
            )


@contract("lifecycle.leaves-no-trace", campaigns=["mixed", "shared", *MODELS])
def leaves_no_trace(run: Run) -> Iterator[Problem]:
    """Inputs and global state (grad mode, inference mode, default dtype, RNG, thread count) are as before, always."""
    for trace in run.traces:
        yield Problem(trace)


@contract(
    "lifecycle.terminates",
    campaigns=["mixed", "producer-error", "early-close", "cancellation", *MODELS, *MODELS_ON_META],
    hangs=True,
)
def terminates(run: Run) -> Iterator[Problem]:
    """Every call ends; a hang is a failure, not a stuck job."""
    if run.hung:
        yield Problem(run.outcry)


def _other_bits(run: Run) -> tuple[Item, ...]:
    """The same weights with other content, so that what is left of an earlier sync shows."""
    return tuple(replace(item, seed=item.seed + 1000) for item in run.plan.items)


def _unheard_of(items: tuple[Item, ...]) -> tuple[Item, ...]:
    prefix = f"sync{next(_SYNCS)}."
    # What goes wrong with an empty name does so in any sync, and under no other name.
    return tuple(replace(item, name=prefix + item.name if item.name else "") for item in items)


_SYNCS = itertools.count()


def _spoiled(run: Run) -> Iterator[Problem]:
    """Delivered weights that changed, though no lender wrote to them."""
    for delivered, given in run.matched():
        if delivered.spoiled(("held", "end")) and not delivered.lent:
            yield Problem("it was changed after its bucket had been yielded", given.index)
