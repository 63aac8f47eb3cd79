"""The verdict as JUnit's XML, which is what CI systems read: a test case for each cell, made from the verdict alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from bucketproof.layout import ON, parts
from bucketproof.markup import Markup, block, cut, tag
from bucketproof.properties.outcome import Outcome
from bucketproof.report import explain_alone
from bucketproof.verdict import Verdict

_LONGEST = 300
"""Characters of a message. What follows it has everything."""

_SUMS = {"failure": "failures", "error": "errors", "skipped": "skipped"}


@dataclass(frozen=True)
class _Case:
    """A cell, as JUnit has it."""

    cell: Outcome
    result: Literal["passed", "failure", "error", "skipped"]
    message: str = ""

    def xml(self) -> Markup:
        property_id, _ = parts(self.cell.cell)
        content = list(self._content())
        attributes = {"classname": property_id, "name": self.cell.cell, "time": f"{self.cell.seconds:.3f}"}
        return block("testcase", *content, **attributes) if content else tag("testcase", **attributes)

    def _content(self) -> Iterator[Markup]:
        told = "\n".join(explain_alone(self.cell)) if self.cell.failure else ""
        is_against = self.result in ("failure", "error")
        if self.result != "passed":
            # What is skipped may have no text of its own, according to some readers.
            text, kind = (told, self.cell.level) if is_against else ("", None)
            yield tag(self.result, text, message=cut(" ".join(self.message.split()), _LONGEST), type=kind)
        said = "" if is_against else told if self.result == "skipped" else self.message
        if said:
            yield tag("system-out", said)


def junit(verdict: Verdict) -> str:
    """The verdict: what counts against the target is a failure or an error, and all else that does not pass is skipped.

    So a reader of it and the exit code agree.
    """
    against = {cell.cell for cell in verdict.against}
    cases = [_case(cell, cell.cell in against, verdict) for cell in verdict.cells]
    sums = _sums(cases, verdict)
    head = tag("properties", *(tag("property", name=name, value=value) for name, value in _facts(verdict).items()))
    suite = block("testsuite", head, *(case.xml() for case in cases), name=f"bucketproof {verdict.target}", **sums)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{block("testsuites", suite, name="bucketproof", **sums)}\n'


def _case(cell: Outcome, is_against: bool, verdict: Verdict) -> _Case:
    why = cell.failure.what if cell.failure else cell.reason
    listed = f"{cell.reason} {cell.link}".strip()
    if is_against:
        return _Case(cell, "error" if cell.status == "error" else "failure", why)
    if cell.status == "fixed":
        return _Case(cell, "failure" if verdict.strict else "passed", f"listed as known, and passes: {listed}")
    if cell.status == "known":
        return _Case(cell, "skipped", f"known: {listed}")
    if cell.status in ("fail", "error"):
        excuse = "no better than the baseline" if verdict.baseline else cell.level
        return _Case(cell, "skipped", f"{excuse}: {why}")
    return _Case(cell, "passed") if cell.status == "pass" else _Case(cell, "skipped", f"{cell.status}: {cell.reason}")


def _sums(cases: list[_Case], verdict: Verdict) -> dict[str, object]:
    found: Counter[str] = Counter(case.result for case in cases)
    sums = {name: found[result] for result, name in _SUMS.items()}
    return {"tests": len(cases), **sums, "time": f"{verdict.seconds:.3f}"}


def _facts(verdict: Verdict) -> Mapping[str, str]:
    asked = {
        "target": verdict.target,
        "profile": verdict.profile,
        "seed": str(verdict.seed),
        "verdict": verdict.meaning,
    }
    if verdict.groups:
        asked["with"] = ", ".join(verdict.groups)
    if verdict.device != "cpu":
        asked["on"] = ON[verdict.device]
    return {**asked, **verdict.origin, **verdict.environment}
