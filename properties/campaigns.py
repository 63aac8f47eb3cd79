"""What is drawn for the cells: plans around one provenance, or plans that bring out something else."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Any

from hypothesis import strategies as st

from bucketproof.properties.models import MODELS, MODELS_ON_META, in_any_case, model
from bucketproof.properties.promises import Promises
from bucketproof.strategies import DTYPES, PROVENANCES, Custody, Item, Plan, budgets, plans
from bucketproof.strategies.devices import CPU, CUDA, HOST_ALONE, exists_on
from bucketproof.strategies.plans import LENDER_KINDS, Ends, Iterables, LenderKind

Plans = st.SearchStrategy[Plan]

_GENERATORS: tuple[Iterables, ...] = ("generator", "async-generator")
"""Iterables that can be closed."""
_LAZY: tuple[Iterables, ...] = (*_GENERATORS, "iterator", "async-iterator")
"""Iterables of which it can be seen how far they were advanced."""
_LONG = 40
"""Repetitions of a long stream, which has hundreds of items: some faults need them."""
_FEW = {
    "long-stream": 0.1,
    "large": 0.2,
    "large-lent": 0.2,
    "lent-stream": 0.3,
    "steady": 0.2,
    "iterables": 0.5,
    "rank-agreement": 0.5,
    "reusable": 0.5,
    "unwaited": 0.1,
    "opened": 0.3,
    **dict.fromkeys(MODELS, 0.2),
    **dict.fromkeys(MODELS_ON_META, 0.1),
}
"""Campaigns whose plans are run several times, or take long, have a part of the examples."""


_ABOUT = 5
"""Items of a plan around one provenance. Long enough for a ring of four buffers to come round; most of what a plan
costs is its items, and there are a hundred such campaigns."""


def share_of(campaign: str) -> float:
    """The part of a profile's examples that a campaign has."""
    return _FEW.get(campaign, 1.0)


def _exact_fits(items: Sequence[Item]) -> st.SearchStrategy[int | float]:
    """Limits that the first few items fill exactly. Shrinks towards the first sum that is one."""
    sums = [total for total in itertools.accumulate(item.nbytes for item in items) if total]
    return st.sampled_from(sums or [1])


def _small(items: Sequence[Item]) -> st.SearchStrategy[int | float]:
    """Limits that make several buckets, most of them of more than one item."""
    sizes = sorted({item.nbytes for item in items} - {0}) or [1]
    return st.sampled_from([2 * sizes[-1], sizes[-1], sum(sizes), sizes[0]])


def _small_or_any(items: Sequence[Item]) -> st.SearchStrategy[int | float]:
    return st.one_of(_small(items), budgets(items))


def _whole(items: Sequence[Item]) -> st.SearchStrategy[int | float]:
    """Limits that all items fill exactly, or the largest."""
    sizes = [item.nbytes for item in items]
    return st.sampled_from([max(1, sum(sizes)), max(1, *sizes)])


