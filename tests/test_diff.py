"""Two verdicts: what got worse, what got better, and what a gate makes of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest

import bucketproof.cli
from bucketproof.cli import main
from bucketproof.diff import Baseline, Kind, became
from bucketproof.properties import Failure, Outcome
from bucketproof.properties.outcome import Level, Status
from bucketproof.report import WIDTH, Style, render, render_changes
from bucketproof.request import BadRequest, Request
from bucketproof.verdict import Verdict, read

FAILURE = Failure("It holds.", "it did not", "Plan()", ("'w': fresh",), ())
CELLS = ("smoke", "values.order", "values.tied", "values.conserved[fresh]", "values.conserved[slice]")


def verdict(statuses: str, level: Level = "MUST") -> Verdict:
    """A verdict on cells, each of which has a letter: what it became. A blank is a cell that there is not."""
    named: dict[str, Status] = {status[0]: status for status in get_args(Status) if status not in ("fail", "skipped")}
    named |= {"f": "fail", "x": "fixed", "s": "skipped"}
    found = [(cell, named[letter]) for cell, letter in zip(CELLS, statuses, strict=False) if letter != " "]
    cells = (
        Outcome(cell, status, level, 3, failure=FAILURE if status in ("fail", "known") else None)
        for cell, status in found
    )
    return Verdict("mine:f", {}, "smoke", 0, {}, 1.0, tuple(cells), {})


def compared(before: str, now: str, **options: Level) -> Verdict:
    return replace(verdict(now, **options), baseline=Baseline.of(verdict(before)))


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of the test's own, which is the current one."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


STATUSES: tuple[Status | None, ...] = ("pass", "fixed", "fail", "known", "error", "skipped", "unpromised", None)
WORSE = {
    *((before, "fail") for before in STATUSES if before not in ("fail", "known")),
    *((before, "error") for before in STATUSES if before != "error"),
    *((before, now) for before in ("pass", "fixed") for now in ("skipped", "unpromised")),
}


def test_worse_is_a_new_failure_a_lost_verdict_or_a_promise_that_is_not_made_any_more() -> None:
    assert {(before, now) for before in STATUSES for now in STATUSES if became(before, now) == "worse"} == WORSE


@pytest.mark.parametrize("status", STATUSES)
def test_what_has_not_changed_is_told_only_if_it_is_bad(status: Status | None) -> None:
    assert became(status, status) == ("still" if status in ("fail", "error") else None)


@pytest.mark.parametrize(
    ("before", "now", "kind"),
    [
        ("fail", "pass", "better"),
        ("known", "fixed", "better"),
        ("known", "pass", "better"),
        ("error", "pass", "better"),
        ("pass", "fixed", None),
        ("known", "fail", "still"),
        ("pass", "known", "accepted"),
        ("fail", "known", "accepted"),
        ("error", "known", "accepted"),
        (None, "pass", "new"),
        ("skipped", "pass", "new"),
        (None, "known", "new"),
        ("pass", None, "gone"),
        ("fail", None, "gone"),
        ("fail", "unpromised", "gone"),
        ("skipped", "unpromised", None),
        ("unpromised", None, None),
    ],
)
def test_each_other_step_has_its_name(before: Status | None, now: Status | None, kind: Kind | None) -> None:
    assert became(before, now) == kind


def test_the_changes_are_told_in_the_order_of_the_cells_and_those_that_are_gone_in_the_end() -> None:
    changes = compared("ppf p", "pfp f").changes

    assert [(change.cell, change.kind, change.step) for change in changes] == [
        ("values.order", "worse", "pass -> fail"),
        ("values.tied", "better", "fail -> pass"),
        ("values.conserved[slice]", "worse", "pass -> fail"),
    ]
    (gone,) = compared("pp", "p").changes
    assert (gone.cell, gone.kind, gone.step, gone.level) == ("values.order", "gone", "pass -> no cell", None)
    assert verdict("pf").changes == ()


@pytest.mark.parametrize(
    ("before", "now", "code", "meaning"),
    [
        ("pff", "pff", 0, "nothing got worse"),
        ("pff", "ppf", 0, "nothing got worse"),
        ("pfp", "pff", 1, "something got worse"),
        ("pf", "pff", 1, "something got worse"),
        ("ppp", "p", 0, "nothing got worse"),
        ("ppf", "pkk", 0, "nothing got worse"),
        ("pk", "pf", 0, "nothing got worse"),
        ("pp", "pu", 1, "something got worse"),
        ("pe", "pe", 0, "nothing got worse"),
        ("pf", "pe", 3, "no verdict"),
        ("ppp", "pef", 1, "something got worse"),
        ("pp", "", 3, "no verdict"),
    ],
)
def test_only_what_got_worse_fails(before: str, now: str, code: int, meaning: str) -> None:
    judged = compared(before, now)

    assert (judged.exit_code, judged.meaning) == (code, meaning)


def test_a_should_that_got_worse_counts_where_it_is_strict() -> None:
    judged = compared("pp", "pf", level="SHOULD")

    assert judged.exit_code == 0
    assert "WORSE (pass -> fail)\n  values.order (SHOULD)\n" in render(judged)
    assert replace(judged, strict=True).exit_code == 1
    assert compared("pp", "pe", level="SHOULD").exit_code == 3


def test_a_fixed_cell_fails_beside_a_baseline_too_where_it_is_strict() -> None:
    assert replace(compared("pk", "px"), strict=True).exit_code == 1
    assert compared("pk", "px").exit_code == 0


def test_a_verdict_with_a_baseline_survives_its_json() -> None:
    judged = compared("ppf", "pfp")

    assert Verdict.from_json(judged.to_json()) == judged
    assert judged.exit_code == Verdict.from_json(judged.to_json()).exit_code == 1


def test_a_verdict_of_a_suite_that_knew_no_baseline_is_read() -> None:
    data = json.loads(verdict("pf").to_json())
    del data["baseline"], data["strict"]
    for cell in data["cells"]:
        del cell["link"]

    assert Verdict.from_json(json.dumps(data)) == verdict("pf")


def test_the_report_explains_what_got_worse_and_lists_what_is_no_better() -> None:
    judged = replace(compared("pfpf", "pffp"), target="yours:f", seed=3)

    text = render(judged)

    assert text.startswith("FAIL values.tied\n  It holds.\n")
    assert text.count("FAIL ") == 1
    assert text.endswith(CHANGES)


CHANGES = """\
✓ smoke
✗ values.order
✗ values.tied
✓ values.conserved[fresh]

