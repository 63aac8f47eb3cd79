"""Boundaries: where one bucket ends and the next begins."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace

from bucketproof.properties.contract import Problem, contract
from bucketproof.properties.models import MODELS, MODELS_ON_META
from bucketproof.properties.run import Partition, Run
from bucketproof.strategies import LAYOUTS, PROVENANCES, Item, Lender, Plan

_CAMPAIGNS = ["mixed", "several", "long-stream", "duplicates", "ties", *MODELS, *MODELS_ON_META]
"""Items of one name, and names of one memory, are counted like all others."""
_REFUSED = {"bad_limit": ()}
_LISTED = 16
"""Items up to which all buckets of a partition are told."""


@contract("boundaries.limit", campaigns=[*_CAMPAIGNS, "atomic-groups"], needs={"bound": ()})
def limit(run: Run) -> Iterator[Problem]:
    """A bucket never exceeds the limit, unless it is a single oversize item."""
    for number, members in enumerate(_weighty(run, run.partition())):
        counted = members[:-1] if run.promises.bound == "soft" else members
        total = _total(run, counted)
        if len(members) > 1 and _is_over(run, total) and not _is_one_group(run, members):
            holds = f"bucket {number} holds {_total(run, members)} bytes in {len(members)} items"
            yield Problem(f"{holds}; the limit is {run.plan.bucket_bytes} bytes, {run.promises.bound}")


def _is_one_group(run: Run, members: list[int]) -> bool:
    """Whether a bucket is a group that is larger than the limit, and nothing else: it may not be split either."""
    names = {run.plan.items[index].name for index in members}
    return any(names <= set(present) for _, present in _groups(run))


def _is_over(run: Run, total: int) -> bool:
    limit = run.plan.bucket_bytes
    return total >= limit if run.promises.bound == "strict" else total > limit


@contract("boundaries.exact-fit", campaigns=["exact-fit"], needs={"bound": ("hard",), "order": ("kept",)})
def exact_fit(run: Run) -> Iterator[Problem]:
    """Items that sum exactly to the limit share one bucket."""
    buckets = _weighty(run, run.partition())
    sums = list(itertools.accumulate(map(run.size, range(len(run.plan.items)))))
    if run.plan.bucket_bytes not in sums or not run.intact:
        return  # what is lost or late is another property's
    fitting = [i for i in range(sums.index(int(run.plan.bucket_bytes)) + 1) if run.size(i)]
    if buckets[:1] != [fitting]:
        yield Problem(
            f"the first {len(fitting)} items sum to exactly the limit of {run.plan.bucket_bytes} bytes, "
            f"and the first bucket holds {len(buckets[0]) if buckets else 0}"
        )


@contract(
    "boundaries.greedy",
    campaigns=_CAMPAIGNS,
    needs={"bound": ("hard", "strict"), "order": ("kept",), "oversize": ("singleton",)},
)
def greedy(run: Run) -> Iterator[Problem]:
    """The partition equals first-fit in stream order (a zero-byte item may fall on either side of a full bucket)."""
    if not run.intact:
        return  # what is lost or late is another property's
    sizes = [run.size(index) for index in range(len(run.plan.items))]
    expected = _weighty(run, first_fit(sizes, run.plan.bucket_bytes, strict=run.promises.bound == "strict"))
    found = _weighty(run, run.partition())
    if found != expected:
        here, there = _told(found, expected), _told(expected, found)
        what = f"it is not where first-fit in stream order has it: here are items {here}, and there {there}"
        yield Problem(what, _parting(found, expected))


def _parting(found: Partition, expected: Partition) -> int:
    """The first item that is not in the bucket where it is expected."""
    here, there = ({index: number for number, each in enumerate(p) for index in each} for p in (found, expected))
    return next(index for index in there if here.get(index) != there[index])


def _told(partition: Partition, other: Partition) -> str:
    """A partition in words; of a long one, the first bucket that is not in the other."""
    if sum(map(len, partition)) <= _LISTED:
        return str(partition)
    for number, members in enumerate(partition):
        if members not in other[number : number + 1]:
            return f"{members[0]} to {members[-1]} in bucket {number}" if members else f"none in bucket {number}"
    return f"{len(partition)} buckets"


@contract("boundaries.no-empty-bucket", campaigns=["mixed", "oversize", *MODELS, *MODELS_ON_META])
def no_empty_bucket(run: Run) -> Iterator[Problem]:
    """No bucket is empty; an empty stream gives none."""
    for number in range(len(run.buckets)):
        if not run.members(number):
            yield Problem(f"bucket {number} is empty")


@contract("boundaries.bad-limit", campaigns=["bad-limit"], needs=_REFUSED)
def bad_limit(run: Run) -> Iterator[Problem]:
    """A zero or negative limit raises `ValueError` before the producer is touched."""
    yield from _refused(run)


@contract("boundaries.nan-limit", level="SHOULD", campaigns=["nan-limit"], needs=_REFUSED)
def nan_limit(run: Run) -> Iterator[Problem]:
    """A limit that is not a number raises `ValueError` before the producer is touched."""
    yield from _refused(run)


def _refused(run: Run) -> Iterator[Problem]:
    if run.error is None:
        yield Problem(f"a limit of {run.plan.bucket_bytes} was accepted")
    elif not isinstance(run.error, ValueError):
        yield Problem(f"a limit of {run.plan.bucket_bytes} raised {type(run.error).__name__}, not ValueError")
    elif run.handed_over:
        yield Problem(f"the producer had been advanced when a limit of {run.plan.bucket_bytes} was refused")


@contract("boundaries.oversize", campaigns=["oversize"], needs={"oversize": ()})
def oversize(run: Run) -> Iterator[Problem]:
    """An item above the limit is treated as promised and loses nothing around it."""
    over = [i for i in range(len(run.plan.items)) if run.size(i) > run.plan.bucket_bytes]
    if run.promises.oversize == "error":
        yield from _not_refused(run, over)
        return
    lost = [index for index in range(len(run.plan.items)) if not _whole(run, index)]
    if lost:
        yield from _lost(run, lost)
    if run.promises.oversize == "singleton":
        for number, members in enumerate(_weighty(run, run.partition())):
            # A soft bound admits one item more, whatever its size.
            bound = members[:-1] if run.promises.bound == "soft" else members
            if len(members) > 1 and set(bound) & set(over):
                yield Problem(f"an item above the limit shares bucket {number} with {len(members) - 1} others")


def _whole(run: Run, index: int) -> bool:
    """Whether all of it arrived or, where items are split, as many bytes as there are under its name."""
    if run.promises.oversize != "split":
        return bool(run.of(index))
    name = run.plan.items[index].name
    due = sum(run.size(i) for i, item in enumerate(run.plan.items) if item.name == name)
    return sum(each.facts.nbytes for each in run.delivered if each.name == name) >= due


def _lost(run: Run, lost: list[int]) -> Iterator[Problem]:
    roomy = _in_a_large_bucket(run)
    if not roomy.intact:
        return
    if run.error is not None:
        yield Problem(f"a stream with an item above the limit was refused: {run.said}")
        return
    for index in lost:
        yield Problem("it was lost in a stream with an item above the limit", index)


def _in_a_large_bucket(run: Run) -> Run:
    """What goes wrong where there is room for everything has nothing to do with the limit."""
    return run.repeat(bucket_bytes=1 << 30)


def _not_refused(run: Run, over: list[int]) -> Iterator[Problem]:
    if over and run.error is None:
        yield Problem("an item above the limit was accepted, though the target promises an error", over[0])
    if not over and run.error is not None and _in_a_large_bucket(run).error is None:
        yield Problem(f"a stream with no item above the limit was refused: {run.said}")


@contract("boundaries.rank-agreement", campaigns=["rank-agreement", "ranks", *MODELS, *MODELS_ON_META])
def rank_agreement(run: Run) -> Iterator[Problem]:
    """The partition depends on names, shapes and dtypes alone: ranks that differ in all else cut at the same places."""
    if not run.intact:
        return
    expected = run.partition()
    for others in _others(run):
        whence = zip(run.plan.items, itertools.cycle(others), strict=False)
        items = tuple(_elsewhere(item, *other) for item, other in whence)
        other = run.repeat(items=items, iterable="generator", lenders=(Lender("ring", "larger", "end"),))
        if other.intact and other.partition() != expected:
            here, there = _told(expected, other.partition()), _told(other.partition(), expected)
            yield Problem(f"its buckets hold items {here} and, of other values, layouts and provenances, {there}")
            return


_OTHERS = (
    ("fresh", "contiguous"),
    ("detach", "contiguous"),
    ("detach", "stepped"),
    ("detach", "permuted"),
    ("partial-chain", "contiguous"),
    ("state_dict", "contiguous"),
    ("live-parameter", "contiguous"),
)
"""Provenances and layouts that weights have on other ranks."""
_FEW = 200
"""Items up to which a stream is repeated for each of them. A longer one is repeated once, with all of them in turn but
the last two: to make a module for each of a hundred thousand weights takes longer than all the rest."""


def _others(run: Run) -> list[tuple[tuple[str, str], ...]]:
    """What the weights have in turn, on each of the other ranks."""
    return [(each,) for each in _OTHERS] if len(run.plan.items) <= _FEW else [_OTHERS[:-2]]


def on_rank(plan: Plan, number: int) -> Plan:
    """The plan as that rank has it: what is not made by all of them together has other values and another history."""
    others = itertools.cycle(_OTHERS[number:] + _OTHERS[:number])
    items = (
        item if PROVENANCES[item.provenance].group else _elsewhere(item, *other)
        for item, other in zip(plan.items, others, strict=False)
    )
    return replace(plan, items=tuple(items)) if number else plan


def _elsewhere(item: Item, provenance: str, layout: str) -> Item:
    """The same weight on another rank: other bits and, if it can be, another provenance and layout."""
    if not PROVENANCES[provenance].domain.admits(item.shape, item.dtype):
        provenance = "fresh"
    if provenance == "fresh" or not LAYOUTS[layout].domain.admits(item.shape, item.dtype):
        layout = "contiguous"
    ops = ("select", "detach") if provenance == "partial-chain" else ()
    return replace(item, provenance=provenance, layout=layout, ops=ops, lender=0, seed=item.seed + 1000)


@contract("boundaries.atomic-groups", campaigns=["atomic-groups"], needs={"atomic_groups": ()})
def atomic_groups(run: Run) -> Iterator[Problem]:
    """Members of a declared group share a bucket; an incomplete group is an error that loses nothing delivered."""
    buckets = {d.name: d.bucket for d in run.delivered}
    groups = list(_groups(run))
    if any(len(present) < len(group) for group, present in groups):
        if run.error is None:
            yield Problem("a stream with an incomplete group was accepted")
        return
    if run.error is not None:
        yield Problem(f"a stream of whole groups was refused: {run.said}")
    for _, present in groups:
        if len({buckets.get(name) for name in present}) > 1:
            yield Problem(f"{', '.join(present)} belong together and lie in several buckets")


def _groups(run: Run) -> Iterator[tuple[tuple[str, ...], list[str]]]:
    """Each declared group of each layer in the stream, with the members that are there."""
    names = [item.name for item in run.plan.items]
    for group in run.promises.atomic_groups:
        prefixes = {name.removesuffix(suffix) for name in names for suffix in group if name.endswith("." + suffix)}
        for prefix in sorted(prefixes):
            yield group, [name for name in names if name in {prefix + suffix for suffix in group}]


def first_fit(sizes: Sequence[int], limit: float, *, strict: bool = False) -> Partition:
    """Sizes in bytes, in order, each in the open bucket if it fits there and else in a new one.

    `strict` buckets hold less than the limit.
    """
    buckets: Partition = []
    used = 0
    for index, size in enumerate(sizes):
        if not buckets or used + size > limit or (strict and used + size == limit):
            buckets.append([])
            used = 0
        buckets[-1].append(index)
        used += size
    return buckets


def _weighty(run: Run, partition: Partition) -> Partition:
    """Without items of no byte, which fit on either side of any boundary, and without the buckets they leave empty."""
    kept = ([index for index in members if run.size(index)] for members in partition)
    return [members for members in kept if members]


def _total(run: Run, members: list[int]) -> int:
    return sum(map(run.size, members))
