"""Known failures: what the list says, how it is refused, what it does to a verdict, and how it is rewritten."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import pytest

import bucketproof.cli
from bucketproof.cli import main
from bucketproof.known import NOT_YET, Known, KnownFile, must_be_cells, relisted
from bucketproof.properties import PROFILES, Failure, Outcome, Target, cells, judge
from bucketproof.properties.outcome import Status
from bucketproof.reference import always_clone, get_named_tensor_buckets
from bucketproof.report import Style, render
from bucketproof.request import BadRequest, Request
from bucketproof.trial import Case, Trial, known_to_fail
from bucketproof.verdict import Verdict, environment

pytest_plugins = ["pytester"]

DETACH, DATA, SLICE = (f"aliasing.survives-overwrite[{each}]" for each in ("detach", "data", "slice"))
SMOKE = Outcome("smoke", "pass", "MUST")
FAILURE = Failure("It holds.", "it did not", "Plan()", ("'w': fresh",), ())
QUICK = ("--profile", "smoke", "--only", "ownership.no-copy[fresh]", "-n", "0")

LIST = f"""\
# Which cells fail, and why.

"values.order".reason = "spelt as keys"
"values.order".link = ""

# The guard looks at `_base` alone.
["{DETACH}"]
reason = "a detached view has no base"
link = "https://example.org/7"
# See also the older one.

# ---- Waits for the next release ----

["{DATA}"]   # as above
reason = '''the same,
["in"] = 2 lines'''
"""


def outcome(cell: str, status: Status, level: str = "MUST") -> Outcome:
    return Outcome(cell, status, level, 3, failure=FAILURE if status == "fail" else None)  # type: ignore[arg-type]


def verdict(*cells: Outcome) -> Verdict:
    return Verdict("mine:f", {}, "smoke", 0, environment(), 1.0, (SMOKE, *cells), {})


def listing(text: str) -> KnownFile:
    return KnownFile("known.toml", text)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of the test's own, which is the current one."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def judged(here: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Says what `check` finds, so that nothing needs to be judged: what a worker does with the list is done to it."""

    def finds(*found: Outcome) -> None:
        def run(request: Request) -> Verdict:
            known = known_to_fail(request.known)
            return verdict(*(known[each.cell].excuse(each) if each.cell in known else each for each in found))

        monkeypatch.setattr(bucketproof.cli, "run", run)

    return finds


def test_a_list_is_a_table_for_each_cell_however_it_is_spelt() -> None:
    inline = f'"{DETACH}" = {{ reason = "r", link = "l" }}\n'

    assert listing(inline).entries() == listing(f'["{DETACH}"]\nreason = "r"\nlink = "l"').entries()
    assert listing(inline).entries() == {DETACH: Known("r", "l")}
    assert listing("").entries() == {}


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('["values.order"', "known.toml is no TOML: "),
        ("[aliasing.survives-overwrite[detach]]", "known.toml is no TOML: "),
        ('["values.order"]\nreason="a"\n["values.order"]\nreason="b"', "known.toml is no TOML: "),
        ('[values.order]\nreason = "r"', "known.toml: 'values' has 'order', which means nothing here; an entry is"),
        ('["values.order"]\nreasno = "r"', "known.toml: 'values.order' has 'reasno', which means nothing here"),
        ('["values.order"]', "known.toml: 'values.order' has no reason"),
        ('["values.order"]\nreason = " "', "known.toml: 'values.order' has no reason"),
        ('["values.order"]\nlink = "l"', "known.toml: 'values.order' has no reason"),
        ('["values.order"]\nreason = 7', "known.toml: 'values.order' has a reason that is no text"),
        ('["values.order"]\nreason = "r"\nlink = 7', "known.toml: 'values.order' has a link that is no text"),
        ('"values.order" = "r"', "known.toml: 'values.order' is no table"),
        ('[["values.order"]]\nreason = "r"', "known.toml: 'values.order' is no table"),
    ],
)
def test_a_list_that_says_nothing_usable_is_refused_in_one_line(text: str, line: str) -> None:
    with pytest.raises(BadRequest) as refused:
        listing(text).entries()

    assert str(refused.value).startswith(line)
    assert "\n" not in str(refused.value)


