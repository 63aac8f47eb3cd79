"""The verdict as a page: one file that needs no network and no scripts, made from the verdict alone."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from bucketproof.explained import LONGEST, explanation, reason, scrolled
from bucketproof.layout import (
    BECAME,
    CUSTODY,
    MARKS,
    ON,
    WORDS,
    Matrix,
    alike,
    by_property,
    changed,
    counted,
    explained,
    headline,
    noted,
    parts,
)
from bucketproof.markup import Markup, block, breakable, cut, tag
from bucketproof.properties.outcome import Outcome, Status
from bucketproof.svg import patterns
from bucketproof.verdict import Verdict

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
"""The page needs nothing from elsewhere. A browser sees to it that it takes nothing and runs nothing either."""
_NOTED: tuple[Status, ...] = ("error", "fixed", "skipped", "unpromised")
"""What neither plainly passes nor fails."""
_SMOKE = "The target cannot bucket a single tensor: it, or what adapts it, is wrong. No cell was judged."


class Section(NamedTuple):
    """A part of the page that one can be sent to."""

    id: str
    title: str
    content: tuple[Markup, ...]

    def html(self) -> Markup:
        """The part, with its title."""
        head = tag("h2", self.title, id=f"{self.id}-title")
        return block("section", head, *self.content, id=self.id, aria_labelledby=f"{self.id}-title")


def page(verdict: Verdict) -> str:
    """The whole report."""
    return _Page(verdict).html()


@dataclass(frozen=True)
class _Page:
    """A verdict, and where on the page its cells are explained."""

    verdict: Verdict

    def html(self) -> str:
        sections = [section for section in self._sections() if section.content]
        main = block("main", *(section.html() for section in sections), id="content", tabindex=-1)
        body = block("body", _SKIP, patterns(), _header(self.verdict, sections), main)
        title = f"{cut(self.verdict.target, 100)}: {self.verdict.meaning} - bucketproof"
        return f"<!DOCTYPE html>\n{block('html', head(title), body, lang='en')}\n"

    @cached_property
    def explained(self) -> list[Outcome]:
        return explained(self.verdict)

    @cached_property
    def places(self) -> dict[str, str]:
        """Where each cell is explained. A cell's id could hold anything; a number cannot."""
        return {cell.cell: f"cell-{number}" for number, cell in enumerate(self.explained, 1)}

    def _sections(self) -> Iterator[Section]:
        matrix, promises = Matrix.of(self.verdict), self.verdict.promises
        yield Section("failing", f"Failing cells ({len(self.explained)})", tuple(self._failing()))
        yield Section("matrix", "Property by provenance", tuple(self._matrix(matrix)))
        yield Section("others", "The other cells", tuple(self._others(matrix.others)))
        yield Section("noted", _title_of_noted(self.verdict), tuple(self._noted()))
        yield Section("changes", "Since the baseline", tuple(self._changes()))
        yield Section("promises", "Promises", _facts({name: _promise(each) for name, each in promises.items()}))
        yield Section("environment", "Environment", _facts(self.verdict.environment))

    def _failing(self) -> Iterator[Markup]:
        totals = by_property(self.verdict.cells)
        for name, cells in by_property(self.explained).items():
            total = len(totals[name])
            count = tag("small", f" {len(cells)} of {total} {'cell' if total == 1 else 'cells'}")
            yield block("section", tag("h3", breakable(name), count), *map(self._group, alike(cells)))

    def _group(self, cells: Sequence[Outcome]) -> Markup:
        first, *others = cells
        return self._cell(first, others)

    def _alike(self, cells: Sequence[Outcome]) -> Markup:
        """The cells that fail as the one before does, each with an explanation of its own."""
        names = cut(", ".join(parts(cell.cell)[1] for cell in cells), LONGEST)
        verb = "fails" if len(cells) == 1 else "fail"
        told = f"{len(cells)} more {verb} alike, but for the provenance's name and the bytes shown: {names}"
        return block("details", tag("summary", told), *map(self._cell, cells), class_="alike")

    def _cell(self, cell: Outcome, others: Sequence[Outcome] = ()) -> Markup:
        """A cell and, folded into it, those that fail alike."""
        more = [self._alike(others)] if others else []
        noted = [*([] if cell.level == "MUST" else [cell.level]), *([f"and {len(others)} alike"] if others else [])]
        head = tag("h4", _badge(cell.status), " ", breakable(cell.cell), *(tag("small", f" {each}") for each in noted))
        # The place is inside: a browser that is sent there opens what it is in.
        body = block("div", *explanation(cell), *more, id=self.places[cell.cell], class_="explanation", tabindex=-1)
        is_first = cell is self.explained[0]
        return block("details", tag("summary", head), body, class_="cell", open="" if is_first else None)

    def _matrix(self, matrix: Matrix) -> Iterator[Markup]:
        if not matrix.rows:
            return
        heads = [tag("th", *_head_of(column), scope="col") for column in matrix.columns]
        table = block(
            "table",
            tag("thead", tag("tr", tag("th", "provenance", scope="col"), *heads)),
            *(self._custody(custody, ids, matrix) for custody, ids in matrix.custodies(self.verdict).items()),
            class_="matrix",
        )
        yield _legend({cell.status for row in matrix.rows.values() for cell in row.values()})
        yield scrolled(table, "Property by provenance")

    def _custody(self, custody: str, provenances: Sequence[str], matrix: Matrix) -> Markup:
        told = tag("span", tag("b", custody), f": {CUSTODY[custody]}" if custody in CUSTODY else "")
        head = tag("tr", tag("th", told, colspan=len(matrix.columns) + 1, scope="rowgroup", class_="custody"))
        return block("tbody", head, *(self._provenance(each, matrix) for each in provenances))

    def _provenance(self, name: str, matrix: Matrix) -> Markup:
        cells = (self._mark(matrix.rows[name].get(column)) for column in matrix.columns)
        return tag("tr", tag("th", breakable(name), scope="row"), *cells)

    def _mark(self, cell: Outcome | None) -> Markup:
        if cell is None:
            return tag("td", *_sign("", "not applicable"), class_="none")
        return tag("td", self._linked(cell.cell, *_sign(cell.status, WORDS[cell.status])), class_=cell.status)

    def _linked(self, cell: str, *content: str) -> Markup:
        """What is shown of a cell and, where it is explained, the way there."""
        if cell not in self.places:
            return tag("span", *content)
        return tag("a", *content, href=f"#{self.places[cell]}", title=cut(cell, LONGEST))

    def _others(self, cells: Sequence[Outcome]) -> Iterator[Markup]:
        if any(cell.cell == "smoke" and cell.status == "fail" for cell in cells):
            yield tag("p", _SMOKE)
        if cells:
            heads = [
                tag("th", head, scope="col", class_="number" if head == "plans" else None)
                for head in ("cell", "verdict", "level", "plans", "reason")
            ]
            table = block("table", tag("thead", tag("tr", *heads)), block("tbody", *map(self._other, cells)))
            yield scrolled(table, "The other cells")

    def _other(self, cell: Outcome) -> Markup:
        return tag(
            "tr",
            tag("th", self._linked(cell.cell, breakable(cell.cell)), scope="row"),
            tag("td", _badge(cell.status)),
            tag("td", cell.level),
            tag("td", str(cell.examples) if cell.examples else "", class_="number"),
            tag("td", *reason(cell)),
        )

    def _noted(self) -> Iterator[Markup]:
        """What neither plainly passes nor fails, each reason once."""
        for (status, _, _), cells in noted(self.verdict, *_NOTED).items():
            yield block(
                "div", tag("p", _badge(status), " ", *reason(cells[0])), self._listed([cell.cell for cell in cells])
            )

    def _changes(self) -> Iterator[Markup]:
        baseline = self.verdict.baseline
        if baseline and (differences := baseline.differences(self.verdict)):
            yield tag("p", cut(differences, LONGEST))
        for (kind, step), cells in changed(self.verdict).items():
            yield block("div", tag("p", tag("b", BECAME[kind]), f" ({step})"), self._listed(cells))
        if baseline and not self.verdict.changes:
            yield tag("p", "No cell has changed.")

    def _listed(self, cells: Sequence[str]) -> Markup:
        """The cells by name, folded away if there are many."""
        shown = tag("ul", *(tag("li", self._linked(cell, breakable(cell))) for cell in cells), class_="ids")
        return shown if len(cells) <= 8 else block("details", tag("summary", f"{len(cells)} cells"), shown)


