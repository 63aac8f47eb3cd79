"""The verdict as text for a terminal. Whatever is shown is taken from the verdict alone."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from bucketproof.layout import (
    BECAME,
    CUSTODY,
    MARKS,
    WORDS,
    Matrix,
    by_property,
    changed,
    counted,
    in_one_way,
    noted,
    parts,
    with_groups,
)
from bucketproof.markup import cut
from bucketproof.properties.outcome import Failure, Mark, Outcome, Storage
from bucketproof.verdict import Verdict

WIDTH = 100

_COLOURS = {
    "pass": "32",
    "fail": "31",
    "known": "33",
    "fixed": "36",
    "error": "35",
    "skipped": "33",
    "unpromised": "33",
    "worse": "31",
    "better": "32",
}
_MOST = 12
"""Items of a stream that are told. A smallest stream is rarely longer, but some faults need hundreds."""
_OTHERS = "The others went wrong in the same way. With --only ID, one of them is told in full."
_BAR = 32
"""Characters that a storage is wide."""
_INK = {"handed-over": "█", "overwritten": "▒", "held": "▓"}
_ASCII_INK = {"handed-over": "#", "overwritten": "x", "held": "="}
_ASCII = {**MARKS, "pass": "+", "fail": "X", "known": "~", "fixed": "*", "": "."}
_HEADS = {**{status: word.upper() for status, word in WORDS.items()}, "fixed": "FIXED, and still listed as known"}


@dataclass(frozen=True)
class Style:
    """What the terminal can show."""

    colour: bool = False
    unicode: bool = True

    def mark(self, status: str) -> str:
        """One character for a status, or for a cell that there is not."""
        return self.paint((MARKS if self.unicode else _ASCII)[status], status)

    def paint(self, text: str, status: str) -> str:
        """The text in the status's colour, which says nothing that the text does not."""
        code = _COLOURS.get(status)
        return f"\x1b[{code}m{text}\x1b[0m" if self.colour and code else text


def render(verdict: Verdict, style: Style = Style()) -> str:
    """The whole report: what failed, the matrix, the other properties, and the summary."""
    failing = [_failing(cells, style) for cells in in_one_way(_told_in_full(verdict))]
    told = [*failing, *_no_verdict(verdict), *_overview(verdict, style), *_changes(verdict, style, most=8)]
    return _paragraphs([*told, *_broken(verdict, style), _summary(verdict, style)])


def render_changes(verdict: Verdict, style: Style = Style()) -> str:
    """What has changed since the baseline, and nothing else."""
    counts = Counter(change.kind for change in verdict.changes)
    told = ", ".join(f"{counts[kind]} {word}" for kind, word in BECAME.items() if counts[kind])
    end = f"{len(verdict.cells)} cells: {told or 'none has changed'}"
    return _paragraphs([*_changes(verdict, style), [end]])


def _paragraphs(parts: Iterable[list[str]]) -> str:
    return "\n\n".join("\n".join(part) for part in parts) + "\n"


def _told_in_full(verdict: Verdict) -> list[Outcome]:
    """The cells that fail; with a baseline, those of them that did not before."""
    before = {change.cell for change in verdict.changes if change.kind == "still"}
    return [cell for cell in verdict.cells if cell.status == "fail" and cell.cell not in before]


def explain(outcome: Outcome, style: Style = Style()) -> list[str]:
    """A failing cell: the broken sentence, what happened, the smallest stream, the steps, the memory, and the plan."""
    failure = outcome.failure
    if failure is None:
        return [outcome.reason or "no explanation"]
    return [
        *_wrapped(failure.sentence),
        "",
        *_wrapped(failure.what, "What happened: "),
        *_told("Smallest stream:" if len(failure.items) <= _MOST else "Stream:", _items(failure)),
        *_told("Step by step:", _steps(failure, style)),
        *_told("Memory:", pictures(failure.storages, style)),
        *_told("The plan, as code:", failure.plan.splitlines()),
        *(["", *_wrapped(f"There is no script for it: {failure.unscripted}.")] if failure.unscripted else []),
    ]


def explain_alone(outcome: Outcome) -> list[str]:
    """A failing cell, where nothing is told of the run: also that there is a script, if there is one."""
    has_script = outcome.failure and outcome.failure.script
    hint = "With --repro DIR, `bucketproof check` writes it as a script that needs torch and the target alone."
    return [*explain(outcome), *(["", *_wrapped(hint)] if has_script else [])]


