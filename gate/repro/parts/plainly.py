"""Consuming what a synchronous bucketer makes, step by step."""

from __future__ import annotations

from typing import Any


def step(run: Any) -> Any:
    """The next bucket, or None."""
    return next(run, None)


def close(run: Any) -> None:
    """Close what makes the buckets."""
    if hasattr(run, "close"):
        run.close()


def tasks_left() -> int:
    """There are none where nobody waits."""
    return 0
