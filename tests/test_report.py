"""Verdicts and what is made of them."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from bucketproof.properties.outcome import Failure, Mark, Outcome, Step, Storage
from bucketproof.report import WIDTH, Style, explain, render
from bucketproof.verdict import Verdict

SENTENCES = {"detach": "A view through `.detach()`.", "data": "A view through `.data`."}


def failing(provenance: str, level: str = "MUST") -> Outcome:
    """A cell that failed on a plan which names the provenance."""
    failure = Failure(
        sentence="Bucket values stay bit-equal however the lender is overwritten afterwards.",
        what="'w': " + "its bits changed after the lender wrote, " * 4,
        plan=f"Plan(\n    items=(Item('w', {provenance!r}),),\n)",
        items=(f"'w': {provenance}, lent. {SENTENCES.get(provenance, '')}",),
        steps=(
            Step(f"produced 'w': {provenance}, lent"),
            Step("bucket 0 delivered: 1 item, 4 bytes"),
            Step("'w': still in the lender's memory", depth=1, wrong=True),
        ),
        storages=(
            Storage(
                "a buffer of the lender, 16 bytes",
                16,
                (
                    Mark("handed-over", "handed over as 'w'", 4, 8),
                    Mark("overwritten", "overwritten by the lender", 0, 16),
                    Mark("held", "bucket 0 holds 'w'", 4, 8),
                ),
            ),
        ),
    )
    return Outcome(f"aliasing.survives-overwrite[{provenance}]", "fail", level, 3, 0.5, failure=failure)


SMOKE = Outcome("smoke", "pass", "MUST")
CELLS = (
    SMOKE,
    Outcome("aliasing.survives-overwrite[slice]", "pass", "MUST", 20, 0.1),
    failing("detach"),
    failing("data"),
    Outcome("ownership.no-copy[fresh]", "pass", "MUST", 20, 0.1),
    Outcome("ownership.no-copy[stack]", "error", "MUST", reason="the process died while this cell was judged"),
    Outcome("values.order", "pass", "MUST", 20),
    Outcome("values.order[long-stream]", "unpromised", "MUST", reason="the target promises nothing of order"),
)
VERDICT = Verdict(
    target="verl@0.9.1",
    origin={"project": "verl", "version": "0.9.1", "sha256": "0123456789abcdef", "source": "verl/utils.py"},
    profile="smoke",
    seed=7,
    environment={"python": "3.12.1"},
    seconds=12.34,
    cells=CELLS,
    provenances={"slice": "lent", "detach": "lent", "data": "lent", "fresh": "owned", "stack": "owned"},
)
PASSED = replace(VERDICT, cells=CELLS[:2])


def test_a_verdict_survives_its_json() -> None:
    text = VERDICT.to_json()

    assert Verdict.from_json(text) == VERDICT
    assert json.loads(text)["schema"] == 1
    assert json.loads(text)["counts"] == {"pass": 4, "fail": 2, "error": 1, "unpromised": 1}
    assert json.loads(text)["bucketproof"]


@pytest.mark.parametrize("text", ['{"schema": 2}', "[]", "{}", "nothing"])
def test_what_is_no_verdict_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"schema version 1|Expecting value"):
        Verdict.from_json(text)


@pytest.mark.parametrize(
    ("cells", "code"),
    [
        ([SMOKE], 0),
        ([SMOKE, failing("a")], 1),
        ([SMOKE, failing("a", "SHOULD")], 0),
        ([SMOKE, replace(SMOKE, status="error")], 3),
        ([SMOKE, replace(SMOKE, status="error", level="SHOULD")], 3),
        ([replace(SMOKE, status="error"), failing("a")], 1),
        ([SMOKE, replace(SMOKE, status="unpromised"), replace(SMOKE, status="skipped")], 0),
        ([], 3),
    ],
)
def test_the_exit_code_follows_from_the_cells(cells: list[Outcome], code: int) -> None:
    assert replace(VERDICT, cells=tuple(cells)).exit_code == code


def test_the_report_as_a_whole() -> None:
    text = render(VERDICT)

    assert text == REPORT


REPORT = """\
FAIL aliasing.survives-overwrite[detach]
FAIL aliasing.survives-overwrite[data]
  Bucket values stay bit-equal however the lender is overwritten afterwards.

  What happened: 'w': its bits changed after the lender wrote, its bits changed after the lender
                 wrote, its bits changed after the lender wrote, its bits changed after the
                 lender wrote,

  Smallest stream:
    0. 'w': detach, lent. A view through `.detach()`.

  Step by step:
     1. produced 'w': detach, lent
     2. bucket 0 delivered: 1 item, 4 bytes
        !! 'w': still in the lender's memory

  Memory:
    a buffer of the lender, 16 bytes  0                             16
      handed over as 'w'              ········████████················
      overwritten by the lender       ▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒
      bucket 0 holds 'w'              ········▓▓▓▓▓▓▓▓················

  The plan, as code:
    Plan(
        items=(Item('w', 'detach'),),
    )

  The others went wrong in the same way. With --only ID, one of them is told in full.

NO VERDICT: the process died while this cell was judged
  ownership.no-copy[stack]

UNPROMISED: the target promises nothing of order
  values.order[long-stream]

           aliasing
           survives   ownership
           overwrite   no-copy
owned: nobody else holds the memory: kept in place if contiguous
  fresh        ·          ✓
  stack        ·          !
lent: a lender may overwrite the memory: not kept
  slice        ✓          ·
  detach       ✗          ·
  data         ✗          ·

✓ smoke
✓ values.order
o values.order[long-stream]  the target promises nothing of order

✓ pass  ✗ fail  ! no verdict  o unpromised  · not applicable