def _failing(cells: list[Outcome], style: Style) -> list[str]:
    level = "" if cells[0].level == "MUST" else f" ({cells[0].level})"
    heads = [style.paint(f"FAIL{level} {cell.cell}", "fail") for cell in cells]
    others = (
        ["", "The others went wrong in the same way. With --only ID, one of them is told in full."] if cells[1:] else []
    )
    return [*heads, *(f"  {line}".rstrip() for line in [*explain(cells[0], style), *others])]


def _told(title: str, lines: Iterable[str]) -> list[str]:
    body = [f"  {line}" for line in lines]
    return ["", title, *body] if body else []


def _items(failure: Failure) -> Iterator[str]:
    # By the numbers that what happened calls them by.
    for number, item in enumerate(failure.items[:_MOST]):
        yield from _wrapped(item, f"{number}. ")
    if len(failure.items) > _MOST:
        yield f"and {len(failure.items) - _MOST} more, see the plan"


def _steps(failure: Failure, style: Style) -> Iterator[str]:
    number = 0
    for step in failure.steps:
        number += not step.depth
        head = "    " * step.depth if step.depth else f"{number:>2}. "
        sign = "!! " if step.wrong else ""
        lines = _wrapped(f"{sign}{step.text}", head)
        yield from (style.paint(line, "fail") for line in lines) if step.wrong else lines


def pictures(storages: Iterable[Storage], style: Style = Style()) -> Iterator[str]:
    """A bar for each storage, and below it who has to do with which bytes."""
    rows = [row for storage in storages for row in _rows(storage, style)]
    left = min(max((len(text) for text, _ in rows), default=0), WIDTH - _BAR - 8)
    lines = (f"{cut(text, left):<{left}}  {bar}" for text, bar in rows)
    return lines if style.unicode else (line.replace("…", "~") for line in lines)


def _rows(storage: Storage, style: Style) -> Iterator[tuple[str, str]]:
    yield storage.text, f"0{storage.nbytes:>{_BAR - 1}}"
    yield from ((f"  {mark.text}", _bar(mark, storage.nbytes, style)) for mark in storage.marks)


