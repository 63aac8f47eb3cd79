"""Groups of cells: judged where they are asked for, and nowhere else."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import find
from refusals import refusal

from bucketproof import Target, Verdict
from bucketproof.cli import main
from bucketproof.properties import PROFILES, PROPERTIES, cells, judge
from bucketproof.properties.campaigns import GROUPED
from bucketproof.properties.outcome import Failure, Outcome
from bucketproof.reference import get_named_tensor_buckets
from bucketproof.report import Style, explain, render
from bucketproof.strategies import GROUPS, PROVENANCES, plans
from bucketproof.strategies.draw import _checked
from bucketproof.strategies.groups import group
from bucketproof.trial import Trial, known_to_fail, select

SHIPPED = "aliasing.ships-only-its-bytes"
QUICK = ("--profile", "smoke", "-n", "0", "--only", SHIPPED)


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_plain_contract_has_no_cell_of_a_group() -> None:
    plain, every = cells(), cells(GROUPS)

    assert not any(cell.groups for cell in plain)
    assert every[: len(plain)] == plain
    assert {group for cell in every for group in cell.groups} == set(GROUPS)
    assert len({cell.id for cell in every}) == len(every)


@pytest.mark.parametrize("group", GROUPS)
def test_a_group_adds_its_own_cells_alone(group: str) -> None:
    added = cells([group])[len(cells()) :]

    assert added
    assert all(cell.groups == {group} for cell in added)


def test_what_is_said_to_be_of_a_group_is_of_one_that_there_is() -> None:
    registers = [PROPERTIES.values(), PROVENANCES.values()]
    named = {each.group for register in registers for each in register} | set(GROUPED.values())

    assert named - {""} <= set(GROUPS)


def test_plain_plans_have_no_provenance_of_a_group(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PROVENANCES, "slice", replace(PROVENANCES["slice"], group="processes"))

    assert "slice" not in _checked(None)
    assert find(plans(provenances=["slice"], min_items=1), lambda plan: True).items[0].provenance == "slice"


def test_a_group_is_registered_once() -> None:
    with pytest.raises(ValueError, match="group 'processes' is registered twice"):
        group("processes")(lambda: "")


def test_what_was_asked_for_is_in_the_verdict_and_its_report(here: Path) -> None:
    assert main(["check", "--with", "processes", *QUICK, "--json", "v.json"]) == 0

    verdict = Verdict.from_json((here / "v.json").read_text())
    assert verdict.groups == ("processes",)
    assert [(cell.cell, cell.status) for cell in verdict.cells] == [("smoke", "pass"), (SHIPPED, "pass")]
    assert ", with processes" in render(verdict, Style(colour=False))


def test_a_verdict_of_a_suite_without_groups_has_none(here: Path) -> None:
    main(["check", "--profile", "smoke", "-n", "0", "--only", "ownership.no-copy[fresh]", "--json", "v.json"])
    text = (here / "v.json").read_text()

    assert Verdict.from_json(text).groups == ()
    assert Verdict.from_json(text.replace('"groups": [],', "")).groups == ()


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ("check --with proceses -n 0", "no group 'proceses'; did you mean 'processes'?: there are "),
        ("check --with processes,what -n 1", "no group 'what': there are "),
        ("list provenances --with what", "no group 'what': there are "),
        (f"check --only {SHIPPED} -n 0", f"no property, family or cell '{SHIPPED}' without --with processes"),
    ],
)
def test_a_group_that_there_is_not_is_refused_in_one_line(
    arguments: str, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert refusal(arguments, capsys).startswith(line)


def test_a_cell_of_a_group_may_be_listed_as_known_where_it_is_not_asked_for(here: Path) -> None:
    (here / "known.toml").write_text(f'["{SHIPPED}"]\nreason = "later"\n')

    assert set(known_to_fail("known.toml")) == {SHIPPED}


def test_lists_tell_the_groups_and_what_is_in_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "groups"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()[1:]] == list(GROUPS)
    assert main(["list", "properties"]) == 0
    assert SHIPPED not in capsys.readouterr().out
    assert main(["list", "properties", "--with", "processes"]) == 0
    assert SHIPPED in capsys.readouterr().out


def test_a_cell_is_skipped_where_something_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(GROUPS, "processes", replace(GROUPS["processes"], missing=lambda: "one core"))
    (cell,) = select([SHIPPED], ["processes"])

    outcome = judge(cell, Target("reference", get_named_tensor_buckets), PROFILES["smoke"], 0)

    assert (outcome.status, outcome.reason) == ("skipped", "one core")


def test_a_failure_that_takes_several_processes_says_why_it_has_no_script(monkeypatch: pytest.MonkeyPatch) -> None:
    failure = Failure("It holds.", "it did not", "Plan((), 1)", (), ())
    monkeypatch.setattr("bucketproof.trial.judge", lambda cell, *_: Outcome(cell.id, "fail", "MUST", failure=failure))
    (cell,) = select([SHIPPED], ["processes"])

    outcome = Trial(Target("reference", get_named_tensor_buckets), PROFILES["smoke"]).judge(cell)

    assert outcome.failure == replace(failure, unscripted="a script has one process, and this takes more")
    assert explain(outcome)[-1] == "There is no script for it: a script has one process, and this takes more."
    assert explain(replace(outcome, failure=failure))[-1] == "  Plan((), 1)"


def test_cells_that_ranks_judge_are_one_group_of_tests() -> None:
    cases = Trial(Target("reference", get_named_tensor_buckets), PROFILES["smoke"], cells=select([], GROUPS)).tests()
    groups = {case.values[0].group for case in cases if case.values[0].cell and case.values[0].cell.sizes}

    assert groups == {"ranks"}
