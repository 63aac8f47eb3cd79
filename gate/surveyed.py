"""What a survey has found, as plain data: a table, and what of it is told of each target."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version

from bucketproof.layout import by_property
from bucketproof.properties.outcome import Outcome
from bucketproof.properties.promises import FAMILIES
from bucketproof.survey import Entry
from bucketproof.verdict import environment

SCHEMA = 1
"""The version of the JSON form."""


@dataclass(frozen=True)
class Surveyed:
    """The targets, in the order in which they were asked for."""

    profile: str
    seed: int
    date: str
    """On which it was made, such as 2026-11-30."""
    entries: tuple[Entry, ...]

    @property
    def exit_code(self) -> int:
        """0 if each has a verdict, whatever it is, and 3 if one has none."""
        return 3 if any(each.verdict is None for each in self.entries) else 0

    @property
    def summary(self) -> str:
        """How many there are, in one line."""
        projects = len({each.project for each in self.entries})
        lacking = sum(each.verdict is None for each in self.entries)
        keeping = sum(each.verdict is not None and each.verdict.exit_code == 0 for each in self.entries)
        told = f"{len(self.entries)} targets of {projects} {'project' if projects == 1 else 'projects'}"
        without = f", {lacking} without a verdict" if lacking else ""
        return f"{told}: {keeping} keep all they promise{without}; profile {self.profile}, seed {self.seed}"

    def to_json(self) -> str:
        """The survey as JSON text, with each verdict as `check --json` writes it."""
        facts = {"schema": SCHEMA, "bucketproof": version("bucketproof"), "date": self.date}
        asked = {"profile": self.profile, "seed": self.seed}
        targets = [_data(each) for each in self.entries]
        return json.dumps({**facts, **asked, "environment": environment(), "targets": targets}, indent=2) + "\n"

    def several(self) -> Iterator[tuple[str, list[Entry]]]:
        """The targets of which several releases have a verdict, by what they are called without their release."""
        found: dict[str, list[Entry]] = defaultdict(list)
        for each in self.entries:
            if each.verdict:
                found[each.name].append(each)
        return ((name, entries) for name, entries in found.items() if len(entries) > 1)


def _data(entry: Entry) -> dict[str, object]:
    verdict = json.loads(entry.verdict.to_json()) if entry.verdict else None
    return {**asdict(entry), "verdict": verdict}


@dataclass(frozen=True)
class Mark:
    """What became of some cells, in short."""

    judged: int
    broken: int
    should: int
    """Of the judged, those that are broken and are a SHOULD; they are not among the broken."""

    @classmethod
    def of(cls, cells: Sequence[Outcome]) -> Mark:
        """Of these cells."""
        judged = [cell for cell in cells if cell.status in ("pass", "fail", "error")]
        bad = [cell for cell in judged if cell.status != "pass"]
        should = sum(cell.level == "SHOULD" and cell.status == "fail" for cell in bad)
        return cls(len(judged), len(bad) - should, should)

    def __str__(self) -> str:
        if not self.judged:
            return "o"
        if self.broken:
            return f"✗ {self.broken}/{self.judged}"
        if self.should == self.judged:
            return f"✗ {self.should}/{self.judged} (a SHOULD)"
        return f"✓ ({self.should} SHOULD)" if self.should else "✓"


def families(entry: Entry) -> dict[str, Mark]:
    """What became of each family of properties."""
    cells = entry.verdict.cells if entry.verdict else ()
    return {
        family: Mark.of([cell for cell in cells if cell.cell.partition(".")[0] == family])
        for family in FAMILIES
        if family != "device"
    }


def marks(entry: Entry) -> dict[str, Mark]:
    """What became of each property."""
    cells = entry.verdict.cells if entry.verdict else ()
    return {name: Mark.of(several) for name, several in by_property(cells).items()}


def broken(entry: Entry) -> dict[str, list[Outcome]]:
    """The properties that are broken, each with its failing cells: first those whose smallest plan was searched for."""
    cells = entry.verdict.cells if entry.verdict else ()
    failing = [cell for cell in cells if cell.status in ("fail", "error")]
    return {name: sorted(several, key=_size) for name, several in by_property(failing).items()}


def _size(cell: Outcome) -> tuple[bool, int]:
    failure = cell.failure
    return (failure is None or not failure.script, len(failure.plan) if failure else 0)
