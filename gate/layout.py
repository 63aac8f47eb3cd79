"""How the cells of a verdict are laid out in a report: the matrix, the others, and failures that are told as one."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from bucketproof.diff import Kind
from bucketproof.properties.outcome import Outcome, Status
from bucketproof.verdict import Verdict

CUSTODY = {
    "owned": "nobody else holds the memory: kept in place if contiguous",
    "lent": "a lender may overwrite the memory: not kept",
    "partial": "the memory is larger than the tensor: none of it kept but the tensor's own bytes",
    "shared": "someone else reads the same memory: kept or copied",
}

WORDS = {
    "pass": "pass",
    "fail": "fail",
    "known": "known failure",
    "fixed": "fixed",
    "error": "no verdict",
    "skipped": "skipped",
    "unpromised": "unpromised",
}
"""What a status is called, in the order in which they are told."""

MARKS = {"pass": "✓", "fail": "✗", "known": "≈", "fixed": "★", "error": "!", "skipped": "-", "unpromised": "o", "": "·"}
"""One character for a status, or for a cell that there is not."""

BECAME: dict[Kind, str] = {
    "worse": "worse",
    "better": "better",
    "still": "no better",
    "accepted": "known now",
    "new": "new",
    "gone": "gone",
}
"""What became of a cell since the baseline, in words."""

ON = {"cpu": "cpu", "cuda": "cuda", "all": "cpu and cuda"}
"""The devices that a verdict is about, in words."""

_BYTES = re.compile(r"it was [0-9a-f ]* and is [0-9a-f ]*")
"""What a step tells of contents, which are other ones for each provenance."""
_DETAILS = re.compile(r"'[^']*'|[\d\[\]., ]*\d[\d\[\]., ]*")
"""What differs in what has happened from stream to stream: names, numbers, and lists of numbers."""


@dataclass(frozen=True)
class Matrix:
    """The provenances and the properties that are judged for each, and the cells that are not in it."""

    columns: tuple[str, ...]
    rows: Mapping[str, Mapping[str, Outcome]]
    """The cell of each property, for each provenance."""
    others: tuple[Outcome, ...]

    @classmethod
    def of(cls, verdict: Verdict) -> Matrix:
        """The cells of the verdict, in its order."""
        rows: dict[str, dict[str, Outcome]] = {}
        others = []
        for cell in verdict.cells:
            property_id, kind = parts(cell.cell)
            if kind in verdict.provenances:
                rows.setdefault(kind, {})[property_id] = cell
            else:
                others.append(cell)
        columns = tuple(dict.fromkeys(column for row in rows.values() for column in row))
        return cls(columns, rows, tuple(others))

    def custodies(self, verdict: Verdict) -> dict[str, list[str]]:
        """The provenances of each custody."""
        found: dict[str, list[str]] = {custody: [] for custody in CUSTODY}
        for each in self.rows:
            found.setdefault(verdict.provenances[each], []).append(each)
        return {custody: provenances for custody, provenances in found.items() if provenances}


def parts(cell: str) -> tuple[str, str]:
    """The property of a cell, and what is in its brackets."""
    property_id, _, kind = cell.removesuffix("]").partition("[")
    return property_id, kind


def by_property(cells: Iterable[Outcome]) -> dict[str, list[Outcome]]:
    """The cells of each property."""
    found: dict[str, list[Outcome]] = {}
    for cell in cells:
        found.setdefault(parts(cell.cell)[0], []).append(cell)
    return found


def alike(failed: Iterable[Outcome]) -> list[list[Outcome]]:
    """Cells whose failures differ in the provenance's name, and in bytes, alone: what is told of one is true of all."""
    return _grouped(failed, _as_told)


def _as_told(cell: Outcome) -> str:
    _, provenance = parts(cell.cell)
    # What an item is differs in any case, for it is what its provenance is; and so does the script that makes it.
    told = str(cell.failure and replace(cell.failure, items=(), script=""))
    return _BYTES.sub("*", told.replace(provenance.partition("@")[0], "*") if provenance else told)


def in_one_way(failed: Iterable[Outcome]) -> list[list[Outcome]]:
    """The failing cells of a property in which the same has happened to whatever weights: the shortest stream first."""
    groups = _grouped(failed, lambda cell: _DETAILS.sub("#", cell.failure.what) if cell.failure else "")
    return [sorted(cells, key=_length) for cells in groups]


def _length(cell: Outcome) -> tuple[int, int]:
    if cell.failure is None:
        return 0, 0
    return len(cell.failure.items), len(cell.failure.plan.replace(parts(cell.cell)[1].partition("@")[0] or " ", ""))


def _grouped(failed: Iterable[Outcome], key: Callable[[Outcome], str]) -> list[list[Outcome]]:
    groups: dict[tuple[str, ...], list[Outcome]] = {}
    for cell in failed:
        groups.setdefault((parts(cell.cell)[0], cell.status, cell.level, key(cell)), []).append(cell)
    return list(groups.values())


def explained(verdict: Verdict) -> list[Outcome]:
    """The cells that fail, known or not: first those that count against the target, and last those that are known."""
    against = {cell.cell for cell in verdict.against}
    failed = [cell for cell in verdict.cells if cell.status in ("fail", "known")]
    return sorted(failed, key=lambda cell: (cell.cell not in against, cell.status == "known"))


def noted(verdict: Verdict, *statuses: Status) -> dict[tuple[Status, str, str], list[Outcome]]:
    """The cells that have one of these statuses, by it, the reason and the link."""
    found: dict[tuple[Status, str, str], list[Outcome]] = {}
    for status in statuses:
        for cell in verdict.cells:
            if cell.status == status:
                found.setdefault((cell.status, cell.reason, cell.link), []).append(cell)
    return found


def changed(verdict: Verdict) -> dict[tuple[Kind, str], list[str]]:
    """The cells that have changed since the baseline, by what became of them, and from what to what."""
    found: dict[tuple[Kind, str], list[str]] = {}
    for kind in BECAME:
        for change in verdict.changes:
            if change.kind == kind:
                found.setdefault((kind, change.step), []).append(change.cell)
    return found


def headline(verdict: Verdict) -> str:
    """The verdict in a line."""
    return f"{verdict.meaning[0].upper()}{verdict.meaning[1:]}."


def with_groups(verdict: Verdict) -> str:
    """What was judged beside the plain contract, and where if not on the host, to be appended to other facts."""
    groups = f", with {', '.join(verdict.groups)}" if verdict.groups else ""
    return groups if verdict.device == "cpu" else f"{groups}, on {ON[verdict.device]}"


def counted(verdict: Verdict) -> str:
    """How many cells there are, and how many have each status."""
    counts = verdict.counts
    told = ", ".join(f"{counts[status]} {word}" for status, word in WORDS.items() if status in counts)
    return f"{len(verdict.cells)} cells: {told}" if counts else "no cell"
