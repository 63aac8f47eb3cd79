"""Targets: a bucketer together with how it is called."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from bucketproof.properties.limits import Hang, time_limit
from bucketproof.properties.promises import DEFAULT, Promises
from bucketproof.properties.surroundings import undisturbed


@dataclass(frozen=True, eq=False)
class Target:
    """A bucketer under test.

    `call(weights, bucket_bytes)` takes an iterable (or, if it is asynchronous, an async iterable) of
    `(name, tensor)` pairs and a limit in bytes, and returns an iterable or async iterable of buckets: sequences
    of pairs, or mappings.
    """

    name: str
    call: Callable[[Any, Any], Any]
    promises: Promises = DEFAULT
    origin: dict[str, str] = field(default_factory=dict)
    """Facts to show in the verdict, such as a released wheel's version and SHA-256."""
    again: Callable[[], Target] | None = None
    """Makes it in another process, to which it can be pickled; None where there is no way to."""

    @cached_property
    def is_async(self) -> bool:
        """Whether it is asynchronous, found out on an empty stream that nobody advances."""
        try:
            with undisturbed(), time_limit():
                result = self.call([], 1)
        except (Exception, Hang):
            return False  # it will do so again, where it is judged
        if inspect.iscoroutine(result):
            result.close()
            return True
        return is_asynchronous(result)


def is_asynchronous(result: Any) -> bool:
    """Whether what a target returned needs an event loop."""
    return hasattr(result, "__aiter__") or inspect.isawaitable(result)
