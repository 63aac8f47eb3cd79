"""The page on the contract: every property, and on what it is judged."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from bucketproof.pages.tables import code, codes, table
from bucketproof.properties import PROPERTIES, Property, cells
from bucketproof.properties.campaigns import GROUPED
from bucketproof.properties.oracles import ORACLES, oracles_of
from bucketproof.strategies import DEVICES, GROUPS, Custody


def contract() -> Iterator[str]:
    """The lines of the page."""
    yield from _INTRODUCTION
    yield from table(("oracle", "what it sees"), [(code(name), what) for name, what in ORACLES.items()])
    yield "[How the oracles work](oracles.md) says what each of them cannot see."
    for family, properties in groupby(PROPERTIES.values(), lambda each: each.id.partition(".")[0]):
        yield from ("", f"## {family}")
        for each in properties:
            yield from _section(each)
    yield from ("", "## Kinds of streams", "", "What is drawn for cells that are not about one provenance.", "")
    kinds = dict.fromkeys(kind for each in PROPERTIES.values() for kind in _kinds(each))
    yield from table(("kind", "what is drawn"), [(code(name), KINDS[name]) for name in kinds])
    yield from ("## Groups", "", _GROUPS, "")
    rows = [(code(each.id), str(len(cells([each.id])) - len(cells())), each.sentence) for each in GROUPS.values()]
    yield from table(("group", "cells", "what they are about"), rows)


_INTRODUCTION = (
    "# The contract",
    "",
    "A bucketer is judged sentence by sentence. An id is stable: it is what `--only`, a list of known failures and a",
    "verdict name. A MUST that is broken ends the command with 1; a SHOULD is shown, and counts under `--strict`.",
    "A sentence is judged on the streams of each provenance that it concerns, one *cell* for each, as in",
    "`aliasing.survives-overwrite[detach]`, or on kinds of streams that bring it out.",
    "",
    "What is seen of a run is seen by five oracles:",
    "",
)

KINDS = {
    "mixed": "any weights of any provenance, and any limit",
    "several": "three weights or more, and limits that make several buckets as often as any other",
    "long-stream": "hundreds of weights: a few of them, forty times over",
    "lent-stream": "dozens of lent weights of one kind of lender",
    "large": "one or two owned or partial weights of more than a MiB among small ones",
    "large-lent": "one or two lent weights of more than a MiB among small ones",
    "recurring": "one or two owned weights, which come again and again while their buckets are dropped",
    "owned": "owned weights alone, while their buckets are dropped",
    "dropped": "three weights or more, while their buckets are dropped",
    "held": "each weight comes again in a later bucket, while all buckets are held",
    "cleared": "any weights, in buckets that their consumer empties and writes over",
    "shared": "shared weights alone",
    "exact-fit": "limits that the first few weights fill to the byte",
    "oversize": "limits that the largest weight exceeds",
    "bad-limit": "limits of zero or less",
    "nan-limit": "a limit that is not a number",
    "duplicates": "each name twice",
    "ties": "three weights or more, of which several names share one memory",
    "rank-agreement": "any weights, which are then handed over with other bits, layouts and provenances",
    "atomic-groups": "groups as the target declares them, whole ones or one that lacks a member, among other weights",
    "steady": "two weights or more, in many syncs one after the other",
    "iterables": "any weights, handed over as each kind of iterable",
    "producer-error": "a producer that raises, at any place or as it is closed",
    "early-close": "a consumer that closes the sync after a bucket or two",
    "cancellation": "a consuming task that is cancelled while the producer is awaited",
    "reusable": "a sync that is completed, fails or is closed, and another one after it",
    "concurrent": "two syncs, a bucket of each in turn",
    "packed": "three weights or more that a packer gets in one bucket",
}
"""What is drawn of each kind, in words."""


_GROUPS = "Cells that are judged where they are asked for, with `--with GROUP` or, for a device, with `--device`."


def _section(each: Property) -> Iterator[str]:
    yield from ("", f"### {each.id}", "", each.sentence, "")
    yield f"- {each.level}, seen by {codes(oracles_of(each.id))}."
    if here := _of(each, ()):
        yield f"- Judged in {here} {'cell' if here == 1 else 'cells'}: {_places(each)}."
    for group in GROUPS:
        if more := _of(each, (group,)) - here:
            asked = f"`--device {group}`" if group in DEVICES else f"the group `{group}`"
            count = f"{more} more" if here else str(more)
            yield f"- Judged in {count} {'cell' if more == 1 else 'cells'} with {asked}."
    if each.needs:
        yield f"- Selected by the promises {'; '.join(_need(*need) for need in each.needs.items())}."


def _places(each: Property) -> str:
    custodies = " or ".join(custody.value for custody in each.custodies)
    whose = "any" if set(each.custodies) == set(Custody) else custodies
    about = [f"a cell for each provenance of {whose} custody"] if each.custodies else []
    kinds = [f"streams of the kind {codes(_kinds(each))}"] if _kinds(each) else []
    return ", and ".join(about + kinds)


def _kinds(each: Property) -> list[str]:
    """The kinds of streams that are looked at in any case."""
    return [name for name in each.campaigns if name not in GROUPED]


def _of(each: Property, groups: tuple[str, ...]) -> int:
    return sum(cell.property is each for cell in cells(groups))


def _need(name: str, values: tuple[object, ...]) -> str:
    return code(f"{name}={' or '.join(map(repr, values))}") if values else f"{code(name)}, whatever it is"