_SKIP = tag("a", "To the content", href="#content", class_="skip")


def head(title: str) -> Markup:
    """The head of a page, with its style."""
    style = Path(__file__).with_name("report.css").read_text(encoding="utf-8")
    return block(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", title),
        tag("link", rel="icon", href="data:,"),
        tag("style", Markup(f"\n{style}")),
    )


def _head_of(column: str) -> Iterator[Markup]:
    """A property in two lines: its family, and its name."""
    family, dot, name = column.partition(".")
    return (tag("span", part) for part in (f"{family}{dot}", breakable(name)) if part)


def _header(verdict: Verdict, sections: Sequence[Section]) -> Markup:
    status = {0: "pass", 1: "fail", 3: "error"}[verdict.exit_code]
    links = [tag("li", tag("a", section.title, href=f"#{section.id}")) for section in sections]
    facts = {"profile": verdict.profile, "seed": verdict.seed, "seconds": f"{verdict.seconds:.1f}"}
    groups = {"with": ", ".join(verdict.groups)} if verdict.groups else {}
    device = {"on": ON[verdict.device]} if verdict.device != "cpu" else {}
    part = {"part": f"{verdict.shard} alone"} if verdict.shard else {}
    strict = {"strict": "yes"} if verdict.strict else {}
    return block(
        "header",
        tag("h1", tag("small", "bucketproof "), breakable(verdict.target)),
        tag(
            "p",
            tag("strong", *_sign(status, ""), headline(verdict)),
            f" {counted(verdict)}.",
            class_=f"verdict {status}",
        ),
        *_facts({**facts, **part, **groups, **device, **strict, **verdict.origin}),
        tag("nav", block("ul", *links), aria_label="Sections"),
    )


