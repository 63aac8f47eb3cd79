"""The verdict as Markdown, for the summary of a job or for an issue, made from the verdict alone.

Whatever text the verdict has stands in code, where it means nothing to Markdown and calls nobody.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from bucketproof.layout import (
    BECAME,
    MARKS,
    WORDS,
    alike,
    by_property,
    changed,
    counted,
    explained,
    headline,
    noted,
    with_groups,
)
from bucketproof.markup import cut, seen, tag
from bucketproof.properties.outcome import Outcome
from bucketproof.report import explain
from bucketproof.verdict import Verdict

LIMIT = 1 << 20
"""Bytes that GitHub takes as the summary of a step. Of a longer one it shows nothing."""

POST = 1 << 16
"""Characters, and so at least as many bytes, that it takes as an issue or a comment. It refuses a longer one."""

SHORTEST = 4000
"""Bytes that the verdict itself and the note of what was left out have a place in."""

_LONGEST = 300
"""Characters of a name that are shown. The plan has it in full."""
_MOST = 20
"""Cells that are named at one place."""
_RESERVED = 1000
"""Bytes that the note of what was left out can have."""


@dataclass(frozen=True)
class _Part:
    """A part of the report. Explanations are what is left out first."""

    title: str
    text: str
    is_explanation: bool = False


def summary(verdict: Verdict, limit: int = POST) -> str:
    """The whole report, in at most so many bytes: what there is no place for is left out, and that is said.

    The verdict itself is never left out: there must be a place for `SHORTEST`.
    """
    head, parts = _verdict(verdict), list(_parts(verdict))
    free = limit - _RESERVED - _size(head)
    fitting = set()
    for part in sorted(parts, key=lambda part: part.is_explanation):
        if _size(part.text) <= free:
            fitting.add(part)
            free -= _size(part.text)
    shown = [part.text for part in parts if part in fitting]
    left = [part.title for part in parts if part not in fitting]
    return "\n".join([head, *shown, *([_left_out(left, limit)] if left else [])])


def _size(block: str) -> int:
    return len(block.encode()) + 1


def _left_out(titles: Sequence[str], limit: int) -> str:
    names = cut(", ".join(titles), _RESERVED // 10)
    parts = "One part is" if len(titles) == 1 else f"{len(titles)} parts are"
    return f"{parts} left out, since this may have {limit} bytes: {code(names)}. `bucketproof report` shows all.\n"


def _verdict(verdict: Verdict) -> str:
    status = {0: "pass", 1: "fail", 3: "error"}[verdict.exit_code]
    origin = "".join(f", {code(f'{name} {value}')}" for name, value in sorted(verdict.origin.items())[: _MOST // 4])
    part = f", part {code(verdict.shard)} alone" if verdict.shard else ""
    more = f"{part}{with_groups(verdict)}{origin}"
    facts = f"profile {code(verdict.profile)}, seed {verdict.seed}, {verdict.seconds:.1f} s{more}"
    return f"## {MARKS[status]} {code(verdict.target)}\n\n**{headline(verdict)}** {counted(verdict)}.\n\n{facts}\n"


def _parts(verdict: Verdict) -> Iterator[_Part]:
    """What is below the verdict."""
    yield _Part("the table", _table(verdict))
    if changes := list(_changes(verdict)):
        yield _Part("what has changed", _titled("Since the baseline", changes))
    before = {change.cell for change in verdict.changes if change.kind == "still"}
    failing = [cell for cell in explained(verdict) if cell.status == "fail" and cell.cell not in before]
    if failing:
        yield _Part("a title", f"### Failing cells\n{_hint(failing)}")
    for cells in alike(failing):
        yield _Part(cells[0].cell, _failing(cells), is_explanation=True)
    if notes := list(_notes(verdict)):
        yield _Part("the notes", _titled("Notes", notes))


def _hint(failing: Iterable[Outcome]) -> str:
    if not any(cell.failure and cell.failure.script for cell in failing):
        return ""
    return "\n`--repro DIR` writes each of them as a script that needs torch and the target alone.\n"


def _titled(title: str, lines: Iterable[str]) -> str:
    return "\n".join([f"### {title}\n", *lines, ""])


def _table(verdict: Verdict) -> str:
    """How many cells of each property have each status."""
    statuses = [status for status in WORDS if status in verdict.counts]
    heads = ["property", *(f"{MARKS[status]} {WORDS[status]}" for status in statuses)]
    rows = [heads, ["---", *("---:" for _ in statuses)]]
    for name, cells in by_property(verdict.cells).items():
        has: list[str] = [cell.status for cell in cells]
        # In a table, a bar is the end of a field, even in code.
        rows.append([code(name).replace("|", "\\|"), *(str(has.count(status) or "") for status in statuses)])
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def _changes(verdict: Verdict) -> Iterator[str]:
    if verdict.baseline and (differences := verdict.baseline.differences(verdict)):
        yield f"- {code(differences)}"
    for (kind, step), cells in changed(verdict).items():
        yield f"- **{BECAME[kind]}** ({step}): {_names(cells)}"


def _notes(verdict: Verdict) -> Iterator[str]:
    for (status, reason, link), cells in noted(verdict, "error", "fixed", "known", "skipped", "unpromised").items():
        why = f", {code(f'{reason} {link}')}" if f"{reason}{link}" else ""
        yield f"- **{WORDS[status]}**{why}: {_names([cell.cell for cell in cells])}"


def _names(cells: Sequence[str]) -> str:
    shown = ", ".join(map(code, cells[:_MOST]))
    return f"{shown} and {len(cells) - _MOST} more" if len(cells) > _MOST else shown


def _failing(cells: Sequence[Outcome]) -> str:
    first, *others = cells
    level = "" if first.level == "MUST" else f" ({first.level})"
    what = tag("code", _line(first.failure.what if first.failure else first.reason))
    head = f"{tag('code', _line(first.cell))}{level}{f' and {len(others)} more alike' if others else ''}: {what}"
    same = (
        [f"{_names([each.cell for each in others])}: the same, but for the provenance's name and the bytes shown.\n"]
        if others
        else []
    )
    return "\n".join(
        [f"<details><summary>{head}</summary>\n", *same, _fenced("\n".join(explain(first))), "</details>\n"]
    )


def _fenced(text: str) -> str:
    fence = _beyond(text, 3)
    return f"{fence}text\n{seen(text)}\n{fence}\n"


def code(text: str) -> str:
    """The text in a code span, in which it means nothing to Markdown."""
    line = _line(text)
    fence = _beyond(line, 1)
    pad = " " if line.startswith("`") or line.endswith("`") else ""
    return f"{fence}{pad}{line}{pad}{fence}"


def _beyond(text: str, least: int) -> str:
    """More backticks than there are anywhere in the text."""
    return "`" * max([least, *(len(run) + 1 for run in re.findall("`+", text))])


def _line(text: str) -> str:
    """In one line, which is not too long, and not empty."""
    return cut(" ".join(seen(text).split()), _LONGEST) or "-"
