"""memory.steady: threads and files."""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Iterator
from typing import Any

import torch

from bucketproof.repro.parts.slots import STOP, Broken, buckets, let_go, weights


def check(bucketer: Any) -> None:
    """After many syncs there are as many threads and open files as after one."""
    sync(bucketer, weights())
    before = handles()
    for _ in range(2):
        sync(bucketer, weights())
        sync(bucketer, failing())
    for what, count in handles().items():
        if count >= before[what] + 2:  # two of the four syncs are of one kind
            raise Broken(f"there were {before[what]} {what} after one sync, and {count} after four more")


def failing() -> Iterator[tuple[str, torch.Tensor]]:
    """The same stream, whose producer fails on the way."""
    yield from itertools.islice(weights(), STOP)
    raise ValueError("the producer fails")


def sync(bucketer: Any, stream: Any) -> None:
    try:
        for bucket in buckets(bucketer, stream):
            del bucket
    except Exception:
        pass
    let_go()


def handles() -> dict[str, int]:
    files = os.listdir("/proc/self/fd") if os.path.isdir("/proc/self/fd") else []
    return {"threads": threading.active_count(), "open files": len(files)}
