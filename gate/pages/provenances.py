"""The page on provenances: how a tensor can come to be, with a picture of the memory."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from bucketproof.layout import CUSTODY
from bucketproof.pages.tables import code, codes, table
from bucketproof.properties import execute
from bucketproof.properties.picture import storages
from bucketproof.report import pictures
from bucketproof.strategies import CHAINS, DTYPES, LAYOUTS, PROVENANCES, Custody, Item, Plan, Provenance
from bucketproof.strategies.plans import Shape
from bucketproof.targets import resolve

_SHAPES: tuple[Shape, ...] = ((4,), (2, 2), (2, 2, 2))
"""Shapes of what is drawn: the first one that a provenance or a layout admits."""
_OPS = ("view", "detach")
"""The operations of a chain that is drawn."""


def provenances() -> Iterator[str]:
    """The lines of the page."""
    yield from _INTRODUCTION
    for custody in Custody:
        yield from (f"## {custody.value}: {CUSTODY[custody.value]}", "")
        for picture, alike in _by_picture(custody).items():
            yield from ("```text", *picture, "```", "")
            yield from table(("provenance", "how it comes to be", "of"), map(_row, alike))
    yield from ("## In groups", "", "These are drawn for cells that are asked for, with `--with GROUP`.", "")
    grouped = [each for each in PROVENANCES.values() if each.group]
    rows = [(code(each.id), code(each.group), each.custody.value, each.sentence) for each in grouped]
    yield from table(("provenance", "group", "custody", "how it comes to be"), rows)
    yield from _LAYOUTS
    yield from table(
        ("layout", "what it is", "shows all of the memory"),
        [(code(each.id), each.build.__doc__ or "", "yes" if each.covers else "no") for each in LAYOUTS.values()],
    )
    yield from _CHAINS
    yield from table(
        ("chain", "next to the memory", "further from it"),
        [(code(name), codes(nearest), codes(further)) for name, (nearest, further) in CHAINS.items()],
    )


_INTRODUCTION = (
    "# Provenances",
    "",
    "A provenance is how a weight came to be: the operations from some memory to the tensor that is handed over. The",
    "suite makes the tensor, so it knows the *custody*, which is whose memory it is, without looking at the tensor.",
    "Each custody is proved by a test that uses torch alone (`tests/test_custody.py`).",
    "",
    "The pictures are of runs of the reference bucketer on one weight `w`. A bar is a storage, from its first byte to",
    "its last: `█` is what was handed over, from the first byte that its strides touch to the last, `▒` what a lender",
    "wrote over it afterwards, and `▓` what the bucket holds in the end.",
    "",
)
_LAYOUTS = (
    "## Layouts",
    "",
    "A view of the memory that a provenance starts from, so that what is sliced, detached or exported is itself not",
    "always a whole and contiguous tensor.",
    "",
)
_CHAINS = ("## Chains", "", "What the operations of a chain of two or three can be.", "")


def _by_picture(custody: Custody) -> dict[tuple[str, ...], list[Provenance]]:
    found: dict[tuple[str, ...], list[Provenance]] = defaultdict(list)
    for each in PROVENANCES.values():
        if each.custody is custody and not each.group:
            found[_picture(each)].append(each)
    return found


def _picture(each: Provenance) -> tuple[str, ...]:
    run = execute(resolve("reference"), Plan((_example(each),), bucket_bytes=1 << 20))
    return tuple(pictures(storages(run, 0)))


def _example(each: Provenance) -> Item:
    dtype = next(name for name in each.domain.dtypes)
    shape = next(shape for shape in _SHAPES if each.domain.admits(shape, dtype))
    return Item("w", each.id, dtype, shape, ops=_OPS if each.id in CHAINS else ())


def _row(each: Provenance) -> tuple[str, str, str]:
    return code(each.id), each.sentence, "; ".join(_domain(each))


def _domain(each: Provenance) -> Iterator[str]:
    """What can be of this provenance, in words."""
    domain = each.domain
    yield "any dtype" if set(domain.dtypes) == set(DTYPES) else f"{len(domain.dtypes)} dtypes"
    if domain.min_dims:
        yield f"{domain.min_dims} {'dimension' if domain.min_dims == 1 else 'dimensions'} or more"
    if not domain.empty:
        yield "not empty"
    if domain.last:
        yield f"last side {domain.last}"
    yield _layouts(each)


def _layouts(each: Provenance) -> str:
    """The layouts of the memory that it can start from, or those that it cannot, whichever are fewer."""
    others = [name for name in LAYOUTS if name not in each.layouts]
    if len(each.layouts) <= len(others):
        return f"layout {', '.join(each.layouts)}"
    return f"any layout{' but ' * bool(others)}{', '.join(others)}"
