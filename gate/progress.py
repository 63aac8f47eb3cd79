"""A line that counts, for someone who watches a long run."""

from __future__ import annotations

import os
import sys


class Progress:
    """Nothing, unless the standard error is a terminal. Written past pytest, which holds the standard streams."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._watched = sys.stderr is not None and sys.stderr.isatty()
        self._terminal = os.dup(2) if self._watched else -1

    def show(self, done: int, of: int) -> None:
        """Say how much is done."""
        self._write(f"\r{done} of {of} {self._what} judged")

    def clear(self) -> None:
        """Leave the line empty."""
        self._write("\r\x1b[K")

    def _write(self, text: str) -> None:
        if self._watched:
            os.write(self._terminal, text.encode())
