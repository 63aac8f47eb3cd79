"""Tables of Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """The lines of a table, and an empty one behind it."""
    yield _row(heads)
    yield _row(["---"] * len(heads))
    yield from map(_row, rows)
    yield ""


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def code(text: object) -> str:
    """A text without backticks as code."""
    return f"`{text}`"


def codes(texts: Iterable[object], joint: str = ", ") -> str:
    """Some of them."""
    return joint.join(map(code, texts))
