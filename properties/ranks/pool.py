"""A pool of ranks: started once, and sent one piece of work after the other.

Every rank is sent the same function, and answers with what it returns. Whatever goes wrong ends as `Lost`, in one
line, and with all of the pool's processes: a rank that has died or hangs leaves the others in a collective that nobody
will ever join.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from multiprocessing import Pipe, current_process
from multiprocessing.connection import Connection, wait
from typing import IO, Any

STARTING = 120.0
"""Seconds in which all ranks must have met. Each imports torch, which takes seconds on a machine with nothing else to
do."""
_ENDING = 5.0
"""Seconds that a rank has to end by itself."""


class Lost(Exception):
    """A rank died, hung or raised. The message is one line, and the pool is closed."""


class _Rank:
    """One process, and the two pipes to it: one for work and answers, one that tells it that nobody wants it now."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.said: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  # closed when the rank is ended
        self.pipe, theirs = Pipe()
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-m", f"{__package__}.member", str(theirs.fileno())],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=self.said,
                pass_fds=[theirs.fileno()],
                env={**os.environ, "OMP_NUM_THREADS": "1"},
                start_new_session=True,  # what interrupts us is ours to deal with
            )

    def end(self, *, kindly: bool) -> None:
        """End the process, and let go of all that belongs to it."""
        if kindly:
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(_ENDING)
        self.process.kill()
        self.process.wait()
        assert self.process.stdin is not None
        for each in (self.process.stdin, self.pipe, self.said):
            each.close()

    def last_words(self) -> str:
        """How the process ended, and what it said last."""
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(_ENDING)
        self.said.seek(0)
        lines = self.said.read().decode(errors="replace").strip().splitlines()
        return f"exit code {self.process.returncode}{f', {lines[-1].strip()}' if lines else ''}"


class Pool:
    """So many ranks of a process group on gloo, on this machine. Raises `Lost` if they do not come up."""

    def __init__(self, size: int, *, collectives: float, seconds: float = STARTING) -> None:
        """A collective that not all ranks have joined after `collectives` seconds raises in those that have."""
        self.size = size
        self._ranks: list[_Rank] = []
        try:
            self._ranks.extend(map(_Rank, range(size)))
            self._start(collectives, seconds)
        except BaseException:
            self.close(kindly=False)
            raise

    def _start(self, collectives: float, seconds: float) -> None:
        for rank in self._ranks:
            # The key lets a rank ask us for what is sent by a file descriptor.
            self._send(rank, (list(sys.path), bytes(current_process().authkey), rank.number, self.size, collectives))
        # No port is chosen here, which somebody else might take meanwhile: the first rank says which one it was given.
        (port,) = self._answers(self._ranks[:1], "start", seconds)
        for rank in self._ranks[1:]:
            self._send(rank, port)
        self._answers(self._ranks, "join the process group", seconds)

    @property
    def is_open(self) -> bool:
        """Whether there are ranks to send to."""
        return bool(self._ranks)

    def call(self, function: Callable[..., Any], *arguments: Any, seconds: float) -> list[Any]:
        """What `function(*arguments)` returns on each rank. Raises `Lost` if one does not answer in time."""
        return self.call_each(function, [arguments] * self.size, seconds=seconds)

    def call_each(self, function: Callable[..., Any], arguments: Sequence[Any], *, seconds: float) -> list[Any]:
        """The same, with arguments of its own for each rank."""
        if not self._ranks:
            raise Lost("the ranks have ended")
        try:
            for rank, each in zip(self._ranks, arguments, strict=True):
                self._send(rank, (function, each))
            return self._answers(self._ranks, "answer", seconds)
        except BaseException:
            self.close(kindly=False)
            raise

    def close(self, *, kindly: bool = True) -> None:
        """End all ranks. Nothing of them is left afterwards."""
        for rank in self._ranks if kindly else ():
            with suppress(OSError):
                rank.pipe.send(None)
        while self._ranks:
            self._ranks.pop().end(kindly=kindly)

    def _send(self, rank: _Rank, message: Any) -> None:
        try:
            rank.pipe.send(message)
        except OSError:
            raise Lost(f"rank {rank.number} of {self.size} died: {rank.last_words()}") from None

    def _answers(self, ranks: Sequence[_Rank], what: str, seconds: float) -> list[Any]:
        """What each rank answers, in their order."""
        waiting = {rank.pipe: rank for rank in ranks}
        answers: dict[int, Any] = {}
        end = time.monotonic() + seconds
        while waiting:
            ready = wait(list(waiting), max(0.0, end - time.monotonic()))
            if not ready:
                late = ", ".join(str(rank.number) for rank in waiting.values())
                raise Lost(f"rank {late} of {self.size} did not {what} in {seconds:.0f} s")
            for pipe in ready:
                assert isinstance(pipe, Connection)
                rank = waiting.pop(pipe)
                answers[rank.number] = self._answer(rank)
        return [answers[rank.number] for rank in ranks]

    def _answer(self, rank: _Rank) -> Any:
        try:
            is_done, answer = rank.pipe.recv()
        except (EOFError, OSError):
            raise Lost(f"rank {rank.number} of {self.size} died: {rank.last_words()}") from None
        if not is_done:
            raise Lost(f"rank {rank.number} of {self.size} failed: {answer}")
        return answer