def _facts(facts: Mapping[str, object]) -> tuple[Markup, ...]:
    pairs = ((tag("dt", breakable(name)), tag("dd", cut(str(value), LONGEST))) for name, value in facts.items())
    return (block("dl", *(tag("div", *pair) for pair in pairs)),) if facts else ()


def _badge(status: str) -> Markup:
    return tag("span", tag("span", MARKS[status], aria_hidden="true"), f" {WORDS[status]}", class_=f"badge {status}")


def _sign(status: str, word: str) -> tuple[Markup, ...]:
    """A mark, and the word for those who have it read to them."""
    mark = tag("span", MARKS[status], aria_hidden="true", class_="sign")
    return (mark, tag("span", word, class_="unseen")) if word else (mark,)


def _legend(shown: set[str]) -> Markup:
    marks = [tag("li", _badge(status)) for status in WORDS if status in shown]
    return tag(
        "ul", *marks, tag("li", tag("span", f"{MARKS['']} not applicable", class_="badge none")), class_="legend"
    )


def _title_of_noted(verdict: Verdict) -> str:
    title = ", ".join(dict.fromkeys(WORDS[status] for status, _, _ in noted(verdict, *_NOTED)))
    return f"{title[:1].upper()}{title[1:]}"


def _promise(value: object) -> str:
    if value is None:
        return "not promised"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