def test_what_is_no_cell_is_refused_for_it_would_excuse_nothing() -> None:
    ids = [cell.id for cell in cells()]
    must_be_cells("known.toml", [DETACH, "values.order"], ids)

    for wrong, hint in [
        (DETACH.replace("detach", "detatch"), f"; did you mean '{DETACH}'"),
        ("aliasing.survives-overwrite", "; did you mean 'aliasing.survives-overwrite["),
        ("aliasing", ". See: bucketproof list properties"),
        ("smoke", ". See: bucketproof list properties"),
    ]:
        with pytest.raises(BadRequest) as refused:
            must_be_cells("known.toml", [DETACH, wrong], ids)
        assert str(refused.value).startswith(f"known.toml: no cell {wrong!r}{hint}")


@pytest.mark.parametrize(
    ("status", "becomes"),
    [
        ("fail", "known"),
        ("pass", "fixed"),
        ("error", "error"),
        ("skipped", "skipped"),
        ("unpromised", "unpromised"),
    ],
)
def test_a_reason_excuses_a_failure_and_nothing_else(status: Status, becomes: Status) -> None:
    before = replace(outcome(DETACH, status), reason="so it is")

    after = Known("because", "link").excuse(before)

    assert after.status == becomes
    assert (after.reason, after.link) == (("because", "link") if becomes in ("known", "fixed") else ("so it is", ""))
    assert after.failure == before.failure


@pytest.mark.parametrize(
    ("found", "strict", "code", "meaning"),
    [
        ([outcome(DETACH, "known")], False, 0, "every promise holds, but for known failures"),
        ([outcome(DETACH, "known")], True, 0, "every promise holds, but for known failures"),
        ([outcome(DETACH, "known"), outcome(DATA, "fail")], False, 1, "a promise is broken"),
        ([outcome(DETACH, "known"), outcome(DATA, "error")], False, 3, "no verdict"),
        ([outcome(DETACH, "fixed")], False, 0, "every promise holds"),
        ([outcome(DETACH, "fixed")], True, 1, "a cell that is listed as known passes"),
        ([outcome(DETACH, "fixed"), outcome(DATA, "error")], True, 1, "a cell that is listed as known passes"),
        ([outcome(DETACH, "fail", "SHOULD")], False, 0, "every promise holds"),
        ([outcome(DETACH, "fail", "SHOULD")], True, 1, "a promise is broken"),
        ([outcome(DETACH, "known", "SHOULD")], True, 0, "every promise holds, but for known failures"),
    ],
)
def test_the_exit_code_follows(found: list[Outcome], strict: bool, code: int, meaning: str) -> None:
    judged = replace(verdict(*found), strict=strict)

    assert (judged.exit_code, judged.meaning) == (code, meaning)


def test_a_verdict_with_known_failures_survives_its_json() -> None:
    judged = replace(verdict(Known("r", "l").excuse(outcome(DETACH, "fail"))), strict=True)

    assert Verdict.from_json(judged.to_json()) == judged
    assert judged.counts == {"pass": 1, "known": 1}


def test_the_report_shows_each_reason_once_and_no_known_cell_as_a_pass() -> None:
    known, fixed = Known("no base", "https://example.org/7"), Known("flaky")
    found = [known.excuse(outcome(each, "fail")) for each in (DETACH, DATA)]
    judged = replace(
        verdict(*found, fixed.excuse(outcome(SLICE, "pass"))),
        provenances=dict.fromkeys(("detach", "data", "slice"), "lent"),
    )

    assert render(judged) == REPORT
    ascii_only = render(judged, Style(unicode=False))
    assert ascii_only.isascii()
    assert "~ known failure  * fixed" in ascii_only


REPORT = f"""\
KNOWN FAILURE: no base (https://example.org/7)
  {DETACH}, {DATA}

FIXED, and still listed as known: flaky
  {SLICE}

           aliasing
           survives
           overwrite
lent: a lender may overwrite the memory: not kept
  detach       ≈
  data         ≈
  slice        ★

✓ smoke

✓ pass  ≈ known failure  ★ fixed  · not applicable

4 cells: 1 pass, 2 known failure, 1 fixed; mine:f; profile smoke, seed 0, 1.0 s
exit 0: every promise holds, but for known failures
"""