✓ pass  ✗ fail

WORSE (pass -> fail)
  values.tied

BETTER (fail -> pass)
  values.conserved[fresh]

NO BETTER (fail -> fail)
  values.order

Two kinds of run are compared: target mine:f then, yours:f now, seed 0 then, 3 now.

Broken:
  - values.tied, in 1 of 1 cells: it did not

4 cells: 2 pass, 2 fail; yours:f; profile smoke, seed 3, 1.0 s
exit 1: something got worse
"""


def test_many_cells_that_took_one_step_are_counted_in_a_report_and_listed_in_a_comparison() -> None:
    cells = tuple(Outcome(f"values.conserved[p{number}]", "pass", "MUST") for number in range(30))
    judged = replace(compared("p", "p"), cells=cells)

    assert "values.conserved[p7], and 22 more" in " ".join(render(judged).split())
    assert "values.conserved[p29]" in render_changes(judged)
    assert all(len(line) <= WIDTH for line in render_changes(judged).splitlines())


def test_colour_says_nothing_that_the_text_does_not() -> None:
    judged = compared("ppf", "pfp")

    coloured = render_changes(judged, Style(colour=True))

    assert "\x1b[31mWORSE (pass -> fail)\x1b[0m" in coloured
    for code in ("31", "32", "0"):
        coloured = coloured.replace(f"\x1b[{code}m", "")
    assert coloured == render_changes(judged)


# The command line.


def write(path: Path, statuses: str, level: Level = "MUST") -> str:
    path.write_text(verdict(statuses, level).to_json())
    return path.name


def test_diff_tells_what_changed_and_fails_if_it_got_worse(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old, new = write(here / "old.json", "ppf p"), write(here / "new.json", "pfpp")

    assert main(["diff", old, new]) == 1
    assert capsys.readouterr().out == DIFF
    assert main(["diff", old, old]) == 0
    assert capsys.readouterr().out == "NO BETTER (fail -> fail)\n  values.tied\n\n4 cells: 1 no better\n"
    assert main(["diff", new, write(here / "best.json", "pppp")]) == 0
    assert main(["diff", new, write(here / "none.json", "pfpe")]) == 1


DIFF = """\
WORSE (pass -> fail)
  values.order