Broken:
  - aliasing.survives-overwrite, in 2 of 3 cells: 'w': its bits changed after the lender
    wrote, its bits changed after the lender wrote, its bits changed after the lender wrote,
    its bits changed after the lender wrote,

8 cells: 4 pass, 2 fail, 1 no verdict, 1 unpromised; verl@0.9.1 (verl 0.9.1, wheel sha256
0123456789ab); profile smoke, seed 7, 12.3 s
exit 1: a promise is broken
"""


def test_no_line_is_too_wide_and_none_ends_in_spaces() -> None:
    for line in render(VERDICT).splitlines():
        assert len(line) <= WIDTH
        assert line == line.rstrip()


def test_a_terminal_without_unicode_is_served() -> None:
    text = render(VERDICT, Style(unicode=False))

    assert text.isascii()
    assert "+ pass  X fail  ! no verdict  o unpromised  . not applicable" in text


@pytest.mark.parametrize("style", [Style(), Style(unicode=False)])
def test_pictures_of_long_names_and_of_no_byte_stay_in_their_columns(style: Style) -> None:
    cell = failing("detach")
    assert cell.failure is not None
    marks = (Mark("handed-over", "handed over", 8, 8), Mark("held", "bucket 0 holds it", 0, 8))
    storage = Storage(f"the memory of 'model.{'x' * 100}', 8 bytes", 8, marks)
    cell = replace(cell, failure=replace(cell.failure, storages=(storage,)))

    lines = render(replace(VERDICT, cells=(cell,)), style).splitlines()
    start = lines.index("  Memory:") + 1
    assert {len(line) for line in lines[start : start + 3]} == {98}
    assert "x', 8 bytes  0" in lines[start]
    none, full = ("·" * 32, "▓" * 32) if style.unicode else ("." * 32, "=" * 32)
    assert lines[start + 1].endswith(f"  {none}")
    assert lines[start + 2].endswith(f"  {full}")
    assert style.unicode or "".join(lines).isascii()


def test_colour_says_nothing_that_the_text_does_not() -> None:
    coloured = render(VERDICT, Style(colour=True))

    assert "\x1b[31mFAIL aliasing.survives-overwrite[detach]\x1b[0m" in coloured
    for code in ("31", "32", "33", "35", "0"):
        coloured = coloured.replace(f"\x1b[{code}m", "")
    assert coloured == REPORT


def with_what(provenance: str, what: str, **changes: Any) -> Outcome:
    cell = failing(provenance)
    assert cell.failure is not None
    return replace(cell, failure=replace(cell.failure, what=what, **changes))


def test_of_cells_that_are_broken_in_one_way_the_shortest_stream_is_told() -> None:
    longer = with_what("detach", "'w1': it holds 8 bytes of [0, 1]", items=("'w': detach",) * 9)
    shorter = with_what("data", "'v': it holds 12 bytes of [0, 1, 2]")

    text = render(replace(VERDICT, cells=(longer, shorter)))

    assert text.count("Smallest stream:") == 1
    assert "'v': it holds 12 bytes" in text
    assert "in 2 of 2 cells: 'v'" in text
    assert "'w1'" not in text


def test_failures_in_which_something_else_has_happened_are_told_apart() -> None:
    text = render(replace(VERDICT, cells=(with_what("detach", "it is late"), with_what("data", "it is lost"))))

    assert text.count("Smallest stream:") == 2
    assert "in the same way" not in text
    assert "in 1 of 2 cells: it is late" in text


def test_a_stream_of_very_many_is_not_called_small() -> None:
    cell = with_what("detach", "it is late", items=("'w': detach",) * 13)

    assert "\n  Stream:\n" in render(replace(VERDICT, cells=(cell,)))


def test_memory_of_no_byte_has_a_bar_like_all_others() -> None:
    nothing = Storage("a buffer, 0 bytes", 0, (Mark("held", "bucket 0 holds 'w'", 4, 4),))
    lines = render(replace(VERDICT, cells=(with_what("x", "it is late", storages=(nothing,)),))).splitlines()

    assert lines[lines.index("  Memory:") + 2].endswith(f"  {'·' * 32}")


def test_a_failing_should_is_shown_as_one() -> None:
    text = render(replace(VERDICT, cells=(SMOKE, failing("detach", "SHOULD"))))

    assert text.startswith("FAIL (SHOULD) aliasing.survives-overwrite[detach]\n")
    assert text.endswith("exit 0: every promise holds\n")


def test_a_target_that_failed_smoke_is_said_to_be_wrong_itself() -> None:
    smoke = replace(failing("x"), cell="smoke")
    skipped = replace(CELLS[1], status="skipped", reason="not judged: the target failed smoke")

    text = render(replace(VERDICT, cells=(smoke, skipped)))

    assert text.startswith("FAIL smoke\n")
    assert "SKIPPED: not judged: the target failed smoke\n  aliasing.survives-overwrite[slice]\n" in text
    assert "The target cannot bucket a single tensor: it, or what adapts it, is wrong." in text
    assert "✓ pass" not in text


def test_many_cells_with_one_reason_are_counted() -> None:
    cells = tuple(replace(CELLS[5], cell=f"values.conserved[p{i}]") for i in range(30))

    text = render(replace(VERDICT, cells=cells))

    assert "values.conserved[p7], and 22 more" in " ".join(text.split())


def test_a_passing_verdict_tells_the_matrix_and_the_sum() -> None:
    text = render(replace(PASSED, target="mine:f", origin={}))

    assert "FAIL" not in text
    assert text.endswith("2 cells: 2 pass; mine:f; profile smoke, seed 7, 12.3 s\nexit 0: every promise holds\n")


def test_a_cell_without_an_explanation_still_says_something() -> None:
    assert explain(Outcome("x", "fail", "MUST")) == ["no explanation"]
