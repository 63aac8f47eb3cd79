"""How the cells of a verdict are laid out in a report: the matrix, the others, and failures that are told as one."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
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

_BYTES = re.compile(r"it was [0-9a-f ]* and is [0-9a-f ]*")
"""What a step tells of contents, which are other ones for each provenance."""


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


def alike(failed: Iterable[Outcome], *, to_the_byte: bool = False) -> list[list[Outcome]]:
    """Cells whose failures differ in the provenance's name alone: what is told of one is true of all.

    Unless it is to be so `to_the_byte`, they may differ in the bytes that are shown, too.
    """
    groups: dict[str, list[Outcome]] = {}
    for cell in failed:
        property_id, provenance = parts(cell.cell)
        # What an item is differs in any case, for it is what its provenance is; and so does the script that makes it.
        told = str(cell.failure and replace(cell.failure, items=(), script=""))
        told = told.replace(provenance, "*") if provenance else told
        told = told if to_the_byte else _BYTES.sub("*", told)
        groups.setdefault(f"{property_id} {cell.status} {cell.level} {told}", []).append(cell)
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
    """What was judged beside the plain contract, to be appended to other facts."""
    return f", with {', '.join(verdict.groups)}" if verdict.groups else ""


def counted(verdict: Verdict) -> str:
    """How many cells there are, and how many have each status."""
    counts = verdict.counts
    told = ", ".join(f"{counts[status]} {word}" for status, word in WORDS.items() if status in counts)
    return f"{len(verdict.cells)} cells: {told}" if counts else "no cell"
