"""Known failures: cells that are let fail, each with a reason, in a TOML file.

    # Waits for the next release.
    ["aliasing.survives-overwrite[detach]"]
    reason = "the guard looks at `_base` alone"
    link = "https://example.org/issues/7"

The file is a person's. When it is rewritten, lines are taken out of it and added to it, and no other is touched.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from bucketproof.properties.outcome import Outcome, Status
from bucketproof.request import BadRequest, near

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

NOT_YET = "accepted, not yet explained"
"""The reason of a cell that a run has put on the list."""

_LISTED: dict[Status, Status] = {"fail": "known", "pass": "fixed"}
_DOES_NOT_FAIL = ("pass", "fixed", "unpromised")


@dataclass(frozen=True)
class Known:
    """Why a cell is let fail."""

    reason: str
    link: str = ""

    def excuse(self, outcome: Outcome) -> Outcome:
        """The outcome of a cell that is listed. What has no verdict has none either way."""
        if outcome.status not in _LISTED:
            return outcome
        return replace(outcome, status=_LISTED[outcome.status], reason=self.reason, link=self.link)


@dataclass(frozen=True)
class KnownFile:
    """The list, as it is written."""

    path: str
    text: str = ""

    @classmethod
    def read(cls, path: str, missing_ok: bool = False) -> KnownFile:
        """The list in a file. Raises `BadRequest`."""
        try:
            return cls(path, Path(path).read_text(encoding="utf-8"))
        except UnicodeDecodeError:
            raise BadRequest(f"{path} cannot be read: it is not UTF-8") from None
        except OSError as error:
            if missing_ok and isinstance(error, FileNotFoundError):
                return cls(path)
            raise BadRequest(f"{path} cannot be read: {error.strerror}") from None

    def entries(self) -> dict[str, Known]:
        """Why each listed cell is let fail. Raises `BadRequest`."""
        try:
            data = tomllib.loads(self.text)
        except tomllib.TOMLDecodeError as error:
            raise BadRequest(f"{self.path} is no TOML: {' '.join(str(error).split())}") from None
        for id, entry in data.items():
            if wrong := _wrong(entry):
                form = '["CELL"], quotes and all, and below it a `reason` and, if there is one, a `link`'
                raise BadRequest(f"{self.path}: {id!r} {wrong}; an entry is {form}")
        return {id: Known(**entry) for id, entry in data.items()}

    def must_be_rewritable(self) -> None:
        """Raises `BadRequest` at once for a list that could not be changed after the minutes of a run."""
        replace(self, text=_without(self.text, self.entries().keys()))._must_list({})

    def accept(self, cells: Iterable[Outcome]) -> KnownFile:
        """The list of the cells that fail now. Of what has no verdict, nothing is changed. Raises `BadRequest`."""
        statuses = {cell.cell: cell.status for cell in cells if cell.cell != "smoke"}
        before = self.entries()
        kept = {id: entry for id, entry in before.items() if statuses.get(id) not in _DOES_NOT_FAIL}
        new = [id for id, status in statuses.items() if status == "fail" and id not in before]
        after = replace(self, text=_with(_without(self.text, before.keys() - kept.keys()), new))
        after._must_list({**kept, **dict.fromkeys(new, Known(NOT_YET))})
        return after

    def _must_list(self, entries: Mapping[str, Known]) -> None:
        # A reader of lines does not know all of TOML, so what it has done is looked at before it is believed.
        try:
            is_so = self.entries() == entries
        except BadRequest:
            is_so = False
        if not is_so:
            raise BadRequest(
                f'{self.path} cannot be rewritten line by line, and is left as it was; write ["CELL"] for each cell, '
                "and below it a `reason` and a `link` on a line each"
            )


def _wrong(entry: object) -> str:
    """What is wrong with an entry, if something is."""
    if not isinstance(entry, dict):
        return "is no table"
    if odd := sorted(entry.keys() - {"reason", "link"}):
        return f"has {odd[0]!r}, which means nothing here"
    if odd := [name for name, value in entry.items() if not isinstance(value, str)]:
        return f"has a {odd[0]} that is no text"
    return "" if entry.get("reason", "").strip() else "has no reason"


def must_be_cells(path: str, listed: Iterable[str], cells: Collection[str]) -> None:
    """Raises `BadRequest` for what is listed and is no cell: it would excuse nothing, and nobody would notice."""
    for id in listed:
        if id not in cells:
            raise BadRequest(f"{path}: no cell {id!r}{near(id, cells)} See: bucketproof list properties")


def relisted(cells: Iterable[Outcome], listed: Mapping[str, Known]) -> tuple[Outcome, ...]:
    """The outcomes as they are after the list was changed to what fails."""
    return tuple(_relisted(cell, listed.get(cell.cell)) for cell in cells)


def _relisted(cell: Outcome, known: Known | None) -> Outcome:
    if known:
        return known.excuse(cell)
    return replace(cell, status="pass", reason="", link="") if cell.status == "fixed" else cell


_START = re.compile(r"""\s*\[?\s*(?P<quote>["'])(?P<id>.+?)(?P=quote)\s*(\]\s*(#.*)?$|[.=])""")
"""The line that an entry begins with, be it a table or a key."""


def _without(text: str, ids: Collection[str]) -> str:
    """The text without these entries: their lines, the comments that touch them, and the empty lines below."""
    if not ids:
        return text
    lines = text.splitlines(keepends=True)
    gone = {number for id, span in _spans(lines) if id in ids for number in span}
    left = "".join(line for number, line in enumerate(lines) if number not in gone)
    return f"{left.rstrip()}\n" if left.strip() else ""


def _spans(lines: list[str]) -> Iterator[tuple[str, range]]:
    """Each entry, with the numbers of its lines."""
    starts = [(number, match["id"]) for number, line in enumerate(lines) if (match := _START.match(line))]
    tops = [_back(lines, number, _is_comment) for number, _ in starts]
    for (number, id), top, bottom in zip(starts, tops, [*tops[1:], len(lines)], strict=True):
        # Comments that stand alone between two entries are of neither.
        end = max(number + 1, _back(lines, bottom, lambda line: _is_comment(line) or _is_empty(line)))
        for passed in (_is_comment, _is_empty):
            while end < bottom and passed(lines[end]):
                end += 1
        yield id, range(top, end)


def _back(lines: list[str], number: int, passed: Callable[[str], bool]) -> int:
    """The number of the first line of those before this one that can all be passed."""
    while number and passed(lines[number - 1]):
        number -= 1
    return number


def _is_comment(line: str) -> bool:
    return line.lstrip().startswith("#")


def _is_empty(line: str) -> bool:
    return not line.strip()


def _with(text: str, ids: Iterable[str]) -> str:
    """The text, and below it entries that nobody has explained."""
    for id in ids:
        text = f"{text.rstrip()}\n\n".lstrip() + f'["{id}"]\nreason = "{NOT_YET}"\nlink = ""\n'
    return text
