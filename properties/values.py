"""Values: everything arrives, as it was and in its order."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from bucketproof.properties.contract import ANY_CUSTODY, Problem, contract
from bucketproof.properties.run import Delivered, HandOver, Run
from bucketproof.strategies import Custody


@contract("values.conserved", custodies=ANY_CUSTODY)
def conserved(run: Run) -> Iterator[Problem]:
    """Every hand-over arrives exactly once with its name, shape, dtype, device and bits."""
    if run.error is not None:
        yield Problem(run.events[-1].text)
        return
    for index, item in enumerate(run.plan.items):
        if not run.of(index):
            yield Problem(f"{item.name!r} never arrived", index)
    for delivered in run.delivered:
        if delivered.index is None:
            yield Problem(f"{delivered.name!r} arrived, though it was not handed over or had arrived before")
    for delivered, given in run.matched():
        if difference := _difference(delivered, given):
            yield Problem(difference, given.index)
        elif delivered.facts.bits != given.facts.bits and _not_a_lenders_doing(run, given):
            yield Problem("it arrived with other bits", given.index)


def _difference(delivered: Delivered, given: HandOver) -> str | None:
    for what in ("shape", "dtype", "device"):
        there, here = getattr(given.facts, what), getattr(delivered.facts, what)
        if there != here:
            return f"it was handed over with {what} {there} and arrived with {here}"
    return None


def _not_a_lenders_doing(run: Run, given: HandOver) -> bool:
    """Whether bits are wrong also when no lender writes before the stream is over."""
    if given.custody is not Custody.LENT:
        return True
    expected = run.calm.handed_over[given.index].facts.bits
    return any(delivered.facts.bits != expected for delivered in run.calm.of(given.index))


@contract("values.order")
def order(run: Run) -> Iterator[Problem]:
    """Items keep the stream's order, within and across buckets."""
    arrived = [delivered.index for delivered in run.delivered if delivered.index is not None]
    for before, after in itertools.pairwise(arrived):
        if before > after:
            yield Problem(f"it arrived after item {before}, which was handed over later", after)
