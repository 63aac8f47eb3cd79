"""Boundaries: where one bucket ends and the next begins."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from bucketproof.properties.contract import Problem, contract
from bucketproof.properties.run import Run

Partition = list[list[int]]
"""Indices of the hand-overs in each bucket."""


@contract("boundaries.limit")
def limit(run: Run) -> Iterator[Problem]:
    """A bucket never exceeds the limit, unless it is a single oversize item."""
    for number, members in enumerate(_weighty(run, _partition(run))):
        total = _total(run, members)
        if len(members) > 1 and total > run.plan.bucket_bytes:
            yield Problem(
                f"bucket {number} holds {total} bytes in {len(members)} items; the limit is {run.plan.bucket_bytes}"
            )


@contract("boundaries.exact-fit", campaign="exact-fit")
def exact_fit(run: Run) -> Iterator[Problem]:
    """Items that sum exactly to the limit share one bucket."""
    buckets = _weighty(run, _partition(run))
    sums = list(itertools.accumulate(item.nbytes for item in run.plan.items))
    if run.plan.bucket_bytes not in sums or not run.completed:
        return
    fitting = [i for i in range(sums.index(int(run.plan.bucket_bytes)) + 1) if run.plan.items[i].nbytes]
    if buckets[:1] != [fitting]:
        yield Problem(
            f"the first {len(fitting)} items sum to exactly the limit of {run.plan.bucket_bytes} bytes, "
            f"and the first bucket holds {len(buckets[0]) if buckets else 0}"
        )


@contract("boundaries.greedy")
def greedy(run: Run) -> Iterator[Problem]:
    """The partition equals first-fit in stream order (a zero-byte item may fall on either side of a full bucket)."""
    if not run.completed:
        return
    expected = _weighty(run, first_fit([item.nbytes for item in run.plan.items], run.plan.bucket_bytes))
    found = _weighty(run, _partition(run))
    if found != expected:
        yield Problem(f"items were put together as {found}; first-fit in stream order gives {expected}")


@contract("boundaries.no-empty-bucket")
def no_empty_bucket(run: Run) -> Iterator[Problem]:
    """No bucket is empty; an empty stream gives none."""
    for number in range(len(run.buckets)):
        if not run.members(number):
            yield Problem(f"bucket {number} is empty")


@contract("boundaries.bad-limit", campaign="bad-limit")
def bad_limit(run: Run) -> Iterator[Problem]:
    """A zero or negative limit raises `ValueError` before the producer is touched."""
    yield from _refused(run)


@contract("boundaries.nan-limit", level="SHOULD", campaign="nan-limit")
def nan_limit(run: Run) -> Iterator[Problem]:
    """A limit that is not a number raises `ValueError` before the producer is touched."""
    yield from _refused(run)


def _refused(run: Run) -> Iterator[Problem]:
    if run.error is None:
        yield Problem(f"a limit of {run.plan.bucket_bytes} was accepted")
    elif not isinstance(run.error, ValueError):
        yield Problem(f"a limit of {run.plan.bucket_bytes} raised {type(run.error).__name__}, not ValueError")
    elif run.handed_over:
        yield Problem(f"the producer had been advanced when a limit of {run.plan.bucket_bytes} was refused")


def first_fit(sizes: Sequence[int], limit: float) -> Partition:
    """Sizes in bytes, in order, each in the open bucket if it fits there and else in a new one."""
    buckets: Partition = []
    used = 0
    for index, size in enumerate(sizes):
        if not buckets or used + size > limit:
            buckets.append([])
            used = 0
        buckets[-1].append(index)
        used += size
    return buckets


def _partition(run: Run) -> Partition:
    return [[d.index for d in run.members(number) if d.index is not None] for number in range(len(run.buckets))]


def _weighty(run: Run, partition: Partition) -> Partition:
    """Without items of no byte, which fit on either side of any boundary, and without the buckets they leave empty."""
    kept = ([index for index in members if run.plan.items[index].nbytes] for members in partition)
    return [members for members in kept if members]


def _total(run: Run, members: list[int]) -> int:
    return sum(run.plan.items[index].nbytes for index in members)
