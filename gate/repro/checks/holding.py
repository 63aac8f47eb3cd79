"""lifecycle.early-close: memory."""

from __future__ import annotations

from typing import Any

from bucketproof.repro.parts.births import WATCHED, alive, born
from bucketproof.repro.parts.operators import Operators
from bucketproof.repro.parts.slots import STOP, Broken, buckets, close, step, weights


def check(bucketer: Any) -> None:
    """Whoever closes the bucketer early frees what it held."""
    with Operators(born):
        run = buckets(bucketer, weights())
        for _ in range(STOP):
            step(run)
        close(run)
    del run
    held = alive()
    WATCHED.clear()
    with Operators(born):
        for bucket in buckets(bucketer, weights()):
            del bucket
    if held > alive():
        raise Broken(f"{held} bytes are held after closing")
