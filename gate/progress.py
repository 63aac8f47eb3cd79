"""A line that counts, for someone who watches a long run."""

from __future__ import annotations

import os
import sys
import time


class Progress:
    """Nothing, unless the standard error is a terminal. Written past pytest, which holds the standard streams."""

    def __init__(self, what: str, bad: str = "failing") -> None:
        self._what, self._bad = what, bad
        self._started = time.monotonic()
        self._watched = sys.stderr is not None and sys.stderr.isatty()
        self._terminal = os.dup(2) if self._watched else -1

    def show(self, done: int, of: int, bad: int = 0) -> None:
        """Say how much is done, how much of it is bad, and how long the rest will take if it is like what is done."""
        left = (time.monotonic() - self._started) * (of - done) / max(done, 1)
        told = f", {bad} {self._bad}" if bad else ""
        self._write(f"\r{done} of {of} {self._what} judged{told}, about {_rounded(left)} left\x1b[K")

    def clear(self) -> None:
        """Leave the line empty. This is the end of it."""
        self._write("\r\x1b[K")
        if self._watched:
            os.close(self._terminal)
        self._watched = False

    def _write(self, text: str) -> None:
        if self._watched:
            os.write(self._terminal, text.encode())


def _rounded(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds >= 90 else f"{seconds:.0f} s"
