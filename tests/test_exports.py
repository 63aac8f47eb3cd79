"""Reports for other programs: Markdown, JUnit, the badge, and the schema of the verdict they are all made from."""

from __future__ import annotations

import copy
import json
import os
import random
import re
import sys
from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, get_args
from xml.etree import ElementTree

import jsonschema
import pytest

from bucketproof.badge import badge
from bucketproof.cli import main
from bucketproof.diff import Baseline
from bucketproof.junit import junit
from bucketproof.layout import BECAME, MARKS, WORDS
from bucketproof.markdown import LIMIT, POST, SHORTEST, summary
from bucketproof.properties.outcome import Failure, Mark, Outcome, Status, Step, Storage
from bucketproof.schema import PATH, problem
from bucketproof.verdict import Verdict

SCHEMA = json.loads(PATH.read_text(encoding="utf-8"))
HARMFUL = "<script>|`` ```` \\| @everyone </details>\n\n# #1 *x* ]]> \x00\x1b\ud800\u202e \n```\n~~~"


def failing(cell: str, level: str = "MUST", name: str = "w") -> Outcome:
    """A cell that failed."""
    failure = Failure(
        sentence="The sentence.",
        what=f"{name!r}: it happened",
        plan=f"Plan(items=(Item({name!r}),))",
        items=(f"{name!r}: detach, lent",),
        steps=(Step(f"produced {name!r}"), Step(f"{name}: is wrong", depth=1, wrong=True)),
        storages=(Storage("memory, 16 bytes", 16, (Mark("held", f"bucket 0 holds {name!r}", 4, 8),)),),
    )
    return Outcome(cell, "fail", level, 20, 0.5, failure=failure)


def cell(status: Status, level: str = "MUST", name: str = "") -> Outcome:
    """A cell of that status, in a property of its own."""
    id = name or f"values.{status}-{level.lower()}"
    if status in ("fail", "known"):
        return replace(failing(id, level), status=status, reason="waits" if status == "known" else "", link="")
    return Outcome(id, status, level, 20, 0.1, reason="" if status == "pass" else f"why {status}")


EVERY = tuple(cell(status, level) for level in ("MUST", "SHOULD") for status in get_args(Status))
VERDICT = Verdict(
    target="verl@0.9.1",
    origin={"project": "verl", "version": "0.9.1"},
    profile="smoke",
    seed=7,
    environment={"python": "3.12.1"},
    seconds=12.34,
    cells=(
        Outcome("smoke", "pass", "MUST"),
        *EVERY,
        failing("values.conserved[slice]"),
        failing("values.conserved[data]"),
    ),
    provenances={"slice": "lent", "data": "lent"},
    promises={"order": "kept", "padding": None},
)
BASELINE = Baseline("verl@0.9.0", "gate", 7, {each.cell: "pass" for each in VERDICT.cells})
HELD = replace(VERDICT, cells=tuple(each for each in VERDICT.cells if each.status == "pass"))
VERDICTS = {
    "every status": VERDICT,
    "strict": replace(VERDICT, strict=True),
    "against a baseline": replace(VERDICT, baseline=BASELINE),
    "against itself": replace(VERDICT, baseline=Baseline.of(VERDICT)),
    "passed": HELD,
    "failed": replace(VERDICT, cells=(failing("smoke"),)),
    "broken": replace(VERDICT, cells=(cell("error"),)),
    "empty": replace(VERDICT, cells=(), promises={}, provenances={}),
    "harmful": replace(VERDICT, target=HARMFUL, cells=(failing(f"{HARMFUL}[slice]", name=HARMFUL), cell("error"))),
}


@pytest.fixture(params=VERDICTS)
def verdict(request: pytest.FixtureRequest) -> Verdict:
    return VERDICTS[request.param]


def test_the_words_cover_every_status_and_every_kind_of_change() -> None:
    from bucketproof.diff import Kind

    assert set(WORDS) == set(get_args(Status))
    assert set(MARKS) == {*get_args(Status), ""}
    assert set(BECAME) == set(get_args(Kind))


# JUnit