def _too_small(items: Sequence[Item]) -> st.SearchStrategy[int | float]:
    """Limits that the largest item exceeds."""
    largest = max((item.nbytes for item in items), default=0)
    return st.sampled_from([max(1, largest - 1), max(1, largest // 2), 1])


def _cramped(items: Sequence[Item]) -> st.SearchStrategy[int | float]:
    """Limits that make many buckets, items among them that exceed the limit."""
    return st.one_of(_small(items), _too_small(items))


def _each(*limits: float) -> Callable[[Sequence[Item]], st.SearchStrategy[int | float]]:
    return lambda items: st.sampled_from(limits)


def _long(promises: Promises) -> Plans:
    """Hundreds of items, in buckets of dozens as often as in buckets of a few."""
    larger = st.sampled_from((20, 1))
    return st.builds(_with_larger_buckets, plans(limits=_small, iterables=_LAZY, min_items=2).map(_repeated), larger)


def _lent_stream(promises: Promises) -> Plans:
    """Dozens of lent items, for rules that change with what they have seen."""
    drawn = plans(provenances=_LARGE_LENT, limits=_small, iterables=_LAZY, min_items=2, max_items=4)
    return st.builds(_lent_by, drawn.map(lambda plan: _repeated(plan, 10)), st.sampled_from(LENDER_KINDS))


def _lent_by(plan: Plan, kind: LenderKind) -> Plan:
    return replace(plan, lenders=tuple(replace(each, kind=kind) for each in plan.lenders))


def _with_larger_buckets(plan: Plan, times: int) -> Plan:
    return replace(plan, bucket_bytes=times * plan.bucket_bytes)


def _repeated(plan: Plan, times: int = _LONG) -> Plan:
    items = plan.items * times
    return replace(plan, items=tuple(replace(item, name=f"w{i}", seed=i) for i, item in enumerate(items)))


def _held(promises: Promises) -> Plans:
    """Each weight comes again in a later bucket, where memory that is used again would fit."""
    drawn = plans(limits=_whole, min_items=1, max_items=4)
    return drawn.map(lambda plan: replace(_repeated(plan, 2), consumer="hold"))


def _recurring(promises: Promises) -> Plans:
    """Each weight comes again and again, where the memory of the one before was just let go of."""
    drawn = plans(limits=_whole, provenances=_of(Custody.OWNED), iterables=_LAZY, min_items=1, max_items=2)
    return drawn.map(lambda plan: replace(_repeated(plan, 4), consumer="drop"))


_LARGE_OWNED = ("fresh", "full-tensor", "owned-view", "partial-slice")
_LARGE_LENT = ("exact-cover", "slice", "detach", "data", "dlpack")
_SCALE = 1 << 20
"""Bytes above which a tensor counts as large. Real ones are larger, but nobody's threshold is that high."""


def _large(provenances: Sequence[str]) -> Callable[[Promises], Plans]:
    """One or two items of more than a MiB among small ones."""
    drawn = plans(provenances=provenances, min_items=1, max_items=3, limits=_each(1 << 30, 1 << 22, 1 << 20))
    return lambda promises: drawn.map(_enlarged)


def _enlarged(plan: Plan) -> Plan:
    return replace(plan, items=tuple(map(_enlarged_item, plan.items[:2])) + plan.items[2:])


def _for_an_allocator(plan: Plan) -> Plan:
    """Weights of some KiB, next to which it is nothing that an allocator rounds up."""
    items = [replace(each, shape=(64 * each.shape[0], *each.shape[1:])) if each.shape else each for each in plan.items]
    return replace(plan, items=tuple(items), bucket_bytes=64 * plan.bucket_bytes)


def _enlarged_item(item: Item) -> Item:
    if not item.nbytes or not item.shape:
        return item
    times = 1 + _SCALE // item.nbytes
    return replace(item, shape=(item.shape[0] * times, *item.shape[1:]), layout="contiguous")


_ON_RANKS = (
    *("fresh", "stack", "slice", "detach", "permute", "state_dict"),
    *("dtensor-shard0", "fsdp2-uneven", "broadcast"),
)
"""What each rank has for itself, and what they make together."""
_TIED = ("fresh", "tied", "tied-object")
_PLAIN = ("exact-cover", "fresh", "slice", "detach", "full-tensor")
"""What is about streams and handles on a device takes no view that is rarer than these."""
_METERED = ("exact-cover", "fresh", "slice", "detach", "full-tensor", "partial-slice")


def _of(*custodies: Custody) -> tuple[str, ...]:
    """The provenances of these custodies. Asked for late, for packages outside add to them."""
    return tuple(id for id, each in PROVENANCES.items() if each.custody in custodies and not each.group)


def _sendable() -> tuple[str, ...]:
    # What is sent comes to lie in other memory, also for those who share it with a bucket; and it is sent but once.
    nobodys = _of(Custody.OWNED, Custody.LENT, Custody.PARTIAL)
    return tuple(id for id in nobodys if PROVENANCES[id].home != "shared")


def _ending(*ends: Ends, latest: int = 8, **options: Any) -> Callable[[Promises], Plans]:
    """Plans that end in one of these ways, at any place up to the latest."""

    def build(promises: Promises) -> Plans:
        where = st.tuples(st.sampled_from(ends), st.integers(0, latest))
        return st.builds(_ended, plans(**{"limits": _small, "iterables": _GENERATORS, **options}), where)

    return build


def _ended(plan: Plan, how: tuple[Ends, int]) -> Plan:
    return replace(plan, ends=how[0], ends_at=min(how[1], len(plan.items)))


def _ending_late(*ends: Ends, **options: Any) -> Callable[[Promises], Plans]:
    """Plans that end behind half of the items, for some buckets have been delivered then."""

    def late(plan: Plan) -> Plan:
        return replace(plan, ends_at=max(plan.ends_at, len(plan.items) // 2), **options)

    build = _ending(*ends, min_items=4, limits=_cramped)
    return lambda promises: build(promises).map(late)


def _either(*kinds: Callable[[Promises], Plans]) -> Callable[[Promises], Plans]:
    return lambda promises: st.one_of([kind(promises) for kind in kinds])


def _consumed(consumer: Any, **options: Any) -> Callable[[Promises], Plans]:
    return lambda promises: plans(**{"limits": _small, **options}).map(lambda plan: replace(plan, consumer=consumer))


def _groups(promises: Promises) -> Plans:
    """Streams in which each group is whole, or one is not. Shrinks towards one whole group."""
    about = st.tuples(st.integers(1, 4), st.booleans(), st.integers(-8, 7))
    return st.builds(_grouped, st.just(promises.atomic_groups), plans(max_items=4, limits=_small), about)


def _grouped(groups: tuple[tuple[str, ...], ...], plan: Plan, about: tuple[int, bool, int]) -> Plan:
    layers, mixed, missing = about
    layered = [[f"layers.{layer}.{suffix}" for group in groups for suffix in group] for layer in range(layers)]
    # Layer by layer, or all layers' first members before any second one.
    members = [*itertools.chain.from_iterable(zip(*layered, strict=True) if mixed else layered)]
    if 0 <= missing < len(members):
        del members[missing]
    fillers = [item.name for item in plan.items]
    names = [*itertools.chain.from_iterable(itertools.zip_longest(members, fillers))]
    pattern = plan.items or (Item("", "fresh"),)
    items = [replace(pattern[i % len(pattern)], name=name, seed=i) for i, name in enumerate(names) if name is not None]
    return replace(plan, items=tuple(items))


def _model(campaign: str, promises: Promises) -> Plans:
    return model(campaign)


def _alike(plan: Plan) -> Plan:
    """The tied ones of one kind all have one shape and dtype, and so one memory."""
    firsts: dict[str, Item] = {}
    for item in plan.items:
        firsts.setdefault(item.provenance, item)
    tied = (
        item if item.provenance == "fresh" else replace(firsts[item.provenance], name=item.name) for item in plan.items
    )
    return replace(plan, items=tuple(tied))


def is_campaign(name: str) -> bool:
    """Whether there is such a campaign: one of these, or a provenance, around which plans are drawn."""
    return name in _BUILT or name in PROVENANCES


GROUPED = {
    "ranks": "distributed",
    "shipped": "processes",
    **dict.fromkeys(("unwaited", "metered", "opened", "moved"), CUDA),
    **dict.fromkeys((*MODELS, *MODELS_ON_META), "manifests"),
}
"""Campaigns that are not looked at in any case, with the group that they are of."""

HOST_CAMPAIGNS = ("ranks", "shipped", *MODELS_ON_META)
"""Campaigns that are looked at on no other device: ranks on gloo, shared memory, and what lies nowhere."""

NEEDED = {"atomic-groups": "atomic_groups", "packed": "padding"}
"""Campaigns that show nothing of a target which does not promise this."""

_BUILT: dict[str, Callable[[Promises], Plans]] = {
    "mixed": lambda promises: plans(),
    "iterables": lambda promises: plans(),
    "several": lambda promises: plans(limits=_small_or_any, min_items=3),
    "packed": lambda promises: plans(limits=_whole, min_items=3),
    "long-stream": _long,
    "exact-fit": lambda promises: plans(limits=_exact_fits),
    "oversize": lambda promises: plans(limits=_too_small, min_items=1),
    "bad-limit": lambda promises: plans(limits=_each(0, -1, -0.5, 0.0, -(2**40), -math.inf), iterables=_LAZY),
    "nan-limit": lambda promises: plans(limits=_each(math.nan), iterables=_LAZY),
    "duplicates": lambda promises: plans(name_kinds=["duplicates"], min_items=2),
    "ties": lambda promises: plans(provenances=_TIED, min_items=3).map(_alike),
    "rank-agreement": lambda promises: plans(limits=_small),
    "atomic-groups": _groups,
    "recurring": _recurring,
    "large": _large(_LARGE_OWNED),
    "large-lent": _large(_LARGE_LENT),
    "lent-stream": _lent_stream,
    "owned": lambda promises: _consumed("drop", provenances=_of(Custody.OWNED), iterables=_LAZY, min_items=2)(promises),
    "dropped": _consumed("drop", iterables=_LAZY, min_items=3),
    "cleared": _consumed("clear"),
    "held": _held,
    "shared": lambda promises: plans(provenances=_of(Custody.SHARED), min_items=1),
    "steady": lambda promises: plans(limits=_cramped, iterables=_LAZY, min_items=2),
    "producer-error": _either(
        _ending("error", "exit", "late-error"), _ending_late("error", "exit", "late-error", consumer="hold")
    ),
    "early-close": _ending("close", latest=1, min_items=3),
    "cancellation": _ending("cancel", min_items=2, iterables=("async-generator",)),
    "reusable": _either(
        _ending("completed", "error", "close", latest=3, min_items=3),
        _ending_late("error"),
    ),
    "concurrent": lambda promises: plans(limits=_small, iterables=_GENERATORS, min_items=3),
    "ranks": _consumed("gather", provenances=_ON_RANKS, min_items=2),
    "shipped": lambda promises: _consumed("ship", provenances=_sendable(), min_items=1)(promises),
    "unwaited": lambda promises: plans(
        provenances=_PLAIN, limits=_small, iterables=_GENERATORS, min_items=2, max_items=4
    ),
    "metered": lambda promises: plans(provenances=_METERED, iterables=_LAZY, min_items=2).map(_for_an_allocator),
    "opened": _consumed("ship", provenances=_PLAIN, min_items=1),
    "moved": lambda promises: plans(min_items=1),
    "stateful": lambda promises: plans(limits=_small, iterables=_GENERATORS, min_items=2),
    **{campaign: partial(_model, campaign) for campaign in (*MODELS, *MODELS_ON_META)},
}


@cache
def drawn_for(campaign: str, promises: Promises, device: str = CPU) -> Plans:
    """The plans of a campaign. One around a provenance has fresh tensors in between, and nothing else.

    For all devices they are the same, but for what the device does not have.
    """
    if campaign in PROVENANCES:
        drawn = plans(provenances={campaign, "fresh"}, min_items=1, max_items=_ABOUT).filter(
            lambda plan: _is_about(plan, campaign)
        )
    else:
        drawn = _BUILT[campaign](promises)
    for each in _fits(campaign, promises, device):
        drawn = drawn.map(each)
    return drawn


def always(campaign: str, promises: Promises) -> Iterator[Plan]:
    """The plans of a campaign that are looked at whatever is drawn."""
    for plan in in_any_case(campaign):
        for each in _fits(campaign, promises, CPU):
            plan = each(plan)
        yield plan


def _is_about(plan: Plan, provenance: str) -> bool:
    return any(item.provenance == provenance and item.nbytes for item in plan.items)


Fit = Callable[[Plan], Plan]


def _fits(campaign: str, promises: Promises, device: str) -> list[Fit]:
    """What makes plans such that they can be judged by what is promised, and made where they are to be."""
    there = partial(made_on, device=device) if device != CPU else None
    fits = _patient(promises), _castable(promises), _roomy(promises, campaign), there
    return [fit for fit in fits if fit]


def made_on(plan: Plan, device: str) -> Plan:
    """The plan, in which what a device does not have is of the nearest provenance that it has."""
    return plan if device == CPU else replace(plan, items=tuple(_as_made_on(item, device) for item in plan.items))


def _as_made_on(item: Item, device: str) -> Item:
    if any(op in HOST_ALONE for op in item.ops):
        item = replace(item, ops=tuple("detach" if op in HOST_ALONE else op for op in item.ops))
    provenance = PROVENANCES[item.provenance]
    return item if exists_on(provenance, device) else replace(item, provenance=_NEAREST[provenance.custody])


_NEAREST = {
    Custody.OWNED: "fresh",
    Custody.LENT: "detach",
    Custody.PARTIAL: "partial-detach",
    Custody.SHARED: "tied-object",
}
"""A provenance of each custody that is on all devices, of any shape, dtype and layout that another one admits."""


def _patient(promises: Promises) -> Fit | None:
    """Lenders wait for delivery, where that is promised."""
    if promises.retention == "on-arrival":
        return None
    return lambda plan: replace(plan, retention="at-flush")


def _roomy(promises: Promises, campaign: str) -> Fit | None:
    """No item exceeds the limit, where those that do may not arrive as they are; but where it is about them."""
    if promises.oversize == "singleton" or campaign in ("oversize", "bad-limit", "nan-limit"):
        return None
    cast = DTYPES[promises.dtype].itemsize if promises.dtype in DTYPES else 0

    def widened(plan: Plan) -> Plan:
        sizes = (max(item.nbytes, math.prod(item.shape) * cast) for item in plan.items)
        return replace(plan, bucket_bytes=max([plan.bucket_bytes, *sizes]))

    return widened


def _castable(promises: Promises) -> Fit | None:
    """Every item can be cast, where that is promised."""
    if promises.dtype in (None, "kept"):
        return None
    return lambda plan: replace(plan, items=tuple(map(_as_castable, plan.items)))


def _as_castable(item: Item) -> Item:
    if item.dtype in ("float32", "bfloat16", "float16", "float64"):
        return item
    if not PROVENANCES[item.provenance].domain.admits(item.shape, "float32"):
        item = replace(item, provenance="fresh", ops=())
    return replace(item, dtype="float32", layout="contiguous")
