"""The verdict on a cell whose plans are run on ranks: they judge what each has seen, and here it is put together."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache

from hypothesis import Phase
from hypothesis.errors import Flaky

from bucketproof.properties import limits
from bucketproof.properties.boundaries import on_rank
from bucketproof.properties.contract import Cell, cells
from bucketproof.properties.judging import Broken, drawn, explore
from bucketproof.properties.outcome import Failure, Outcome
from bucketproof.properties.profiles import Profile
from bucketproof.properties.ranks.pool import Lost
from bucketproof.properties.ranks.pools import pool_of
from bucketproof.properties.ranks.trying import Report, tell, try_out
from bucketproof.properties.target import Target
from bucketproof.strategies import Plan

AGREEMENT = "boundaries.rank-agreement[ranks]"
"""The one cell that no rank can judge alone."""
_APART = f"the ranks came apart, of which {AGREEMENT} tells"
_UNNAMED = "the target was not named by a text, by which ranks could load it"


@dataclass
class Survey:
    """What the runs of a campaign have shown."""

    examples: int = 0
    broken: dict[str, Failure] = field(default_factory=dict)
    size: dict[str, int] = field(default_factory=dict)
    """On how many ranks each of these cells was broken."""
    lost: str = ""
    """Why it ended early, if it did."""


def judge_on_ranks(cell: Cell, target: Target, profile: Profile, seed: int, shrink: bool) -> Outcome:
    """The verdict on one cell. What happens to ranks ends as an outcome, too."""
    if target.again is None:
        return Outcome(cell.id, "skipped", cell.level, reason=_UNNAMED)
    seen = _survey(target, cell.campaign, cell.groups, cell.sizes, profile, seed)
    if failure := seen.broken.get(cell.id):
        if shrink and not seen.lost:
            failure = _smallest(cell, target, profile, seed, seen.size[cell.id]) or failure
        return Outcome(cell.id, "fail", cell.level, examples=seen.examples, failure=failure)
    if seen.lost:
        return Outcome(cell.id, "error", cell.level, examples=seen.examples, reason=seen.lost)
    return Outcome(cell.id, "pass", cell.level, examples=seen.examples)


@lru_cache(maxsize=64)
def _survey(
    target: Target, campaign: str, groups: frozenset[str], sizes: tuple[int, ...], profile: Profile, seed: int
) -> Survey:
    judged = [cell for cell in cells(groups) if (cell.campaign, cell.groups) == (campaign, groups)]
    judged = [cell for cell in judged if not cell.unpromised(target.promises)]
    found, plans = Survey(), drawn(campaign, target.promises, profile, seed)
    for place, size in enumerate(sizes):
        # Each plan on one number of ranks: to run it on all of them would show little more.
        survey(found, target, judged, plans[place :: len(sizes)], size)
    return found


def survey(found: Survey, target: Target, judged: Iterable[Cell], plans: Iterable[Plan], size: int) -> None:
    """Run the plans on so many ranks, and note what they tell. Ends where ranks can no longer go on together."""
    for plan in plans:
        if found.lost:
            return
        try:
            reports = run_on(size, target, plan, [cell for cell in judged if cell.id not in found.broken])
        except Lost as lost:
            found.lost = str(lost)
            return
        found.examples += 1
        for id, failure in _put_together(reports).items():
            found.broken.setdefault(id, failure)
            found.size.setdefault(id, size)
        if are_apart(reports):
            pool_of(size).close(kindly=False)
            found.lost = _APART if AGREEMENT in found.broken else _told_apart(reports)


def run_on(size: int, target: Target, plan: Plan, judged: Iterable[Cell]) -> list[Report]:
    """What each rank reports of a plan. Raises `Lost`."""
    ids = [cell.id for cell in judged]
    pool, again = pool_of(size), pickle.dumps(target.again)
    alone = tuple(id for id in ids if id != AGREEMENT)
    plans = [on_rank(plan, rank) if plan.consumer == "gather" else plan for rank in range(size)]
    # A run may be repeated as often as a property asks for it, and each time may come to its limit.
    seconds = 3 * limits.SECONDS
    reports: list[Report] = pool.call_each(try_out, [(again, each, alone) for each in plans], seconds=seconds)
    if AGREEMENT in ids and (what := _disagreement(reports)):
        reports[0].broken[AGREEMENT] = pool.call(tell, AGREEMENT, what, seconds=seconds)[0]
    return reports


def _disagreement(reports: Sequence[Report]) -> str:
    """How two ranks differ in where they cut, if they do."""
    for rank, report in enumerate(reports):
        if report.partition != reports[0].partition:
            said = next((each.said for each in reports if each.said), "")
            waited = f", and waited for each other: {said}" if said else ""
            return f"rank 0 cut at {reports[0].partition} and rank {rank} at {report.partition}{waited}"
    return ""


def are_apart(reports: Sequence[Report]) -> bool:
    """Whether ranks are no longer at the same collective."""
    is_one_gone = any(each.hung or each.has_left for each in reports)
    return is_one_gone or len({(each.pulled, each.said) for each in reports}) > 1


def _told_apart(reports: Sequence[Report]) -> str:
    told = "; ".join(
        f"rank {rank}: {each.pulled} items, {each.said or 'no error'}" for rank, each in enumerate(reports)
    )
    return f"the ranks came apart: {told}"


def _put_together(reports: Sequence[Report]) -> dict[str, Failure]:
    """What is broken on some rank, as the first of them tells it."""
    found: dict[str, Failure] = {}
    for rank, report in enumerate(reports):
        for id, failure in report.broken.items():
            where = "" if id == AGREEMENT else f"on rank {rank} of {len(reports)}, "
            found.setdefault(id, replace(failure, what=f"{where}{failure.what}"))
    return found


def _smallest(cell: Cell, target: Target, profile: Profile, seed: int, size: int) -> Failure | None:
    """What the smallest plan that breaks a cell shows: the last one seen, for Hypothesis ends with it."""
    found = None
    is_lost = False

    def look(plan: Plan) -> None:
        nonlocal found, is_lost
        if is_lost:
            return
        try:
            reports = run_on(size, target, plan, [cell])
        except Lost:
            is_lost = True
            return
        if are_apart(reports):
            pool_of(size).close(kindly=False)
            is_lost = True
        if failure := _put_together(reports).get(cell.id):
            found = failure
            raise Broken

    with suppress(Broken, Flaky):
        key = f"{target.name}/{cell.id}"
        explore(look, cell.campaign, target.promises, profile, seed, key, Phase.generate, Phase.shrink)
    return found
