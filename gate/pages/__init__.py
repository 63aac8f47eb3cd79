"""Pages of the documentation that are made of the registers: `bucketproof docs DIR` writes them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from bucketproof import extensions
from bucketproof.output import destination
from bucketproof.pages.api import api
from bucketproof.pages.contract import contract
from bucketproof.pages.promises import promises
from bucketproof.pages.provenances import provenances
from bucketproof.pages.verdict import verdict
from bucketproof.request import BadRequest

PAGES: dict[str, Callable[[], Iterator[str]]] = {
    "contract.md": contract,
    "provenances.md": provenances,
    "promises.md": promises,
    "verdict.md": verdict,
    "api.md": api,
}
"""The lines of each page, by its file's name."""

_MADE = "<!-- Written by `bucketproof docs`: what is changed here is lost. -->"


def page(name: str) -> str:
    """The text of a page, with what packages outside add. Raises `BadRequest` if one of these cannot be loaded."""
    extensions.load()
    return "\n".join([_MADE, "", *PAGES[name](), ""])


def write(folder: str) -> str:
    """Write all pages into a folder, and say so in a line. Raises `BadRequest` if it cannot be written."""
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadRequest(f"no page can be written into {folder}: {error.strerror}") from None
    for name in PAGES:
        with destination(str(Path(folder, name))) as put:
            put(page(name))
    return f"{folder} has {', '.join(PAGES)}.\n"