BETTER (fail -> pass)
  values.tied

NEW (no cell -> pass)
  values.conserved[fresh]

GONE (pass -> no cell)
  values.conserved[slice]

4 cells: 1 worse, 1 better, 1 new, 1 gone
"""


def test_diff_of_two_that_are_alike_says_so(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diff", write(here / "a.json", "pp"), write(here / "b.json", "pp")]) == 0
    assert capsys.readouterr().out == "2 cells: none has changed\n"


def test_diff_compares_what_a_baseline_was_not_compared_with(here: Path) -> None:
    """A verdict may have a baseline of its own, which another comparison has nothing to do with."""
    (here / "new.json").write_text(compared("pf", "pf").to_json())

    assert main(["diff", write(here / "old.json", "pp"), "new.json"]) == 1


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("gone.json", "gone.json cannot be read: No such file or directory"),
        (".", ". cannot be read: Is a directory"),
        ("empty.json", "empty.json is no verdict, as `check --json` writes them: Expecting value"),
        ("binary.json", "binary.json is no verdict, as `check --json` writes them: 'utf-8' codec can't decode"),
        ("other.json", "other.json is no verdict, as `check --json` writes them: no verdict of bucketproof's in"),
        (
            "older.json",
            "older.json is no verdict, as `check --json` writes them: no verdict of bucketproof's in schema",
        ),
        ("bare.json", "bare.json is no verdict, as `check --json` writes them: a verdict that is not whole: 'cells'"),
        ("cut.json", "cut.json is no verdict, as `check --json` writes them: "),
        (
            "odd.json",
            "odd.json is no verdict, as `check --json` writes them: a verdict that is not whole: no cell can be",
        ),
        ("flat.json", "flat.json is no verdict, as `check --json` writes them: a verdict that is not whole: "),
    ],
)
@pytest.mark.parametrize("command", ["diff {} good.json", "diff good.json {}", "check --baseline {}"])
def test_what_is_no_verdict_is_refused_in_one_line(
    here: Path, name: str, line: str, command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(bucketproof.cli, "run")  # refused before anything is judged
    good = verdict("pf").to_json()
    texts = {
        "good": good,
        "empty": "",
        "other": "[]",
        "older": '{"schema": 0}',
        "bare": '{"schema": 1}',
        "cut": good[:-20],
        "odd": good.replace('"fail"', '"odd"'),
        "flat": json.dumps({**json.loads(good), "cells": [1]}),
    }
    for each, text in texts.items():
        (here / f"{each}.json").write_text(text)
    (here / "binary.json").write_bytes(b"\xff\xfe")

    code = main(command.format(name).split())

    said = capsys.readouterr()
    assert said.err.startswith(f"bucketproof: {line}")
    assert said.err.count("\n") == 1
    assert (code, said.out) == (2, "")


def test_a_verdict_is_read_as_it_was_written(here: Path) -> None:
    assert read(write(here / "v.json", "pf")) == verdict("pf")
    with pytest.raises(BadRequest):
        read("no/such.json")


@pytest.fixture
def judged(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Says what `check` finds, so that nothing needs to be judged."""

    def finds(statuses: str) -> None:
        def run(request: Request) -> Verdict:
            return verdict(statuses)

        monkeypatch.setattr(bucketproof.cli, "run", run)

    return finds


def test_check_lets_fail_only_what_got_worse_and_its_verdict_says_the_same(
    here: Path, judged: Callable[[str], None], capsys: pytest.CaptureFixture[str]
) -> None:
    write(here / "v.json", "pfp")

    judged("pfp")
    assert main(["check", "--baseline", "v.json", "--json", "w.json"]) == 0
    assert capsys.readouterr().out.endswith("exit 0: nothing got worse\n")
    assert read("w.json").exit_code == 0
    judged("pff")
    assert main(["check", "--baseline", "v.json", "--json", "v.json"]) == 1
    assert read("v.json").exit_code == 1
    assert main(["check", "--baseline", "v.json"]) == 0


def test_a_change_that_is_accepted_is_not_worse(here: Path, judged: Callable[[str], None]) -> None:
    write(here / "v.json", "pp")
    judged("pf")

    assert main(["check", "--baseline", "v.json", "--known", "k.toml", "--accept"]) == 0