def cases(verdict: Verdict) -> dict[str, ElementTree.Element]:
    return {case.get("name", ""): case for case in ElementTree.fromstring(junit(verdict)).iter("testcase")}


def test_junit_counts_what_it_holds_and_agrees_with_the_exit_code(verdict: Verdict) -> None:
    root = ElementTree.fromstring(junit(verdict))

    for suite in (root, root[0]):
        assert suite.get("tests") == str(len(list(root.iter("testcase"))))
        for plural, kind in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
            assert suite.get(plural) == str(len(list(root.iter(kind))))
    failures, errors = (len(list(root.iter(kind))) for kind in ("failure", "error"))
    assert verdict.exit_code == (1 if failures else 3 if errors or not verdict.cells else 0)


def test_junit_names_are_the_ids() -> None:
    case = cases(VERDICT)["values.conserved[slice]"]

    assert (case.get("classname"), case.get("time")) == ("values.conserved", "0.500")
    assert list(cases(VERDICT)) == [each.cell for each in VERDICT.cells]


@pytest.mark.parametrize(
    ("which", "kind", "message", "said"),
    [
        ("pass-must", None, None, None),
        ("fail-must", "failure", "'w': it happened", None),
        ("fail-should", "skipped", "SHOULD: 'w': it happened", "!! w: is wrong"),
        ("known-must", "skipped", "known: waits", "!! w: is wrong"),
        ("fixed-must", None, None, "listed as known, and passes: why fixed"),
        ("error-should", "error", "why error", None),
        ("skipped-must", "skipped", "skipped: why skipped", None),
        ("unpromised-must", "skipped", "unpromised: why unpromised", None),
    ],
)
def test_junit_says_of_each_status_what_ci_makes_of_it(
    which: str, kind: str | None, message: str | None, said: str | None
) -> None:
    case = cases(VERDICT)[f"values.{which}"]

    results = [each for each in case if each.tag != "system-out"]
    assert [(each.tag, each.get("message")) for each in results] == ([(kind, message)] if kind else [])
    out = case.findtext("system-out") or ""
    assert (said or "") in out
    assert bool(out) == bool(said)


def test_junit_has_the_whole_explanation_of_a_failure() -> None:
    text = cases(VERDICT)["values.fail-must"].findtext("failure") or ""

    assert text.startswith("The sentence.\n\nWhat happened: 'w': it happened\n")
    assert "!! w: is wrong" in text
    assert "Plan(items=(Item('w'),))" in text
    assert "--repro DIR" not in text


def test_junit_says_of_a_failure_that_there_is_a_script() -> None:
    cell = next(cell for cell in VERDICT.cells if cell.cell == "values.fail-must")
    scripted = replace(cell, failure=replace(cell.failure, script="import torch"))
    text = cases(replace(VERDICT, cells=(scripted,)))["values.fail-must"].findtext("failure") or ""

    assert "With --repro DIR, `bucketproof check` writes it as a script" in text


def test_in_a_strict_verdict_junit_fails_what_is_listed_and_passes_and_a_failing_should() -> None:
    strict = cases(VERDICTS["strict"])

    assert strict["values.fixed-must"].find("failure") is not None
    assert strict["values.fail-should"].find("failure") is not None


def test_what_is_no_worse_than_the_baseline_is_skipped_in_junit() -> None:
    [skipped] = cases(VERDICTS["against itself"])["values.fail-must"].findall("skipped")

    assert skipped.get("message") == "no better than the baseline: 'w': it happened"
    assert cases(VERDICTS["against a baseline"])["values.fail-must"].find("failure") is not None


def test_junit_holds_whatever_a_name_holds() -> None:
    text = junit(VERDICTS["harmful"])

    text.encode()
    [first, _] = ElementTree.fromstring(text).iter("testcase")
    assert "\\x00\\x1b\\ud800\\u202e" in (first.get("name") or "")
    assert "<script>" in (first.findtext("failure") or "")


# Markdown


def unfenced(text: str) -> Iterator[str]:
    """The lines that are not in a fenced block. Fails if a block is not closed."""
    fence = ""
    for line in text.splitlines():
        if fence:
            fence = "" if line == fence else fence
        elif opening := re.match(r"(`{3,})text$", line):
            fence = opening[1]
        else:
            yield line
    assert not fence