# Rewriting.


def test_what_is_fixed_goes_with_its_comments_and_all_else_stays_to_the_byte() -> None:
    after = listing(LIST).accept([outcome(DETACH, "fixed"), outcome(DATA, "known")])

    first, _, rest = LIST.partition("# The guard")
    assert after.text == first + rest[rest.index("# ---- Waits") :]
    assert after.entries() == {id: known for id, known in listing(LIST).entries().items() if id != DETACH}


def test_what_fails_is_added_below_once() -> None:
    after = listing(LIST).accept([outcome(SLICE, "fail"), outcome(DETACH, "known"), outcome("values.tied", "pass")])

    assert after.text == f'{LIST}\n["{SLICE}"]\nreason = "{NOT_YET}"\nlink = ""\n'
    assert after.accept([outcome(SLICE, "known"), outcome(DETACH, "known")]) == after


def test_a_list_begins_with_nothing_and_ends_with_nothing() -> None:
    full = listing("").accept([outcome(SLICE, "fail"), outcome(DATA, "fail", "SHOULD")])
    empty = full.accept([outcome(SLICE, "fixed"), outcome(DATA, "fixed")])

    assert full.entries() == {SLICE: Known(NOT_YET), DATA: Known(NOT_YET)}
    assert full.text.count("\n\n") == 1
    assert empty.text == ""


@pytest.mark.parametrize("status", ["error", "skipped", None])
def test_of_what_has_no_verdict_nothing_is_changed(status: Status | None) -> None:
    found = [SMOKE, replace(SMOKE, status="fail"), *([outcome(DETACH, status)] if status else [])]

    assert listing(LIST).accept(found).text == LIST


@pytest.mark.parametrize("status", ["pass", "fixed", "unpromised"])
def test_what_does_not_fail_is_taken_off(status: Status) -> None:
    assert DETACH not in listing(LIST).accept([outcome(DETACH, status)]).entries()


IDS = (DETACH, DATA, "values.order")


@pytest.mark.parametrize("gone", [gone for count in range(4) for gone in combinations(IDS, count)], ids=len)
def test_whatever_is_taken_off_what_stays_says_the_same_and_free_comments_stay(gone: tuple[str, ...]) -> None:
    after = listing(LIST).accept(outcome(id, "fixed") for id in gone)

    assert after.entries() == {id: known for id, known in listing(LIST).entries().items() if id not in gone}
    for comment, id in {"# Which": None, "# The guard": DETACH, "# See": DETACH, "# ----": None, "# as": DATA}.items():
        assert (comment in after.text) == (id not in gone)


@pytest.mark.parametrize(
    "text",
    [
        '["values.tied"]\nreason = """\n["values.order"]\nreason = 7"""\n["values.order"]\nreason = "r"\n',
        '"values\\u002eorder" = { reason = "r" }\n',
        '["values.order"]\nreason = "r"\n["values.tied"]\nreason = """\n\n# no comment\n\n"values.order" = 1"""\n',
    ],
)
def test_what_no_reader_of_lines_understands_is_refused_and_not_spoilt(text: str) -> None:
    there = listing(text)
    assert there.entries()

    with pytest.raises(BadRequest, match=r"known.toml cannot be rewritten line by line, and is left as it was"):
        there.accept([outcome("values.order", "fixed")])


def test_a_list_that_could_not_be_rewritten_is_refused_before_the_run() -> None:
    listing(LIST).must_be_rewritable()

    with pytest.raises(BadRequest, match="cannot be rewritten"):
        listing('"values\\u002eorder" = { reason = "r" }\n').must_be_rewritable()


def test_the_outcomes_follow_the_list() -> None:
    known = Known("r", "l")
    before = (known.excuse(outcome(DETACH, "pass")), known.excuse(outcome(DATA, "fail")), outcome(SLICE, "fail"))

    after = relisted(before, {DATA: known, SLICE: Known(NOT_YET)})

    assert [(cell.status, cell.reason, cell.link) for cell in after] == [
        ("pass", "", ""),
        ("known", "r", "l"),
        ("known", NOT_YET, ""),
    ]


# The command line.


