"""Reproduction scripts: a failing cell as a program that needs torch and the target alone.

A script is made of the functions that build its weights, taken from `bucketproof.strategies`, of parts that were
written to be pasted, and of its plan as code. It is tried before it is given out: one that does not show what has
happened is none.
"""

from __future__ import annotations

import textwrap
import time
from collections.abc import Iterator
from dataclasses import replace

from bucketproof.properties import Outcome, Target
from bucketproof.properties.limits import SECONDS
from bucketproof.properties.outcome import Failure
from bucketproof.repro.attempts import attempts
from bucketproof.repro.linker import Unwritable
from bucketproof.repro.setting import Case, Setting
from bucketproof.repro.subjects import subject
from bucketproof.repro.trying import hangs, shows
from bucketproof.repro.writing import write
from bucketproof.strategies import PROVENANCES, Item, Lender, Plan

_WIDTH = 100
_ELSEWHERE = ("", "It is shown here in memory of the host, where the same plan breaks it, too.")
"""What is said of a failure on a device. Where it happens on that device alone, there is no script."""


def scripted(outcome: Outcome, target: Target, spec: str) -> Outcome:
    """The outcome with a script, if it has failed and there is one. The target was named by `spec`, or by nothing."""
    if outcome.failure is None:
        return outcome
    try:
        text = script(outcome.cell, outcome.failure, target, spec)
    except Exception:  # a verdict is one without a script, too
        text = ""
    if not text:
        is_described = "device='meta'" in outcome.failure.plan
        return unscripted(outcome, _TOO_LARGE if is_described else _NOT_SHOWN)
    return replace(outcome, failure=replace(outcome.failure, script=text))


def unscripted(outcome: Outcome, reason: str) -> Outcome:
    """The outcome with the reason why there is no script, if it has failed."""
    if outcome.failure is None:
        return outcome
    return replace(outcome, failure=replace(outcome.failure, unscripted=reason))


_TOO_LARGE = "its weights are on the meta device, and in memory they may be more than there is"
_NOT_SHOWN = "none could be written that shows it"


def script(cell: str, failure: Failure, target: Target, spec: str) -> str:
    """A script for a cell that has failed; "" if there is none."""
    case, started = _case(cell, failure, target), time.perf_counter()
    if case.plan.device != "cpu":
        return ""  # in memory, what it describes may be more than there is
    for attempt in attempts(case):
        try:
            judged = subject(target, spec, in_parts=case.in_parts)
            text = write(Setting(case, attempt), judged, [*_head(cell, failure, target, judged.usage)])
        except (Unwritable, OSError):  # there may be no source
            continue
        if hangs(text) if case.hangs else shows(text, None if case.in_parts else target.call):
            return text
        if time.perf_counter() - started > SECONDS:
            break  # the bucketer takes its time, as it will in all other attempts
    return ""


def _case(cell: str, failure: Failure, target: Target) -> Case:
    property_id, _, about = cell.removesuffix("]").partition("@")[0].partition("[")
    names = {"Plan": Plan, "Item": Item, "Lender": Lender, "float": float}
    plan = eval(failure.plan, {"__builtins__": {}, **names})
    hangs = failure.what.endswith("did not end in time")
    return Case(property_id, about if about in PROVENANCES else None, plan, target, hangs)


def _head(cell: str, failure: Failure, target: Target, usage: str) -> Iterator[str]:
    lines = [
        f"{cell}, broken by {target.name}",
        "",
        *textwrap.wrap(failure.sentence, _WIDTH),
        *textwrap.wrap(f"What happened: {failure.what}", _WIDTH),
        *(_ELSEWHERE if "@" in cell else ()),
        "",
        f"To be run where the bucketer can be loaded: python THIS_FILE [{usage}]",
        "It judges that bucketer again, or the one that is named. It ends with 1 if it happens, with 0",
        "if it does not, and with 2 if that cannot be said. It needs torch and the bucketer alone.",
    ]
    return (f"# {_printable(line)}".rstrip() for line in lines)


def _printable(line: str) -> str:
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in line)