def without_code(line: str) -> str:
    """What a reader of Markdown takes for Markdown: a code span ends at as many backticks as it begins with."""
    return re.sub(r"(?<!`)(`+)(?!`)(.+?)(?<!`)\1(?!`)", "", re.sub(r"<code>[^<]*</code>", "", line))


def test_markdown_tells_the_verdict_the_counts_and_the_failing_cells() -> None:
    lines = list(unfenced(summary(VERDICT)))

    assert lines[0] == "## ✗ `verl@0.9.1`"
    assert lines[2].startswith("**A promise is broken.** 17 cells: 3 pass, 4 fail, 2 known failure, ")
    assert "| `values.conserved` |  | 2 |  |  |  |  |  |" in lines
    assert "- **unpromised**, `why unpromised`: `values.unpromised-must`, `values.unpromised-should`" in lines
    assert "- **known failure**, `waits`: `values.known-must`, `values.known-should`" in lines
    heads = [line for line in lines if line.startswith("<details>")]
    assert len(heads) == 3  # two fail alike, and are told as one
    what = "<code>&#x27;w&#x27;: it happened</code></summary>"
    assert heads[1] == f"<details><summary><code>values.conserved[slice]</code> and 1 more alike: {what}"
    assert heads[2] == f"<details><summary><code>values.fail-should</code> (SHOULD): {what}"


def test_markdown_explains_with_the_sentence_the_stream_and_the_steps() -> None:
    text = summary(replace(VERDICT, cells=(failing("values.order"),)))

    for part in (
        "The sentence.",
        "Smallest stream:\n  0. 'w': detach, lent",
        "!! w: is wrong",
        "Plan(items=(Item('w'),))",
    ):
        assert part in text


def test_markdown_of_a_baseline_tells_what_changed_and_explains_what_is_new() -> None:
    worse, same = summary(VERDICTS["against a baseline"]), summary(VERDICTS["against itself"])

    assert "- `Two kinds of run are compared: target verl@0.9.0 then, verl@0.9.1 now; " not in worse
    assert "Two kinds of run are compared: target verl@0.9.0 then" in worse
    assert "- **worse** (pass -> fail): `values.fail-must`, " in worse
    assert worse.count("<details>") == 3
    assert same.count("<details>") == 0
    assert "- **no better** (fail -> fail): `values.fail-must`, " in same


def test_no_text_of_a_verdict_is_markdown() -> None:
    text = summary(VERDICTS["harmful"])

    text.encode()
    outside = [without_code(line) for line in unfenced(text)]
    assert not [line for line in outside if re.search("script|everyone|#1|x00|~~~", line)]
    assert sum(line.startswith("<details>") for line in outside) == outside.count("</details>") == 1
    rows = [line for line in unfenced(text) if line.startswith("| ")]
    assert "script" in rows[2]
    assert {len(re.findall(r"(?<!\\)\|", row)) for row in rows} == {4}


@pytest.mark.parametrize("limit", [SHORTEST, 10_000, 100_000])
def test_markdown_keeps_to_the_limit_and_says_what_is_cut(limit: int) -> None:
    many = tuple(failing(f"values.p{number}", name=f"{number}重" * 20) for number in range(200))
    text = summary(replace(VERDICT, cells=many), limit)

    assert len(text.encode()) <= limit
    assert text.startswith("## ✗ `verl@0.9.1`\n\n**A promise is broken.** 200 cells: 200 fail.")
    told = text.count("<details>")
    left = re.search(r"(\d+) parts are left out, since this may have (\d+) bytes: `", text)
    assert left
    assert int(left[2]) == limit
    assert told + int(left[1]) in (200, 201)  # in the smallest there is no place for the table either
    list(unfenced(text))


def test_a_file_fits_into_an_issue() -> None:
    text = summary(replace(VERDICT, cells=tuple(failing(f"v.p{n}", name=f"{n}{'x' * 5000}") for n in range(20))))

    assert POST == 65_536
    assert POST - 10_000 < len(text.encode()) <= POST
    assert "parts are left out" in text


