"""What an audit says: its summary as text, JSON and reports, and its findings as plans that fail here."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from xml.etree import ElementTree

import numpy as np
import pytest
import torch

from bucketproof import audit
from bucketproof.auditing import Finding, Summary
from bucketproof.properties import cells, execute
from bucketproof.report import render
from bucketproof.targets import resolve
from bucketproof.verdict import Verdict

Pair = tuple[str, torch.Tensor]


def summary_of(weights: Iterator[Pair]) -> Summary:
    watched = audit(weights, on_finding=lambda finding: None, sample=0)
    for _, tensor in watched:
        tensor.shape  # noqa: B018 - the loop names the tensor until the next one is there
    summary: Summary = watched.summary
    return summary


def lent(view: Callable[[torch.Tensor], torch.Tensor], turns: int = 1, size: int = 64) -> Iterator[Pair]:
    buffers = [torch.empty(size) for _ in range(turns)]
    for number in range(3 * turns):
        yield f"layers.{number}.weight", view(buffers[number % turns].fill_(number))


def numpy_lent() -> Iterator[Pair]:
    array = np.zeros(64, dtype=np.float32)
    for number in range(3):
        array[:] = number
        yield f"w{number}", torch.from_numpy(array)


def inference_lent() -> Iterator[Pair]:
    with torch.inference_mode():
        buffer = torch.empty(64)
    for number in range(3):
        with torch.inference_mode():
            view = buffer.fill_(number).view(8, 8)
        yield f"w{number}", view


def graphs() -> Iterator[Pair]:
    leaf = torch.ones(4, requires_grad=True)
    yield "w", leaf * 2


def split() -> Iterator[Pair]:
    fused = torch.ones(12, 4)
    for number, part in enumerate(fused.split(4)):
        yield f"part{number}", part.detach()


PLANS = {
    "detach": (lambda: lent(torch.Tensor.detach), "written", "aliasing.survives-overwrite[detach]", "base-guard"),
    "ping-pong": (
        lambda: lent(torch.Tensor.detach, 2),
        "written",
        "aliasing.survives-overwrite[detach]",
        "storage-size",
    ),
    "ring": (lambda: lent(torch.Tensor.detach, 3), "written", "aliasing.survives-overwrite[detach]", "base-guard"),
    "same object": (lambda: lent(lambda each: each), "written", "aliasing.survives-overwrite[detach]", "base-guard"),
    "exact cover": (
        lambda: lent(lambda each: each.view(8, 8)),
        "written",
        "aliasing.survives-overwrite[exact-cover]",
        "storage-size",
    ),
    "part of a buffer": (
        lambda: lent(lambda each: each[8:].detach()),
        "written",
        "aliasing.survives-overwrite[detach]",
        "base-guard",
    ),
    "slice": (
        lambda: lent(lambda each: each[8:]),
        "written",
        "aliasing.survives-overwrite[slice]",
        "keeps-lent-views",
    ),
    "numpy": (numpy_lent, "written", "aliasing.survives-overwrite[numpy]", "base-guard"),
    "inference": (inference_lent, "written", "aliasing.survives-overwrite[inference]", "base-guard"),
    "hidden base": (inference_lent, "hidden-base", "aliasing.survives-overwrite[inference]", "storage-size"),
    "foreign": (numpy_lent, "foreign", "aliasing.survives-overwrite[numpy]", "base-guard"),
    "graph": (graphs, "graph", "values.self-contained[autograd-result]", "storage-size"),
    "pinned": (split, "pinned", "aliasing.no-pinned-storage[partial-detach]", "base-guard"),
}


@pytest.mark.parametrize("name", PLANS)
def test_what_was_seen_in_production_is_a_failing_cell_here(name: str) -> None:
    make, kind, cell_id, wrong = PLANS[name]
    finding = next(each for each in summary_of(make()).findings if each.kind == kind)
    [cell] = [each for each in cells() if each.id == finding.cell]
    plan = finding.plan()

    assert cell.id == cell_id
    assert cell.problems(execute(resolve(wrong), plan))
    assert not cell.problems(execute(resolve("reference"), plan))
    assert eval(repr(plan), _names()) == plan
    assert {item.name for item in plan.items} >= {item.name for item in finding.items}


def _names() -> dict[str, object]:
    from bucketproof import strategies

    return vars(strategies)


@pytest.mark.parametrize("kind", ["tied", "overlap", "requires-grad"])
def test_a_note_has_a_plan_that_the_reference_passes(kind: str) -> None:
    weight = torch.ones(8, 4, requires_grad=kind == "requires-grad")
    weights = [("a", weight.detach() if kind != "requires-grad" else weight)]
    weights += [("b", weight.detach() if kind == "tied" else weight.detach()[:4])]
    finding = next(each for each in summary_of(iter(weights)).findings if each.kind == kind)

    [cell] = [each for each in cells() if each.id == finding.cell]
    assert not cell.problems(execute(resolve("reference"), finding.plan()))


def test_a_bucketers_finding_has_no_plan_and_says_what_to_do() -> None:
    with pytest.raises(ValueError, match="judge the bucketer with `bucketproof check`"):
        Finding("copied", "it was copied").plan()


SUMMARY = summary_of(lent(torch.Tensor.detach, 2))


def test_a_summary_comes_back_from_json_as_it_was() -> None:
    assert Summary.from_json(SUMMARY.to_json()) == SUMMARY
    assert json.loads(SUMMARY.to_json())["lent"][0]["period"] == 2
    for text in ("{}", "[]", '{"schema": 2}', '{"schema": 1}'):
        with pytest.raises(ValueError, match=r"no summary|not whole"):
            Summary.from_json(text)


def test_the_text_tells_of_lenders_rules_and_findings() -> None:
    text = str(SUMMARY)

    assert "audit of lent: 6 hand-overs, 1536 bytes, completed" in text
    assert "every 2nd hand-over: handed over 3 times, written since 2 times" in text
    assert "found: 4 written" in text
    assert [line.split()[:2] for line in text.splitlines() if line.startswith("  storage-size")] == [
        ["storage-size", "6"]
    ]
    assert "nothing was found" in str(summary_of(iter([("w", torch.ones(4))])))


def test_a_long_text_is_cut_and_says_so() -> None:
    text = str(summary_of(lent(torch.Tensor.detach, 20)))

    assert "  and 8 more" in text
    assert len(text.splitlines()) < 45


def test_every_report_of_the_gate_tells_of_an_audit() -> None:
    verdict = SUMMARY.verdict()

    assert verdict.exit_code == 1
    assert Verdict.from_json(verdict.to_json()) == verdict
    text = render(verdict)
    assert "FAIL producer.written[place 0]" in text
    assert "overwritten" not in text or "had other content by then" in text
    assert "Plan(" in text
    page = SUMMARY.html()
    ElementTree.fromstring(page.removeprefix("<!DOCTYPE html>\n"))
    assert "every 2nd hand-over" in page
    assert "<script" not in page


def test_a_clean_audit_is_a_verdict_that_passes() -> None:
    verdict = summary_of((f"w{number}", torch.ones(8) * number) for number in range(4)).verdict()

    assert verdict.exit_code == 0
    assert {cell.status for cell in verdict.cells} == {"pass"}
    assert len(verdict.cells) == 8


def test_a_note_is_a_should_that_changes_no_exit_code() -> None:
    verdict = summary_of(split()).verdict()

    assert verdict.exit_code == 0
    assert [cell.cell for cell in verdict.cells if cell.status == "fail"] == ["producer.pinned"]


def test_a_name_that_would_be_markup_is_text() -> None:
    def producer() -> Iterator[Pair]:
        buffer = torch.empty(8)
        for number in range(2):
            yield "<script>harm()</script>", buffer.fill_(number)

    assert "<script" not in summary_of(producer()).html()
