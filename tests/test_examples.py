"""What a nightly run has found is looked at first in the next one, and no database is a reason to lose a verdict."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from documents import ROOT, files
from hypothesis.database import (
    DirectoryBasedExampleDatabase,
    ExampleDatabase,
    GitHubArtifactDatabase,
    InMemoryExampleDatabase,
)

from bucketproof import examples
from bucketproof.cli import main
from bucketproof.properties import PROFILES, Outcome, Profile, cells, judge
from bucketproof.properties.profiles import examples as folder
from bucketproof.properties.profiles import keep_in
from bucketproof.request import BadRequest
from bucketproof.targets import resolve
from bucketproof.trial import profile_named
from bucketproof.verdict import read

BRIEF = replace(PROFILES["nightly"], examples=8)
CELL = next(cell for cell in cells() if cell.id == "ownership.no-copy[fresh]")


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    """Other tests keep nothing of this."""
    yield
    keep_in(DirectoryBasedExampleDatabase(folder()))


def judged(seed: int) -> Outcome:
    return judge(CELL, resolve("always-clone"), BRIEF, seed)


def test_what_has_failed_is_tried_first_the_next_time() -> None:
    kept = InMemoryExampleDatabase()
    keep_in(kept)

    first = judged(seed=0)
    assert (first.status, len(kept.data)) == ("fail", 1)
    second = judged(seed=1)

    assert first.examples > second.examples == 1
    assert second.failure == first.failure


def test_of_a_target_that_is_mended_nothing_is_kept_any_more() -> None:
    kept = InMemoryExampleDatabase()
    keep_in(kept)
    assert judged(seed=0).status == "fail"
    mended = replace(resolve("reference"), name="always-clone")

    assert judge(CELL, mended, BRIEF, 1).status == "pass"
    assert not any(kept.data.values())


def test_a_profile_that_repeats_keeps_nothing() -> None:
    kept = InMemoryExampleDatabase()
    keep_in(kept)

    assert judge(CELL, resolve("always-clone"), replace(PROFILES["smoke"], examples=8), 0).status == "fail"
    assert not kept.data


class Refusing(ExampleDatabase):
    """A server that has gone."""

    def fetch(self, key: bytes) -> Iterable[bytes]:
        raise ConnectionError("nobody there")

    def save(self, key: bytes, value: bytes) -> None:
        raise ConnectionError("nobody there")

    delete = save


def test_a_database_that_raises_is_no_reason_to_have_no_verdict() -> None:
    keep_in(Refusing())

    assert judged(seed=0).status == "fail"


@pytest.mark.parametrize("spoilt", [b"", b"\xff\xff\xff no choices \x00", bytes(range(256)) * 40])
def test_what_is_broken_in_a_database_is_passed_over(tmp_path: Path, spoilt: bytes) -> None:
    keep_in(DirectoryBasedExampleDatabase(tmp_path))
    assert judged(seed=0).status == "fail"
    values = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert values
    for path in values:
        path.write_bytes(spoilt)

    assert judged(seed=0).status == "fail"


def test_a_folder_whose_entries_are_files_and_folders_in_the_wrong_place_is_passed_over(tmp_path: Path) -> None:
    keep_in(DirectoryBasedExampleDatabase(tmp_path))
    assert judged(seed=0).status == "fail"
    for path in [path for path in tmp_path.rglob("*") if path.is_file()]:
        path.unlink()
        path.mkdir()

    assert judged(seed=0).status == "fail"


# Which database that is.

MINE = """
from hypothesis.database import DirectoryBasedExampleDatabase, ExampleDatabase

shared = DirectoryBasedExampleDatabase("shared")
number = 3

class Refusing(ExampleDatabase):
    def fetch(self, key): raise ConnectionError("nobody there")
    def save(self, key, value): raise ConnectionError("nobody there")
    delete = save