def _bar(mark: Mark, nbytes: int, style: Style) -> str:
    ink, rest = (_INK if style.unicode else _ASCII_INK)[mark.kind], "·" if style.unicode else "."
    first = min(_BAR, mark.start * _BAR // max(nbytes, 1))  # what has no byte may begin behind the end
    last = max(first + 1, -(-mark.end * _BAR // max(nbytes, 1))) if mark.end > mark.start else first
    return f"{rest * first}{ink * (last - first)}{rest * (_BAR - last)}"


def _wrapped(text: str, first: str = "") -> list[str]:
    return textwrap.wrap(
        text, WIDTH - 6, initial_indent=first, subsequent_indent=" " * len(first), break_on_hyphens=False
    )


def _no_verdict(verdict: Verdict) -> Iterator[list[str]]:
    """What is neither a pass nor a failure, each reason once."""
    for (status, reason, link), cells in noted(verdict, "known", "fixed", "error", "skipped", "unpromised").items():
        head = f"{_HEADS[status]}: {reason}{f' ({link})' if link else ''}"
        yield [*_wrapped(head), *_listed([cell.cell for cell in cells], 8)]


def _listed(ids: list[str], most: int | None = None) -> Iterator[str]:
    shown = ids if most is None or len(ids) <= most else [*ids[:most], f"and {len(ids) - most} more"]
    return (f"  {line}" for line in _wrapped(", ".join(shown)))


def _changes(verdict: Verdict, style: Style, most: int | None = None) -> Iterator[list[str]]:
    """What has changed since the baseline: the cells that took the same step are told together."""
    if verdict.baseline is None:
        return
    shoulds = {change.cell for change in verdict.changes if change.level == "SHOULD"}
    for (kind, step), cells in changed(verdict).items():
        told = [f"{cell} (SHOULD)" if cell in shoulds else cell for cell in cells]
        yield [style.paint(f"{BECAME[kind].upper()} ({step})", kind), *_listed(told, most)]
    if differences := verdict.baseline.differences(verdict):
        yield _wrapped(differences)


def _overview(verdict: Verdict, style: Style) -> Iterator[list[str]]:
    smoke = next((cell.status for cell in verdict.cells if cell.cell == "smoke"), "pass")
    if smoke == "fail":
        yield ["The target cannot bucket a single tensor: it, or what adapts it, is wrong. No cell was judged."]
    if smoke != "pass":
        return
    matrix = Matrix.of(verdict)
    if matrix.rows:
        yield _table(matrix, matrix.custodies(verdict), style)
    if matrix.others:
        yield [_property_line(cell, style) for cell in matrix.others]
    yield [_legend(verdict, matrix, style)]


def _table(matrix: Matrix, custodies: Mapping[str, Iterable[str]], style: Style) -> list[str]:
    left = max(map(len, matrix.rows)) + 4
    heads = [_head(column) for column in matrix.columns]
    widths = [max(map(len, head)) + 2 for head in heads]
    lines = _heads(heads, widths, left)
    for custody, provenances in custodies.items():
        lines.append(f"{custody}: {CUSTODY[custody]}" if custody in CUSTODY else custody)
        lines += (_row(each, matrix, left, widths, style) for each in provenances)
    return lines


def _row(provenance: str, matrix: Matrix, left: int, widths: Iterable[int], style: Style) -> str:
    row = matrix.rows[provenance]
    statuses = (row[column].status if column in row else "" for column in matrix.columns)
    marks = (_centred(style.mark(status), width) for status, width in zip(statuses, widths, strict=True))
    return f"  {provenance:<{left - 2}}{''.join(marks)}".rstrip()


def _head(property_id: str) -> list[str]:
    """A property's id in a few short lines: its family, then its name, broken where it has a hyphen."""
    family, _, name = property_id.partition(".")
    words = name.split("-")
    lines = [family]
    for word in words:
        if len(lines) > 1 and len(lines[-1]) + len(word) < 10:
            lines[-1] += f"-{word}"
        else:
            lines.append(word)
    return lines


def _heads(heads: list[list[str]], widths: list[int], left: int) -> list[str]:
    height = max(map(len, heads))
    rows = zip(*([""] * (height - len(head)) + head for head in heads), strict=True)
    return [
        (" " * left + "".join(f"{text:^{width}}" for text, width in zip(row, widths, strict=True))).rstrip()
        for row in rows
    ]


def _centred(mark: str, width: int) -> str:
    """A mark in the middle of its column: it is one column wide, whatever its escape codes are long."""
    before = (width - 1) // 2
    return " " * before + mark + " " * (width - 1 - before)


def _legend(verdict: Verdict, matrix: Matrix, style: Style) -> str:
    marks = [f"{style.mark(status)} {word}" for status, word in WORDS.items() if status in verdict.counts]
    return "  ".join([*marks, *([f"{style.mark('')} not applicable"] if matrix.rows else [])])


def _property_line(cell: Outcome, style: Style) -> str:
    note = f"  {cell.reason}" if cell.reason else ""
    level = "" if cell.level == "MUST" else f" ({cell.level})"
    return f"{style.mark(cell.status)} {cell.cell}{level}{note}"


def _broken(verdict: Verdict, style: Style) -> Iterator[list[str]]:
    """Each broken property once more, where a reader's eye is when all has been printed."""
    judged = by_property(verdict.cells)
    lines = []
    for cells in in_one_way(_told_in_full(verdict)):
        property_id, _ = parts(cells[0].cell)
        is_excused = cells[0].level == "SHOULD" and not verdict.strict
        level = " (a SHOULD, which changes no exit code)" if is_excused else ""
        what = f": {cells[0].failure.what}" if cells[0].failure else ""
        head = f"{property_id}, in {len(cells)} of {len(judged[property_id])} cells{level}"
        lines += _wrapped(cut(f"{head}{what}", 3 * WIDTH), "  - ")
    if lines:
        yield ["Broken:", *lines]


def _summary(verdict: Verdict, style: Style) -> list[str]:
    facts = [counted(verdict), _target(verdict)]
    part = f", part {verdict.shard} alone" if verdict.shard else ""
    facts += [f"profile {verdict.profile}, seed {verdict.seed}, {verdict.seconds:.1f} s{part}{with_groups(verdict)}"]
    end = f"exit {verdict.exit_code}: {verdict.meaning}"
    status = {0: "pass", 1: "fail", 3: "error"}[verdict.exit_code]
    return [*_joined(facts), style.paint(end, status)]


def _target(verdict: Verdict) -> str:
    origin = verdict.origin
    if "sha256" not in origin:
        return verdict.target
    wheel = f"{origin.get('project')} {origin.get('version')}, wheel sha256 {origin['sha256'][:12]}"
    return f"{verdict.target} ({wheel})"


def _joined(facts: list[str]) -> list[str]:
    return textwrap.wrap("; ".join(facts), WIDTH, break_on_hyphens=False)
