"""A summary as a verdict, so that every report of the gate tells of it."""

from __future__ import annotations

from collections.abc import Iterator

from bucketproof.auditing.findings import OF_A_BUCKETER, OF_A_PRODUCER, SENTENCES, Finding, HandedOver, Kind
from bucketproof.auditing.summary import Summary
from bucketproof.properties.outcome import Failure, Mark, Outcome, Step, Storage
from bucketproof.properties.story import items
from bucketproof.verdict import Verdict, environment

_MOST = 8
"""Places of one kind that are told in full."""


def verdict_of(summary: Summary) -> Verdict:
    """A cell for each kind that was looked for, and where it was found, for each place."""
    kinds = (*OF_A_PRODUCER, *OF_A_BUCKETER) if summary.bucketer else OF_A_PRODUCER
    cells = [cell for kind in kinds for cell in _cells(kind, summary)]
    failed = {cell.cell for cell in cells if cell.status == "fail"}
    passed = {cell.cell: cell for cell in cells if cell.status == "pass" and cell.cell not in failed}
    return Verdict(
        target=summary.source,
        origin=_facts(summary),
        profile="audit",
        seed=0,
        environment=environment(),
        seconds=summary.seconds,
        cells=(*(cell for cell in cells if cell.status == "fail"), *passed.values()),
        provenances={},
    )


def _facts(summary: Summary) -> dict[str, str]:
    lent = {f"place {each.place}": each.text for each in summary.lent}
    rules = {
        f"rule {each.rule}": f"keeps {each.kept}, copies {each.copied}; kept and spoiled {each.spoiled}, "
        f"copied needlessly {each.needless} ({each.needless_bytes} bytes)"
        for each in summary.rules
    }
    return {
        "ended": summary.ended or "going on",
        "hand-overs": str(summary.items),
        "bytes": str(summary.nbytes),
        "looked at closely": str(summary.looked),
        "pinned beyond": str(summary.pinned),
        **lent,
        **rules,
    }


def _cells(kind: Kind, summary: Summary) -> Iterator[Outcome]:
    sentence = SENTENCES[kind]
    groups: dict[int | None, list[Finding]] = {}
    for finding in summary.findings:
        if finding.kind == kind:
            groups.setdefault(finding.place, []).append(finding)
    if not groups:
        yield Outcome(sentence.cell, "pass", sentence.level, examples=summary.items)
    for place, findings in [*groups.items()][:_MOST]:
        name = sentence.cell if place is None else f"{sentence.cell}[place {place}]"
        yield Outcome(name, "fail", sentence.level, examples=summary.items, failure=_failure(findings[0]))


def _failure(finding: Finding) -> Failure:
    told, code = _plan(finding)
    return Failure(
        sentence=SENTENCES[finding.kind].text,
        what=finding.what,
        plan=code,
        items=told,
        steps=tuple(_steps(finding)),
        storages=tuple(_storages(finding)),
    )


def _plan(finding: Finding) -> tuple[tuple[str, ...], str]:
    try:
        plan = finding.plan()
    except ValueError as error:
        return (), str(error)
    return items(plan), f"{plan}\n# {finding.cell}"


def _steps(finding: Finding) -> Iterator[Step]:
    for item in finding.items:
        yield Step(f"handed over {item}")
        yield from (Step(f"from {line}", depth=1) for line in item.where[:-1])
    yield Step(finding.what, wrong=True)


def _storages(finding: Finding) -> Iterator[Storage]:
    """The memory of the hand-over, and who else had to do with it."""
    if not finding.items or not finding.items[0].storage_bytes:
        return
    first, *others = finding.items
    marks = [_mark(first)]
    marks += [_mark(other) for other in others]
    if finding.kind == "written":
        end = first.offset + first.nbytes
        marks.append(Mark("overwritten", "had other content by then", first.offset, end))
    yield Storage(f"the storage of {first.name!r}, {first.storage_bytes} bytes", first.storage_bytes, tuple(marks))


def _mark(item: HandedOver) -> Mark:
    text = f"handed over as {item.name!r} (item {item.index})"
    return Mark("handed-over", text, item.offset, min(item.offset + item.nbytes, item.storage_bytes))