def test_the_scripts_are_hinted_at_and_not_shown() -> None:
    with_script = failing("values.order")
    assert with_script.failure
    with_script = replace(with_script, failure=replace(with_script.failure, script="import torch\n"))

    line = "`--repro DIR` writes each of them as a script that needs torch and the target alone."
    text = summary(replace(VERDICT, cells=(with_script,)))
    assert text.splitlines().count(line) == 1
    assert "import torch" not in text
    assert line not in summary(replace(VERDICT, cells=(failing("values.order"),)))


def test_what_fits_is_not_cut() -> None:
    assert "left out" not in summary(VERDICT)


# The badge


@pytest.mark.parametrize(
    ("which", "message", "color"),
    [
        ("passed", "every promise holds", "brightgreen"),
        ("failed", "a promise is broken", "red"),
        ("broken", "no verdict", "lightgrey"),
        ("empty", "no verdict", "lightgrey"),
        ("against itself", "nothing got worse", "yellow"),
    ],
)
def test_the_badge_is_an_endpoint_of_shields_io(which: str, message: str, color: str) -> None:
    assert json.loads(badge(VERDICTS[which])) == {
        "schemaVersion": 1,
        "label": "bucketproof",
        "message": message,
        "color": color,
    }


def test_the_badge_of_known_failures_is_not_the_badge_of_none() -> None:
    known = replace(HELD, cells=(*HELD.cells, cell("known")))

    assert known.exit_code == 0
    assert json.loads(badge(known))["color"] == "yellow"


# The schema


def test_the_schema_is_one() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    assert SCHEMA["$schema"] == "https://json-schema.org/draft/2020-12/schema"


def test_every_verdict_is_valid(verdict: Verdict) -> None:
    data = json.loads(verdict.to_json())

    jsonschema.Draft202012Validator(SCHEMA).validate(data)
    assert problem(data) is None
    assert Verdict.from_json(verdict.to_json()) == verdict


