"""Plans of whole models: manifests as a trainer hands them over, made smaller on the CPU, at full size on meta.

At full size nothing has memory, so nothing can be overwritten, held or copied: what is judged there is which weights
arrive, in which order, and where the buckets are cut.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from hypothesis import strategies as st

from bucketproof.strategies import Item, Lender, Plan
from bucketproof.strategies.draw import lenders
from bucketproof.strategies.exporters import EXPORTERS, weights
from bucketproof.strategies.manifests import manifest, manifests
from bucketproof.strategies.plans import Consumer, Iterables

Plans = st.SearchStrategy[Plan]

_ON_META = "-on-meta"
MODELS = manifests()
"""Campaigns of small weights, in memory."""
MODELS_ON_META = tuple(f"{id}{_ON_META}" for id in MODELS)
"""Campaigns of described weights."""

FACTOR = 512
"""What sides are divided by in memory. The largest weights are then of some KiB, and norms of a few elements."""
_COUNTS = (1, 2, 3, 5, 8, 13, 40, 200)
"""Weights of a plan that is drawn. More of them would make it slow to find the smallest plan that fails."""
_MANY = 2000
"""Weights of the plans in memory that are looked at in any case: one in many buckets, and one in a single one."""
_ROOMS = (1 << 32) + (1 << 30), 1 << 31, 1 << 29, 1 << 35
"""Limits on meta: above what fits into 32 bits, what does not fit into 31 of them, a common one, and a huge one."""
_ITERABLES: tuple[Iterables, ...] = ("generator", "async-generator", "iterator", "async-iterator")
_CONSUMERS: tuple[Consumer, ...] = ("drop", "hold")
_WITHOUT_ARITHMETIC = tuple(name for name in EXPORTERS if name != "merged")
"""What can be done on meta without loading a good part of torch's compiler, which takes seconds."""


def model(campaign: str) -> Plans:
    """Parts of a model. Shrinks towards its first weight."""
    on_meta = campaign.endswith(_ON_META)
    build = partial(_on_meta if on_meta else _in_memory, campaign.removesuffix(_ON_META))
    last = len(manifest(campaign.removesuffix(_ON_META)).weights) - 1
    exporters = st.sampled_from(_WITHOUT_ARITHMETIC if on_meta else tuple(EXPORTERS))
    room = st.sampled_from(_ROOMS) if on_meta else st.integers(0, 3)
    how = st.tuples(lenders(), st.sampled_from(_ITERABLES), st.sampled_from(_CONSUMERS))
    return st.builds(build, st.integers(0, last), st.sampled_from(_COUNTS), exporters, room, how)


def in_any_case(campaign: str) -> tuple[Plan, ...]:
    """The plans of a model that are looked at whatever is drawn: all of it on meta, and a long part of it in memory."""
    if campaign in MODELS_ON_META:
        items = weights(campaign.removesuffix(_ON_META))
        return (Plan(items, _ROOMS[0], device="meta", consumer="drop"),)
    if campaign in MODELS:
        cut = weights(campaign, 0, _MANY, exporter="split", factor=FACTOR)
        whole = weights(campaign, 0, _MANY, exporter="unfused", factor=FACTOR)
        return Plan(cut, _limit(cut, 3), consumer="drop"), Plan(whole, _limit(whole, 0))
    return ()


_How = tuple[Lender, Iterables, Consumer]


def _in_memory(id: str, start: int, count: int, exporter: str, room: int, how: _How) -> Plan:
    items = weights(id, start, start + count, exporter=exporter, factor=FACTOR)
    lender, iterable, consumer = how
    return Plan(items, _limit(items, room), lenders=(lender,), iterable=iterable, consumer=consumer)


def _on_meta(id: str, start: int, count: int, exporter: str, room: int, how: _How) -> Plan:
    items = weights(id, start, start + count, exporter=exporter)
    lender, iterable, consumer = how
    return Plan(items, room, lenders=(lender,), iterable=iterable, consumer=consumer, device="meta")


def _limit(items: Sequence[Item], room: int) -> int:
    """A limit that holds everything, or the largest weight, or twice that, or a thirtieth of it all."""
    sizes = [item.nbytes for item in items]
    return (sum(sizes), max(sizes), 2 * max(sizes), 1 + sum(sizes) // 30)[room]
