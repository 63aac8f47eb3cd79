"""Judging: draw plans, run them, and find the smallest one that breaks a property.

The runs of a campaign serve all its cells. Only for a cell that is broken is the search done again, for it alone, to
shrink what was found.
"""

from __future__ import annotations

import gc
import time
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any
from unittest import SkipTest
from unittest.mock import patch

from hypothesis import Phase, given, settings
from hypothesis import seed as hypothesis_seed
from hypothesis.errors import Flaky
from hypothesis.internal.conjecture.providers import HypothesisProvider

from bucketproof.properties.buckets import NotABucketer
from bucketproof.properties.campaigns import Plans, always, drawn_for, made_on, share_of
from bucketproof.properties.contract import PROPERTIES, Cell, Problem, Property, cells
from bucketproof.properties.limits import Hang
from bucketproof.properties.models import MODELS_ON_META
from bucketproof.properties.outcome import Failure, Outcome
from bucketproof.properties.picture import storages
from bucketproof.properties.profiles import Profile
from bucketproof.properties.promises import Promises
from bucketproof.properties.run import Run
from bucketproof.properties.running import execute
from bucketproof.properties.story import items, steps
from bucketproof.properties.target import Target
from bucketproof.strategies import Item, Plan
from bucketproof.strategies.devices import CPU


def judge(cell: Cell, target: Target, profile: Profile, seed: int, shrink: bool = True) -> Outcome:
    """The verdict on one cell. Whatever the target does ends as an outcome; so does an error of the suite itself.

    Without shrinking, a broken cell is told by the first run that broke it, and takes no longer than one that holds.
    """
    started = time.perf_counter()
    try:
        outcome = _judge(cell, target, profile, seed, shrink)
    except Exception as error:
        reason = f"the suite itself failed: {type(error).__name__}: {str(error).strip()}"
        outcome = Outcome(cell.id, "error", cell.level, reason=reason)
    return replace(outcome, seconds=round(time.perf_counter() - started, 3))


def preflight(target: Target, device: str = CPU) -> Outcome | None:
    """Bucket one owned tensor of a device. None if that works; else the target, or what adapts it, is wrong altogether.

    Raises `NotABucketer` for a target that returns no iterable of buckets.
    """
    run = execute(target, Plan((Item("weight", "fresh"),), bucket_bytes=1 << 20), device=device)
    if isinstance(run.error, NotABucketer):
        raise run.error
    if problems := _SMOKE.problems(run):
        return Outcome(_SMOKE.id, "fail", "MUST", examples=1, failure=failure_of(_SMOKE, run, problems))
    return None


def _smoke(run: Run) -> Iterator[Problem]:
    """A stream of one owned tensor becomes one bucket that holds it."""
    for name in ("lifecycle.terminates", "values.conserved"):
        yield from PROPERTIES[name].judge(run)


_SMOKE = Cell(Property("smoke", _smoke.__doc__ or "", "MUST", _smoke, campaigns=("smoke",), hangs=True), "smoke")


@dataclass(frozen=True)
class Detection:
    """The first run that broke a cell."""

    run: Run
    problems: list[Problem]
    examples: int
    """How many plans it took."""
    seconds: float
    """How long."""


@dataclass
class Survey:
    """What the shared runs of a campaign have shown."""

    examples: int = 0
    broken: dict[str, Detection] = field(default_factory=dict)
    hung: bool = False


def _judge(cell: Cell, target: Target, profile: Profile, seed: int, shrink: bool) -> Outcome:
    if reason := cell.unpromised(target.promises):
        return Outcome(cell.id, "unpromised", cell.level, reason=reason)
    if lack := cell.missing() or _beyond(cell, target):
        return Outcome(cell.id, "skipped", cell.level, reason=lack)
    if cell.sizes:
        from bucketproof.properties.ranks.judging import judge_on_ranks

        return judge_on_ranks(cell, target, profile, seed, shrink)
    if not profile.repeatable and (kept := _search(cell, target, profile, seed, Phase.reuse)):
        return _failed(cell, 1, *kept)
    seen = _survey(target, cell.campaign, cell.groups, cell.device, profile, seed)
    if cell.id in seen.broken:
        first = seen.broken[cell.id]
        # To shrink what hangs would take as long as it hangs, again and again.
        searched = shrink and not seen.hung
        smallest = _search(cell, target, profile, seed, Phase.generate, Phase.shrink) if searched else None
        if searched and smallest is None:  # what is looked at in any case may be nothing that is drawn
            smallest = _halved(cell, target, first)
        return _failed(cell, seen.examples, *(smallest or (first.run, first.problems)))
    if seen.hung:
        reason = "a run did not end in time, of which lifecycle.terminates tells"
        return Outcome(cell.id, "error", cell.level, examples=seen.examples, reason=reason)
    return Outcome(cell.id, "pass", cell.level, examples=seen.examples)


def _beyond(cell: Cell, target: Target) -> str:
    """What of a cell's plans the target cannot take at all, without which nothing it does with them is wrong."""
    return _lacks_meta(target) if cell.campaign in MODELS_ON_META else ""


@lru_cache(maxsize=1024)
def _lacks_meta(target: Target) -> str:
    run = execute(target, Plan((Item("weight", "fresh"),), bucket_bytes=1 << 20, device="meta"))
    return f"the target takes no tensor on the meta device: {run.said}" if run.error else ""


@lru_cache(maxsize=1024)
def _survey(target: Target, campaign: str, groups: frozenset[str], device: str, profile: Profile, seed: int) -> Survey:
    judged = [cell for cell in cells(groups) if (cell.campaign, cell.groups) == (campaign, groups)]
    return survey(target, judged, drawn(campaign, target.promises, profile, seed, device), device)