gone = Refusing()
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with databases, and a nightly profile that does not take the night."""
    (tmp_path / "databases.py").write_text(MINE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setitem(PROFILES, "nightly", BRIEF)
    return tmp_path


def nightly(*arguments: str) -> int:
    return main(["check", "always-clone", "--profile", "nightly", "-n0", f"--only={CELL.id}", *arguments])


def test_a_database_that_is_named_is_shared(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(examples.VARIABLE, "databases.py:shared")

    assert nightly("--json", "first.json") == nightly("--json", "second.json") == 1

    first, second = (read(name).cells[-1] for name in ("first.json", "second.json"))
    assert first.examples > second.examples == 1
    assert capsys.readouterr().err == ""


def test_a_database_that_cannot_be_reached_is_told_and_the_verdict_is_not_lost(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(examples.VARIABLE, "databases.py:gone")

    assert nightly() == 1
    assert capsys.readouterr().err == (
        "bucketproof: what fails tonight is told, but not kept for the next night: the database "
        "$BUCKETPROOF_DATABASE=databases.py:gone raised ConnectionError: nobody there\n"
    )


def test_the_artifact_of_the_last_night_is_read_on_another_machine(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = files(ROOT / "docs" / "scale-out.md")["databases.py"]
    archive = "https://api.github.com/archive/1"
    artifacts = "https://api.github.com/repos/your-organisation/your-repository/actions/artifacts"
    answers = {artifacts: json.dumps({"artifacts": []}).encode()}
    monkeypatch.setattr(GitHubArtifactDatabase, "_get_bytes", lambda self, url: answers[url])
    for machine in ("one", "two"):
        (here / machine).mkdir()
        (here / machine / f"{machine}.py").write_text(shown)

    monkeypatch.chdir(here / "one")
    monkeypatch.setenv(examples.VARIABLE, "one.py:artifact")
    assert nightly("--json", "verdict.json") == 1
    kept = Path(shutil.make_archive("artifact", "zip", ".bucketproof/examples")).read_bytes()
    made = {"name": "hypothesis-example-db", "created_at": "2026-01-01T00:00:00Z", "archive_download_url": archive}
    answers.update({artifacts: json.dumps({"artifacts": [made]}).encode(), archive: kept})
    monkeypatch.chdir(here / "two")
    monkeypatch.setenv(examples.VARIABLE, "two.py:artifact")
    assert nightly("--json", "verdict.json") == 1

    first, second = (read(str(here / machine / "verdict.json")).cells[-1] for machine in ("one", "two"))
    assert first.examples > second.examples == 1


@pytest.mark.parametrize("place", ["a file", "not to be made"])
def test_a_cache_that_cannot_be_written_is_told_and_the_verdict_is_not_lost(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], place: str
) -> None:
    (here / "file").touch()
    cache = {"a file": here / "file", "not to be made": Path("/proc/nowhere")}[place]
    monkeypatch.setenv("BUCKETPROOF_CACHE", str(cache))
    keep_in(DirectoryBasedExampleDatabase(folder()))

    assert nightly() == 1

    [said] = capsys.readouterr().err.splitlines()
    assert said.startswith("bucketproof: what fails tonight is told, but not kept for the next night: ")
    assert f"{cache}/examples cannot be written: " in said
    assert said.endswith(". $BUCKETPROOF_CACHE names another place")


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("databases.py:number", "databases.py:number is no ExampleDatabase of Hypothesis's but a int"),
        ("databases.py:none", "databases.py:none: there is no attribute 'none'"),
        ("databases", "databases is neither in a module nor in a file"),
        ("nowhere:it", "no module 'nowhere'"),
    ],
)
def test_a_database_that_is_none_is_refused_in_one_line(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str, line: str
) -> None:
    monkeypatch.setenv(examples.VARIABLE, name)

    assert nightly() == 2
    assert capsys.readouterr().err.startswith(f"bucketproof: $BUCKETPROOF_DATABASE: {line}")


def test_other_profiles_ask_for_no_database(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(examples.VARIABLE, "nowhere:it")

    assert isinstance(profile_named("gate"), Profile)
    with pytest.raises(BadRequest, match="nowhere"):
        profile_named("nightly")
