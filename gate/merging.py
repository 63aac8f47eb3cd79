"""One verdict made of those on the parts of a run, which were judged elsewhere."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from bucketproof.properties.outcome import Outcome, Status
from bucketproof.request import BadRequest, parts_of
from bucketproof.verdict import Verdict, read

_ASKED = ("profile", "seed", "groups", "device", "strict", "baseline")
_SAME = (*_ASKED, "target", "origin", "promises")
"""What all parts of one run have in common."""


def merged(paths: Sequence[str]) -> Verdict:
    """The verdict on all cells of the verdicts in these files, which took as long as they all did.

    Of a cell that is in several, such as the smoke test, the worst is told. Raises `BadRequest` if they are not of one
    run, or if a part of it is missing.
    """
    verdicts = {path: read(path) for path in paths}
    (first, one), *others = verdicts.items()
    for path, other in others:
        _must_be_of_one_run(first, one, path, other)
    _must_be_whole(verdicts.values())
    known = max(verdicts.values(), key=lambda each: bool(each.promises))
    return replace(
        known,
        shard=None,
        environment=_environment(verdicts.values()),
        seconds=round(sum(each.seconds for each in verdicts.values()), 3),
        cells=_in_order(_worst(verdicts.values())),
        provenances={name: custody for each in verdicts.values() for name, custody in each.provenances.items()},
    )


def _must_be_of_one_run(first: str, one: Verdict, path: str, other: Verdict) -> None:
    # Of a target that died at once, nothing else is known.
    same = _SAME if one.promises and other.promises else _ASKED
    asked = [(name, getattr(one, name), getattr(other, name)) for name in same]
    names = dict.fromkeys([*one.environment, *other.environment])
    found = [(name, one.environment.get(name), other.environment.get(name)) for name in names if name != "platform"]
    for name, here, there in [*asked, *found]:
        if here != there:
            told = f": {here} and {there}" if isinstance(here, (str, int)) else ""
            raise BadRequest(f"{first} and {path} are not of one run, for they differ in {name}{told}")


def _must_be_whole(verdicts: Iterable[Verdict]) -> None:
    """Each part there is, once: of a part that is missing, nobody would know that it was not judged."""
    shards = [each.shard for each in verdicts]
    if not any(shards):
        return
    numbers = [parts_of(shard) if shard else (0, 0) for shard in shards]
    if len({of for _, of in numbers}) > 1:
        raise BadRequest(f"these are not parts of one whole: {', '.join(shard or 'a whole' for shard in shards)}")
    (_, of), *_ = numbers
    for number in range(1, of + 1):
        if (count := numbers.count((number, of))) != 1:
            raise BadRequest(f"there {'is no part' if not count else 'are several parts'} {number}/{of} among these")


def _environment(verdicts: Iterable[Verdict]) -> dict[str, str]:
    """That of all. Machines may differ."""
    environments = [each.environment for each in verdicts]
    platforms = dict.fromkeys(each["platform"] for each in environments if "platform" in each)
    return {**environments[0], **({"platform": ", ".join(platforms)} if platforms else {})}


def _worst(verdicts: Iterable[Verdict]) -> dict[str, Outcome]:
    found: dict[str, Outcome] = {}
    for cell in (cell for verdict in verdicts for cell in verdict.cells):
        before = found.setdefault(cell.cell, cell)
        if _WORST_FIRST.index(cell.status) < _WORST_FIRST.index(before.status):
            found[cell.cell] = cell
    return found


_WORST_FIRST: tuple[Status, ...] = ("fail", "error", "known", "fixed", "skipped", "unpromised", "pass")


def _in_order(cells: dict[str, Outcome]) -> tuple[Outcome, ...]:
    """In the order of the contract."""
    # Only now, for it imports torch.
    from bucketproof.trial import in_order

    return tuple(cells[id] for id in in_order(cells))
