"""Whatever happens to a run, it ends with a clear message, and what is known by then is not lost."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import bucketproof.trial
from bucketproof.cli import main
from bucketproof.properties import Cell, Outcome
from bucketproof.verdict import read

QUICK = ("--profile", "smoke", "-n0", "--only", "ownership.no-copy[fresh]")
FULL = Path("/dev/full")
needs_a_full_disk = pytest.mark.skipif(not FULL.exists(), reason="there is no /dev/full")


@needs_a_full_disk
@pytest.mark.parametrize("option", ["--json", "--html", "--junit", "--markdown", "--badge"])
def test_a_full_disk_is_told_in_a_line_and_the_verdict_is_on_the_terminal(
    option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check", "always-clone", *QUICK, option, str(FULL)]) == 2

    said = capsys.readouterr()
    assert said.out.endswith("exit 1: a promise is broken\n")
    assert said.err == "bucketproof: /dev/full cannot be written: No space left on device\n"


@needs_a_full_disk
def test_a_terminal_that_takes_nothing_is_told_in_a_line_and_the_verdict_is_in_its_file(tmp_path: Path) -> None:
    with FULL.open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "bucketproof", "report", str(verdict_in(tmp_path))],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
            check=False,
        )

    assert done.stderr == "bucketproof: the output cannot be used: No space left on device\n"
    assert done.returncode == 3


def verdict_in(folder: Path) -> Path:
    path = folder / "v.json"
    assert main(["check", *QUICK, "--json", str(path)]) == 0
    return path


def test_no_room_for_what_a_run_needs_is_told_in_a_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def no_room(prefix: str) -> None:
        raise OSError(28, "No space left on device", "/tmp/bucketproof-")

    monkeypatch.setattr("bucketproof.runner.tempfile.TemporaryDirectory", no_room)

    assert main(["check", *QUICK]) == 3
    assert capsys.readouterr().err == "bucketproof: /tmp/bucketproof- cannot be used: No space left on device\n"


def test_an_interrupted_run_tells_what_it_knows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def judge(cell: Cell, *_: object) -> Outcome:
        if cell.property.id == "values.tied":
            raise KeyboardInterrupt
        return Outcome(cell.id, "pass", cell.level)

    monkeypatch.setattr(bucketproof.trial, "judge", judge)
    path = tmp_path / "v.json"

    code = main(["check", "-n0", "--only=values.order", "--only=values.tied", "--json", str(path)])

    statuses = {cell.cell: (cell.status, cell.reason) for cell in read(str(path)).cells}
    interrupted = ("error", "the run was interrupted before this cell was judged")
    assert statuses.pop("values.tied") == interrupted
    assert ("pass", "") in statuses.values()
    said = capsys.readouterr()
    missing = 1 + list(statuses.values()).count(interrupted)
    assert said.err == f"bucketproof: interrupted, {missing} of {len(statuses) + 1} cells were not judged\n"
    assert "NO VERDICT: the run was interrupted before this cell was judged" in said.out
    assert code == 130
