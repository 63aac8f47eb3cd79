"""Memory: what a bucketer allocates, how long it keeps it, and how far it runs ahead."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator

from bucketproof.properties.contract import Problem, contract
from bucketproof.properties.models import MODELS, MODELS_ON_META
from bucketproof.properties.run import Run
from bucketproof.strategies.plans import Ends

_SYNCS: tuple[Ends, ...] = ("completed", "error", "completed", "error")
"""How the syncs end that follow one another. What grows at all, grows from the second to the last."""


@contract("memory.peak", campaigns=["owned", "dropped", "long-stream", *MODELS])
def peak(run: Run) -> Iterator[Problem]:
    """Its own allocations never exceed the bytes that had to be copied in the open bucket plus one item."""
    for live, owed, largest in run.peaks:
        # A packer may fill a buffer of the bucket's size, whatever is in the bucket.
        buffer = min(run.plan.bucket_bytes, _total(run)) if run.promises.copies != "when-needed" else 0
        needed = max(owed, buffer)
        if live > needed + largest:
            allowed = f"the open bucket needs {needed} bytes of copies, and {largest} beside are allowed"
            yield Problem(f"the bucketer had {live} bytes at once that it had allocated; {allowed}")
            return


def _total(run: Run) -> int:
    return sum(map(run.size, range(len(run.plan.items))))


# Whoever hands over all buckets at the end has no bucket that could be kept while the producer is advanced.
@contract("memory.released-after-flush", campaigns=["dropped", *MODELS], needs={"lookahead": ()})
def released_after_flush(run: Run) -> Iterator[Problem]:
    """Nothing of a flushed bucket is kept once the consumer dropped it and the producer is advanced."""
    for bucket in sorted(set(run.stale)):
        when = next(event.text for event in run.events if (event.kind, event.number) == ("stale", bucket))
        yield Problem(f"bucket {bucket} was still alive when {when}, though its consumer had dropped it")


@contract("memory.lookahead", campaigns=["dropped", "long-stream", *MODELS, *MODELS_ON_META], needs={"lookahead": ()})
def lookahead(run: Run) -> Iterator[Problem]:
    """No more than one item beyond a bucket is pulled before that bucket is yielded."""
    reached = 0
    for number, bucket in enumerate(run.buckets):
        reached = max([reached, *(1 + d.index for d in run.members(number) if d.index is not None)])
        # What was pulled and never arrives is lost, which is another property's.
        ahead = sum(bool(run.of(index)) for index in range(reached, bucket.pulled))
        if ahead > (run.promises.lookahead or 0):
            yield Problem(f"{bucket.pulled} items were pulled before bucket {number} came, which needs {reached}")
            return


@contract("memory.steady", campaigns=["steady"])
def steady(run: Run) -> Iterator[Problem]:
    """Many syncs in a row end with the memory, tasks and references that one sync ends with."""
    first = run.repeat(consumer="drop")
    after_one = first.alive()
    before = _handles()
    others = [run.repeat(consumer="drop", ends=ends, ends_at=len(run.plan.items) // 2) for ends in _SYNCS]
    after_all = first.alive() + sum(other.alive() for other in others)
    if after_all > after_one:
        more = f"after {len(others)} more, {after_all} bytes of all of them were"
        yield Problem(f"after one sync, {after_one} bytes of its weights were still alive; {more}")
    if left := max(other.tasks_left for other in others):
        yield Problem(f"{left} tasks were left after a sync")
    for what, count in _handles().items():
        if count >= before[what] + len(others) // 2:  # half of the syncs are of one kind
            yield Problem(f"there were {before[what]} {what} after one sync, and {count} after {len(others)} more")


def _handles() -> dict[str, int]:
    """What else a process can run out of."""
    files = len(os.listdir(_OPEN_FILES)) if os.path.isdir(_OPEN_FILES) else 0
    return {"threads": threading.active_count(), "open files": files}


_OPEN_FILES = "/proc/self/fd"
