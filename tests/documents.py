"""The fenced blocks of the project's pages, which tests run."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
PAGES = tuple(sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]))

_BLOCK = re.compile(r"(?:^`(?P<file>[^`\n]+)`:\n\n)?^```(?P<language>\w*)\n(?P<text>.*?)^```$", re.M | re.S)


class Block(NamedTuple):
    """A fenced block."""

    page: str
    file: str
    """The name of the file that it is, if the line before it says one."""
    language: str
    text: str


def blocks(page: Path) -> Iterator[Block]:
    """All fenced blocks of a page."""
    for found in _BLOCK.finditer(page.read_text(encoding="utf-8")):
        yield Block(str(page.relative_to(ROOT)), found["file"] or "", found["language"], found["text"])


def files(page: Path) -> dict[str, str]:
    """The files that a page shows, by their names."""
    return {block.file: block.text for block in blocks(page) if block.file}


TOOLS = ("bucketproof", "pytest", "python", "python3", "pip")


def commands(block: Block) -> list[str]:
    """The commands of a block, without remarks and variables; none if it shows something else.

    Raises ValueError for a mixture.
    """
    lines = [re.sub(r"\s+# .*|^[A-Z_]+=\S+ ", "", line) for line in block.text.splitlines() if line.strip()]
    are = [line.split()[0] in TOOLS for line in lines]
    if block.language or not any(are):
        return []
    if not all(are):
        raise ValueError(f"{block.page}: commands, and what is none, in one block:\n{block.text}")
    return lines
