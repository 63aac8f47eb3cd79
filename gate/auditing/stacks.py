"""Where a producer stands, read off its generator: a line of each frame that waits for the next, and no traceback."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bucketproof.auditing.memory import Where


def standing(iterator: Any) -> Callable[[], Where]:
    """A function that says where the iterator stands. What is no generator has no line, and is told by its type."""
    if hasattr(iterator, "gi_frame"):
        return lambda: _generators(iterator)
    if hasattr(iterator, "ag_frame"):
        return lambda: _of_frame(iterator.ag_frame)
    name = type(iterator).__qualname__
    return lambda: (name,)


def _generators(generator: Any) -> Where:
    """A generator, and those that it yields from."""
    where: Where = ()
    while generator is not None and hasattr(generator, "gi_frame"):
        where += _of_frame(generator.gi_frame)
        generator = generator.gi_yieldfrom
    return where


def _of_frame(frame: Any) -> Where:
    return () if frame is None else ((frame.f_code, frame.f_lineno),)
