"""Packing: what a packer makes of a bucket, and what comes out again."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator

from bucketproof.properties.contract import Problem, contract
from bucketproof.properties.evidence import Facts, is_as_due
from bucketproof.properties.payload import Entry, NamedFacts, Packing, PackingFailed
from bucketproof.properties.run import Run
from bucketproof.strategies import DTYPES

_PACKERS = {"padding": ()}
_MISALIGNED = re.compile("align|divisible", re.IGNORECASE)
"""What torch and numpy say of a view that cannot be, for its bytes do not begin at a multiple of its element's size."""


@contract("packing.round-trip", campaigns=["packed", "mixed"], needs=_PACKERS)
def round_trip(run: Run) -> Iterator[Problem]:
    """Unpacking what was packed gives every tensor back, whatever the mix of dtypes and layouts."""
    for packing in _packings(run):
        if packing.error:
            yield Problem(packing.error)
        else:
            yield from _differences(run, packing)


@contract("packing.alignment", campaigns=["packed", "mixed"], needs=_PACKERS)
def alignment(run: Run) -> Iterator[Problem]:
    """Each packed tensor can be viewed at its own dtype."""
    for packing in _packings(run):
        if _MISALIGNED.search(packing.error):
            yield Problem(f"the payload cannot be viewed: {packing.error}")
        for name, seen in packing.unpacked or ():
            if seen.nbytes and seen.span.start % DTYPES[seen.dtype].itemsize:
                what = f"it was unpacked at address {seen.span.start:#x}, which no {seen.dtype} may have"
                yield Problem(what, _index(run, name))
        # Whoever copies the bytes out may put them anywhere; but metadata that gives an offset invites to a view.
        yield from _misplaced(run, packing)


@contract("packing.metadata", campaigns=["packed", "mixed"], needs=_PACKERS)
def metadata(run: Run) -> Iterator[Problem]:
    """Metadata and payload agree in order, sizes and total length."""
    for packing in _packings(run):
        if packing.entries is not None:
            yield from _misdescribed(run, packing, packing.entries)
        if packing.unpacked is not None and run.promises.order == "kept":
            given, found = _names(packing.given), _names(packing.unpacked)
            if sorted(given) == sorted(found) and given != found:
                yield Problem(f"{given} were packed and came out as {found}")
        yield from _wrong_length(run, packing)


def _packings(run: Run) -> Iterator[Packing]:
    yield from run.packings
    if isinstance(run.error, PackingFailed):
        yield run.error.packing


def _differences(run: Run, packing: Packing) -> Iterator[Problem]:
    unpacked = _by_name(packing.unpacked or ())
    for name, given in packing.given:
        if not unpacked[name]:
            yield Problem("it was packed and did not come out", _index(run, name))
        elif difference := _difference(given, unpacked[name].pop(0), is_cast=_casts(run)):
            yield Problem(difference, _index(run, name))
    for name, extra in unpacked.items():
        if extra:
            yield Problem("it came out more often than it was packed", _index(run, name))


def _difference(given: Facts, seen: Facts, *, is_cast: bool) -> str | None:
    for what in ("shape", "dtype", "device"):
        if getattr(given, what) != getattr(seen, what):
            return f"it was packed with {what} {getattr(given, what)} and came out with {getattr(seen, what)}"
    return None if is_as_due(seen, given, is_cast=is_cast) else "it came out with other bits than it was packed with"


def _misplaced(run: Run, packing: Packing) -> Iterator[Problem]:
    given = dict(packing.given)
    for entry in packing.entries or ():
        if entry.offset and entry.nbytes and entry.name in given:
            dtype = given[entry.name].dtype
            if entry.offset % DTYPES[dtype].itemsize:
                what = f"it lies at offset {entry.offset} of the payload, where no {dtype} can be viewed"
                yield Problem(what, _index(run, entry.name))


def _misdescribed(run: Run, packing: Packing, entries: tuple[Entry, ...]) -> Iterator[Problem]:
    given, found = _names(packing.given), [entry.name for entry in entries]
    if sorted(given) != sorted(found) or (run.promises.order == "kept" and given != found):
        yield Problem(f"{given} were packed, and the metadata has {found}")
        return
    waiting = _by_name(packing.given)
    reached = 0, 0
    for entry in entries:
        facts = waiting[entry.name].pop(0)
        if entry.nbytes != facts.nbytes:
            yield Problem(f"it has {facts.nbytes} bytes, and {entry.nbytes} in the metadata", _index(run, entry.name))
            return
        if packing.payload is not None and not _casts(run):  # two casts of one NaN may have other bits
            place = _ends(packing.payload, facts.bits, entry.offset, reached, run.promises.padding or 0)
            if place is None:
                where = f"after byte {reached[0]}" if entry.offset is None else f"at byte {entry.offset}"
                what = f"the payload does not have its bytes {where}, where they should be by the metadata"
                yield Problem(what, _index(run, entry.name))
                return
            reached = place


def _ends(
    payload: bytes, bits: bytes, offset: int | None, reached: tuple[int, int], padding: int
) -> tuple[int, int] | None:
    """Where in the payload an item may end, at the earliest and the latest.

    It begins at its offset, or as far behind the one before as padding allows. Its bits may be found in more than one
    place, for padding can look like an item.
    """
    first, last = (reached[0], reached[1] + padding) if offset is None else (offset, offset)
    found = payload.find(bits, first, last + len(bits)), payload.rfind(bits, first, last + len(bits))
    return None if -1 in found else (found[0] + len(bits), found[1] + len(bits))


def _wrong_length(run: Run, packing: Packing) -> Iterator[Problem]:
    if packing.payload is None:
        return
    due = sum(facts.nbytes for _, facts in packing.given)
    padding = (run.promises.padding or 0) * len(packing.given)
    if not due <= len(packing.payload) <= due + padding:
        beside = f", and {padding} of padding at most," if padding else ""
        yield Problem(f"the payload of {due} bytes{beside} is {len(packing.payload)} bytes long")


def _casts(run: Run) -> bool:
    return run.promises.dtype not in (None, "kept")


def _by_name(named: NamedFacts) -> dict[str, list[Facts]]:
    found: dict[str, list[Facts]] = defaultdict(list)
    for name, facts in named:
        found[name].append(facts)
    return found


def _names(named: NamedFacts) -> list[str]:
    return [name for name, _ in named]


def _index(run: Run, name: str) -> int | None:
    return next((index for index, item in enumerate(run.plan.items) if item.name == name), None)
