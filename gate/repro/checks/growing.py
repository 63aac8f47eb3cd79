"""memory.steady: memory."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import torch

from bucketproof.repro.parts.births import WATCHED, alive, born
from bucketproof.repro.parts.operators import Operators
from bucketproof.repro.parts.slots import STOP, Broken, buckets, let_go, weights


def check(bucketer: Any) -> None:
    """After many syncs there is as much memory as after one."""
    sync(bucketer, weights())  # what is made only once is made now
    WATCHED.clear()
    sync(bucketer, weights())
    before = alive()
    for _ in range(2):
        sync(bucketer, weights())
        sync(bucketer, failing())
    if alive() > before:
        raise Broken(f"{before} bytes were alive after one sync, and {alive()} after four more")


def failing() -> Iterator[tuple[str, torch.Tensor]]:
    """The same stream, whose producer fails on the way."""
    yield from itertools.islice(weights(), STOP)
    raise ValueError("the producer fails")


def sync(bucketer: Any, stream: Any) -> None:
    try:
        with Operators(born):
            for bucket in buckets(bucketer, stream):
                del bucket
    except Exception:
        pass
    let_go()
