"""Judging one target, in a process of its own, for whoever judges many: `python -m bucketproof.judged SPEC ...`.

As `check` does, but for one thing: of cells in which the same thing goes wrong only the first is searched for the
smallest plan, which is where most of the time goes.
"""

from __future__ import annotations

import re
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from bucketproof.layout import parts
from bucketproof.properties import Cell, NotABucketer, Outcome, judge
from bucketproof.request import BadRequest
from bucketproof.targets import resolve
from bucketproof.trial import Trial, profile_named, record
from bucketproof.verdict import Verdict, gathered

_CAUSES = 3
"""Of how many things that go wrong with one property the smallest plan is searched for."""
_PARTICULAR = re.compile(r"'[^']*'|0x[0-9a-f]+|(?<=view )\w+ as \w+|\d+")
"""What of a failure differs with the plan."""


def verdict_on(spec: str, profile: str, seed: int) -> Verdict:
    """The verdict on a target. Raises `BadRequest`, also for what is no bucketer."""
    started, target = time.perf_counter(), resolve(spec)
    trial = Trial(target, profile_named(profile), seed, spec=spec)
    try:
        records = [record(cell, target, outcome) for cell, outcome in _outcomes(trial)]
    except NotABucketer as error:
        raise BadRequest(f"{spec}: {error}") from None
    return gathered(records, records[0]["target"], profile, seed, time.perf_counter() - started)


def _outcomes(trial: Trial) -> Iterator[tuple[Cell | None, Outcome]]:
    yield None, trial.smoke
    told: set[str] = set()
    causes: Counter[str] = Counter()
    for cell in trial.cells:
        outcome = _at_first(trial, cell)
        seen = cause(outcome)
        if outcome.failure and seen not in told and causes[cell.property.id] < _CAUSES:
            outcome = trial.judge(cell)
            told |= {seen, cause(outcome)}
            causes[cell.property.id] += 1
        yield cell, outcome


def _at_first(trial: Trial, cell: Cell) -> Outcome:
    """The outcome without a smallest plan."""
    if trial.smoke.status != "pass":
        return trial.judge(cell)
    return judge(cell, trial.target, trial.profile, trial.seed, False)


def cause(outcome: Outcome) -> str:
    """What has gone wrong with which property, without what is particular to the plan."""
    what = outcome.failure.what if outcome.failure else ""
    return f"{parts(outcome.cell)[0]} {_PARTICULAR.sub('', what)}"


def main(arguments: Sequence[str]) -> int:
    """Judge a target, and write the verdict into a file. 2, with a line that says why, if that cannot be."""
    spec, profile, seed, into = arguments
    try:
        text = verdict_on(spec, profile, int(seed)).to_json()
    except BadRequest as error:
        print(error, file=sys.stderr)
        return 2
    Path(into).write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
