"""The kill matrix: which cells caught which fault, as plain data, as JSON, and as tables."""

from __future__ import annotations

import builtins
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Literal

from bucketproof.verdict import environment

if TYPE_CHECKING:
    from bucketproof.reference.faults import Fault

SCHEMA = 1
"""The version of the JSON form."""


@dataclass(frozen=True)
class Catch:
    """A cell that a fault has broken."""

    cell: str
    examples: int
    """How many of the cell's plans it took."""
    seconds: float

    @property
    def property(self) -> str:
        """The cell's property."""
        return self.cell.partition("[")[0]


@dataclass(frozen=True)
class Kill:
    """A fault, and what has caught it."""

    fault: str
    sentence: str
    group: str
    origin: str
    exposed_by: str
    property: str
    """The property that must catch it."""
    catches: tuple[Catch, ...]
    """The soonest first."""
    seconds: float
    """How long it took to judge it by every cell."""

    @classmethod
    def of(cls, fault: Fault, catches: Sequence[Catch], seconds: float) -> Kill:
        """What is told of a fault."""
        facts = (fault.name, fault.sentence, fault.group, fault.origin, fault.exposed_by, fault.property)
        soonest = sorted(catches, key=lambda catch: (catch.examples, catch.cell))
        return cls(*facts, tuple(soonest), round(seconds, 1))

    @builtins.property  # the field of that name hides it
    def own(self) -> tuple[Catch, ...]:
        """The catches of the property that must catch it."""
        return tuple(catch for catch in self.catches if catch.property == self.property)

    @builtins.property  # the field of that name hides it
    def others(self) -> list[str]:
        """The other properties that have caught it, too."""
        return sorted({catch.property for catch in self.catches} - {self.property})

    @builtins.property  # the field of that name hides it
    def status(self) -> Literal["caught", "misattributed", "missed"]:
        """Whether the right property has caught it, only another, or none."""
        return "caught" if self.own else "misattributed" if self.catches else "missed"


@dataclass(frozen=True)
class Matrix:
    """All that was judged in one run."""

    profile: str
    seed: int
    seconds: float
    kills: tuple[Kill, ...]
    asked: int
    """How many faults were to be judged: more than the kills, if the run was broken off."""

    @property
    def missing(self) -> int:
        """How many were not judged."""
        return self.asked - len(self.kills)

    @property
    def exit_code(self) -> int:
        """0 if every fault that was judged was caught by its own property, else 1."""
        return int(any(kill.status != "caught" for kill in self.kills))

    def to_json(self) -> str:
        """The matrix as JSON text."""
        kills = [{**asdict(kill), "status": kill.status} for kill in self.kills]
        facts = {"profile": self.profile, "seed": self.seed, "seconds": round(self.seconds, 1), "missing": self.missing}
        return json.dumps({"schema": SCHEMA, **facts, "environment": environment(), "faults": kills}, indent=2) + "\n"

    def summary(self) -> str:
        """How many were caught, in one line."""
        counts: Counter[str] = Counter(kill.status for kill in self.kills)
        alone = sum(kill.status == "caught" and not kill.others for kill in self.kills)
        found = ", ".join(f"{counts[status]} {status}" for status in ("caught", "misattributed", "missed"))
        judged = f"{len(self.kills)} of {self.asked}" if self.missing else str(self.asked)
        return (
            f"{judged} faults: {found}; {alone} by one property only; "
            f"profile {self.profile}, seed {self.seed}, {self.seconds:.0f} s"
        )


HEADS = ("fault", "must be caught by", "cells", "plans", "seconds", "also caught by")


def row(kill: Kill) -> tuple[str, ...]:
    """A fault in a line: in how many cells it was caught by its own property, and how soon in the first of them."""
    if not kill.own:
        return (kill.fault, kill.property, kill.status.upper(), "", "", ", ".join(kill.others))
    first = kill.own[0]
    soonest = (str(len(kill.own)), str(first.examples), f"{first.seconds:.2f}")
    return (kill.fault, kill.property, *soonest, ", ".join(kill.others))


def markdown(matrix: Matrix) -> str:
    """The matrix as a page, a table for each group."""
    return "\n".join(_page(matrix)) + "\n"


def _page(matrix: Matrix) -> Iterator[str]:
    yield "# The zoo of faults\n"
    yield (
        "Wrong bucketers, one decision wrong in each, and what catches them. `plans` is how many plans it takes in\n"
        "the cell that is broken soonest, of those of the property that must catch it; `cells` is how many are\n"
        "broken. Made by `bucketproof zoo --markdown`.\n"
    )
    yield f"{matrix.summary()[0].upper()}{matrix.summary()[1:]}.\n"
    groups: dict[str, list[Kill]] = {}
    for kill in matrix.kills:
        groups.setdefault(kill.group, []).append(kill)
    for group, kills in groups.items():
        yield f"## {group.capitalize()}\n"
        yield "| fault | exposed by | origin | must be caught by | cells | plans | also caught by |"
        yield "|---|---|---|---|---|---|---|"
        yield from map(_markdown_row, kills)
        yield ""


def _markdown_row(kill: Kill) -> str:
    _, _, cells, plans, _, others = row(kill)
    what = f"`{kill.fault}`: {kill.sentence}"
    return f"| {what} | {kill.exposed_by} | {kill.origin} | `{kill.property}` | {cells} | {plans} | {others} |"