def test_a_real_verdict_is_valid(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "v.json"
    only = ("--only=ownership.no-copy[fresh]", "--only=aliasing.survives-overwrite[detach]")
    main(["check", "base-guard", "--profile=smoke", *only, "-n0", f"--json={path}"])

    data = json.loads(path.read_text())
    jsonschema.Draft202012Validator(SCHEMA).validate(data)
    assert data["promises"]["retention"] == "on-arrival"
    assert data["counts"] == {"pass": 2, "fail": 1}


@pytest.mark.parametrize(
    ("definition", "described"),
    [
        (SCHEMA, Verdict),
        (SCHEMA["$defs"]["baseline"], Baseline),
        (SCHEMA["$defs"]["cell"], Outcome),
        (SCHEMA["$defs"]["failure"], Failure),
        (SCHEMA["$defs"]["step"], Step),
        (SCHEMA["$defs"]["storage"], Storage),
        (SCHEMA["$defs"]["mark"], Mark),
    ],
)
def test_the_schema_describes_all_that_is_written(definition: dict[str, Any], described: Any) -> None:
    derived = {"schema", "bucketproof", "counts"} if described is Verdict else set()

    assert set(definition["properties"]) == {field.name for field in fields(described)} | derived
    assert set(definition["required"]) <= set(definition["properties"])


def places(data: Any, here: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The way to each value in it."""
    yield here
    for key, value in data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ():
        yield from places(value, (*here, key))


def test_what_the_schema_refuses_is_refused_and_nothing_else_is() -> None:
    """As much of JSON Schema as is used here is read as the reference reads it, wherever something is wrong."""
    validator = jsonschema.Draft202012Validator(SCHEMA)
    data = json.loads(replace(VERDICT, baseline=BASELINE, cells=(failing("values.order"), cell("known"))).to_json())
    draw = random.Random(0)
    refused = 0
    for *way, last in [place for place in places(data) if place]:
        for value in (None, -1, 1.5, True, "odd", [], {}, ["odd"], {"odd": 1}, ...):
            changed = copy.deepcopy(data)
            holder = changed
            for key in way:
                holder = holder[key]
            if value is ...:
                del holder[last]
            else:
                holder[last] = value
            wrong = problem(changed)
            # The reference takes milliseconds for each.
            if draw.random() < 0.3:
                assert (wrong is None) == validator.is_valid(changed), (way, last, value)
            refused += wrong is not None
            assert wrong is None or "\n" not in wrong
    assert refused > 900


@pytest.mark.parametrize(
    ("way", "value", "told"),
    [
        (("seconds",), "long", "seconds is no number"),
        (("seed",), True, "seed is no integer"),
        (("cells", 0, "status"), "great", "cells[0].status is none of pass, fail, "),
        (("cells", 0, "failure", "steps", 1, "depth"), -1, "cells[0].failure.steps[1].depth is less than 0"),
        (("cells", 0, "failure", "storages", 0, "marks", 0, "end"), None, "marks[0].end is no integer"),
        (("cells", 0, "failure"), 3, "cells[0].failure is no object and no null"),
        (("provenances",), {"x": "stolen"}, "provenances.x is none of owned, lent, partial, shared"),
        (("cells", 0), {}, "cells[0] has no 'cell'"),
        (("origin",), [], "origin is no object"),
    ],
)
def test_a_problem_is_told_with_its_place(way: tuple[Any, ...], value: object, told: str) -> None:
    data = json.loads(replace(VERDICT, cells=(failing("values.order"),)).to_json())
    holder = data
    for key in way[:-1]:
        holder = holder[key]
    holder[way[-1]] = value

    assert told in (problem(data) or "")


# The command


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a verdict, which is the current one."""
    (tmp_path / "v.json").write_text(VERDICT.to_json())
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)
    return tmp_path


def test_a_verdict_that_was_kept_is_reported_as_it_was(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", "v.json"]) == 0

    out = capsys.readouterr().out
    assert "FAIL values.fail-must\n" in out
    assert out.endswith("exit 1: a promise is broken\n")


def test_reports_are_written_and_nothing_else_is_said(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["report", "v.json", "--html=r.html", "--markdown=r.md", "--junit=r.xml", "--badge=r.json"])

    assert code == 0
    assert capsys.readouterr() == ("", "")
    assert sorted(os.listdir(here)) == ["r.html", "r.json", "r.md", "r.xml", "v.json"]
    assert (here / "r.xml").read_text(encoding="utf-8") == junit(VERDICT)
    assert (here / "r.md").read_text(encoding="utf-8") == summary(VERDICT)
    assert (here / "r.json").read_text(encoding="utf-8") == badge(VERDICT)
    assert (here / "r.html").read_text(encoding="utf-8").startswith("<!DOCTYPE html>\n")


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ("gone.json", "gone.json cannot be read: No such file or directory"),
        (".", ". cannot be read: Is a directory"),
        ("odd.json", "odd.json is no verdict, as `check --json` writes them: a verdict that is not whole: seed is no"),
        ("text.json", "text.json is no verdict, as `check --json` writes them: Expecting value"),
        ("bytes.json", "bytes.json is no verdict, as `check --json` writes them: 'utf-8' codec can't decode"),
        ("deep.json", "deep.json is no verdict, as `check --json` writes them: maximum recursion depth"),
        ("list.json", "list.json is no verdict, as `check --json` writes them: no verdict of bucketproof's in schema"),
        ("v.json --html v.json", "v.json is named twice; give each file a name of its own"),
        ("v.json --html r --junit ./r", "./r is named twice; give each file a name of its own"),
        ("v.json --html no/such/r.html", "no/such/r.html cannot be written: No such file or directory"),
        ("v.json --junit .", ". cannot be written: Is a directory"),
        ("", "the following arguments are required: VERDICT"),
    ],
)
def test_what_cannot_be_reported_is_refused_in_one_line(
    here: Path, arguments: str, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "odd.json").write_text(json.dumps({**json.loads(VERDICT.to_json()), "seed": "x"}))
    (here / "text.json").write_text("nothing")
    (here / "bytes.json").write_bytes(b"\xff\xfe")
    (here / "deep.json").write_text("[" * 100_000)
    (here / "list.json").write_text("[]")
    before = {path: path.read_bytes() for path in here.iterdir()}

    code = main(["report", *arguments.split()])

    said = capsys.readouterr()
    assert said.err.startswith(f"bucketproof: {line}")
    assert said.err.count("\n") == 1
    assert (said.out, code) == ("", 2)
    assert {path: path.read_bytes() for path in here.iterdir()} == before