def test_a_known_failure_is_no_failure(
    here: Path, judged: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    judged(outcome(DETACH, "fail"), outcome(DATA, "pass"))
    (here / "k.toml").write_text(LIST)

    assert main(["check", "--known", "k.toml"]) == 0
    assert "KNOWN FAILURE: a detached view has no base (https://example.org/7)\n" in capsys.readouterr().out
    assert main(["check", "--known", "k.toml", "--strict"]) == 1
    assert capsys.readouterr().out.endswith("exit 1: a cell that is listed as known passes\n")
    assert (here / "k.toml").read_text() == LIST


def test_accepting_writes_the_list_and_gives_the_verdict_that_the_next_run_will_give(
    here: Path, judged: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    judged(outcome(DETACH, "pass"), outcome(SLICE, "fail"))
    (here / "k.toml").write_text(LIST)

    assert main(["check", "--known", "k.toml", "--accept", "--strict", "--json", "v.json"]) == 0
    assert capsys.readouterr().out.startswith("k.toml lists 3 cells: 1 new, 1 taken off.\n\n")
    assert (here / "k.toml").read_text() == listing(LIST).accept([outcome(DETACH, "pass"), outcome(SLICE, "fail")]).text
    assert main(["check", "--known", "k.toml", "--strict", "--json", "w.json"]) == 0
    assert (here / "v.json").read_text() == (here / "w.json").read_text()


def test_accepting_writes_a_list_where_there_is_none(here: Path, judged: Callable[..., None]) -> None:
    judged(outcome(SLICE, "fail"))

    assert main(["check", "--known", "k.toml", "--accept"]) == 0
    assert KnownFile.read("k.toml").entries() == {SLICE: Known(NOT_YET)}
    assert os.listdir(here) == ["k.toml"]


def test_accepting_does_not_excuse_a_target_that_cannot_bucket_at_all(here: Path, judged: Callable[..., None]) -> None:
    judged(outcome(SLICE, "skipped"), replace(SMOKE, status="fail"))

    assert main(["check", "--known", "k.toml", "--accept"]) == 1
    assert os.listdir(here) == []


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ("--known gone.toml", "gone.toml cannot be read: No such file or directory"),
        ("--known .", ". cannot be read: Is a directory"),
        ("--known latin.toml", "latin.toml cannot be read: it is not UTF-8"),
        ("--known broken.toml", "broken.toml is no TOML: "),
        ("--known broken.toml --accept", "broken.toml is no TOML: "),
        ("--known wrong.toml", "wrong.toml: no cell 'values.ordr'; did you mean 'values.order"),
        ("--known wrong.toml --accept", "wrong.toml: no cell 'values.ordr'; did you mean 'values.order"),
        ("--known odd.toml --accept", "odd.toml cannot be rewritten line by line, and is left as it was; write"),
        ("--known odd.toml --json ./odd.toml", "./odd.toml is named twice; give each file a name of its own"),
        ("--accept", "--accept rewrites the list of known failures: say with --known which file that is"),
    ],
)
def test_a_list_that_cannot_be_used_is_refused_in_one_line_and_left_as_it_is(
    here: Path, arguments: str, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "latin.toml").write_bytes(b"# caf\xe9")
    (here / "broken.toml").write_text('["values.order"]\nreason = \n')
    (here / "wrong.toml").write_text('["values.ordr"]\nreason = "r"\n')
    (here / "odd.toml").write_text('"values\\u002eorder" = { reason = "r" }\n')
    before = {path.name: path.read_bytes() for path in here.iterdir()}

    code = main(["check", *QUICK, *arguments.split()])

    said = capsys.readouterr()
    assert said.err.startswith(f"bucketproof: {line}")
    assert said.err.count("\n") == 1
    assert (code, said.out) == (2, "")
    assert {path.name: path.read_bytes() for path in here.iterdir()} == before


