"""Lifecycle: how a sync begins, goes on and ends."""

from __future__ import annotations

from collections.abc import Iterator

from bucketproof.properties.contract import Problem, contract
from bucketproof.properties.run import Run
from bucketproof.strategies.plans import ITERABLES


@contract("lifecycle.iterables", campaign="iterables")
def iterables(run: Run) -> Iterator[Problem]:
    """Lists, iterators, generators and, where the target itself is async, async generators give the same buckets."""
    expected = _names(run)
    for kind in ITERABLES:
        if kind.startswith("async-") and not run.asynchronous:
            continue
        other = run.repeat(iterable=kind)
        if other.error is not None:
            yield Problem(f"of weights that come as {kind}: {other.events[-1].text}")
        elif _names(other) != expected:
            yield Problem(f"{run.plan.iterable} and {kind} give other buckets: {expected} and {_names(other)}")


def _names(run: Run) -> list[list[str]]:
    return [[delivered.name for delivered in run.members(number)] for number in range(len(run.buckets))]
