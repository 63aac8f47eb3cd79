"""Writing a file that is not there until it is complete."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from bucketproof.request import BadRequest


@contextmanager
def destination(path: str | None) -> Iterator[Callable[[str], None]]:
    """A function that writes a text to `path`, whole or not at all; without a path, one that writes nothing.

    Raises `BadRequest` at once if it could not, not after the minutes that it takes to have something to write.
    """
    if path is None:
        yield lambda text: None
        return
    final = Path(path).resolve()
    # A pipe or a device cannot be replaced by a file, and need not be.
    draft = final.with_name(f".{final.name}.{os.getpid()}") if final.is_file() or not final.exists() else final
    try:
        draft.open("a", encoding="utf-8").close()
    except OSError as error:
        raise BadRequest(f"{path} cannot be written: {error.strerror}") from None
    try:
        yield lambda text: _write(text, draft, final, path)
    finally:
        if draft != final:
            draft.unlink(missing_ok=True)


def _write(text: str, draft: Path, final: Path, path: str) -> None:
    try:
        draft.write_text(text, encoding="utf-8")
        if draft != final:
            draft.replace(final)
    except OSError as error:  # the disk is full by now
        raise BadRequest(f"{path} cannot be written: {error.strerror}") from None
