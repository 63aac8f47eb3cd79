"""What lenders do in the course of a stream, found out by letting them do it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import torch

from bucketproof.strategies import Plan, Stream
from bucketproof.strategies.memory import Buffer


@dataclass(frozen=True)
class Turn:
    """What happens to lenders' memory as one item is produced."""

    overwritten: tuple[int, ...]
    """The buffers that are written over before."""
    lent: int | None
    """The buffer that the item lies in. Its number is that of the first item that lay there."""
    nbytes: int = 0
    """The buffer's size."""


@lru_cache(maxsize=16)
def schedule(plan: Plan) -> Sequence[Turn]:
    """The turns of all items, and one more for when no item is left, as far as none depends on deliveries."""
    return _Rehearsal(replace(plan, ends="completed")).turns


def at_boundaries(plan: Plan) -> tuple[int, ...]:
    """The buffers that are written over when what lies in them was delivered. They are lent but once."""
    patient = is_patient(plan)
    writes = [lender.overwrite == "boundary" or (patient and lender.overwrite == "next") for lender in plan.lenders]
    turns = enumerate(zip(schedule(plan), plan.items, strict=False))
    return tuple(index for index, (turn, item) in turns if turn.lent == index and writes[item.lender])


def is_patient(plan: Plan) -> bool:
    """Whether lenders wait until an item is delivered: a list is made before anything is."""
    return plan.iterable == "list" or plan.retention == "at-flush"


class _Rehearsal:
    """A stream that nobody listens to but the one who takes notes."""

    def __init__(self, plan: Plan) -> None:
        self.turns: list[Turn] = []
        self._numbers: dict[int, int] = {}
        self._overwritten: list[int] = []
        self._stream = Stream(plan, produced=self._produced, overwritten=self._written)
        for _ in self._stream.iterable():
            pass
        self.turns.append(Turn(tuple(self._overwritten), None))
        self._stream.let_go()

    def _produced(self, index: int, tensor: torch.Tensor) -> None:
        lent = [buffer for buffer in self._stream.buffers if buffer.lent_at == index]
        number = self._numbers.setdefault(id(lent[0]), index) if lent else None
        self.turns.append(Turn(tuple(self._overwritten), number, len(lent[0].raw) if lent else 0))
        self._overwritten.clear()

    def _written(self, buffer: Buffer) -> None:
        self._overwritten.append(self._numbers[id(buffer)])