def survey(target: Target, judged: Iterable[Cell], plans: Iterable[Plan], device: str = CPU) -> Survey:
    """Run the plans on a device, and judge each run in all of these cells. Ends at a run that does not."""
    found, started = Survey(), time.perf_counter()
    judged = [cell for cell in judged if not cell.unpromised(target.promises)]
    with cheap_collections():
        for plan in plans:
            run = execute(target, plan, device=device)
            found.examples += 1
            for cell in judged:
                if cell.id not in found.broken and (problems := cell.problems(run)):
                    seconds = time.perf_counter() - started
                    found.broken[cell.id] = Detection(run, problems, found.examples, seconds)
            if isinstance(run.error, Hang):
                found.hung = True
                break
    return found


def drawn(campaign: str, promises: Promises, profile: Profile, seed: int, device: str = CPU) -> tuple[Plan, ...]:
    """The plans of a campaign that a profile looks at, each once: the same for the same seed.

    On each device they are the same, but for what it does not have.
    """
    # Hypothesis varies what it has drawn before, and often draws it again; to run that again would show nothing.
    plans: dict[Plan, None] = dict.fromkeys(always(campaign, promises))

    def keep(plan: Plan) -> None:
        plans[plan] = None

    explore(keep, campaign, promises, profile, seed, campaign, Phase.generate)
    return tuple(dict.fromkeys(made_on(plan, device) for plan in plans))


class Broken(Exception):
    """A run broke the property."""


def _search(
    cell: Cell, target: Target, profile: Profile, seed: int, *phases: Phase
) -> tuple[Run, list[Problem]] | None:
    """The smallest run that breaks a cell: Hypothesis ends with the smallest, so it is the last one seen."""
    found = None

    def look(plan: Plan) -> None:
        nonlocal found
        run = execute(target, plan, device=cell.device)
        if problems := cell.problems(run):
            found = run, problems
            raise Broken

    # A target that fails only now and then has failed, too. Where nothing was kept, nothing is tried again.
    with suppress(Broken, Flaky, SkipTest):
        key = f"{target.name}/{cell.id}"
        explore(look, cell.campaign, target.promises, profile, seed, key, *phases, device=cell.device)
    return found


def _halved(cell: Cell, target: Target, found: Detection) -> tuple[Run, list[Problem]]:
    """The smallest run that breaks a cell of those that are left when one half of the items is left out, and again."""
    run, problems = found.run, found.problems
    while len(run.plan.items) > 1:
        items, half = run.plan.items, len(run.plan.items) // 2
        for part in (items[:half], items[half:]):
            shorter = execute(target, replace(run.plan, items=part), device=cell.device)
            if found_again := cell.problems(shorter):
                run, problems = shorter, found_again
                break
        else:
            break
    return run, problems


def explore(
    look: Callable[[Plan], None],
    campaign: str,
    promises: Promises,
    profile: Profile,
    seed: int,
    key: str,
    *phases: Phase,
    device: str = CPU,
) -> None:
    """Call `look` on the plans of a campaign: the same for the same seed, whatever else was drawn before."""
    examples = max(1, int(profile.examples * share_of(campaign)))
    options = settings(settings.get_profile(profile.registered), phases=phases, max_examples=examples)
    number = zlib.crc32(f"{seed}/{campaign}".encode())
    with cheap_collections(), without_constants():
        # Made in here and not kept, so that it is collected at the end, with all that Hypothesis has noted.
        _exploring(look, drawn_for(campaign, promises, device), number, options, key)()


def _exploring(look: Callable[[Plan], None], plans: Plans, seed: int, options: settings, key: str) -> Any:
    # The seed before the settings: it takes the database away, for else it would not say all that is drawn.
    explore: Any = options(hypothesis_seed(seed)(given(plans)(look)))
    # What is kept in the database is kept for this key alone.
    explore.hypothesis.inner_test._hypothesis_internal_add_digest = key.encode()
    return explore


@contextmanager
def cheap_collections() -> Iterator[None]:
    """In here, the garbage collector looks at what is new, and not at all of torch, which takes far longer.

    Around a whole search, not each run. What it has left is collected at its end: the next one would freeze it.
    """
    if gc.get_freeze_count():  # it is the host's
        yield
        return
    gc.freeze()
    try:
        yield
    finally:
        gc.collect()
        gc.unfreeze()


def _failed(cell: Cell, examples: int, run: Run, problems: list[Problem]) -> Outcome:
    return Outcome(cell.id, "fail", cell.level, examples=examples, failure=failure_of(cell, run, problems))


def failure_of(cell: Cell, run: Run, problems: list[Problem]) -> Failure:
    """What is told of a run that broke a cell."""
    first = problems[0]
    subject = "" if first.item is None else f"{run.plan.items[first.item].name!r}: "
    what = f"{subject}{first.what}"
    return Failure(
        cell.property.sentence,
        what,
        str(run.plan),
        items(run.plan),
        steps(run, first.item, what),
        storages(run, first.item),
    )


@contextmanager
def without_constants() -> Iterator[None]:
    """In here, Hypothesis draws nothing that it has read in the source of local modules.

    What is drawn here are places in lists, for which such numbers mean nothing; but which modules are local depends on
    how the suite is installed and started, and the same seed would then give other plans.
    """
    # There is no setting for it. A Hypothesis that has no such method has no such constants either.
    with patch.object(HypothesisProvider, "_maybe_draw_constant", lambda *args, **options: None, create=True):
        yield
