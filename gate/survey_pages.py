"""The pages of a survey, in Markdown, as HTML and for a terminal, made from what it has found alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from bucketproof.html import head
from bucketproof.judged import cause
from bucketproof.lists import table
from bucketproof.markdown import code
from bucketproof.markup import Markup, block, cut, tag
from bucketproof.properties import PROFILES
from bucketproof.properties.outcome import Outcome
from bucketproof.reference.released.lines import lines
from bucketproof.survey import Entry
from bucketproof.surveyed import Mark, Surveyed, broken, families, marks

_TITLE = "What released bucketers keep of the contract"
_LONGEST = 300
_ITEMS = 4
"""Items of a smallest stream that are told."""


def terminal(surveyed: Surveyed) -> str:
    """A table, what has changed from release to release, and what could not be judged."""
    several = [
        f"{name}, from release to release. {_changed(entries[-1])}\n\n{table(_releases(entries))}\n"
        for name, entries in surveyed.several()
    ]
    lines = [f"{each.spec}: {each.problem}\n" for each in surveyed.entries if each.problem]
    return f"{table(_overview(surveyed))}\n{''.join(several)}{''.join(lines)}{surveyed.summary}\n"


def _overview(surveyed: Surveyed) -> list[tuple[str, ...]]:
    heads = ("target", *next((families(each) for each in surveyed.entries), {}))
    return [heads, *((each.spec, *_row(each)) for each in surveyed.entries)]


def _row(entry: Entry) -> list[str]:
    found = families(entry).values()
    return ["no verdict", *("" for _ in found)][: len(found)] if entry.verdict is None else list(map(str, found))


def markdown(surveyed: Surveyed) -> str:
    """The whole page."""
    return "\n".join(_page(surveyed)) + "\n"


def _page(surveyed: Surveyed) -> Iterator[str]:
    yield f"# {_TITLE}\n"
    yield f"{_intro(surveyed)}\n"
    yield from _rows(_overview(surveyed))
    yield f"\n{_legend(surveyed)}\n"
    several = dict(surveyed.several())
    for name, entries in several.items():
        yield f"## {name}, from release to release\n"
        yield f"{_changed(entries[-1])}\n"
        heads, *rows = _releases(entries)
        yield from _rows([heads, *((code(name), *found) for name, *found in rows)])
        yield ""
    for entry in surveyed.entries:
        yield from _target(entry, "" if entry.name in several else f" {_changed(entry)}")


def _intro(surveyed: Surveyed) -> str:
    found = next((each.verdict.environment for each in surveyed.entries if each.verdict), {})
    versions = ", ".join(f"{name} {found.get(name, '?')}" for name in ("bucketproof", "torch", "python"))
    return (
        f"Made on {surveyed.date} by `bucketproof survey --profile {surveyed.profile} --seed {surveyed.seed} "
        f"--markdown`, with {versions}, on a CPU. {surveyed.summary}.\n\n"
        "Each target is the project's own code, taken from the wheel that it was published in, and is judged by what\n"
        "the project promises. What it does not promise is *unpromised*, and no failure. `docs/promises.md` says what\n"
        "a plain bucketer promises. A script for each broken promise, which needs torch and that code alone, is\n"
        "written by `bucketproof survey NAME --repro DIR`."
    )


def _legend(surveyed: Surveyed) -> str:
    return (
        "✓ nothing of what is promised was seen broken; ✗ 3/20 is broken in 3 of 20 cells; o is not promised, "
        "and not judged. A SHOULD that is broken is told in brackets. Each cell draws "
        f"{PROFILES[surveyed.profile].examples} streams, of many dtypes and layouts: what goes wrong with one of these "
        "can break many cells, and what needs a rare stream may be seen in a longer profile alone."
    )


def _changed(entry: Entry) -> str:
    return f"What has changed in its code: {entry.history}."


def _rows(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    heads, *body = rows
    for row in (heads, ["---" for _ in heads], *body):
        yield f"| {' | '.join(row)} |"


def _releases(entries: Sequence[Entry]) -> list[tuple[str, ...]]:
    """The properties that are not alike in all releases, or broken in one."""
    found = [marks(each) for each in entries]
    names = [name for name in found[0] if any(_is_bad(each.get(name)) for each in found)]
    rows = [(name, *(str(each.get(name, "")) for each in found)) for name in names]
    return [("property", *(each.version for each in entries)), *rows]


def _is_bad(mark: Mark | None) -> bool:
    return mark is not None and bool(mark.broken or mark.should)


def _target(entry: Entry, more: str) -> Iterator[str]:
    yield f"## {entry.spec}\n"
    yield f"What it is: {entry.why}. {code(entry.source)}{_wheel(entry)}.{more}\n"
    if entry.reasons:
        yield "Promised otherwise than a plain bucketer does:\n"
        yield from (f"- {line}" for line in _promises(entry))
        yield ""
    if entry.verdict is None:
        yield f"**No verdict**: {code(entry.problem)}\n"
        return
    found, shown = broken(entry), lines(entry.spec)
    yield f"**{'Broken' if found else 'All that is promised holds'}**{':' if found else '.'}\n"
    for name, cells in found.items():
        yield from _property(name, cells, sum(each.cell.partition("[")[0] == name for each in entry.verdict.cells))
    if found:
        yield ""
    yield from _lines({name: shown[name] for name in found if name in shown})


def _lines(shown: Mapping[str, str]) -> Iterator[str]:
    """The lines that show what goes wrong, each with the properties that it shows it of."""
    if shown:
        yield "In a line, which raises for as long as it goes wrong:\n"
        for line in dict.fromkeys(shown.values()):
            names = ", ".join(code(name) for name in shown if shown[name] == line)
            yield f"- {names}:\n\n  ```text\n  {line}\n  ```\n"


def _wheel(entry: Entry) -> str:
    if entry.verdict is None:
        return ""
    origin = entry.verdict.origin
    return f" of {entry.project} {entry.version}, wheel SHA-256 {code(origin.get('sha256', '?'))}"


def _promises(entry: Entry) -> Iterator[str]:
    made = entry.verdict.promises if entry.verdict else {}
    for name, reason in entry.reasons.items():
        yield f"{code(f'{name}={made.get(name)!r}' if made else name)}: {reason}"


def _property(name: str, cells: Sequence[Outcome], total: int) -> Iterator[str]:
    first = cells[0]
    level = "" if first.level == "MUST" else f", a {first.level}"
    sentence = first.failure.sentence if first.failure else first.reason
    yield f"- {code(name)}{level}, in {len(cells)} of {total} cells: {sentence}"
    for cell in _told(cells):
        yield from _failure(cell)


def _told(cells: Sequence[Outcome]) -> Sequence[Outcome]:
    """The cells that are told of: those that have a script, one for each cause, and in any case one."""
    scripted = [cell for cell in cells if cell.failure and cell.failure.script]
    return [*{cause(cell): cell for cell in reversed(scripted)}.values()][::-1] or cells[:1]


def _failure(cell: Outcome) -> Iterator[str]:
    if cell.failure is None:
        yield f"    - {code(cell.cell)} has no verdict: {code(cell.reason)}"
        return
    items = list(cell.failure.items)
    more = f", and {len(items) - _ITEMS} more" if len(items) > _ITEMS else ""
    yield f"    - {code(cell.cell)}: {code(cell.failure.what)}"
    told = "; ".join(code(item.rstrip(".")) for item in items[:_ITEMS]) or "no weight at all"
    yield f"      Smallest stream: {told}{more}."


def page(surveyed: Surveyed) -> str:
    """The survey as a page that needs no network and no scripts."""
    heads, *rows = _overview(surveyed)
    body = [
        tag("h1", _TITLE),
        tag("p", f"{surveyed.summary}."),
        _html_table(heads, rows),
        tag("p", _legend(surveyed)),
        *(part for name, entries in surveyed.several() for part in _html_releases(name, entries)),
        *(_html_target(entry) for entry in surveyed.entries),
    ]
    main = block("main", *body, id="content")
    return f"<!DOCTYPE html>\n{block('html', head(_TITLE), block('body', main), lang='en')}\n"


def _html_table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> Markup:
    top = tag("thead", tag("tr", *(tag("th", each, scope="col") for each in heads)))
    body = [tag("tr", tag("th", row[0], scope="row"), *(tag("td", each) for each in row[1:])) for row in rows]
    return block("table", top, block("tbody", *body))


def _html_releases(name: str, entries: Sequence[Entry]) -> Iterator[Markup]:
    heads, *rows = _releases(entries)
    yield tag("h2", f"{name}, from release to release")
    yield tag("p", _changed(entries[-1]))
    yield _html_table(heads, rows)


def _html_target(entry: Entry) -> Markup:
    told = [tag("p", f"What it is: {entry.why}. {entry.source}"), tag("p", _changed(entry))]
    if entry.verdict is None:
        told.append(tag("p", tag("strong", "No verdict: "), entry.problem))
    else:
        told.append(tag("p", f"Wheel SHA-256 {entry.verdict.origin.get('sha256', '?')}"))
    made = entry.verdict.promises if entry.verdict else {}
    promised = [tag("li", tag("code", f"{name}={made.get(name)!r}"), f": {why}") for name, why in entry.reasons.items()]
    failing = [_html_property(name, cells) for name, cells in broken(entry).items()]
    lists = [block("ul", *each) for each in (promised, failing) if each]
    return block("section", tag("h2", entry.spec), *told, *lists)


def _html_property(name: str, cells: Sequence[Outcome]) -> Markup:
    told = [block("ul", *map(_html_failure, _told(cells)))]
    return block("li", tag("code", name), f" in {len(cells)} {'cell' if len(cells) == 1 else 'cells'}", *told)


def _html_failure(cell: Outcome) -> Markup:
    if cell.failure is None:
        return tag("li", cut(f"{cell.cell}: {cell.reason}", _LONGEST))
    items = [tag("li", cut(item, _LONGEST)) for item in cell.failure.items[:_ITEMS]]
    return block("li", tag("code", cell.cell), f": {cut(cell.failure.what, _LONGEST)}", block("ul", *items))
