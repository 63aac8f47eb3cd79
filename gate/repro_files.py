"""Reproduction scripts as files: one for each failing cell that has one. Imports nothing that is slow."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from bucketproof.output import destination
from bucketproof.request import BadRequest
from bucketproof.verdict import Verdict


@contextmanager
def folder(path: str | None) -> Iterator[Callable[[Verdict], str]]:
    """A function that writes a verdict's scripts, and says so in a line; without a path, one that does nothing.

    Raises `BadRequest` at once if it could not write. What is in the folder already is left there, but for scripts of
    the same cells.
    """
    if path is None:
        yield lambda verdict: ""
        return
    try:
        Path(path).mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=path).close()
    except FileExistsError:
        raise BadRequest(f"{path} is a file: name the folder that scripts are to be written into") from None
    except OSError as error:
        raise BadRequest(f"no script can be written into {path}: {error.strerror}") from None
    yield lambda verdict: _write(verdict, Path(path))


def hint(verdict: Verdict) -> str:
    """A line that says how to come by the scripts, if there are any."""
    if not _scripts(verdict):
        return ""
    return "With --repro DIR, each failing cell is written as a script that needs torch and the target alone.\n"


def _scripts(verdict: Verdict) -> dict[str, str]:
    return {cell.cell: cell.failure.script for cell in verdict.cells if cell.failure and cell.failure.script}


@contextmanager
def folders(path: str | None) -> Iterator[Callable[[Iterable[tuple[str, Verdict]]], str]]:
    """A function that writes the scripts of several verdicts, each by its name into a folder of its own."""
    with folder(path):
        yield lambda named: _write_all(named, Path(path)) if path else ""


def _write_all(named: Iterable[tuple[str, Verdict]], into: Path) -> str:
    count = 0
    for name, verdict in named:
        if scripts := _scripts(verdict):
            with folder(str(into / re.sub(r"[^A-Za-z0-9._@-]+", "-", name))) as write:
                write(verdict)
            count += len(scripts)
    return f"{into} has {count} {'script' if count == 1 else 'scripts'}, in a folder for each target.\n"


def _write(verdict: Verdict, into: Path) -> str:
    scripts = _scripts(verdict)
    for cell, name in file_names(scripts).items():
        with destination(str(into / name)) as write:
            write(scripts[cell])
    lacking = [cell.cell for cell in verdict.cells if cell.status == "fail" and cell.cell not in scripts]
    said = f"{into} has a script for each of {len(scripts)} failing cells"
    return f"{said}, and none for {', '.join(lacking)}.\n" if lacking else f"{said}.\n"


def file_names(cells: Mapping[str, object]) -> dict[str, str]:
    """A file name for each cell, which any file system takes: `aliasing.survives-overwrite-detach.py`."""
    names: dict[str, str] = {}
    for cell in cells:
        name = re.sub(r"[^A-Za-z0-9._-]+", "-", cell).strip("-.")
        taken = {each.lower() for each in names.values()}
        number = next(i for i in range(1, len(cells) + 1) if _numbered(name, i).lower() not in taken)
        names[cell] = _numbered(name, number)
    return names


def _numbered(name: str, number: int) -> str:
    return f"{name}.py" if number == 1 else f"{name}-{number}.py"
