"""Aliasing: no bucket may be made of memory that somebody writes, or hold more memory than it shows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from bucketproof.properties.contract import ANY_CUSTODY, Problem, contract
from bucketproof.properties.evidence import Facts
from bucketproof.properties.models import MODELS
from bucketproof.properties.run import ALL_MOMENTS, Delivered, HandOver, Run, union
from bucketproof.strategies import Custody

_LENDERS = {"retention": ("on-arrival", "at-flush")}


_CAMPAIGNS = ["lent-stream", "large-lent", *MODELS]
"""Some rules change after many items, or where a tensor is large."""


@contract("aliasing.survives-overwrite", custodies=[Custody.LENT], campaigns=[*_CAMPAIGNS, "shipped"], needs=_LENDERS)
def survives_overwrite(run: Run) -> Iterator[Problem]:
    """Bucket values stay bit-equal however the lender is overwritten afterwards."""
    for delivered, given in run.matched():
        if given.custody is not Custody.LENT or not delivered.same_kind(given):
            continue
        # What goes wrong when no lender writes, too, is another property's.
        if not delivered.as_given(given):
            if not _spoiled_in_calm(run, given, at_yield=True):
                yield Problem("when its bucket was yielded, its bits were not those that were handed over", given.index)
        elif delivered.spoiled(ALL_MOMENTS) and not _spoiled_in_calm(run, given, at_yield=False):
            yield Problem("its bits changed in the bucket when the lender wrote to its memory", given.index)


def _spoiled_in_calm(run: Run, given: HandOver, *, at_yield: bool) -> bool:
    return any(
        not delivered.as_given(run.calm.handed_over[given.index]) if at_yield else delivered.spoiled(("held", "end"))
        for delivered in run.calm.of(given.index)
    )


@contract("aliasing.no-lent-memory", custodies=[Custody.LENT], campaigns=_CAMPAIGNS, needs=_LENDERS)
def no_lent_memory(run: Run) -> Iterator[Problem]:
    """No yielded tensor lies in memory that a lender may write."""
    for delivered, given in run.matched():
        if delivered.lent:
            yield Problem("it was yielded in memory that a lender may write", given.index)


@contract("aliasing.no-pinned-storage", custodies=ANY_CUSTODY, campaigns=["large-lent", *MODELS])
def no_pinned_storage(run: Run) -> Iterator[Problem]:
    """A bucket holds exactly its tensors' bytes: backing storage is freed once the producer lets go."""
    padding = run.promises.padding or 0
    for members in _by_storage(run):
        held, shown = members[0].facts.storage.nbytes, union([each.facts.span for each in members])
        for each in members:
            if held > shown + padding * len(members) and each.index is not None:
                yield Problem(f"its bucket holds {held} bytes of storage for {shown} bytes of it", each.index)
    for delivered, given in run.matched():
        if delivered.facts.grad:
            yield Problem(f"it carries a gradient of {delivered.facts.grad} bytes", given.index)
    for index, nbytes in run.pinned.items():
        yield Problem(f"the {nbytes} bytes it was handed over in are still alive after the producer let go", index)


@contract("aliasing.ships-only-its-bytes", campaigns=["shipped"], group="processes")
def ships_only_its_bytes(run: Run) -> Iterator[Problem]:
    """What another process maps of a bucket is its tensors' bytes, not the buffers that they were made from."""
    padding = run.promises.padding or 0
    by_storage: dict[tuple[int, int], list[tuple[Delivered, Facts]]] = defaultdict(list)
    for each in run.delivered:
        if each.there:
            by_storage[each.bucket, each.there.storage_id].append((each, each.there))
    for members in by_storage.values():
        mapped, shown = members[0][1].storage.nbytes, union([there.span for _, there in members])
        for each, _ in members:
            if mapped > shown + padding * len(members):
                yield Problem(f"another process maps {mapped} bytes to read {shown}", each.index)


def _by_storage(run: Run) -> list[list[Delivered]]:
    found: dict[tuple[int, int], list[Delivered]] = defaultdict(list)
    for delivered in run.delivered:
        found[delivered.bucket, delivered.facts.storage_id].append(delivered)
    return list(found.values())