def test_a_real_run_from_a_first_failure_to_its_mending(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    known = ("--known", "k.toml")

    assert main(["check", "always-clone", *QUICK]) == 1
    assert main(["check", "always-clone", *QUICK, *known, "--accept"]) == 0
    assert main(["check", "always-clone", *QUICK, *known, "--strict"]) == 0
    assert main(["check", "reference", *QUICK, *known]) == 0
    assert main(["check", "reference", *QUICK, *known, "--strict"]) == 1
    assert main(["check", "reference", *QUICK, *known, "--accept", "--strict"]) == 0
    assert (here / "k.toml").read_text() == ""


# Judging.


def test_a_known_failure_is_judged_on_the_runs_that_a_pass_is_judged_on_and_no_others() -> None:
    cell = next(cell for cell in cells() if cell.id == "ownership.no-copy[fresh]")

    def runs(bucketer: Callable[..., object], shrink: bool) -> tuple[int, Outcome]:
        counted = []

        def counting(weights: object, bucket_bytes: float) -> object:
            counted.append(bucket_bytes)
            return bucketer(weights, bucket_bytes)

        found = judge(cell, Target("counting", counting), PROFILES["smoke"], 0, shrink)
        return len(counted), found

    (passing, sound), (known, broken), (searched, _) = (
        runs(get_named_tensor_buckets, False),
        runs(always_clone, False),
        runs(always_clone, True),
    )

    assert known == passing < searched
    assert (sound.status, broken.status) == ("pass", "fail")
    assert broken.failure is not None


def test_a_trial_judges_what_is_known_as_known_and_says_it_in_pytest_s_words(pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\nasyncio_default_fixture_loop_scope = function\n")
    pytester.path.joinpath("k.toml").write_text(
        '["ownership.no-copy[fresh]"]\nreason = "slow"\nlink = "https://x.org"\n'
    )
    request = ("--pyargs", "bucketproof.properties", "-p", "no:cacheprovider", "-rx", "--bucketer-known=k.toml")
    quick = ("--bucketer-profile=smoke", "--bucketer-only=ownership.no-copy[fresh]")

    known = pytester.runpytest_inprocess(*request, *quick, "--bucketer=always-clone")
    fixed = pytester.runpytest_inprocess(*request, *quick, "--bucketer=reference")

    known.assert_outcomes(passed=1, xfailed=1)
    known.stdout.fnmatch_lines(["XFAIL *ownership.no-copy[[]fresh]] - known: slow https://x.org"])
    fixed.assert_outcomes(passed=2)


CONFORMANCE = """
    from pathlib import Path
    from bucketproof import conformance
    from bucketproof.reference import {bucketer}

    ONLY = ["ownership.no-copy[fresh]", "ownership.no-copy[stack]"]
    test_contract = conformance({bucketer}, profile="smoke", only=ONLY, known=Path(__file__).with_name("k.toml"))
"""
KNOWN = '["ownership.no-copy[fresh]"]\nreason = "slow"\nlink = "https://x.org"\n'


def test_in_a_test_file_what_is_known_is_a_strict_xfail(pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\nasyncio_default_fixture_loop_scope = function\n")
    pytester.path.joinpath("k.toml").write_text(KNOWN)
    pytester.makepyfile(
        test_known=CONFORMANCE.format(bucketer="always_clone"),
        test_fixed=CONFORMANCE.format(bucketer="get_named_tensor_buckets"),
    )

    known = pytester.runpytest_inprocess("-rx", "test_known.py")
    fixed = pytester.runpytest_inprocess("test_fixed.py")

    known.assert_outcomes(passed=1, xfailed=1, failed=1)
    known.stdout.fnmatch_lines(["XFAIL *ownership.no-copy[[]fresh]] - known: slow https://x.org"])
    fixed.assert_outcomes(passed=2, failed=1)
    fixed.stdout.fnmatch_lines(["*XPASS(strict)* listed as known, and passes: slow https://x.org"])


def test_in_a_test_file_a_list_of_what_is_no_cell_is_an_error(pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\nasyncio_default_fixture_loop_scope = function\n")
    pytester.path.joinpath("k.toml").write_text(KNOWN.replace("fresh", "frsh"))
    pytester.makepyfile(CONFORMANCE.format(bucketer="always_clone"))

    result = pytester.runpytest_inprocess()

    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["E *k.toml: no cell 'ownership.no-copy[[]frsh]'; did you mean *"])


def test_a_trial_without_a_list_knows_nothing() -> None:
    assert known_to_fail(None) == {}
    assert Case(Trial(Target("mine", always_clone), PROFILES["smoke"])).trial.known == {}
