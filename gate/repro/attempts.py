"""Which checks may show that a property is broken, the simplest first."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace

from bucketproof.properties import Run
from bucketproof.properties.boundaries import _OTHERS, _elsewhere, _groups
from bucketproof.repro.setting import Attempt, Case
from bucketproof.repro.streams import Options
from bucketproof.strategies import PROVENANCES, Custody, Lender, Plan
from bucketproof.strategies.plans import ITERABLES

_CALM = Options(calm=True)
_TOLD = Options(mark="whose")


def attempts(case: Case) -> Iterator[Attempt]:
    """The ways for a case; none for a property that nobody has written a check for."""
    if case.hangs:
        yield Attempt("ends", _CALM)
        return
    ways = tuple(_WAYS.get(case.broken, lambda case: iter(()))(case))
    yield from ways
    if any(item.dtype in ("float16", "bfloat16", "float32", "float64") for item in case.plan.items):
        yield from (replace(way, nans=True) for way in ways)


def _simple(check: str, **options: object) -> Callable[[Case], Iterator[Attempt]]:
    return lambda case: iter([Attempt(check, **options)])  # type: ignore[arg-type]


def _no_copy(case: Case) -> Iterator[Attempt]:
    yield Attempt("copied")
    yield Attempt("allocated", _TOLD, counted=True)
    yield Attempt("copied", plan=_again_and_again(case.plan))


def _again_and_again(plan: Plan, times: int = 16) -> Plan:
    """The same weights many times, for what depends on where the allocator puts them."""
    return replace(plan, items=tuple(replace(item, name=f"w{i}", seed=i) for i, item in enumerate(plan.items * times)))


def _conserved(case: Case) -> Iterator[Attempt]:
    # What a lender writes shows in bits, too, and is another property's.
    lent = any(PROVENANCES[item.provenance].custody is Custody.LENT for item in filter(case.concerns, case.plan.items))
    yield Attempt("arrived", bits=not lent)
    if lent:
        yield Attempt("arrived", _CALM)


def _duplicates(case: Case) -> Iterator[Attempt]:
    check = "twice" if case.target.promises.duplicates == "kept" else "twice_or_refused"
    yield Attempt(check, bits=False)
    yield Attempt(check, _CALM)


def _oversize(case: Case) -> Iterator[Attempt]:
    yield Attempt(_OVERSIZE.get(case.target.promises.oversize or "", "oversize_whole"))


_OVERSIZE = {"singleton": "oversize_alone", "error": "oversize_refused"}


def _ranks(case: Case) -> Iterator[Attempt]:
    lenders = (Lender("ring", "larger", "end"),)
    for other in _OTHERS:
        items = tuple(_elsewhere(item, *other) for item in case.plan.items)
        there = replace(case.plan, items=items, iterable="generator", lenders=lenders)
        yield Attempt("ranks", elsewhere=there)


def _atomic_groups(case: Case) -> Iterator[Attempt]:
    groups = _groups(Run(case.plan, target=case.target))
    yield Attempt("groups" if all(len(group) == len(present) for group, present in groups) else "incomplete")


def _steady(case: Case) -> Iterator[Attempt]:
    yield Attempt("growing", replace(_TOLD, calm=True), counted=True)
    if case.target.is_async:
        yield Attempt("tasks", _CALM)
    yield Attempt("handles", _CALM)


def _iterables(case: Case) -> Iterator[Attempt]:
    kinds = [kind for kind in ITERABLES if case.target.is_async or not kind.startswith("async-")]
    for first, other in itertools.permutations(kinds, 2):
        yield Attempt("kinds", _CALM, replace(case.plan, iterable=first), elsewhere=replace(case.plan, iterable=other))


def _early_close(case: Case) -> Iterator[Attempt]:
    yield Attempt("closing", Options(calm=True, finally_="CLOSED.append(True)"))
    yield Attempt("holding", replace(_TOLD, calm=True), counted=True)


def _reusable(case: Case) -> Iterator[Attempt]:
    again = replace(other_bits(case.plan), ends="completed", ends_at=0)
    yield Attempt("again", _CALM, elsewhere=again)
    yield Attempt("again_cut", _CALM, elsewhere=again)


def _concurrent(case: Case) -> Iterator[Attempt]:
    yield Attempt("together", Options(calm=True, mark="first"), elsewhere=other_bits(case.plan))
    yield Attempt("together_cut", _CALM, elsewhere=other_bits(case.plan))


def _consumers(case: Case) -> Iterator[Attempt]:
    yield Attempt("held", _CALM, replace(case.plan, consumer="hold"))
    if case.plan.consumer == "clear":
        yield Attempt("arrived", _CALM)
        yield Attempt("cleared_cut", _CALM, elsewhere=case.plan)


def _traces(case: Case) -> Iterator[Attempt]:
    yield Attempt("traces", _CALM)
    yield Attempt("sources", replace(_TOLD, calm=True))
    if case.plan.iterable == "list":
        yield Attempt("listed", _CALM)


def _smoke(case: Case) -> Iterator[Attempt]:
    yield Attempt("arrived")


def other_bits(plan: Plan) -> Plan:
    """The same weights with other content."""
    return replace(plan, items=tuple(replace(item, seed=item.seed + 1000) for item in plan.items))


_WAYS: dict[str, Callable[[Case], Iterator[Attempt]]] = {
    "smoke": _smoke,
    "aliasing.survives-overwrite": _simple("overwritten"),
    "aliasing.no-lent-memory": _simple("lent", stream=_TOLD),
    "aliasing.no-pinned-storage": _simple("pinned"),
    "ownership.no-copy": _no_copy,
    "values.conserved": _conserved,
    "values.order": _simple("order"),
    "values.duplicates": _duplicates,
    "values.tied": _simple("twice_or_refused", bits=False),
    "values.self-contained": _simple("contained"),
    "boundaries.limit": _simple("limit"),
    "boundaries.exact-fit": _simple("exact"),
    "boundaries.greedy": _simple("greedy"),
    "boundaries.no-empty-bucket": _simple("empty"),
    "boundaries.bad-limit": _simple("refused"),
    "boundaries.nan-limit": _simple("refused"),
    "boundaries.oversize": _oversize,
    "boundaries.rank-agreement": _ranks,
    "boundaries.atomic-groups": _atomic_groups,
    "memory.peak": _simple("peak", stream=_TOLD, counted=True),
    "memory.released-after-flush": _simple("released", stream=replace(_TOLD, between="look_back()")),
    "memory.lookahead": _simple("ahead"),
    "memory.steady": _steady,
    "lifecycle.iterables": _iterables,
    "lifecycle.drains-producer": _simple("drained", stream=Options(last="EXHAUSTED.append(True)")),
    "lifecycle.producer-error": _simple("raised", stream=_CALM),
    "lifecycle.early-close": _early_close,
    "lifecycle.cancellation": _simple("cancelled", stream=_CALM),
    "lifecycle.reusable": _reusable,
    "lifecycle.concurrent-syncs": _concurrent,
    "lifecycle.bucket-is-the-consumers": _consumers,
    "lifecycle.leaves-no-trace": _traces,
    "packing.round-trip": _simple("trip", stream=_CALM),
    "packing.alignment": _simple("aligned", stream=_CALM),
    "packing.metadata": _simple("described", stream=_CALM),
}
