"""How a trainer hands over the weights of a model: which provenance each of them has, by what it is."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, NamedTuple

from bucketproof.strategies.manifests import Weight, manifest
from bucketproof.strategies.plans import Item, Shape
from bucketproof.strategies.provenances import PROVENANCES

Rule = tuple[str, str, tuple[str, ...]]
"""A pattern that is searched in a weight's name; the provenance of what it finds; for a chain, its operations."""

EXPORTERS: dict[str, tuple[Rule, ...]] = {
    # FSDP2: each parameter is gathered by `full_tensor()`.
    "gathered": (("", "full-tensor", ()),),
    # Megatron: what is fused is split, and what is split is detached, in memory that is gathered into again.
    "split": (
        (r"\.experts\.", "chain", ("select", "detach")),
        (r"\.[qkv]_proj|\.qkv\.", "chain", ("split", "detach")),
        (r"\.gate_proj", "chain", ("chunk", "detach")),
        (r"\.up_proj", "chain", ("unsafe_split", "detach")),
        ("", "detach", ()),
    ),
    # A receive buffer of exactly the weight's size.
    "broadcast": (("", "exact-cover", ()),),
    # Weights that are fused in the trainer, in memory that is dropped as soon as they are cut out of it.
    "unfused": (
        (r"\.experts\.", "expert", ()),
        (r"_proj", "partial-chain", ("split", "detach")),
        ("", "fresh", ()),
    ),
    # ZeRO-3: a parameter is empty until it is gathered.
    "placeholders": (("", "padded-placeholder", ()),),
    # A live module, whose head is its embedding.
    "tied": ((r"embed_tokens|lm_head", "tied", ()), ("", "state_dict", ())),
    # Adapters are merged as weights are asked for.
    "merged": ((r"_proj", "autograd-result", ()), ("", "live-parameter", ())),
    # Quantised by blocks: the weight and its scales are views of results that are dropped.
    "quantised": (("", "owned-view", ()),),
}
"""For each kind of trainer its rules, of which the first that fits is followed. What a rule cannot make is `fresh`."""


class Source(NamedTuple):
    """Where the items of a plan come from."""

    id: str
    start: int
    exporter: str
    factor: int


class Weights(tuple[Item, ...]):
    """A part of a manifest as the items of a plan, as is each part of it. The repr of a long one makes it again."""

    source: Source

    @classmethod
    def of(cls, source: Source, items: Iterable[Item]) -> Weights:
        """These items, which come from there."""
        made = cls(items)
        made.source = source
        return made

    def __getitem__(self, place: Any) -> Any:
        found = super().__getitem__(place)
        if not isinstance(place, slice) or place.step not in (None, 1):
            return found
        first = place.indices(len(self))[0]
        return self.of(self.source._replace(start=self.source.start + first), found)

    def __repr__(self) -> str:
        if len(self) <= _WRITTEN_OUT:
            return repr(tuple(self))
        id, start, exporter, factor = self.source
        return f"weights({id!r}, {start}, {start + len(self)}, exporter={exporter!r}, factor={factor})"


_WRITTEN_OUT = 100
"""Items up to which a plan says all of them."""


@lru_cache(maxsize=64)
def weights(
    id: str, start: int = 0, stop: int | None = None, *, exporter: str = "gathered", factor: int = 1
) -> Weights:
    """The weights of a manifest from number `start` to before `stop`, all sides of them divided by `factor`."""
    rules = _compiled(exporter)
    some = manifest(id).weights[start:stop]
    items = (_item(weight, number, rules, factor) for number, weight in enumerate(some, start))
    return Weights.of(Source(id, start, exporter, factor), items)


def _compiled(exporter: str) -> list[tuple[re.Pattern[str], str, tuple[str, ...]]]:
    return [(re.compile(pattern), provenance, ops) for pattern, provenance, ops in EXPORTERS[exporter]]


def _item(
    weight: Weight, number: int, rules: Iterable[tuple[re.Pattern[str], str, tuple[str, ...]]], factor: int
) -> Item:
    shape = _smaller(weight.shape, factor)
    for pattern, provenance, ops in rules:
        if pattern.search(weight.name) and PROVENANCES[provenance].domain.admits(shape, weight.dtype):
            return Item(weight.name, provenance, weight.dtype, shape, ops=ops, seed=number % _SEEDS)
    return Item(weight.name, "fresh", weight.dtype, shape, seed=number % _SEEDS)


_SEEDS = 128
"""Contents that take turns, so that they are made once: no two weights have the same that stand near each other."""


def _smaller(shape: Shape, factor: int) -> Shape:
    return tuple(max(1, side // factor) for side in shape)