def test_check_refuses_a_report_that_cannot_be_written_before_it_judges(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check", "-n0", "--json", "v.json", "--html", "v.json"]) == 2
    assert main(["check", "-n0", "--html", "no/such/r.html"]) == 2

    assert (here / "v.json").read_text() == VERDICT.to_json()
    assert capsys.readouterr().out == ""


def test_two_reports_may_go_to_one_device(here: Path) -> None:
    assert main(["report", "v.json", "--html", os.devnull, "--junit", os.devnull]) == 0


def fake_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bucketproof.cli.run", lambda request: VERDICT)


def test_check_writes_the_reports_beside_the_verdict(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fake_run(monkeypatch)

    code = main(["check", "--json=w.json", "--html=r.html", "--markdown=r.md", "--junit=r.xml", "--badge=r.json"])

    assert code == 1
    assert capsys.readouterr().out.endswith("exit 1: a promise is broken\n")
    assert sorted(os.listdir(here)) == ["r.html", "r.json", "r.md", "r.xml", "v.json", "w.json"]
    assert (here / "r.xml").read_text(encoding="utf-8") == junit(Verdict.from_json((here / "w.json").read_text()))


def test_check_adds_itself_to_the_summary_of_the_job(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_run(monkeypatch)
    (here / "summary.md").write_text("# Before\n", encoding="utf-8")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", "summary.md")

    main(["check"])
    main(["report", "v.json"])  # which does not

    assert (here / "summary.md").read_text(encoding="utf-8") == f"# Before\n{summary(VERDICT)}"


@pytest.mark.parametrize(("before", "cut"), [(LIMIT - SHORTEST, True), (LIMIT - 100_000, False)])
def test_the_summary_of_the_job_is_never_longer_than_what_is_taken(
    here: Path, monkeypatch: pytest.MonkeyPatch, before: int, cut: bool
) -> None:
    assert LIMIT == 1024 * 1024
    many = replace(VERDICT, cells=tuple(failing(f"values.p{number}", name=str(number)) for number in range(50)))
    monkeypatch.setattr("bucketproof.cli.run", lambda request: many)
    (here / "summary.md").write_text("x" * before)
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", "summary.md")

    main(["check"])

    text = (here / "summary.md").read_text(encoding="utf-8")
    assert before < len(text.encode()) <= LIMIT
    assert ("left out" in text) == cut


@pytest.mark.parametrize(("path", "why"), [("summary.md", "it is full"), ("no/such/summary.md", "No such file")])
def test_a_summary_that_cannot_be_added_to_is_no_failure(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], path: str, why: str
) -> None:
    fake_run(monkeypatch)
    (here / "summary.md").write_text("x" * (LIMIT - 100))
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", path)

    code = main(["check"])

    said = capsys.readouterr()
    assert said.err.startswith(f"bucketproof: nothing was added to $GITHUB_STEP_SUMMARY, {path}: {why}")
    assert said.err.count("\n") == 1
    assert said.out.endswith("exit 1: a promise is broken\n")
    assert code == 1
    assert (here / "summary.md").stat().st_size == LIMIT - 100


def test_what_is_shipped_has_the_schema_and_the_style() -> None:
    tomllib = pytest.importorskip("tomllib", reason="Python 3.10 has no TOML reader")
    project = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text(encoding="utf-8"))

    listed = set(project["tool"]["setuptools"]["package-data"]["bucketproof"])
    there = {path.name for path in PATH.parent.iterdir() if path.is_file() and path.suffix not in (".py", ".pyc")}
    assert listed == there
    assert sys.modules["bucketproof.schema"].PATH.name in listed
