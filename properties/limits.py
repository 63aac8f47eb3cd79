"""Bounds: on the time of one run, so that a hang is a failing cell and not a stuck job, and on what runs at once."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

SECONDS = 10.0
"""A run takes milliseconds. A busy machine may take a hundred times that, but not this."""
_MANY = 5000
"""Items that may take as long again."""


class Hang(BaseException):
    """The target did not end in time. No `Exception`, lest the target catches it."""


def seconds_for(items: int) -> float:
    """How long a run of that many items may take."""
    return SECONDS * (1 + items / _MANY)


@contextmanager
def time_limit(seconds: float | None = None) -> Iterator[None]:
    """Raise `Hang` in here once the time is over (by default `SECONDS`), and again each second if it is swallowed.

    Where there are no alarm signals, and outside the main thread, there is no limit.
    """
    if not hasattr(signal, "SIGALRM") or threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGALRM, _ring)
    signal.setitimer(signal.ITIMER_REAL, SECONDS if seconds is None else seconds, 1.0)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)


def _ring(signum: int, frame: Any) -> None:
    raise Hang("did not end in time")


def usable_cores() -> int:
    """How many cores this process may run on."""
    usable = getattr(os, "sched_getaffinity", None)
    return len(usable(0)) if usable else os.cpu_count() or 1
