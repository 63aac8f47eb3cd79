"""Reports in files: each is made from the verdict alone, and is the same for the same verdict wherever it is made."""

from __future__ import annotations

import os
import sys
from argparse import Namespace
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from bucketproof.badge import badge
from bucketproof.html import page
from bucketproof.junit import junit
from bucketproof.markdown import LIMIT, SHORTEST, summary
from bucketproof.output import destination
from bucketproof.request import BadRequest
from bucketproof.verdict import Verdict

FORMATS: dict[str, tuple[Callable[[Verdict], str], str]] = {
    "html": (page, "write the report as a page that needs no network"),
    "markdown": (summary, "write it as Markdown"),
    "junit": (junit, "write it as JUnit's XML"),
    "badge": (badge, "write what shields.io makes a badge from"),
}
"""What makes the text of each kind of report, and what is said of it."""

_SUMMARY = "GITHUB_STEP_SUMMARY"


def add_options(command: Any) -> None:
    """Let a command write reports."""
    for name, (_, what) in FORMATS.items():
        command.add_argument(f"--{name}", metavar="F", help=what)


@contextmanager
def reports(options: Namespace, *others: str | None) -> Iterator[Callable[[Verdict], None]]:
    """A function that writes the reports that were asked for.

    `others` are the other files that the command is about. Raises `BadRequest` at once if a report cannot be written,
    or would take the place of another file that is.
    """
    asked = {name: path for name in FORMATS if (path := getattr(options, name))}
    _must_differ(asked.values(), filter(None, others))
    with ExitStack() as stack:
        writers = {name: stack.enter_context(destination(path)) for name, path in asked.items()}

        def write(verdict: Verdict) -> None:
            for name, put in writers.items():
                put(FORMATS[name][0](verdict))

        yield write


def _must_differ(paths: Iterable[str], others: Iterable[str]) -> None:
    taken = {Path(path).resolve() for path in others}
    for path in paths:
        final = Path(path).resolve()
        # A pipe or a device takes whatever it is given.
        if final in taken and (final.is_file() or not final.exists()):
            raise BadRequest(f"{path} is named twice; give each file a name of its own")
        taken.add(final)


def summarise(verdict: Verdict) -> None:
    """Add the verdict to the summary of the job, if this runs in one. It is no reason to fail if that cannot be."""
    path = os.environ.get(_SUMMARY)
    if not path:
        return
    try:
        with Path(path).open("a", encoding="utf-8") as file:
            free = LIMIT - file.tell()
            if free < SHORTEST:
                raise OSError(None, "it is full")
            file.write(summary(verdict, free))
    except OSError as error:
        print(f"bucketproof: nothing was added to ${_SUMMARY}, {path}: {error.strerror}", file=sys.stderr)
